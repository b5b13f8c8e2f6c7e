# `run --pool` with eight PyTorch programs: each completes, prints the same output, bit for bit, as without makeroom and
# with plain expandable segments, and the whole process uses at most 1.01 times the memory of plain expandable segments.
#
# Prints one table; all output of the programs goes to $OUT/pool-torch if $OUT is set, else to $WORK. Takes about 7
# minutes.

LOGS=${OUT:-$WORK}/pool-torch
mkdir -p "$LOGS"
# One compilation serves all three runs of a compiled program.
export TORCHINDUCTOR_CACHE_DIR=$WORK/inductor TRITON_CACHE_DIR=$WORK/triton
WORKLOADS=(gpt unet vit compiled mempool graphs history share)
[ -n "$QUICK" ] && WORKLOADS=(vit mempool share)

# one NAME MODE: runs a workload in one mode, for at most 100 s.
one() {
    local at=$LOGS/$1.$2 program=("$PYTHON" "$PROGRAMS/torch_workloads.py" "$1") prefix=()
    local settings=()
    [ "$2" = expandable ] && settings=(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PYTORCH_ALLOC_CONF=expandable_segments:True)
    [ "$2" = pool ] && prefix=("$MAKEROOM" run --pool --no-status -o "$WORK/pool_torch_$1.room" --summary "$at.summary.json" --)
    (cd "$WORK" && env -u PYTORCH_CUDA_ALLOC_CONF -u PYTORCH_ALLOC_CONF "${settings[@]}" GPU_CHECK_FIGURES="$at.json" \
        timeout 100 "${prefix[@]}" "${program[@]}" >"$at.out" 2>"$at.err")
    echo $? >"$at.status"
    rm -f "$WORK"/pool_torch_"$1"*.room
}

# The peak that NVML counted for the process and its children, or, if it reports none, for the device.
whole() { printf '(at(%s, "peak", "processes") or (at(%s, "peak", "used") or 0) - (at(%s, "peak", "before") or 0))' "$1" "$1" "$1"; }

printf '  %-10s %8s %11s %8s %8s  %s\n' workload plain expandable pool ratio "GB of the whole process according to NVML, and the line of the summary" | tee "$LOGS/table.txt"
for name in "${WORKLOADS[@]}"; do
    for mode in plain expandable pool; do one "$name" $mode; done
    files=("plain=$LOGS/$name.plain.json" "expandable=$LOGS/$name.expandable.json" "pool=$LOGS/$name.pool.json")
    ratio=$(ask "$(whole pool) / max($(whole expandable), 1)" "${files[@]}")
    numbers=$(ask "'%8.2f %11.2f %8.2f %8.4f' % ($(whole plain) / 1e9, $(whole expandable) / 1e9, $(whole pool) / 1e9, $ratio)" "${files[@]}")
    line=$(tr -s ' \n' ' ' <"$LOGS/$name.pool.err" | grep -oE '(this program does not fragment: |expandable segments [a-z0-9 .]*[GM]?i?B?[a-z ]*: )?PyTorch reserved [^()]*(\([^)]*\)[^()]*\(simulated\))?' | head -1 | cut -c1-220)
    printf '  %-10s %s  %s\n' "$name" "$numbers" "$line" | tee -a "$LOGS/table.txt"
    figures=(plain="$(ask "$(whole plain)" "${files[@]}")" expandable="$(ask "$(whole expandable)" "${files[@]}")" pool="$(ask "$(whole pool)" "${files[@]}")" ratio="$ratio")
    why=
    if [ "$(cat "$LOGS/$name.plain.status")" != 0 ]; then
        report skipped "pool_torch_$name" "also fails without makeroom: $(tail -1 "$LOGS/$name.plain.err")" "${figures[@]}"
        continue
    fi
    [ "$(cat "$LOGS/$name.pool.status")" = 0 ] || why+="status $(cat "$LOGS/$name.pool.status"): $(grep -v '^makeroom\|^  ' "$LOGS/$name.pool.err" | tail -1). "
    [ "$(cat "$LOGS/$name.expandable.status")" = 0 ] || why+="it also fails with plain expandable segments. "
    cmp -s "$LOGS/$name.plain.out" "$LOGS/$name.pool.out" || why+="output differs: $(diff "$LOGS/$name.plain.out" "$LOGS/$name.pool.out" | head -2 | tr '\n' ' '). "
    cmp -s "$LOGS/$name.plain.out" "$LOGS/$name.expandable.out" || why+="it also differs with plain expandable segments. "
    [ -n "$line" ] || why+="the summary does not mention expandable segments. "
    [ "$(ask "0 < $ratio <= 1.01")" = true ] || why+="uses $ratio of the memory of plain expandable segments. "
    if [ -z "$why" ]; then
        # Already in the table.
        report ok "pool_torch_$name" "same output, $ratio of the memory of plain expandable segments" "${figures[@]}" >/dev/null
    else
        report FAILED "pool_torch_$name" "$why" "${figures[@]}"
    fi
done
passed=$(grep -c '"status": "ok"' <(grep '"name": "pool_torch_' "$WORK/results.jsonl"))
if [ "$passed" = ${#WORKLOADS[@]} ]; then
    report ok pool_torch "${#WORKLOADS[@]} workloads: same output, at most 1.01 of the memory of plain expandable segments"
else
    report FAILED pool_torch "$passed of ${#WORKLOADS[@]} workloads passed; logs in $LOGS"
fi
