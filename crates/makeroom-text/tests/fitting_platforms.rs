//! Answers that depend on the platform, the card and the program: which figures count, whose terms are used, and which
//! steps can help there.

use makeroom_explain::{Cause, Explanation};
use makeroom_text::explain_text;

/// All steps of an answer, one per line.
fn steps(explanation: &Explanation) -> String {
    let fixes = explanation.causes.iter().flat_map(|finding| &finding.fixes);
    let lines = fixes.map(|fix| format!("{} | {}", fix.action, fix.command.as_deref().unwrap_or("")));
    lines.collect::<Vec<_>>().join("\n")
}

fn answer(text: &str) -> (Explanation, String) {
    let explanation = explain_text(text);
    let steps = steps(&explanation);
    (explanation, steps)
}

#[test]
fn live_memory_beyond_the_limit_must_go_too() {
    let text = |live: u32| {
        format!(
            "  File \"/job/train.py\", line 40, in main\n    loss.backward()\ntorch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : {live}.00 GiB\nRequested               : 5.00 GiB\nDevice limit            : 12.00 GiB\nFree (according to CUDA): 0 bytes\n"
        )
    };
    for (live, must_go) in [(12, "free at least 5.0 GiB"), (15, "free at least 8.0 GiB")] {
        let (_, steps) = answer(&text(live));
        assert!(steps.contains(must_go), "{live}: {steps}");
    }
}

#[test]
fn a_handled_request_is_not_that_of_a_library() {
    for library in [
        "could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR",
        "failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED",
    ] {
        let text = format!(
            "W tensorflow/core/common_runtime/bfc_allocator.cc:217] Allocator (GPU_0_bfc) ran out of memory trying to allocate 700.00MiB. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were available.\nE tensorflow/stream_executor/cuda/cuda_x.cc:385] {library}\n"
        );
        let (explanation, _) = answer(&text);
        assert_eq!(explanation.request.and_then(|request| request.bytes), None, "{library}");
        assert!(!explanation.verdict.summary.contains("700"), "{}", explanation.verdict.summary);
    }
}

#[test]
fn a_full_pool_of_pinned_memory_gets_a_larger_limit() {
    let complaint = "W tensorflow/core/common_runtime/bfc_allocator.cc:462] Allocator (gpu_host_bfc) ran out of memory trying to allocate 3.00GiB.\n";
    let (_, steps) = answer(&format!("{complaint}Limit:       17179869184\nInUse:       16106127360\n"));
    assert!(steps.contains("raise the limit") && steps.contains("LIMIT_IN_MB=24576"), "{steps}");
    // Without the limit the pool's growth is all that is known.
    let (_, steps) = answer(complaint);
    assert!(steps.contains("cap TensorFlow's pinned pool"), "{steps}");
}

#[test]
fn a_container_that_was_killed_for_another_reason_did_not_run_out_of_memory() {
    // Kubernetes reports OOMKilled where memory ran out.
    for text in [
        "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    137\n",
        "    Last State: Terminated\n      Reason: Error\n      Exit Code: 137\n",
    ] {
        let (explanation, _) = answer(text);
        assert_eq!(explanation.verdict.cause, Cause::None, "{text}");
        assert!(
            explanation.verdict.summary.contains("killed from outside"),
            "{}",
            explanation.verdict.summary
        );
        let (explanation, _) = answer(&text.replace("Error", "OOMKilled"));
        assert_eq!(explanation.verdict.cause, Cause::HostMemory, "{text}");
    }
    let (explanation, _) = answer("      Reason:       Completed\n      Exit Code:    0\n");
    assert_eq!(explanation.verdict.cause, Cause::None);
}

#[test]
fn the_maker_may_stand_on_the_line_above() {
    let figures = "Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 11.98 GiB of which 700.00 MiB is free. Of the allocated memory 10.50 GiB is allocated by PyTorch, and 90.00 MiB is reserved by PyTorch but unallocated.";
    for (head, framework) in [
        ("torch.OutOfMemoryError: HIP out of memory.\n", "pytorch-rocm"),
        ("torch.OutOfMemoryError: HIP out of\nmemory. ", "pytorch-rocm"),
        ("torch.OutOfMemoryError: XPU out of memory.\n", "pytorch-xpu"),
        ("torch.OutOfMemoryError: CUDA out of memory.\n", "pytorch"),
    ] {
        let (explanation, _) = answer(&format!("{head}{figures}"));
        assert_eq!(explanation.input.framework.id(), Some(framework), "{head}");
    }
}

#[test]
fn a_step_that_will_not_help_is_not_advised() {
    let text = "  File \"/app/serve.py\", line 21, in reply\n    out = model.generate(**inputs)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 900.00 MiB. GPU 0 has a total capacity of 15.77 GiB of which 200.00 MiB is free. Of the allocated memory 10.00 GiB is allocated by PyTorch, and 5.10 GiB is reserved by PyTorch but unallocated.";
    let (explanation, steps) = answer(text);
    assert_eq!(explanation.verdict.cause, Cause::Fragmentation);
    assert!(explanation.wont_help.iter().any(|attempt| attempt.starts_with("empty_cache()")));
    assert!(!steps.contains("empty_cache()") && steps.contains("fixed lengths"), "{steps}");
}

#[test]
fn weights_for_several_gpus_are_spread() {
    let (explanation, steps) = answer(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 140000.00 MiB on device 0: cudaMalloc failed: out of memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size 146800640000\n",
    );
    assert!(steps.contains("--tensor-split 1,1") && !steps.contains("spill"), "{steps}");
    assert!(!explanation.verdict.summary.contains("no GPU"), "{}", explanation.verdict.summary);
    let (explanation, steps) = answer(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 350000.00 MiB on device 0: cudaMalloc failed: out of memory\n",
    );
    assert!(explanation.verdict.summary.contains("no GPU has"), "{}", explanation.verdict.summary);
    assert!(!steps.contains("spill"), "{steps}");
    let (_, steps) = answer("clCreateBuffer(-61). GPU can't allocate the DAG in a single chunk. Stopping.");
    assert!(!steps.contains("resolution"), "{steps}");
}

#[test]
fn terms_are_those_of_the_maker() {
    let roomy = |who: &str| {
        format!(
            "torch.OutOfMemoryError: {who} out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 15.98 GiB of which 8.00 GiB is free. Of the allocated memory 7.30 GiB is allocated by PyTorch, and 130.00 MiB is reserved by PyTorch but unallocated."
        )
    };
    let apple = |live: &str, other: &str, request: &str| {
        format!(
            "RuntimeError: MPS backend out of memory (MPS allocated: {live} GB, other allocations: {other}, max allowed: 18.13 GB). Tried to allocate {request} on private pool."
        )
    };
    for (text, has_mig) in
        [(roomy("CUDA"), true), (roomy("HIP"), false), (apple("2.00", "1.00 MB", "256 bytes"), false)]
    {
        let summary = explain_text(&text).verdict.summary;
        assert_eq!(summary.contains("MIG"), has_mig, "{summary}");
    }
    let summary = explain_text(&apple("7.00", "11.00 GB", "500.00 MB")).verdict.summary;
    assert!(summary.contains("MPSGraph") && !summary.contains("NCCL"), "{summary}");
}

#[test]
fn intels_cap_on_one_allocation_is_named() {
    let text = |request: &str| {
        format!(
            "torch.OutOfMemoryError: XPU out of memory. Tried to allocate {request}. GPU 0 has a total capacity of 15.60 GiB. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
        )
    };
    let (explanation, steps) = answer(&text("7.00 GiB"));
    // Intel's newer drivers have no such cap, so the cause is open.
    assert_eq!(explanation.verdict.cause, Cause::Undetermined);
    assert_eq!(explanation.causes[1].cause, Cause::ArtificialLimit);
    assert!(steps.contains("RELAXED_ALLOCATION_LIMITS=1"), "{steps}");
    assert!(explanation.ledger.is_none());
    assert_ne!(answer(&text("2.00 GiB")).0.causes[1].cause, Cause::ArtificialLimit);
}

#[test]
fn an_integrated_gpu_gets_a_larger_frame_buffer() {
    let text = |total: &str| {
        format!(
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of {total} GiB of which 17179869183.50 GiB is free. Of the allocated memory 2.40 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated."
        )
    };
    let (explanation, steps) = answer(&text("2.00"));
    assert!(explanation.verdict.summary.contains("underflowed"), "{}", explanation.verdict.summary);
    assert!(steps.contains("UMA Frame Buffer Size = 8G"), "{steps}");
    let card = text("15.98").replace("17179869183.50 GiB", "20.00 MiB").replace("2.40 GiB", "15.60 GiB");
    assert!(!answer(&card).1.contains("UMA"));
}

#[test]
fn opencls_own_report_gives_the_cards_size() {
    let text = |size: u64| {
        format!(
            "CL_DEVICE_GLOBAL_MEM_SIZE: {size}\nCreating DAG buffer, size 4294967296\nOpenCL Error: clEnqueueWriteBuffer: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)\n"
        )
    };
    assert_eq!(answer(&text(3 << 30)).0.verdict.cause, Cause::RequestExceedsDevice);
    assert_ne!(answer(&text(8 << 30)).0.verdict.cause, Cause::RequestExceedsDevice);
}

#[test]
fn scripts_and_checkpoints_are_those_that_exist() {
    let error = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 30.00 MiB (GPU 0; 11.77 GiB total capacity; 11.20 GiB already allocated; 9.00 MiB free; 11.30 GiB reserved in total by PyTorch)";
    for (script, lora) in [
        ("train_text_to_image.py", "train_text_to_image_lora.py"),
        ("train_text_to_image_sdxl.py", "train_text_to_image_lora_sdxl.py"),
        ("train_dreambooth.py", "train_dreambooth_lora.py"),
    ] {
        let (_, steps) = answer(&format!(
            "accelerate launch {script} --resolution=256 --train_batch_size=1 --mixed_precision=fp16 --use_8bit_adam --gradient_checkpointing --enable_xformers_memory_efficient_attention\n{error}"
        ));
        assert!(steps.contains(lora), "{script}: {steps}");
    }
    let no_cache = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";
    for (card, format) in [("Tesla V100-SXM2-32GB", "gptq"), ("Tesla T4", "awq")] {
        let (_, steps) =
            answer(&format!("{card}\nvllm serve some/model --gpu-memory-utilization 0.95\n{no_cache}"));
        assert!(steps.contains(&format!("--quantization {format}")), "{card}: {steps}");
    }
}

#[test]
fn a_share_that_holds_no_model_is_not_advised() {
    let text = |free: &str| {
        format!(
            "ValueError: Free memory on device cuda:0 ({free}/47.40 GiB) on startup is less than desired GPU memory utilization (0.9, 42.66 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        )
    };
    assert!(!answer(&text("2.90")).1.contains("--gpu-memory-utilization"));
    assert!(answer(&text("23.90")).1.contains("--gpu-memory-utilization 0.50"));
    // On a small GPU the model is small too.
    let small = text("3.00").replace("47.40", "4.00").replace("42.66", "3.60");
    assert!(answer(&small).1.contains("--gpu-memory-utilization 0.75"));
}

#[test]
fn an_uncaught_exception_is_not_handled() {
    let text = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  caught exception: CUDA error: out of memory\nAborted (core dumped)\n";
    assert_eq!(explain_text(text).verdict.cause, Cause::Undetermined);
    let lower = "valueerror: free memory on device cuda:1 (30.00/79.25 gib) on startup is less than desired gpu memory utilization (0.9, 71.32 gib).";
    assert_eq!(explain_text(lower).verdict.cause, Cause::OtherProcesses);
}
