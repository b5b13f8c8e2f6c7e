//! Steps fit the program that failed: its framework, version and device, what the text shows to be set, and the
//! figures it gives.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use makeroom_explain::Explanation;
use makeroom_text::explain_text;

/// Every command that is advised for any cause, one per line.
fn commands(explanation: &Explanation) -> String {
    let fixes = explanation.causes.iter().flat_map(|cause| &cause.fixes);
    fixes.filter_map(|fix| fix.command.as_deref()).collect::<Vec<_>>().join("\n")
}

/// A text whose steps contain some words and none of others.
fn check(text: &str, wanted: &[&str], unwanted: &[&str]) {
    let commands = commands(&explain_text(text));
    for words in wanted {
        assert!(commands.contains(words), "no {words}:\n{commands}\n{text}");
    }
    for words in unwanted {
        assert!(!commands.contains(words), "{words}:\n{commands}\n{text}");
    }
}

const TORCH: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has a total capacity of 23.50 GiB of which 12.00 MiB is free. Including non-PyTorch memory, this process has 23.48 GiB memory in use. Of the allocated memory 23.10 GiB is allocated by PyTorch, and 40.00 MiB is reserved by PyTorch but unallocated.";

#[test]
fn a_tpu_is_not_a_gpu() {
    let text = "Exception in device=TPU:3: RESOURCE_EXHAUSTED: Attempting to reserve 7.25G at the bottom of memory. That was not possible. There are 5.10G free, 0B reserved, and 5.10G reservable.\n  (0) [[{{node XRTExecute}}]]\n  File \"site-packages/torch_xla/core/xla_model.py\", line 4\n  File \"site-packages/transformers/trainer.py\", line 12";
    check(
        text,
        &["--per_device_train_batch_size 1", "xla_fsdp_grad_ckpt"],
        &["TF_GPU", "CUDA_", "model.fit"],
    );
    let explanation = explain_text(text);
    let summaries: Vec<&str> = explanation.causes.iter().map(|cause| cause.summary.as_str()).collect();
    assert!(summaries.iter().any(|summary| summary.contains("This TPU has less memory")), "{summaries:?}");
}

#[test]
fn each_framework_gets_its_own_options() {
    let flax = "  File \"site-packages/transformers/models/gpt2/modeling_flax_gpt2.py\", line 610, in __call__\nRESOURCE_EXHAUSTED: Out of memory while trying to allocate 805306368 bytes.";
    check(flax, &["_do_init=False", "to_bf16"], &["torch", "load_in_4bit", "device_map"]);
    let mindspore =
        "RuntimeError: Ascend kernel runtime initialization failed: out of memory\nnpu-smi shows 29 of 32 GB";
    check(mindspore, &["optimize_level=\"O1\""], &["CUDA", "--spill", "PYTORCH_"]);
}

#[test]
fn programs_on_ggml_have_no_context_unless_they_run_language_models() {
    let text = "[INFO ] stable-diffusion.cpp:702  - loading model\nggml_vulkan: Device memory allocation of size 4831838208 failed.\nggml_vulkan: Requested buffer size exceeds device memory allocation limit: ErrorOutOfDeviceMemory";
    check(text, &["--vae-tiling"], &["-c 4096", "-ngl", "--offload-to-cpu"]);
}

#[test]
fn weights_that_fill_the_gpu_are_not_cured_by_smaller_inputs() {
    let first = |text: &str| {
        let explanation = explain_text(text);
        explanation.causes.iter().flat_map(|cause| &cause.fixes).next().unwrap().command.clone().unwrap()
    };
    assert!(first(&format!("I want to train a LoRA on videos\n{TORCH}")).contains("--zero_stage 3"));
    assert!(first(&format!("python cli.py --prompt cat, video\n{TORCH}")).contains("load_in_4bit"));
    let step = format!("  File \"net.py\", line 8, in forward\n{TORCH}");
    assert!(!first(&step).contains("load_in_4bit"));
}

#[test]
fn static_shared_memory_is_made_smaller_in_the_source() {
    let text = "ptxas error   : Entry function '_Z6reduceILi256EEvPf' uses too much shared data (0x1c000 bytes, 0xc000 max)";
    check(text, &["TILE / 4", "MaxDynamicSharedMemorySize, 114688"], &["num_stages", "maxrregcount"]);
    let larger = text.replace("0x1c000", "0x40000");
    check(&larger, &["TILE / 8"], &["cudaFuncSetAttribute"]);
}

#[test]
fn container_limits_are_those_of_the_text() {
    check(
        "Reason: OOMKilled, the memory limit of the operator pod was 256Mi",
        &["memory: 1Gi"],
        &["64Gi", "16Gi"],
    );
    check("OOMKilled with exit code 137\n- limits.memory: 6Gi -> 12Gi", &["memory: 12Gi"], &["memory: 8Gi"]);
}

#[test]
fn a_threshold_of_zero_is_the_limit() {
    let text = "distributed.nanny - WARNING - Worker tcp://10.0.0.7:4411 exceeded 0% memory budget. Restarting...\nmemory:\n  terminate: 0";
    check(text, &["memory.terminate: 0.95"], &["memory_limit="]);
}

#[test]
fn a_user_is_not_told_to_edit_a_library() {
    let text = "CUDA error at /home/me/solver-2.1/src/utilities/vector.cuh:83: out of memory";
    check(text, &[], &["cudaMemGetInfo", "cudaMallocManaged"]);
}

#[test]
fn a_full_gpu_is_not_cured_by_a_share_of_it() {
    let text = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 1.95 GiB total capacity; 400.00 MiB already allocated; 8.00 MiB free; 420.00 MiB reserved in total by PyTorch)";
    check(text, &[], &["set_per_process_memory_fraction"]);
}

#[test]
fn memory_that_a_logout_frees_belongs_to_another_process() {
    let explanation = explain_text(
        "After I stop a run I have to log out before I can start the next one.\nRuntimeError: CUDA error: out of memory",
    );
    let causes: Vec<&str> = explanation.causes.iter().map(|cause| cause.cause.name()).collect();
    let place = |name: &str| causes.iter().position(|cause| *cause == name).unwrap();
    assert!(place("other_processes") < place("live_data_fills_device"), "{causes:?}");
}

#[test]
fn an_open_verdict_says_what_the_error_leaves_out() {
    let shape = explain_text(
        "ResourceExhaustedError: OOM when allocating tensor with shape[1,900,700,64] on /device:GPU:0",
    );
    assert!(shape.verdict.summary.contains("The tensor has the shape"), "{}", shape.verdict.summary);
    assert!(!shape.verdict.summary.contains("does not say how much"), "{}", shape.verdict.summary);
    let plain = explain_text("renderer: CUDA error: out of memory");
    assert!(
        plain.verdict.summary.contains("does not say how much was requested"),
        "{}",
        plain.verdict.summary
    );
}

#[test]
fn the_limit_on_apples_gpus_is_pytorchs() {
    let text = "RuntimeError: MPS backend out of memory (MPS allocated: 17.60 GiB, other allocations: 384.00 KiB, max allowed: 18.13 GiB). Tried to allocate 900.00 MiB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).";
    let summary = explain_text(text).verdict.summary;
    assert!(
        summary.contains("PyTorch's limit of 18.13 GiB") && !summary.contains("the GPU's 18.13"),
        "{summary}"
    );
}

#[test]
fn a_context_decides_only_where_the_cache_is_small() {
    let cause = |cached: &str, requested: &str| {
        let text = format!(
            "RuntimeError: CUDA out of memory. Tried to allocate {requested} MiB (GPU 0; 1.90 GiB total capacity; 780.00 MiB already allocated; 60.00 MiB free; {cached} MiB cached)"
        );
        explain_text(&text).verdict.cause.name()
    };
    assert_eq!(cause("64.00", "62.00"), "non_framework_overhead");
    assert_eq!(cause("320.00", "300.00"), "fragmentation");
}
