# Test suites of other projects: every test of numba-cuda's driver suite, and of PyTorch's test_cuda.py if it is found,
# has the same result plain, under `run` and under `run --pool`. All output goes to $OUT/pool-suites if $OUT is set,
# else to $WORK.

LOGS=${OUT:-$WORK}/pool-suites
mkdir -p "$LOGS"
SECONDS_EACH=${SUITE_SECONDS:-150}

# suite NAME TEXT: runs a suite in three modes and compares the results of its tests.
suite() {
    local name=$1 text=$2 mode prefix
    for mode in plain run pool; do
        prefix=()
        [ $mode = run ] && prefix=("$MAKEROOM" run --no-status -o "$WORK/suite_$name.room" --)
        [ $mode = pool ] && prefix=("$MAKEROOM" run --pool --no-status -o "$WORK/suite_$name.room" --)
        (cd "$WORK" && timeout "$SECONDS_EACH" "${prefix[@]}" "$PYTHON" "$PROGRAMS/suite_results.py" "$name" \
            >"$LOGS/$name.$mode.out" 2>"$LOGS/$name.$mode.err")
        echo $? >"$LOGS/$name.$mode.status"
        sort -u -k2 -o "$LOGS/$name.$mode.out" "$LOGS/$name.$mode.out"
        rm -f "$WORK"/suite_"$name"*.room
        if [ $mode = plain ] && [ "$(cat "$LOGS/$name.plain.status")" = 3 ]; then
            report skipped "suite_$name" "$(tail -1 "$LOGS/$name.plain.err")"
            return
        fi
    done
    # After a timeout, or if a test ended the process, only the tests that all three modes reached are compared.
    local count passed differ=
    for mode in plain run pool; do cut -d' ' -f2- "$LOGS/$name.$mode.out"; done | sort | uniq -c | sed -n 's/^ *3 //p' >"$LOGS/$name.common"
    for mode in plain run pool; do awk 'NR == FNR { common[$0]; next } { test = $0; sub(/^[^ ]* /, "", test) } test in common' "$LOGS/$name.common" "$LOGS/$name.$mode.out" >"$LOGS/$name.$mode.compared"; done
    count=$(wc -l <"$LOGS/$name.plain.compared")
    passed=$(grep -c '^passed' "$LOGS/$name.plain.compared")
    text+=" (exit status $(cat "$LOGS/$name".{plain,run,pool}.status | tr '\n' ' ' | sed 's/ $//'))"
    for mode in run pool; do
        cmp -s "$LOGS/$name.plain.compared" "$LOGS/$name.$mode.compared" ||
            differ+="$mode differs: $(diff "$LOGS/$name.plain.compared" "$LOGS/$name.$mode.compared" | grep '^[<>]' | head -8 | tr '\n' ' ')"
    done
    # If nothing passes in the plain run, the suite did not run: a module is missing.
    if [ "$passed" -gt 0 ] && [ -z "$differ" ]; then
        report ok "suite_$name" "$text: $count tests, $passed passed, with the same results plain, under run and under run --pool" tests="$count" passed="$passed"
    else
        report FAILED "suite_$name" "$text: $count tests; ${differ:-none ran: $(tail -1 "$LOGS/$name.plain.err")}" tests="$count" passed="$passed"
    fi
}

if has_module numba; then suite numba "numba-cuda's driver tests"; else report skipped suite_numba "no numba-cuda"; fi
suite torch "PyTorch's test_cuda.py"
