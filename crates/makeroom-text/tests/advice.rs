//! What is advised for error texts: the writer's own options with the figures that fit, nothing that cannot help, and
//! what would decide where the text does not.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use makeroom_core::Bytes;
use makeroom_explain::{Cause, Certainty, Explanation};
use makeroom_text::explain_text;

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

/// The commands that would tell more, in order.
fn next(explanation: &Explanation) -> Vec<&str> {
    explanation.next.iter().filter_map(|fix| fix.command.as_deref()).collect()
}

#[test]
fn a_programs_own_check_is_read_with_its_figures_and_its_line() {
    for (text, bytes, site) in [
        ("cudaMalloc failed: out of memory (6442450944 bytes)", Some(6 << 30), None),
        (
            "wave: cudaMallocAsync(&field, 6442450944, stream) failed at src/wave.cu:77: out of memory",
            Some(6 << 30),
            Some("src/wave.cu:77"),
        ),
        (
            "CUDA error at wave.cu:77 code=2(cudaErrorMemoryAllocation) \"cudaMalloc((void **)&d_field, n)\"",
            None,
            Some("wave.cu:77"),
        ),
        ("GPUassert: out of memory wave.cu 77", None, Some("wave.cu:77")),
        ("Error: src/wave.cu:77, code: 2, reason: out of memory", None, Some("src/wave.cu:77")),
        ("Cuda error in file 'src/wave.cu' in line 77 : out of memory.", None, Some("src/wave.cu:77")),
        ("CUDA Runtime Error at: wave.cu:77\nout of memory cudaMalloc(&field, n)", None, Some("wave.cu:77")),
        ("CUDA error: out of memory\n  at src/wave.cpp:77", None, Some("src/wave.cpp:77")),
    ] {
        let explanation = explain_text(text);
        assert_eq!(explanation.verdict.cause, Cause::Undetermined, "{text}");
        let request = explanation.request.as_ref().unwrap();
        assert_eq!((request.bytes.map(Bytes::get), request.site.as_deref()), (bytes, site), "{text}");
        let says_size = explanation.verdict.summary.contains("6.00 GiB");
        assert_eq!(says_size, bytes.is_some(), "{text}: {}", explanation.verdict.summary);
        assert_eq!(next(&explanation), ["makeroom run -- PROGRAM …"], "{text}");
    }
}

#[test]
fn what_was_free_is_in_the_account() {
    let text =
        "wave: cudaMalloc(&field, 6442450944) failed at src/wave.cu:77: out of memory (free 2 GiB of 16 GiB)";
    let explanation = explain_text(text);
    assert_eq!(explanation.verdict.certainty, Certainty::Undetermined);
    assert_eq!(explanation.ledger.as_ref().unwrap().total(), Some(Bytes::gib(16)));
    for figure in ["6.00 GiB", "2.00 GiB", "16.00 GiB"] {
        assert!(explanation.verdict.summary.contains(figure), "{}", explanation.verdict.summary);
    }
    assert!(!speaks_of_batches(&explanation));
    assert_eq!(next(&explanation)[0], "makeroom run -- PROGRAM …");
}

#[test]
fn figures_that_are_not_understood_are_not_denied() {
    let text = "worker: out of memory, watermark 12 GiB, 300 MiB";
    let summary = explain_text(text).verdict.summary;
    assert!(summary.contains("12 GiB") && summary.contains("300 MiB"), "{summary}");
    let text = "llama_kv_cache_init:      CUDA0 KV buffer size =  2048.00 MiB\nllama_new_context_with_model:      CUDA0 compute buffer size =   512.00 MiB\nCUDA error: out of memory\n  current device: 0, in function ggml_cuda_pool_malloc at ggml-cuda.cu:55";
    let summary = explain_text(text).verdict.summary;
    assert!(summary.contains("2.50 GiB"), "{summary}");
}

#[test]
fn what_is_undetermined_has_hypotheses_with_checks_and_fixes() {
    for (text, first, check) in [
        ("RuntimeError: CUDA error: out of memory", Cause::LiveDataFillsDevice, "nvidia-smi"),
        (
            "terminate called after throwing an instance of 'thrust::system::system_error'\n  what():  parallel_for failed: cudaErrorMemoryAllocation: out of memory",
            Cause::LiveDataFillsDevice,
            "nvidia-smi",
        ),
        (
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",
            Cause::LiveDataFillsDevice,
            "nvidia-smi",
        ),
        ("hipMalloc failed: out of memory", Cause::LiveDataFillsDevice, "rocm-smi"),
        ("cudaMalloc of 96 GiB failed: out of memory", Cause::RequestExceedsDevice, "nvidia-smi"),
    ] {
        let explanation = explain_text(text);
        assert_eq!(explanation.verdict.cause, Cause::Undetermined, "{text}");
        let hypothesis = &explanation.causes[1];
        assert_eq!((hypothesis.cause, hypothesis.certainty), (first, Certainty::Possible), "{text}");
        let decides = hypothesis.check.as_ref().and_then(|check| check.command.as_deref()).unwrap_or("");
        assert!(decides.contains(check), "{text}: {decides}");
        for finding in &explanation.causes[1..] {
            assert!(finding.check.is_some(), "{text}: {}", finding.cause);
            // Which processes to stop is known only once the check has listed them.
            let is_listed_first = finding.cause == Cause::OtherProcesses;
            assert!(!finding.fixes.is_empty() || is_listed_first, "{text}: {}", finding.cause);
            let placeholder =
                |fix: &makeroom_explain::Fix| fix.command.as_deref().is_some_and(|line| line.contains("PID"));
            assert!(!finding.fixes.iter().any(placeholder), "{text}: {}", finding.cause);
        }
    }
}

#[test]
fn a_text_without_a_failure_is_told_from_an_open_one() {
    for text in [
        "nothing went wrong here",
        "Warning: Ran out of memory when decoding, retrying with tiled decoding.",
        "RuntimeError: CUDA error: an illegal memory access was encountered\nmaybe I ran out of memory?",
        "## Out of memory\n\nThis section explains how to avoid running out of memory.",
    ] {
        assert_eq!(explain_text(text).verdict.cause, Cause::None, "{text}");
    }
}

#[test]
fn what_tensorflow_asked_for_is_in_the_summary() {
    for text in [
        "OOM when allocating tensor with shape[64,256,256,128] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "OOM when allocating tensor with shape[64,256,256,128] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        "OOM when allocating tensor with shape[64,256,256,128]",
        "I tensorflow/core/common_runtime/bfc_allocator.cc:1010] Stats: \nLimit:                 8589934592\nInUse:                 8489934592\nMaxInUse:              8489934592\n\nW tensorflow/core/framework/op_kernel.cc:1753] OP_REQUIRES failed at transpose_op.cc:198 : Resource exhausted: OOM when allocating tensor with shape[64,256,256,128] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    ] {
        let summary = explain_text(text).verdict.summary;
        assert!(summary.contains("2.00 GiB"), "{text}: {summary}");
    }
}

#[test]
fn the_plan_of_a_compiled_program_is_told() {
    let text = "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:    3.00GiB\n              constant allocation:         0B\n        maybe_live_out allocation:    1.00GiB\n     preallocated temp allocation:    8.00GiB\n                 total allocation:   12.00GiB\n";
    let explanation = explain_text(text);
    assert_eq!(explanation.verdict.certainty, Certainty::Undetermined);
    for figure in ["12.00 GiB", "3.00 GiB of parameters", "1.00 GiB of results", "8.00 GiB of temporary"] {
        assert!(explanation.verdict.summary.contains(figure), "{}", explanation.verdict.summary);
        assert!(explanation.causes[0].evidence.iter().any(|line| line.contains(figure)), "{figure}");
    }
    assert!(commands(&explanation).contains(&"jax.jit(step, donate_argnums=(0,))"));
}
