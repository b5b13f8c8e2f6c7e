# The cost of recording for training, with full stacks: alternates runs with and without recording, and with PyTorch's
# own history, and sums the time inside the library. Two runs of the same training differ by more than the cost of
# recording, so the sum is what counts, and the runs are shown with their spread. Takes at most five minutes.

pairs=8 least=3 steps=12
[ -n "$QUICK" ] && pairs=2 least=2 steps=8
# No new pair starts after this many seconds.
PAIRS_UNTIL=100
export PYTORCH_CUDA_ALLOC_CONF=backend:native

begin=$SECONDS done_pairs=0
for pair in $(seq $pairs); do
    [ $((SECONDS - begin)) -lt $PAIRS_UNTIL ] || [ "$done_pairs" -lt $least ] || break
    # The order alternates from pair to pair, so that drift affects both.
    if [ $((pair % 2)) = 1 ]; then
        plain "pair_$pair" "$PYTHON" "$PROGRAMS/torch_cost.py" gpt2 $steps history
        recorded "pair_$pair" -- "$PYTHON" "$PROGRAMS/torch_cost.py" gpt2 $steps
    else
        recorded "pair_$pair" -- "$PYTHON" "$PROGRAMS/torch_cost.py" gpt2 $steps
        plain "pair_$pair" "$PYTHON" "$PROGRAMS/torch_cost.py" gpt2 $steps history
    fi
    done_pairs=$pair
done
if result=$("$PYTHON" "$GPU/cost.py" pairs "$WORK" $done_pairs 2>"$WORK/pairs.err"); then
    IFS=$'\t' read -r status text recorded_percent history_percent plain_ms <<<"$result"
    report "$status" pairs "$text" recorded_percent="$recorded_percent" history_percent="$history_percent" \
        plain_ms="$plain_ms"
else
    report FAILED pairs "$(tail -1 "$WORK/pairs.err"); $(tail -1 "$WORK/pair_1.plain.err")"
fi

for size in gpt2 small; do
    # The recorder is queried before and after the timed steps of the same run: sums of two runs are not comparable.
    MAKEROOM_MEASURE=on recorded "cost_$size" -- "$PYTHON" "$PROGRAMS/torch_cost.py" $size $((2 * steps))
    if ! result=$("$PYTHON" "$GPU/cost.py" inside "$WORK/cost_$size" 2>"$WORK/cost_$size.why.err"); then
        report FAILED "inside_$size" "$(tail -1 "$WORK/cost_$size.why.err")"
        continue
    fi
    read -r percent each calls seconds <<<"$result"
    text="$percent % of training: $calls calls of $each ns in $seconds s"
    figures=(percent="$percent" each_ns="$each" calls="$calls" seconds="$seconds")
    if [ $size = small ]; then
        # Only launches of small kernels: the worst case, shown but not limited.
        report ok inside_small "$text (host-bound worst case, without a limit)" "${figures[@]}"
    elif [ "$(ask "$percent <= 2.0")" = true ]; then
        report ok "inside_$size" "$text" "${figures[@]}"
    else
        report FAILED "inside_$size" "$text" "${figures[@]}"
    fi
done
