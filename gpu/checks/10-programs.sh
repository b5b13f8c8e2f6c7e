# Programs run the same under `makeroom run`: stdout, exit status and losses are identical, bit for bit; and every
# process that used the GPU has its own recording, with no event missing.

# same NAME PROCESSES TEXT: compares a plain and a recorded run.
same() {
    local name=$1 processes=$2 text=$3 problems=() files dropped
    cmp -s "$WORK/$name.plain.out" "$WORK/$name.run.out" || problems+=("stdout differs")
    cmp -s "$WORK/$name.plain.status" "$WORK/$name.run.status" ||
        problems+=("exit status $(cat "$WORK/$name.plain.status") became $(cat "$WORK/$name.run.status")")
    [ -s "$WORK/$name.plain.out" ] || problems+=("the program printed nothing: $(tail -1 "$WORK/$name.plain.err")")
    files=$(find "$WORK" -maxdepth 1 -name "$name.room" -o -maxdepth 1 -name "$name.[0-9]*.room" | wc -l)
    [ "$files" = "$processes" ] || problems+=("$files recordings for $processes processes")
    dropped=$(ask 'at(why, "run", "dropped_events")' why="$WORK/$name.why.json")
    [ "$dropped" = 0 ] || problems+=("$dropped events are missing")
    if [ ${#problems[@]} -eq 0 ]; then
        report ok "$name" "$text" recordings="$files" bytes="$(stat -c %s "$WORK/$name.room")"
    else
        report FAILED "$name" "$(printf '%s; ' "${problems[@]}")"
    fi
}

# both NAME PROCESSES TEXT COMMAND...
both() {
    local name=$1 processes=$2 text=$3
    shift 3
    plain "$name" "$@"
    recorded "$name" -- "$@"
    same "$name" "$processes" "$text"
}

compiled() {
    local name=$1 text=$2 source=$3
    shift 3
    if ! has_nvcc; then
        report skipped "$name" "no nvcc"
    elif build "$name" "$source" "$@"; then
        both "$name" 1 "$text" "$WORK/$name"
    else
        report FAILED "$name" "build failed: $(head -1 "$WORK/$name.build")"
    fi
}

compiled runtime_static "every allocating runtime call, linked statically" runtime.cu
compiled runtime_shared "the same, linked with libcudart.so" runtime.cu -cudart shared
compiled driver "driver API, linked with -lcuda" driver.cu -lcuda
compiled streams "stream-ordered memory and a pool" streams.cu
compiled graphs "a graph with memory nodes" graphs.cu
compiled managed "managed memory" managed.cu
compiled virtual_memory "virtual memory" virtual_memory.cu -lcuda

for mode in native expandable async; do
    case $mode in
        native) settings=backend:native ;;
        expandable) settings=expandable_segments:True ;;
        async) settings=backend:cudaMallocAsync ;;
    esac
    export PYTORCH_CUDA_ALLOC_CONF=$settings
    both "train_$mode" 1 "8 losses of a GPT, bit for bit ($settings)" "$PYTHON" "$PROGRAMS/torch_train.py" gpt2 8
    unset PYTORCH_CUDA_ALLOC_CONF
done
both workers_fork 2 "forked data-loader workers and a CUDA child process" "$PYTHON" "$PROGRAMS/torch_workers.py" fork
both workers_spawn 2 "spawned data-loader workers and a CUDA child process" "$PYTHON" "$PROGRAMS/torch_workers.py" spawn
for module in cupy jax; do
    if has_module $module; then
        both $module 1 "same output" "$PYTHON" "$PROGRAMS/${module}_program.py"
    else
        report skipped $module "$module is not installed"
    fi
done
