# Functions for the sections: run a program with and without makeroom, evaluate a JSON file, report the result of a
# check.
#
# All files are in $WORK, named after the run: NAME.plain.out and .run.out (stdout), .plain.err and .run.err,
# .plain.status and .run.status, .plain.json and .run.json (figures written by the program itself), .room (the
# recording), .why.json and .replay.json. A run that already exists is not repeated, so sections share runs and each
# still works alone.

PROGRAMS=$GPU/programs
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

# report STATUS NAME TEXT [KEY=VALUE]...: one line for people, one for the JSON file.
report() {
    local status=$1 name=$2 text
    read -r text < <(tr -s '[:space:]' ' ' <<<"$3")
    shift 3
    printf '  %-8s %-26s %s\n' "$status" "$name" "$text"
    "$PYTHON" - "$status" "${SECTION:-check}" "$name" "$text" "$@" >>"$WORK/results.jsonl" <<'PYTHON'
import json, sys

status, section, name, text, *pairs = sys.argv[1:]


def number(value):
    try:
        return json.loads(value)
    except ValueError:
        return value


figures = {key: number(value) for key, _, value in (pair.partition("=") for pair in pairs)}
print(json.dumps(dict(section=section, name=name, status=status, text=text, figures=figures)))
PYTHON
}

has_module() { "$PYTHON" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"; }
has_nvcc() { command -v nvcc >/dev/null; }

# build NAME SOURCE [FLAG]...: compiles a program as a user would, to $WORK/NAME.
build() {
    local name=$1 source=$2
    shift 2
    [ -x "$WORK/$name" ] || nvcc -g -lineinfo -o "$WORK/$name" "$PROGRAMS/$source" "$@" 2>"$WORK/$name.build"
}

# plain NAME COMMAND...: runs a program without makeroom.
plain() {
    local name=$1
    shift
    [ -e "$WORK/$name.plain.status" ] && return
    (cd "$WORK" && GPU_CHECK_FIGURES=$WORK/$name.plain.json timeout 120 "$@" >"$name.plain.out" 2>"$name.plain.err")
    echo $? >"$WORK/$name.plain.status"
}

# recorded NAME [OPTION]... -- COMMAND...: runs a program under `makeroom run`, and explains its recording.
recorded() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    [ -e "$WORK/$name.run.status" ] && return
    (cd "$WORK" && GPU_CHECK_FIGURES=$WORK/$name.run.json timeout 120 "$MAKEROOM" run -o "$WORK/$name.room" \
        "${options[@]}" -- "$@" >"$name.run.out" 2>"$name.run.err")
    echo $? >"$WORK/$name.run.status"
    [ -e "$WORK/$name.room" ] || return 0
    "$MAKEROOM" why --json "$WORK/$name.room" >"$WORK/$name.why.json" 2>"$WORK/$name.why.err"
    "$MAKEROOM" replay --json --allocator ideal --no-smallest "$WORK/$name.room" >"$WORK/$name.replay.json" 2>/dev/null
}

# ask EXPRESSION NAME=FILE...: evaluates a Python expression over JSON files; the result is `true`, `false`, a number or
# a string. A missing file is None, and so is a missing value: `at(why, "ledger", "lines", 0)`.
ask() {
    "$PYTHON" "$GPU/ask.py" "$@"
}

# holds EXPRESSION NAME=FILE...: whether the expression is true.
holds() { [ "$(ask "$@")" = true ]; }

# said PATTERN NAME: whether `makeroom run` printed it; wrapped lines count as one.
said() {
    tr '\n' ' ' <"$WORK/$2.run.err" | tr -s ' ' | grep -qE "$1"
}
