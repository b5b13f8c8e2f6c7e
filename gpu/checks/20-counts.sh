# Every allocation is recorded: compares PyTorch's own counters with the recording.

# counted NAME KIND MOMENT: checks that PyTorch counted as many allocations as the recording has of a kind.
counted() {
    local name=$1 kind=$2 theirs ours
    theirs=$(ask 'at(own, "end", "torch", "allocation.all.allocated")' own="$WORK/$name.run.json")
    ours=$(ask "at(replay, 'trace', 'calls', '$kind', 'done')" replay="$WORK/$name.replay.json")
    if [ "$theirs" = "$ours" ] && [ "$ours" != null ]; then
        report ok "$name" "PyTorch counts $theirs allocations, the recording $ours" theirs="$theirs" ours="$ours"
    else
        report FAILED "$name" "PyTorch counts $theirs allocations, the recording $ours" theirs="$theirs" ours="$ours"
    fi
}

train() { recorded "train_$1" -- "$PYTHON" "$PROGRAMS/torch_train.py" gpt2 8; }

PYTORCH_CUDA_ALLOC_CONF=backend:native train native
counted train_native tensor_alloc
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True train expandable
counted train_expandable tensor_alloc
recorded workers_fork -- "$PYTHON" "$PROGRAMS/torch_workers.py" fork
counted workers_fork tensor_alloc

# This backend does not count. The program is the same, so the count of the native allocator applies.
PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync train async
theirs=$(ask 'at(own, "end", "torch", "allocation.all.allocated")' own="$WORK/train_native.run.json")
ours=$(ask 'at(replay, "trace", "calls", "stream_alloc", "done")' replay="$WORK/train_async.replay.json")
status=FAILED
[ "$theirs" = "$ours" ] && [ "$ours" != null ] && status=ok
report $status train_async "PyTorch's native allocator counts $theirs allocations, the recording $ours" theirs="$theirs" ours="$ours"

# Frees too: the memory that PyTorch still holds equals the memory that the recording has not seen freed.
theirs=$(ask 'at(own, "end", "torch", "allocated_bytes.all.peak")' own="$WORK/train_native.run.json")
ours=$(ask 'at(why, "run", "peaks", 0, "bytes")' why="$WORK/train_native.why.json")
reserved=$(ask 'at(own, "end", "torch", "reserved_bytes.all.peak")' own="$WORK/train_native.run.json")
if holds 'at(own, "end", "torch", "reserved_bytes.all.peak") <= at(why, "run", "peaks", 0, "bytes")
        <= at(own, "end", "torch", "reserved_bytes.all.peak") + (128 << 20)' \
    own="$WORK/train_native.run.json" why="$WORK/train_native.why.json"; then
    report ok train_native_peak "at its peak PyTorch reserved $((reserved >> 20)) MiB; the process used $((ours >> 20)) MiB" \
        allocated="$theirs" reserved="$reserved" ours="$ours"
else
    report FAILED train_native_peak "at its peak PyTorch reserved $reserved bytes; the process used $ours" \
        allocated="$theirs" reserved="$reserved" ours="$ours"
fi

# Stream-ordered frees: the program synchronizes each of its streams, after which no free is pending.
if ! has_nvcc; then
    report skipped streams_waited "no nvcc"
elif build streams streams.cu; then
    recorded streams -- "$WORK/streams"
    if holds 'at(replay, "trace", "calls", "stream_free", "done") == 201' replay="$WORK/streams.replay.json" &&
        holds 'at(why, "run", "pending_frees") == []' why="$WORK/streams.why.json"; then
        report ok streams_waited "201 frees in stream order, all known to be complete after cudaStreamSynchronize"
    else
        report FAILED streams_waited "frees are reported as pending after their streams were synchronized"
    fi
else
    report FAILED streams_waited "build failed: $(head -1 "$WORK/streams.build")"
fi
