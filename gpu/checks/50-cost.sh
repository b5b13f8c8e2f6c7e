# What recording costs training, with full stacks: the time inside the library added up, and runs with and without it in
# turn, beside PyTorch's own history. Two runs of the same training differ by more than recording costs, so the sum is the
# figure, and the runs are shown with their spread.

pairs=8 steps=12
[ -n "$QUICK" ] && pairs=2 steps=8
export PYTORCH_CUDA_ALLOC_CONF=backend:native

# inside SIZE: between a short run and a long one the beginning and the end of a process cancel out.
inside() {
    local size=$1 length
    for length in $steps $((4 * steps)); do
        MAKEROOM_MEASURE=on recorded "cost_${size}_$length" -- "$PYTHON" "$PROGRAMS/torch_cost.py" "$size" "$length"
    done
    "$PYTHON" - "$WORK/cost_${size}_$steps" "$WORK/cost_${size}_$((4 * steps))" 2>/dev/null <<'PYTHON'
import json, re, sys


def run(path):
    with open(path + ".run.err") as file:
        note = " ".join(file.read().split())
    inside, calls = map(int, re.search(r"time inside the recorder: (\d+) ns in (\d+) calls", note).groups())
    with open(path + ".run.json") as file:
        end = json.load(file)["end"]
    return inside, calls, sum(end["seconds"]), end["allocations"]


short, long = map(run, sys.argv[1:])
inside, calls, seconds, allocations = (b - a for a, b in zip(short, long))
print(f"{inside / 1e9 / seconds * 100:.2f} {inside / calls:.0f} {calls} {seconds:.2f}")
PYTHON
}

for size in gpt2 small; do
    read -r percent each calls seconds < <(inside $size)
    text="$percent % of training: $calls calls of $each ns in $seconds s"
    if [ -z "$percent" ]; then
        report FAILED "inside_$size" "no measurement: $(tail -1 "$WORK/cost_${size}_$steps.run.err")"
    elif [ $size = small ]; then
        # Nothing but launches of small kernels: the worst case, shown and not limited.
        report ok inside_small "$text (bound by the host: the worst case, not limited)" percent="$percent" each_ns="$each"
    elif [ "$(ask "$percent <= 2.0")" = true ]; then
        report ok "inside_$size" "$text" percent="$percent" each_ns="$each" calls="$calls" seconds="$seconds"
    else
        report FAILED "inside_$size" "$text" percent="$percent" each_ns="$each" calls="$calls" seconds="$seconds"
    fi
done

for pair in $(seq $pairs); do
    # Who goes first changes from pair to pair: what drifts hits both.
    if [ $((pair % 2)) = 1 ]; then
        plain "pair_$pair" "$PYTHON" "$PROGRAMS/torch_cost.py" gpt2 $steps history
        recorded "pair_$pair" -- "$PYTHON" "$PROGRAMS/torch_cost.py" gpt2 $steps
    else
        recorded "pair_$pair" -- "$PYTHON" "$PROGRAMS/torch_cost.py" gpt2 $steps
        plain "pair_$pair" "$PYTHON" "$PROGRAMS/torch_cost.py" gpt2 $steps history
    fi
done
result=$("$PYTHON" - "$WORK" $pairs 2>/dev/null <<'PYTHON'
import json, statistics, sys

work, pairs = sys.argv[1], int(sys.argv[2])
recorded, history, plain = [], [], []
for pair in range(1, pairs + 1):
    with open(f"{work}/pair_{pair}.plain.json") as file:
        alone = json.load(file)["end"]
    with open(f"{work}/pair_{pair}.run.json") as file:
        beside = json.load(file)["end"]
    middle = statistics.median(alone["seconds"])
    plain.append(middle * 1000)
    recorded.append((statistics.median(beside["seconds"]) / middle - 1) * 100)
    history.append((statistics.median(alone["history_seconds"]) / middle - 1) * 100)


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:+.1f} % (quartiles {low:+.1f}, {high:+.1f})"


low = statistics.quantiles(recorded, n=4, method="inclusive")[0]
text = f"{pairs} pairs, {statistics.median(plain):.0f} ms a step: recorded {spread(recorded)}, PyTorch's history {spread(history)}"
print("ok" if low <= 2 else "FAILED", text, json.dumps(recorded), json.dumps(history), json.dumps(plain), sep="\t")
PYTHON
)
if [ -z "$result" ]; then
    report FAILED pairs "no measurement: $(tail -1 "$WORK/pair_1.plain.err")"
else
    IFS=$'\t' read -r status text recorded_percent history_percent plain_ms <<<"$result"
    report "$status" pairs "$text" recorded_percent="$recorded_percent" history_percent="$history_percent" \
        plain_ms="$plain_ms"
fi
