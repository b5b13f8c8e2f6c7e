# `makeroom demo` on this GPU: every situation runs and is explained.

if ! "$MAKEROOM" demo --help >/dev/null 2>&1; then
    report skipped demo "this makeroom has no demo"
    return 0
fi
(cd "$WORK" && timeout 120 "$MAKEROOM" demo >demo.out 2>demo.err)
status=$?
if [ $status = 0 ] && [ -s "$WORK/demo.out" ]; then
    report ok demo "exit 0, $(wc -l <"$WORK/demo.out") lines"
else
    report FAILED demo "exit $status: $(tail -1 "$WORK/demo.err")"
fi
