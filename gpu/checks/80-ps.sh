# Which processes hold the GPU: the figures of `makeroom ps` add up while processes of different kinds hold memory, and each
# is listed with its size.

MOST=$((128 << 20))
OPEN=()

# hold NAME COMMAND...: starts a holder and waits until it has its memory. It runs as long as its input is open.
hold() {
    local name=$1
    shift
    mkfifo "$WORK/ps.$name.in"
    "$@" <"$WORK/ps.$name.in" >"$WORK/ps.$name.out" 2>"$WORK/ps.$name.err" &
    exec {input}>"$WORK/ps.$name.in"
    OPEN+=("$input")
    for _ in $(seq 300); do
        grep -q ready "$WORK/ps.$name.out" && return 0
        sleep 0.2
    done
    report FAILED "$name" "allocated nothing within 60 s: $(tail -1 "$WORK/ps.$name.err")"
    return 1
}

# account NAME: runs `ps` once; the result is $WORK/ps.NAME.json.
account() { "$MAKEROOM" ps --json >"$WORK/ps.$1.json" 2>"$WORK/ps.$1.err"; }

account before
before=$(ask 'at(ps, "devices", 0, "used_bytes")' ps="$WORK/ps.before.json")
holder=("$PYTHON" "$PROGRAMS/ps_holder.py")
hold plain "${holder[@]}" plain 2048
hold idle "${holder[@]}" idle
hold torch "${holder[@]}" torch 4096
hold stream "${holder[@]}" stream 1536
kinds=4
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    hold namespace unshare --pid --fork --mount-proc "${holder[@]}" plain 1024 && kinds=5
else
    report skipped namespace "no PID namespaces for this user"
fi
account full
files=(ps="$WORK/ps.full.json")
device='at(ps, "devices", 0)'
rest=$(ask "at($device, 'unlisted', 'bytes')" "${files[@]}")
sizes=$(ask "' '.join(str(h['bytes'] >> 20) for h in at($device, 'holders') if h['bytes'])" "${files[@]}")
held=$(ask "sum(h['bytes'] or 0 for h in at($device, 'holders'))" "${files[@]}")
used=$(ask "at($device, 'used_bytes')" "${files[@]}")
count=$(ask "len(at($device, 'holders'))" "${files[@]}")
causes=$(ask "' '.join(c['cause'] for c in at($device, 'unlisted', 'causes'))" "${files[@]}")
figures=(unlisted="$rest" held="$held" used="$used" used_before="$before" holders="$count" sizes_mib="$sizes" causes="$causes")
text="$kinds processes hold memory, $count listed ($sizes MiB), $((${rest/null/0} / 1048576)) MiB without a listed owner"
if holds "abs(at($device, 'unlisted', 'bytes')) < $MOST" "${files[@]}" && [ "$count" -ge "$kinds" ]; then
    report ok ledger "$text" "${figures[@]}"
else
    report FAILED ledger "$text; causes: $causes" "${figures[@]}"
fi
sum="at($device, 'free_bytes') + at($device, 'reserved_bytes') + $held + at($device, 'unlisted', 'bytes')"
if holds "$sum == at($device, 'total_bytes')" "${files[@]}"; then
    report ok adds_up "free + reserved + processes + without an owner is the total"
else
    report FAILED adds_up "the lines do not add up: $(ask "$sum" "${files[@]}")"
fi
seen=$(ask "sum(1 for h in at($device, 'holders') if h['process'] and 'ps_holder' in ' '.join(h['process']['command']))" "${files[@]}")
whole=$(ask 'at(ps, "view", "whole_machine")' "${files[@]}")
if [ "$seen" -ge "$kinds" ]; then
    report ok processes "$seen processes are shown with their command line" seen="$seen" whole_machine="$whole"
elif [ "$whole" = false ]; then
    report skipped processes "this is a container: the driver lists host PIDs, $seen of $kinds processes are visible" seen="$seen" whole_machine="$whole"
else
    report FAILED processes "$seen of $kinds processes are shown with their command line" seen="$seen" whole_machine="$whole"
fi

# Half of the free memory is available; more than the GPU has is not.
half=$(ask "at($device, 'free_bytes') // 2" "${files[@]}")
"$MAKEROOM" ps --require "$half" >/dev/null 2>&1
met=$?
"$MAKEROOM" ps --require 9999GiB >"$WORK/ps.require.out" 2>&1
unmet=$?
if [ $met -eq 0 ] && [ $unmet -eq 1 ]; then
    report ok require "--require exits 0 for half of the free memory and 1 for more than the GPU has"
else
    report FAILED require "--require exits $met for half of the free memory and $unmet for more than the GPU has"
fi
times=$(for _ in 1 2 3 4 5; do /usr/bin/env bash -c "TIMEFORMAT=%R; time \"$MAKEROOM\" ps --json >/dev/null" 2>&1; done | sort -n | sed -n 3p)
report ok time "makeroom ps takes $times s (median of five)" seconds="$times"
"$MAKEROOM" doctor --json >"$WORK/ps.doctor.json" 2>/dev/null
report ok doctor "$(ask "'; '.join(c['verdict'] + ': ' + c['found'] for c in at(d, 'checks') if c['subject'] in ('driver', 'versions', 'injection'))" d="$WORK/ps.doctor.json")"

# Managed memory: the driver counts it for its process, or for no process, and then the recording shows which one has
# it.
hold managed "$MAKEROOM" run -o "$WORK/ps.managed.room" -- "${holder[@]}" managed 3072
sleep 1
account managed
files=(ps="$WORK/ps.managed.json")
more=$(ask "at($device, 'unlisted', 'bytes') - ${rest/null/0}" "${files[@]}")
causes=$(ask "' '.join(c['cause'] for c in at($device, 'unlisted', 'causes'))" "${files[@]}")
text="3072 MiB of managed memory: $((${more/null/0} / 1048576)) MiB more without a listed owner; causes: ${causes:-none}"
if [ "${more/null/0}" -lt $MOST ] || [ "${causes%% *}" = managed_memory ]; then
    report ok managed "$text" unlisted_more="$more" causes="$causes"
else
    report FAILED managed "$text" unlisted_more="$more" causes="$causes"
fi

for input in "${OPEN[@]}"; do exec {input}>&-; done
wait
account after
after=$(ask 'at(ps, "devices", 0, "used_bytes")' ps="$WORK/ps.after.json")
report ok given_back "in use before: $((${before/null/0} >> 20)) MiB, after: $((${after/null/0} >> 20)) MiB" used_before="$before" used_after="$after"
