//! Failures that a person tells in words, or that only the lines around an error explain.

use makeroom_explain::{Cause, Certainty};
use makeroom_text::explain_text;

fn verdict(text: &str) -> (Cause, Certainty, String) {
    let explanation = explain_text(text);
    (explanation.verdict.cause, explanation.verdict.certainty, explanation.verdict.summary)
}

#[test]
fn questions_about_an_error_are_reports_of_it() {
    for text in [
        "Is there any way around CUDA out of memory? It comes when the second clip is rendered.",
        "Training starts, but the GPU is out of memory. What can be done?",
        "With the new build every prompt ends in out of memory errors on the GPU.",
    ] {
        assert_eq!(verdict(text).0, Cause::Undetermined, "{text}");
    }
    for text in ["How to avoid running out of memory on small GPUs?", "Is there an option to limit VRAM?"] {
        assert_eq!(verdict(text).0, Cause::None, "{text}");
    }
}

#[test]
fn the_lines_around_an_error_tell_whose_memory_it_was() {
    let (_, _, summary) = verdict("Rendering fails on my RTX card.\nrenderer: error: out of memory");
    assert!(summary.starts_with("GPU memory"), "{summary}");
    let (_, _, summary) = verdict("The box has 64 GB of RAM and a GPU.\nrenderer: error: out of memory");
    assert!(summary.starts_with("Memory"), "{summary}");
}

#[test]
fn sizes_beside_the_error_decide() {
    let (cause, _, summary) = verdict(
        "RuntimeError: CUDA error: out of memory\nloader: failed to allocate 30.5 GB\ncard: nvidia, 12gb",
    );
    assert_eq!(cause, Cause::RequestExceedsDevice, "{summary}");
    assert!(summary.contains("12.00 GiB"), "{summary}");
}

#[test]
fn even_growth_in_a_training_log_may_be_a_leak() {
    let log = "# CUDA out of memory in epoch 3
Epoch [3][50/900] lr: 0.1, memory: 40100, loss: 1.2
Epoch [3][100/900] lr: 0.1, memory: 40310, loss: 1.1
Epoch [3][150/900] lr: 0.1, memory: 40519, loss: 1.1";
    let (cause, certainty, summary) = verdict(log);
    assert_eq!((cause, certainty), (Cause::Leak, Certainty::Possible), "{summary}");
    assert!(summary.contains("from 39.16 GiB to 39.57 GiB"), "{summary}");
    // The allocator's peak rises while batches get longer, then stays.
    let log = "# CUDA out of memory in epoch 3
Epoch [3][50/900] lr: 0.1, memory: 30100, loss: 1.2
Epoch [3][100/900] lr: 0.1, memory: 40310, loss: 1.1
Epoch [3][150/900] lr: 0.1, memory: 40310, loss: 1.1";
    assert_eq!(verdict(log).0, Cause::Undetermined);
}

#[test]
fn a_full_kv_cache_is_a_limit_set_at_startup() {
    for text in [
        "ERROR worker 3 failed: KV cache exhausted: no free blocks for this sequence",
        "AssertionError: No space left for only one request, available_size()=0",
    ] {
        let explanation = explain_text(text);
        assert!(explanation.causes.iter().any(|finding| finding.cause == Cause::ArtificialLimit), "{text}");
    }
}

#[test]
fn a_large_pinned_buffer_that_was_refused_is_not_certainly_harmless() {
    let text = "ggml_cuda_host_malloc: failed to allocate 250000.00 MiB of pinned memory: out of memory\nllm_load_tensors: CPU model buffer size = 250000.00 MiB";
    assert_eq!(verdict(text).1, Certainty::Likely);
    let text = "ggml_cuda_host_malloc: failed to allocate 900.00 MiB of pinned memory: out of memory\nllm_load_tensors: CPU model buffer size = 900.00 MiB";
    assert_eq!((verdict(text).0, verdict(text).1), (Cause::None, Certainty::Certain));
}

#[test]
fn errors_that_were_caught_and_changes_of_code_are_no_failures() {
    for text in [
        "INFO planner: Caught error (out of memory errors are expected here): CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 11.00 GiB total capacity; 9.00 GiB already allocated; 1.00 GiB free; 9.40 GiB reserved in total by PyTorch)\nINFO planner: trying the next plan\nINFO planner: plan 2 fits",
        "# Restart failed pods only by their reason\n```diff\n-    if phase == \"Failed\":\n+    if phase == \"Failed\" and reason == \"OOMKilled\":\n```",
        "# Mention the size in MemoryError\n\nIt would be helpful to include the shape that was asked for.",
        "Recovering from OOM error; New batch size: 4\nRecovering from OOM error; New batch size: 2\nRuntimeError: CUDA error: an illegal memory access was encountered",
        "# Is this a memory leak?\n[E:onnxruntime] Failed to load library libonnxruntime_providers_cuda.so with error: libcublas.so.12: cannot open shared object file",
    ] {
        assert_eq!(verdict(text).0, Cause::None, "{text}");
    }
}

#[test]
fn errors_that_are_cut_or_quoted_in_a_sentence_count() {
    let cut = "M when allocating tensor with shape[64,256,32,32] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc";
    assert_eq!(verdict(cut).0, Cause::Undetermined);
    let quoted = "it stops with another photo (\"Check failed: error == cudaSuccess (2 vs. 0)  out of memory\"). Is it the size?";
    assert_eq!(verdict(quoted).0, Cause::Undetermined);
    assert_eq!(
        verdict("# Out of CPU memory in the demo\nOffloading is on, and loading takes it all.").0,
        Cause::HostMemory
    );
}
