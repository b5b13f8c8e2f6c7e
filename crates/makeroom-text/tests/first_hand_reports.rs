//! Reports of a failure in a person's own words, and documents that use the same words without a failure.

use makeroom_explain::{Cause, Certainty};
use makeroom_text::explain_text;

fn verdict(text: &str) -> (Cause, Certainty, String) {
    let verdict = explain_text(text).verdict;
    (verdict.cause, verdict.certainty, verdict.summary)
}

#[test]
fn an_abbreviation_in_a_report_is_a_failure() {
    for text in [
        "Textual inversion on the XL model: OOM\n\nEven with one token the script still returns OOM on two cards.\n`launch tune.py --resolution=768`",
        "Second stage of the upscaler, OOM\n\nThe tile is 256 pixels.",
        "Segmentation of long clips\n\nWe cut the clip in half, but it keeps throwing an OOM at frame 31.",
        "Evaluation of the adapter\nI ran into an OOM as soon as the second prompt came.",
    ] {
        assert_ne!(verdict(text).0, Cause::None, "{text}");
    }
    for text in [
        "Retry policy\n\nA task that returns OOM is queued again, if the policy allows it.",
        "# Add a counter of OOM events\nThe exporter shows how often it happened.",
    ] {
        assert_eq!(verdict(text).0, Cause::None, "{text}");
    }
}

#[test]
fn a_kill_in_broken_sentences_is_about_host_memory() {
    for text in [
        "loading the second adapter with offload errors, be killed\n```\npipe.enable_sequential_cpu_offload()\n```",
        "reading the index of all shards takes long and it makes my script killed.",
        "[Question] worker exits with return code = -9 although the card is half empty\n\nhtop shows that the memory of the node was used up.",
        "[Help] trainer exited with exit code -9 after the third shard",
    ] {
        assert_eq!(verdict(text).0, Cause::HostMemory, "{text}");
    }
    for text in [
        "[Question] what does return code 3 mean?",
        "How to keep a script from being killed by the scheduler?",
    ] {
        assert_eq!(verdict(text).0, Cause::None, "{text}");
    }
}

#[test]
fn a_stack_trace_makes_a_wish_a_report() {
    for text in [
        "Plans should be cached or the solver runs out of memory\n\n```\nCUFFTError(code 2, cuFFT failed to allocate GPU or CPU memory)\n\nStacktrace:\n [1] macro expansion at /opt/jl/fft/error.jl:31 [inlined]\n [2] plan! at /opt/jl/fft/plan.jl:8\n```",
        "Buffers should be reused between frames\n\nviewer: cudaMalloc failed: out of memory\nBacktrace:\n#0 0x00007f12 in frame_begin\n#1 0x00007f44 in main",
    ] {
        assert_ne!(verdict(text).0, Cause::None, "{text}");
    }
    let wish =
        "Plans should be cached or a solver may run out of memory\n\nA cache of eight plans is enough.";
    assert_eq!(verdict(wish).0, Cause::None);
}

#[test]
fn a_launch_that_was_refused_counts_when_a_user_tells_it() {
    for text in [
        "Using more than nine kernels gives \"too many resources requested for launch\"\n\nI started getting an error \"too many resources requested for launch\" with the tenth one.",
        "Increasing the tile to 48 fails\n\nSince this morning I get the message \"too many resources requested for launch\" in the blur pass.",
    ] {
        let (cause, _, summary) = verdict(text);
        assert_eq!(cause, Cause::SharedMemoryOrKernelResource, "{text}\n{summary}");
    }
}

#[test]
fn vulkans_status_by_its_number() {
    for text in [
        "setup: vkAllocateMemory at 88 src/heap.cpp returned with ErrCode=-2",
        "vkCreateImage failed in atlas.cpp:31, VkResult: -2",
        "Failure in vkAllocateMemory, line 12, error code -2",
    ] {
        assert_eq!(verdict(text).0, Cause::Undetermined, "{text}");
    }
    assert_eq!(verdict("vkAllocateMemory at 88 src/heap.cpp result = 0").0, Cause::None);
}

#[test]
fn a_table_of_chunks_before_a_crash_is_the_allocators_last_word() {
    let dump = "2020-02-11 09:10:11.120000: I tensorflow/core/common_runtime/bfc_allocator.cc:921] 4 Chunks of size 2359296 totalling 9.00MiB\n2020-02-11 09:10:11.130000: I tensorflow/core/common_runtime/bfc_allocator.cc:921] 1 Chunks of size 33554432 totalling 32.00MiB";
    for title in ["Demo crashes on a small card", "The notebook stops at the first image"] {
        assert_ne!(verdict(&format!("{title}\n\n{dump}")).0, Cause::None, "{title}");
    }
    assert_eq!(verdict(dump).0, Cause::None);
}

#[test]
fn ranks_that_crowd_one_gpu_made_the_job_fail() {
    for text in [
        "Saving shards takes memory that we did not plan for and caused all our runs to fail.\n\nGPU 0 shows 3 additional processes with 610MB each, and they grow to 3 GB while saving.",
        "My evaluation jobs crash at the first gather. There are 5 extra processes on GPU 0, each with 900 MB of memory.",
    ] {
        let (cause, certainty, summary) = verdict(text);
        assert_eq!((cause, certainty), (Cause::OtherProcesses, Certainty::Likely), "{text}\n{summary}");
        let fixes = &explain_text(text).causes[0].fixes;
        assert!(
            fixes[0].command.as_deref().is_some_and(|command| command.contains("LOCAL_RANK")),
            "{fixes:?}"
        );
    }
    assert_eq!(
        verdict("If 4 extra processes run on GPU 0, their memory could make the job fail.").0,
        Cause::None
    );
}

#[test]
fn a_change_of_a_message_is_not_a_failure() {
    for text in [
        "# Raise `arena::exhausted` when the arena is certainly full\n\nThe arena throws `std::bad_alloc` for every error. A more specific exception lets a caller spill and try again when we are running out of memory.",
        "# Show the pool's size when cudaErrorMemoryAllocation is reported\n\nThe message is now:\n\n    pool.OutOfMemoryError: out of memory to allocate N bytes (pool of M bytes)\n\ninstead of:\n\n    pool.RuntimeError: cudaErrorMemoryAllocation: out of memory\n\n> Should it be a MemoryError?\nDone.",
        "# Improve the out of memory error message\n\nIt names the device now.\n\n    RuntimeError: CUDA out of memory on device 1\n",
        "# Change the exception of the loader to OutOfMemoryError\n\nOld message:\n\n    ValueError: out of memory\n\nNew:\n\n    OutOfMemoryError: out of memory in the loader\n",
    ] {
        assert_eq!(verdict(text).0, Cause::None, "{text}\n{}", verdict(text).2);
    }
    for text in [
        "# Change of the batch size still gives CUDA out of memory error\n\nRuntimeError: CUDA error: out of memory",
        "Use of two cards fails with CUDA error: out of memory\nI tried it twice.",
    ] {
        assert_ne!(verdict(text).0, Cause::None, "{text}");
    }
}

#[test]
fn headings_and_labels_of_documentation_are_not_failures() {
    for text in [
        "docs/faq.md\n````diff\n+## GPU out of memory\n+Lower `tile` in the config.\n+\n+## Port is taken\n+Choose another one.\n````\nLooks good to me.",
        "docs/errors.md\n+# Errors\n+## CUDA error: out of memory\n+Use a smaller grid.\n",
        "- `cudaErrorMemoryAllocation`: the pool could not grow on the device\n- `cudaErrorInvalidValue`: an argument has the wrong type\n",
        "Statuses of the worker:\n\n- `CUDA_ERROR_OUT_OF_MEMORY` — the device has no room for the job\n",
    ] {
        assert_eq!(verdict(text).0, Cause::None, "{text}\n{}", verdict(text).2);
    }
    assert_ne!(
        verdict("- `CUDA error: out of memory`: still there after the update of the driver\n").0,
        Cause::None
    );
}
