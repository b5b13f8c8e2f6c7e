# `makeroom demo` on this GPU: every situation runs and is explained from its recording.

if ! "$MAKEROOM" demo --help >/dev/null 2>&1; then
    report skipped demo "this makeroom has no demo"
    return 0
fi
(cd "$WORK" && timeout 120 "$MAKEROOM" demo --gpu real --json >demo.json 2>demo.err)
status=$?
if [ $status != 0 ]; then
    report FAILED demo "exit $status: $(tail -1 "$WORK/demo.err")"
    return 0
fi

# explained NAME EXPRESSION TEXT: `it` is the situation's explanation, as `why --json` gives it.
explained() {
    local name=$1 expression=$2 text=$3 cause
    local found="next((at(s, 'explanation') for s in at(demo, 'situations') if s['name'] == '$name'), None)"
    cause=$(ask "at($found, 'verdict', 'cause')" demo="$WORK/demo.json")
    if holds "(lambda it: it is not None and $expression)($found)" demo="$WORK/demo.json"; then
        report ok "$name" "$text" cause="$cause"
    else
        report FAILED "$name" "wrong explanation; the verdict is $cause" cause="$cause"
    fi
}

explained fragmentation 'at(it, "verdict", "cause") == "fragmentation"' "reported as fragmentation"
explained large-batch 'at(it, "request", "bytes") > 0' "the failed request is reported"
explained missing-free 'len(at(it, "run", "never_freed")) > 0' "memory that was never freed is listed"
explained stream-ordered-frees 'len(at(it, "run", "pending_frees")) > 0' "pending stream-ordered frees are listed"
explained kernel-heap 'at(it, "run", "kernel_heap", "limit_bytes") > 0' "device-side malloc is reported with its heap"
explained context-left-behind 'len(at(it, "run", "contexts_never_destroyed")) > 0' "contexts that were never destroyed are listed"
explained pinned-memory 'any(left["kind"] == "pinned" for left in at(it, "run", "never_freed"))' "pinned memory that was never freed is listed"
