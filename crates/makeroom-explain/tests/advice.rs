//! What is advised for error texts: the writer's own options with the figures that fit, nothing that cannot help, and
//! what would decide where the text does not.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use makeroom_explain::{Cause, Explanation, explain_text};

/// Every command that is advised for any cause, in order.
fn commands(explanation: &Explanation) -> Vec<&str> {
    let fixes = explanation.causes.iter().flat_map(|cause| &cause.fixes);
    fixes.filter_map(|fix| fix.command.as_deref()).collect()
}

fn speaks_of_batches(explanation: &Explanation) -> bool {
    explanation.causes.iter().flat_map(|cause| &cause.fixes).any(|fix| fix.action.contains("smaller batch"))
}

#[test]
fn vllm_is_told_the_length_that_fits() {
    for (text, longest) in [
        (
            "ValueError: To serve at least one request with the models's max seq len (65536), (8.00 GiB KV cache is needed, which is larger than the available KV cache memory (3.01 GiB). Based on the available memory, the estimated maximum model length is 24656. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
            "--max-model-len 24656",
        ),
        (
            "(EngineCore_0 pid=9) ERROR 08-01 10:00:00 [core.py:586] ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is needed, which is larger than the available KV cache memory (3.00 GiB). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
            "--max-model-len 12288",
        ),
        (
            "ValueError: The model's max seq len (16384) is larger than the maximum number of tokens that can be stored in KV cache (9024). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
            "--max-model-len 9024",
        ),
    ] {
        let explanation = explain_text(text);
        assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice, "{text}");
        let commands = commands(&explanation);
        assert_eq!(commands[..2], [longest, "--gpu-memory-utilization 0.95"], "{text}");
        assert!(!speaks_of_batches(&explanation), "{text}");
    }
}

#[test]
fn a_share_below_what_the_card_has_is_raised_first_and_to_what_is_missing() {
    let text = "the current vLLM instance can use total_gpu_memory (40.00GiB) x gpu_memory_utilization (0.50) = 20.00GiB\nValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is needed, which is larger than the available KV cache memory (4.00 GiB).";
    let explanation = explain_text(text);
    assert_eq!(explanation.verdict.cause, Cause::ArtificialLimit);
    assert_eq!(
        commands(&explanation)[..2],
        ["--gpu-memory-utilization 0.65", "--max-model-len 16384"],
        "{explanation:?}"
    );
}

#[test]
fn vllm_that_cannot_start_takes_less_or_looks_for_the_holder() {
    let text = "ValueError: Free memory on device cuda:1 (30.00/80.00 GiB) on startup is less than desired GPU memory utilization (0.9, 72.00 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.";
    let explanation = explain_text(text);
    assert_eq!(explanation.verdict.cause, Cause::OtherProcesses);
    let commands = commands(&explanation);
    assert!(commands.contains(&"--gpu-memory-utilization 0.37"), "{commands:?}");
    assert!(commands.contains(&"makeroom ps"), "{commands:?}");
    assert!(!speaks_of_batches(&explanation));
}
