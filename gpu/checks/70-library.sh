# The pool as a library: the C example, the Rust example, and PyTorch on the pool through its pluggable allocator, with
# the same losses as PyTorch's own allocator, bit for bit.
#
# Needs the library and the example in the directory of makeroom (cargo build --release -p makeroom-pool-c, cargo build
# --release -p makeroom-pool --examples) or named by MAKEROOM_POOL_LIBRARY and MAKEROOM_POOL_EXAMPLE.

root=$(dirname "$GPU")
built=$(dirname "$MAKEROOM")
library=${MAKEROOM_POOL_LIBRARY:-$built/libmakeroom_pool.so}
example=${MAKEROOM_POOL_EXAMPLE:-$built/examples/pool}

# explained NAME SNAPSHOT [EXPRESSION]: checks that `makeroom why` reads the pool's snapshot and that the result
# satisfies the expression.
explained() {
    if "$MAKEROOM" why --json "$2" >"$WORK/$1.why.json" 2>"$WORK/$1.why.err" &&
        holds "at(why, 'input', 'kind') == 'torch-snapshot' and (${3:-True})" why="$WORK/$1.why.json"; then
        report ok "$1_snapshot" "why reads it: $(ask 'at(why, "verdict", "summary")' why="$WORK/$1.why.json")"
    else
        report FAILED "$1_snapshot" "$(head -1 "$WORK/$1.why.err") $(ask 'at(why, "verdict", "summary")' why="$WORK/$1.why.json")"
    fi
}

c_example() {
    if ! command -v cc >/dev/null; then
        report skipped pool_c "no C compiler"
        return
    fi
    if ! cc "$root/examples/c/pool.c" -I "$root/crates/makeroom-pool-c/include" "$library" \
        -Wl,-rpath,"$(dirname "$library")" -ldl -o "$WORK/pool_c" 2>"$WORK/pool_c.build"; then
        report FAILED pool_c "build failed: $(head -1 "$WORK/pool_c.build")"
        return
    fi
    plain pool_c "$WORK/pool_c" "$WORK/pool_c.pickle"
    if [ "$(cat "$WORK/pool_c.plain.status")" = 0 ] && grep -q 'MiB reserved' "$WORK/pool_c.plain.out"; then
        report ok pool_c "$(tr '\n' ';' <"$WORK/pool_c.plain.out")"
        explained pool_c "$WORK/pool_c.pickle" '"the pool'"'"'s own limit of 512.00 MiB" in at(why, "verdict", "summary")'
    else
        report FAILED pool_c "$(tail -1 "$WORK/pool_c.plain.err")"
    fi
}

rust_example() {
    if [ ! -x "$example" ]; then
        report skipped pool_rust "no $example"
        return
    fi
    plain pool_rust "$example"
    if [ "$(cat "$WORK/pool_rust.plain.status")" = 0 ]; then
        report ok pool_rust "$(tr '\n' ';' <"$WORK/pool_rust.plain.out")"
    else
        report FAILED pool_rust "$(tail -1 "$WORK/pool_rust.plain.err")"
    fi
}

pluggable() {
    plain pluggable "$PYTHON" "$PROGRAMS/pluggable.py" "$library" "$WORK"
    local result=pluggable.plain.out
    if [ "$(cat "$WORK/pluggable.plain.status")" = 0 ]; then
        report ok pluggable "$(ask '"%d losses are bit-for-bit equal; peak reserved %.2f GiB, PyTorch %.2f GiB" % (
            run["steps"], run["pool_peak_reserved"] / 2**30, run["native_peak_reserved"] / 2**30)' run="$WORK/$result")" \
            pool_peak_reserved="$(ask 'at(run, "pool_peak_reserved")' run="$WORK/$result")" \
            pool_peak_live="$(ask 'at(run, "pool_peak_live")' run="$WORK/$result")" \
            native_peak_reserved="$(ask 'at(run, "native_peak_reserved")' run="$WORK/$result")" \
            driver_ms="$(ask 'at(run, "pool_driver_milliseconds")' run="$WORK/$result")"
        explained pluggable "$WORK/pluggable.pickle"
    else
        report FAILED pluggable "differs: $(ask 'at(run, "differs")' run="$WORK/$result"); $(tail -1 "$WORK/pluggable.plain.err")"
    fi
}

if [ -e "$library" ]; then
    c_example
    pluggable
else
    report skipped library "no $library: cargo build --release -p makeroom-pool-c"
fi
rust_example
