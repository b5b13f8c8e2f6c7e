# Breakdowns add up: at a failed allocation and at the end of training, less than 128 MiB is unaccounted for, and the
# free memory equals what the driver reported to the program itself at that moment.

MOST=$((128 << 20))

# closes NAME MOMENT TEXT: MOMENT is where the program recorded the driver's figure, or - if it did not.
closes() {
    local name=$1 moment=$2 text=$3 files=("why=$WORK/$1.why.json" "own=$WORK/$1.run.json")
    local rest free context truth problems=()
    rest=$(ask 'at(why, "ledger", "unaccounted_bytes")' "${files[@]}")
    free=$(ask 'lines(at(why, "ledger")).get("free")' "${files[@]}")
    context=$(ask 'lines(at(why, "ledger")).get("context and code")' "${files[@]}")
    truth=$(ask "at(own, '$moment', 'torch', 'free')" "${files[@]}")
    holds 'at(why, "ledger", "total_bytes") is not None' "${files[@]}" || problems+=("the breakdown has no total")
    holds "abs(at(why, 'ledger', 'unaccounted_bytes')) < $MOST" "${files[@]}" || problems+=("unaccounted: $rest bytes")
    if [ "$moment" != - ]; then
        holds "abs(lines(at(why, 'ledger'))['free'] - at(own, '$moment', 'torch', 'free')) < $MOST" "${files[@]}" ||
            problems+=("free: $free bytes, according to the driver $truth")
    fi
    if [ ${#problems[@]} -eq 0 ]; then
        report ok "$name" "$text: $((rest / 1048576)) MiB unaccounted, context and code $((${context/null/0} >> 20)) MiB" \
            unaccounted="$rest" free="$free" free_by_driver="$truth" context="$context"
    else
        report FAILED "$name" "$text: $(printf '%s; ' "${problems[@]}")" \
            unaccounted="$rest" free="$free" free_by_driver="$truth" context="$context"
    fi
}

refused() {
    local name=$1
    if [ "$(cat "$WORK/$name.run.status")" != 0 ] || ! grep -q '^refused' "$WORK/$name.run.out"; then
        report FAILED "$name" "no allocation failed, or the program did not continue: $(tail -1 "$WORK/$name.run.err")"
        return 1
    fi
}

# Under a limit, the program sees a GPU of that size, and the driver's figures are for that GPU.
recorded refusal_limit --limit 6GiB -- "$PYTHON" "$PROGRAMS/torch_refusal.py" 700 100
refused refusal_limit && closes refusal_limit - "failed at --limit 6GiB"

for mode in native expandable async; do
    case $mode in
        native) settings=backend:native ;;
        expandable) settings=expandable_segments:True ;;
        async) settings=backend:cudaMallocAsync ;;
    esac
    [ -n "$QUICK" ] && [ $mode != native ] && continue
    PYTORCH_CUDA_ALLOC_CONF=$settings recorded "refusal_$mode" -- "$PYTHON" "$PROGRAMS/torch_refusal.py" 2048 100
    # When the allocation fails, expandable segments hold the part of the request that they could get, and release it
    # before the program sees the error: the driver's figure in the program is from a later moment.
    moment=refused
    [ $mode = expandable ] && moment=-
    refused "refusal_$mode" && closes "refusal_$mode" $moment "tensors fill the GPU ($settings)"
done
if ! has_nvcc; then
    report skipped fill_card "no nvcc"
elif build fill_card fill_card.cu; then
    recorded fill_card -- "$WORK/fill_card" 1024
    refused fill_card && closes fill_card - "cudaMalloc fills the GPU"
else
    report FAILED fill_card "build failed: $(head -1 "$WORK/fill_card.build")"
fi
PYTORCH_CUDA_ALLOC_CONF=backend:native recorded train_native -- "$PYTHON" "$PROGRAMS/torch_train.py" gpt2 8
closes train_native end "training that finished"
