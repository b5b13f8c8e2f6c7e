# The C++ programs from five articles about CUDA running out of memory, unmodified, and what makeroom should report
# about each.

SEEDS=(s000_1_allocate_and_free s000_2_shared_memory s000_3_streams s002_1_kernel_new s002_2_host_leak
    s002_3_large_request s003_1_missing_free s003_2_device_reset s003_3_library)

# found NAME TEXT EXPRESSION PATTERN: checks that the JSON contains it and that `run` printed it.
found() {
    local name=$1 text=$2 expression=$3 pattern=$4 problems=()
    [ "$(cat "$WORK/$name.run.status")" = 0 ] || problems+=("exit status $(cat "$WORK/$name.run.status")")
    holds "$expression" why="$WORK/$name.why.json" || problems+=("not in the JSON of why: $expression")
    said "$pattern" "$name" || problems+=("not printed: $pattern")
    if [ ${#problems[@]} -eq 0 ]; then
        report ok "$name" "$text"
    else
        report FAILED "$name" "$(printf '%s; ' "${problems[@]}")"
    fi
}

if ! has_nvcc; then
    report skipped seeds "no nvcc"
    return 0
fi
for name in "${SEEDS[@]}"; do build "$name" "seeds/$name.cu" & done
wait
for name in "${SEEDS[@]}"; do
    [ -x "$WORK/$name" ] || { report FAILED "$name" "build failed: $(head -1 "$WORK/$name.build")"; continue; }
    arguments=()
    [ "$name" = s002_2_host_leak ] && arguments=(400 fill)
    recorded "$name" -- "$WORK/$name" "${arguments[@]}"
done

CLEAN='at(why, "verdict", "cause") == "none" and at(why, "run", "never_freed") == []
    and at(why, "run", "failed_launches") == [] and at(why, "run", "pending_frees") == []
    and at(why, "run", "refusals") == 0'
found s000_1_allocate_and_free "clean" "$CLEAN" "all memory was freed"
found s000_2_shared_memory "a kernel requesting 4 MiB of shared memory failed to launch" \
    'at(why, "verdict", "cause") == "shared_memory_or_kernel_resource"
        and at(why, "run", "failed_launches", 0, "shared_memory_bytes") == 4 << 20
        and at(why, "run", "failed_launches", 0, "count") == 1' \
    "failed to launch.*4.00 MiB of shared memory"
found s000_3_streams "32 MiB requested while four frees of 4 MiB are pending" \
    'at(why, "run", "never_freed") == [] and at(why, "run", "pending_frees", 0, "asked_meanwhile", "bytes") == 32 << 20
        and at(why, "run", "pending_frees", 0, "asked_meanwhile", "pending", "frees") == 4
        and at(why, "run", "pending_frees", 0, "asked_meanwhile", "pending", "bytes") == 16 << 20' \
    "freed with cudaFreeAsync.*16.00 MiB in 4 frees on 4 streams"
found s002_1_kernel_new "device-side malloc with a heap of 8 MiB" \
    'at(why, "run", "kernel_heap", "limit_bytes") == 8 << 20 and at(why, "run", "kernel_heap", "modules") == 1
        and at(why, "run", "never_freed", 0, "bytes") == 512 << 20' \
    "device-side malloc.*8.00 MiB"
# It grows by 1.56 GiB in 400 rounds, within seconds: only a run of several minutes is evidence of a host memory leak.
found s002_2_host_leak "host memory that grows in a short run is not called a leak" \
    'at(why, "run", "host_growth") is None and at(why, "run", "never_freed") == []' \
    "no allocation failed"
found s002_3_large_request "clean: 4 GiB fits" "$CLEAN" "all memory was freed"
found s003_1_missing_free "1 GiB never freed, with its line" \
    'at(why, "run", "never_freed", 0, "bytes") == 1 << 30
        and "s003_1_missing_free.cu:" in at(why, "run", "never_freed", 0, "sites", 0, "site")' \
    "never freed: 1.00 GiB of GPU memory in 1 allocation"
found s003_2_device_reset "clean" "$CLEAN" "no GPU allocation|all memory was freed"
if [ ! -e "$WORK/s003_3_library.room" ] && said "nothing was recorded" s003_3_library; then
    report ok s003_3_library "does not use CUDA and leaves no recording"
else
    report FAILED s003_3_library "a program without CUDA left a recording, or run did not report it"
fi
