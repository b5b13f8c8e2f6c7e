# The Python package on real hardware: PyTorch on the pool through `use_pool`, with equal losses and PyTorch's own
# memory functions; the pytest plugin; the cost of `watch`; and data larger than the GPU in pieces.
#
# Needs the wheel in the directory of makeroom (python/build, which needs maturin) or named by MAKEROOM_WHEEL. It is
# unpacked into its own directory, so nothing is installed.

wheel=${MAKEROOM_WHEEL:-$(ls -t "$(dirname "$GPU")"/target/wheels/makeroom-*.whl 2>/dev/null | head -1)}
if [ -z "$wheel" ]; then
    report skipped python "no wheel: python/build"
    return 0
fi
modules=$WORK/python
rm -rf "$modules"
if ! "$PYTHON" -m pip install --quiet --no-deps --target "$modules" "$wheel" 2>"$WORK/python.install"; then
    report FAILED python "the wheel does not install: $(tail -1 "$WORK/python.install")"
    return 0
fi
export PYTHONPATH=$modules${PYTHONPATH:+:$PYTHONPATH}

# python_check NAME ARGUMENT...: runs one part of the program, which prints one line of JSON with its result.
python_check() {
    local name=$1
    plain "$name" "$PYTHON" "$PROGRAMS/python_module.py" "$@"
    local result=$WORK/$name.plain.out
    if [ "$(cat "$WORK/$name.plain.status")" = 0 ]; then
        report ok "$name" "$(ask 'at(run, "text")' run="$result")" figures="$(ask 'at(run, "figures")' run="$result")"
    else
        report FAILED "$name" "$(ask 'at(run, "text")' run="$result") $(tail -1 "$WORK/$name.plain.err")"
    fi
}

python_check use_pool "$WORK"
python_check watch_cost
python_check watch_lines
python_check excepthook
python_check chunks
if has_module cupy; then python_check cupy_pool; else report skipped cupy_pool "no CuPy"; fi
if has_module pytest; then
    python_check plugin "$WORK"
else
    report skipped plugin "no pytest"
fi
