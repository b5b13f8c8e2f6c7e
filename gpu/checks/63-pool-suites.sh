# The test suites of others: every test of numba-cuda's driver suite, and of PyTorch's test_cuda.py where it can be found, ends the
# same way plain, under `run` and under `run --pool`. All output goes to $OUT/pool-suites where $OUT is set, else to $WORK.

LOGS=${OUT:-$WORK}/pool-suites
mkdir -p "$LOGS"
SECONDS_EACH=${SUITE_SECONDS:-150}

# suite NAME TEXT: runs a suite in three modes and compares how each of its tests ended.
suite() {
    local name=$1 text=$2 mode prefix
    for mode in plain run pool; do
        prefix=()
        [ $mode = run ] && prefix=("$MAKEROOM" run --no-status -o "$WORK/suite_$name.room" --)
        [ $mode = pool ] && prefix=("$MAKEROOM" run --pool --no-status -o "$WORK/suite_$name.room" --)
        (cd "$WORK" && timeout "$SECONDS_EACH" "${prefix[@]}" "$PYTHON" "$PROGRAMS/suite_results.py" "$name" \
            >"$LOGS/$name.$mode.out" 2>"$LOGS/$name.$mode.err")
        echo $? >"$LOGS/$name.$mode.status"
        rm -f "$WORK"/suite_"$name"*.room
        if [ $mode = plain ] && [ "$(cat "$LOGS/$name.plain.status")" = 3 ]; then
            report skipped "suite_$name" "$(tail -1 "$LOGS/$name.plain.err")"
            return
        fi
    done
    local count passed differ=
    count=$(wc -l <"$LOGS/$name.plain.out")
    passed=$(grep -c '^passed' "$LOGS/$name.plain.out")
    for mode in run pool; do
        cmp -s "$LOGS/$name.plain.out" "$LOGS/$name.$mode.out" ||
            differ+="$mode differs: $(diff "$LOGS/$name.plain.out" "$LOGS/$name.$mode.out" | grep '^[<>]' | head -4 | tr '\n' ' ')"
    done
    # A suite of which nothing passes plain was not run: a module is missing.
    if [ "$passed" -gt 0 ] && [ -z "$differ" ]; then
        report ok "suite_$name" "$text: $count tests, $passed passed, with the same results plain, under run and under run --pool" tests="$count" passed="$passed"
    else
        report FAILED "suite_$name" "$text: $count tests; ${differ:-none ran: $(tail -1 "$LOGS/$name.plain.err")}" tests="$count" passed="$passed"
    fi
}

if has_module numba; then suite numba "numba-cuda's driver tests"; else report skipped suite_numba "no numba-cuda"; fi
suite torch "PyTorch's test_cuda.py"
