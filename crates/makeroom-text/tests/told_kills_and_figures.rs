//! Texts in which figures contradict each other or a person tells of a kill, and what must be said of them.

use makeroom_explain::{Cause, Certainty};
use makeroom_text::explain_text;

fn verdict(text: &str) -> (Cause, Certainty, String) {
    let verdict = explain_text(text).verdict;
    (verdict.cause, verdict.certainty, verdict.summary)
}

#[test]
fn more_live_memory_than_the_card_has_is_no_fragmentation() {
    let (cause, certainty, summary) = verdict(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 6.00 GiB total capacity; 14.20 GiB already allocated; 0 bytes free; 16.40 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
    );
    assert_eq!((cause, certainty), (Cause::LiveDataFillsDevice, Certainty::Certain));
    assert!(summary.contains("system memory"), "{summary}");
    // Within the card, a cache that is large enough is in pieces.
    let (cause, ..) = verdict(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 16.00 GiB total capacity; 10.20 GiB already allocated; 0 bytes free; 14.90 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
    );
    assert_eq!(cause, Cause::Fragmentation);
}

#[test]
fn the_figures_of_a_message_outrank_those_of_a_sentence() {
    let (cause, _, summary) = verdict(
        "The card has 20 GB free, yet it cannot allocate 9 GB.\n\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB (GPU 0; 23.50 GiB total capacity; 18.10 GiB already allocated; 4.70 GiB free; 18.30 GiB reserved in total by PyTorch)",
    );
    assert_eq!(cause, Cause::LiveDataFillsDevice);
    assert!(summary.contains("18.10 GiB"), "{summary}");
}

#[test]
fn kills_that_a_person_tells_of_are_about_host_memory() {
    for text in [
        "Indexing the archive takes ten minutes, then the OOM killer terminated the indexer.",
        "With no swap left, the kernel killed the tokenizer.",
        "Evaluation on both gpus ended early: killed by the operating system.",
        "[LightGBM] [Fatal] bad allocation",
        "**Describe the bug**\nThe query stops.\n\ndistributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting",
        "Docker kills the trainer as soon as its memory passes the limit of the compose file.",
        "All array tasks are killed because of an out-of-memory error of the scheduler.",
        "# Killed during the third shard\nLoading needs about as much RAM as the files have.",
        "My alignment fails on the cluster: _slurmstepd: error: Detected 3 oom-kill event(s) in StepId=77.batch. Some of your processes may have been killed by the cgroup out-of-memory handler.",
        "ERROR: could not resize shared memory segment \"/PostgreSQL.77\" to 8388608 bytes: No space left on device",
        "[1/3] attempt done: pod failed, terminated with exit code (137)",
        "Whoops! You ran out of memory!\nFile \"opendm/system.py\", line 8, in run\nopendm.system.SubprocessException: Child returned 137",
    ] {
        assert_eq!(verdict(text).0, Cause::HostMemory, "{text}");
    }
    for text in [
        "Lower the limit so that the OOM killer never kills the server.",
        "The OOM killer might kill the worker if memory is short.",
        "Kubernetes would kill a container whose memory exceeds its limit.",
        "This PR addresses #12: the loader halves its batch when it hits an OOM.",
        "The retry of my pull request catches the OOM and repeats the batch.",
    ] {
        assert_eq!(verdict(text).0, Cause::None, "{text}");
    }
}

#[test]
fn terabytes_of_host_memory_in_one_piece_are_a_wrong_size() {
    let message = |bytes: &str| {
        format!(
            "error: (-4:Insufficient memory) Failed to allocate {bytes} bytes in function 'OutOfMemoryError'"
        )
    };
    let explanation = explain_text(&message("3000000000000"));
    assert_eq!(explanation.verdict.cause, Cause::IntegerOrShapeBug);
    assert!(explanation.causes.iter().all(|finding| finding.cause != Cause::HostMemory));
    assert_eq!(verdict(&message("300000000000")).0, Cause::HostMemory);
}

#[test]
fn a_warning_about_another_request_does_not_handle_an_error() {
    let error = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2500000000 bytes.";
    let warning = "W external/xla/xla/tsl/framework/bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.10GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.";
    assert_ne!(verdict(&format!("{error}\n{warning}")).0, Cause::None);
    assert_eq!(verdict(warning).0, Cause::None);
}

#[test]
fn video_memory_in_the_words_of_games_and_direct3d() {
    for text in [
        "Fatal: the renderer has run out of video memory",
        "ERROR CreateResource D3D12 buffer: return HRESULT=8007000e",
    ] {
        assert_ne!(verdict(text).0, Cause::None, "{text}");
    }
}

#[test]
fn a_fixed_workspace_is_a_limit_and_a_pool_of_jax_a_preallocation() {
    let text = "File \"sglang/srt/managers/scheduler.py\", line 9\nRuntimeError: Failed to allocate memory for batch_prefill_tmp_s with size 268435456 and alignment 16 in AlignedAllocator";
    assert_eq!(verdict(text).0, Cause::ArtificialLimit);
    let text = "# The PyTorch half of the job stops with OOM\nJAX preallocates most of the GPU before the model loads.";
    assert_eq!(verdict(text).0, Cause::Preallocation);
}
