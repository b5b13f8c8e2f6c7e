# The model of PyTorch's allocator predicts every address and every segment, under settings that release memory, with and
# without the limit of the run, which a snapshot does not contain.

cases=()
[ -n "$QUICK" ] && cases=(short-gc short-split short-gc-split short-gc-split-streams)
OUT=$WORK/replay timeout 900 "$PYTHON" "$PROGRAMS/native_settings.py" "${cases[@]}" >"$WORK/replay.out" 2>"$WORK/replay.err"

for snapshot in "$WORK"/replay/*.pickle.gz; do
    [ -e "$snapshot" ] || { report FAILED replay "no snapshot: $(tail -1 "$WORK/replay.err")"; break; }
    name=$(basename "$snapshot" .pickle.gz)
    for limit in unknown known; do
        options=()
        if [ $limit = known ]; then
            allowed=$(ask 'at(own, "caps", 0, "allowed") if len(own["caps"]) == 1 else None' own="$WORK/replay/$name.json")
            # A fraction of 1.0 does not set a limit.
            [ "$allowed" = null ] || [ "$name" = gc1-fraction-one ] && continue
            options=(--memory "$allowed")
        fi
        "$MAKEROOM" replay --check --json --no-smallest "${options[@]}" "$snapshot" \
            >"$WORK/replay/$name.$limit.json" 2>"$WORK/replay/$name.$limit.err"
        right=$(ask 'at(replay, "check", "matched")' replay="$WORK/replay/$name.$limit.json")
        wrong=$(ask 'at(replay, "check", "mismatched")' replay="$WORK/replay/$name.$limit.json")
        status=FAILED
        [ "$wrong" = 0 ] && [ "$right" != 0 ] && status=ok
        report $status "$name" "limit $limit: $right predictions right, $wrong wrong" right="$right" wrong="$wrong"
    done
done
