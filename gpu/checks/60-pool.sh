# `run --pool` with unmodified programs: the same results, less memory, little overhead. PyTorch keeps its own
# allocator, with expandable segments (62-pool-torch.sh has more about this); everything else uses makeroom's pool.
#
# Losses are compared bit for bit, because the programs are otherwise deterministic. Times are compared over alternating
# runs: on a shared machine, the same run varies by several percent.

STEPS=40 RUNS=5
[ -n "$QUICK" ] && STEPS=16 RUNS=1

# mode MODE RUN: trains once; the allocator is the only difference.
mode() {
    local name=pool_$1_$2 train=("$PYTHON" "$PROGRAMS/pool_train.py" gpt2 "$STEPS")
    case $1 in
        native) PYTORCH_CUDA_ALLOC_CONF=backend:native plain "$name" "${train[@]}" ;;
        expandable) PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True plain "$name" "${train[@]}" ;;
        async) PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync plain "$name" "${train[@]}" ;;
        spill) recorded "$name" --pool --spill 1GiB --no-stacks -- "${train[@]}" ;;
        pool) recorded "$name" --pool --no-stacks -- "${train[@]}" ;;
    esac
}

for run in $(seq "$RUNS"); do
    for each in native pool; do mode $each "$run"; done
done
for each in expandable async spill; do mode $each 1; done

figures=() ; for run in $(seq "$RUNS"); do figures+=("native$run=$WORK/pool_native_$run.plain.json" "pool$run=$WORK/pool_pool_$run.run.json"); done
figures+=("expandable=$WORK/pool_expandable_1.plain.json" "spill=$WORK/pool_spill_1.run.json" "async_=$WORK/pool_async_1.plain.json")
peak() { ask "at($1, 'end', 'peak_reserved')" "${figures[@]}"; }
spread() { ask "sorted(at(run, 'end', 'median_step') * 1000 for run in [$(seq -s, -f "$1%g" "$RUNS")])" "${figures[@]}"; }

if cmp -s "$WORK/pool_native_1.plain.out" "$WORK/pool_pool_1.run.out" && [ -s "$WORK/pool_pool_1.run.out" ]; then
    report ok losses "$STEPS losses are bit-for-bit equal"
else
    report FAILED losses "differ: $(diff "$WORK/pool_native_1.plain.out" "$WORK/pool_pool_1.run.out" | head -3 | tr '\n' ' ') $(tail -2 "$WORK/pool_pool_1.run.err" | tr '\n' ' ')"
fi
peaks=$(for each in pool1 native1 expandable async_; do printf '%s %.3f GB  ' "${each%[1_]}" "$(ask "at($each, 'end', 'peak_reserved') / 1e9" "${figures[@]}")"; done)
# According to the driver, for the whole process: PyTorch's counters do not include memory that libraries allocate.
whole() { ask "max(at($1, 'end', 'nvml', 'processes').values())" "${figures[@]}"; }
peaks+="whole process: run --pool $(ask "$(whole pool1) / 1e9") GB, plain expandable $(ask "$(whole expandable) / 1e9") GB, --spill $(ask "$(whole spill) / 1e9") GB"
if [ "$(ask "$(whole pool1) <= 1.01 * $(whole expandable)")" = true ]; then status=ok; else status=FAILED; fi
report $status peak "$peaks" whole_pool="$(whole pool1)" whole_expandable="$(whole expandable)" whole_spill="$(whole spill)" pool="$(peak pool1)" native="$(peak native1)" \
    expandable="$(peak expandable)" async="$(peak async_)" allocated="$(ask "at(pool1, 'end', 'peak_allocated')" "${figures[@]}")"
text="median step in ms, by run: pool $(spread pool), native $(spread native)"
if holds "sorted(at(run, 'end', 'median_step') for run in [$(seq -s, -f 'pool%g' "$RUNS")])[$((RUNS / 2))] <= max(at(run, 'end', 'median_step') for run in [$(seq -s, -f 'native%g' "$RUNS")])" "${figures[@]}"; then
    report ok steps "$text" pool="$(spread pool)" native="$(spread native)"
else
    report FAILED steps "$text" pool="$(spread pool)" native="$(spread native)"
fi
# With --spill, PyTorch's blocks come from the pool. This is the time in the pool, including its driver calls, between
# the first and the last timed step. The model's largest step comes early in the timed part, so this run is longer than
# the others.
MAKEROOM_MEASURE=on recorded pool_inside --pool --spill 1GiB --no-stacks -- "$PYTHON" "$PROGRAMS/pool_train.py" gpt2 $((3 * STEPS))
inside=("run=$WORK/pool_inside.run.json")
inside_ns="at(run, 'end', 'pool', 'inside_ns')" calls="at(run, 'end', 'pool', 'calls')" timed="at(run, 'end', 'timed_seconds')"
text="$(ask "'%.2f %% of %.1f s: %d calls of %.0f ns' % ($inside_ns / 1e7 / $timed, $timed, $calls, $inside_ns / $calls)" "${inside[@]}") in the pool"
if holds "$inside_ns / 1e9 <= 0.01 * $timed" "${inside[@]}"; then status=ok; else status=FAILED; fi
report $status inside "$text" figures="$(ask "at(run, 'end', 'pool')" "${inside[@]}")"
# The line is wrapped to the width of the terminal.
summary=$(tr -s ' \n' ' ' <"$WORK/pool_pool_1.run.err" | grep -o 'expandable segments saved .* would have reserved [^)]*)')
if [ -n "$summary" ]; then
    report ok summary "$summary"
else
    report FAILED summary "the summary does not mention expandable segments"
fi

# same NAME WHAT OPTION... -- COMMAND...: checks that the output and status are the same with the pool.
same() {
    local name=$1 what=$2
    shift 2
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    plain "$name" "$@"
    recorded "$name" "${options[@]}" -- "$@"
    if cmp -s "$WORK/$name.plain.out" "$WORK/$name.run.out" && cmp -s "$WORK/$name.plain.status" "$WORK/$name.run.status" && [ "$(cat "$WORK/$name.run.status")" = 0 ]; then
        report ok "$name" "$what"
    else
        report FAILED "$name" "$what: status $(cat "$WORK/$name.plain.status") and $(cat "$WORK/$name.run.status"); $(tail -2 "$WORK/$name.run.err" | tr '\n' ' ')"
    fi
}

for feature in graph streams; do
    same "pool_$feature" "PyTorch: $feature" --pool -- "$PYTHON" "$PROGRAMS/pool_features.py" $feature
done
for feature in history mempool share; do
    same "pool_$feature" "PyTorch: $feature" --pool -- "$PYTHON" "$PROGRAMS/pool_native.py" $feature
done
recorded pool_out_of_memory --pool --limit 8GiB -- "$PYTHON" "$PROGRAMS/pool_features.py" out_of_memory
if [ "$(head -1 "$WORK/pool_out_of_memory.run.out")" = "7 True" ] && [ "$(cat "$WORK/pool_out_of_memory.run.status")" = 0 ]; then
    report ok out_of_memory "an allocation failed at --limit 8GiB, and the program continued"
else
    report FAILED out_of_memory "$(head -2 "$WORK/pool_out_of_memory.run.out" | tr '\n' ' ') $(tail -2 "$WORK/pool_out_of_memory.run.err" | tr '\n' ' ')"
fi
if has_module cupy; then same pool_cupy CuPy --pool -- "$PYTHON" "$PROGRAMS/cupy_program.py"; else report skipped pool_cupy "no CuPy"; fi
if has_module jax; then same pool_jax JAX --pool -- "$PYTHON" "$PROGRAMS/jax_program.py"; else report skipped pool_jax "no JAX"; fi
if has_nvcc; then
    for program in runtime streams graphs driver; do
        flags=(); [ $program = driver ] && flags=(-lcuda)
        build $program $program.cu "${flags[@]}" && same "pool_$program" "nvcc: $program" --pool -- "$WORK/$program"
    done
else
    report skipped nvcc "no nvcc"
fi

# A fifth more than the limit allows.
live=$(ask "at(pool1, 'end', 'peak_allocated')" "${figures[@]}")
limit=$((${live/null/0} * 5 / 6 + (700 << 20)))
recorded pool_spill --pool --spill 16GiB --limit "$limit" --no-stacks -- "$PYTHON" "$PROGRAMS/pool_train.py" gpt2 12
if [ "$(cat "$WORK/pool_spill.run.status")" = 0 ] && [ "$(cat "$WORK/pool_spill.run.out")" = "$(head -12 "$WORK/pool_native_1.plain.out")" ]; then
    report ok spill "live memory is 20 % over the limit, losses are equal; $(grep -i spill "$WORK/pool_spill.run.err" | head -1 | sed 's/^ *//')" \
        limit="$limit" live="$live" median_step="$(ask "at(spill, 'end', 'median_step')" "spill=$WORK/pool_spill.run.json")"
else
    report FAILED spill "$(tail -3 "$WORK/pool_spill.run.err" | tr '\n' ' ')"
fi
