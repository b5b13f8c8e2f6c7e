//! Sizes and kinds of memory that stand in the text around an error, and what follows from them.

use makeroom_explain::{Cause, Certainty, Explanation};
use makeroom_text::explain_text;

fn causes(explanation: &Explanation) -> Vec<Cause> {
    explanation.causes.iter().map(|finding| finding.cause).collect()
}

fn steps(explanation: &Explanation) -> String {
    let fixes = explanation.causes.iter().flat_map(|finding| &finding.fixes);
    let lines: Vec<String> =
        fixes.map(|fix| format!("{} | {}", fix.action, fix.command.as_deref().unwrap_or(""))).collect();
    lines.join("\n")
}

#[test]
fn a_count_of_bytes_in_the_refusal_is_the_request() {
    for (text, size) in [
        (
            "Error creating field in void grid::device_ptr<double>::create() : size = 1048576 bytes   out of memory",
            "1.00 MiB",
        ),
        (
            "Could not allocate 2D device memory.\nDevice 0 alloc 512x512x4 = 268435456 bytes (256 MB) failed in pool.hpp:31, out of memory",
            "256.00 MiB",
        ),
        (
            ":1:rocdevice.cpp :1692: Failed creating memory\n:1:memory.cpp :328 : Video memory allocation failed!\n:1:memory.cpp :292 : Can't allocate memory size - 0x02000000 bytes!",
            "32.00 MiB",
        ),
    ] {
        let summary = explain_text(text).verdict.summary;
        assert!(summary.contains(size), "{text}\n{summary}");
    }
    let summary = explain_text("CUDA error: out of memory (free 4194304 bytes)").verdict.summary;
    assert!(!summary.contains("An allocation of 4.00 MiB"), "{summary}");
}

#[test]
fn what_the_data_takes_is_set_against_the_card() {
    for text in [
        "On my GTX 1650 (4GB):\nKawPow light cache for epoch 310 calculated\nKawPow failed to initialize DAG: <kawpow_prepare>:62 \"out of memory\"\n\nThe DAG size is 3.6 GB by now.",
        "The card has 16GB memory. When 10 GB is allocated by the first solver, allocating an additional 7.5 GB ends with hipErrorOutOfMemory.",
        "CUDA error: out of memory\nThe weights alone are 7.6 GB, and it runs on a 8 GB card.",
        "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA GeForce GTX 1650 4GB, compute capability 7.5\nllm_load_tensors:      CUDA0 buffer size =  3890.00 MiB\nCudaMalloc failed: out of memory",
    ] {
        let explanation = explain_text(text);
        let verdict = &explanation.verdict;
        assert_eq!(verdict.certainty, Certainty::Likely, "{text}\n{}", verdict.summary);
        assert!(
            matches!(verdict.cause, Cause::LiveDataFillsDevice | Cause::NonFrameworkOverhead),
            "{text}\n{}",
            verdict.summary
        );
    }
    let roomy = "CUDA error: out of memory\nThe weights alone are 7.6 GB, and it runs on a 24 GB card.";
    assert_eq!(explain_text(roomy).verdict.cause, Cause::Undetermined);
}

#[test]
fn a_plan_larger_than_the_card_of_the_title_decides() {
    let text = |card: &str| {
        format!(
            "Structure of the long chain on a {card} card\n\njaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9663676416 bytes.\nBufferAssignment stats:\n             parameter allocation:    3.00GiB\n        maybe_live_out allocation:    1.00GiB\n     preallocated temp allocation:    9.00GiB\n                 total allocation:   13.00GiB\n"
        )
    };
    let verdict = explain_text(&text("12 GB")).verdict;
    assert_eq!(
        (verdict.cause, verdict.certainty),
        (Cause::LiveDataFillsDevice, Certainty::Likely),
        "{}",
        verdict.summary
    );
    assert!(verdict.summary.contains("The GPU has 12.00 GiB"), "{}", verdict.summary);
    assert_ne!(explain_text(&text("40 GB")).verdict.cause, Cause::LiveDataFillsDevice);
}

#[test]
fn host_memory_that_the_text_names() {
    for text in [
        ":3:hip_memory.cpp :702 : hipHostRegister ( 0x7ffe97a79c28, 33554432, 0 )\n:1:memory.cpp :328 : Video memory allocation failed!\n:3:hip_memory.cpp :713 : hipHostRegister: Returned hipErrorOutOfMemory :",
        "cudaHostRegister(buffer, 4096, 0) failed at io.cu:31: out of memory",
        "The card is never more than half full.\nRuntimeError: CUDA error: out of memory\n\n> With pin_memory=False it works here.",
        "RuntimeError: CUDA error: out of memory\n\nIt turned out to be the virtual machine. I wrote this to .wslconfig:\n[wsl2]\nmemory=48GB",
        "OOM of system memory with six ranks\n\nEvery rank reads the whole list of files.",
        "After each episode the replay grows. In the end the machine runs out of memory and kills the actor.",
    ] {
        let verdict = explain_text(text).verdict;
        assert_eq!(verdict.cause, Cause::HostMemory, "{text}\n{}", verdict.summary);
    }
    for text in [
        "RuntimeError: CUDA error: out of memory\nI set pin_memory=False, and it did not help.",
        "RuntimeError: CUDA error: out of memory\nThe loader has pin_memory=True.",
    ] {
        assert_ne!(explain_text(text).verdict.cause, Cause::HostMemory, "{text}");
    }
}

#[test]
fn a_failure_that_comes_late_may_be_a_leak() {
    for text in [
        "Tuner: std::bad_alloc: cudaErrorMemoryAllocation: out of memory - after the search ran 75 trials",
        "I tested all kernels in one run. It started to fail close to the end:\nclEnqueueNDRangeKernel: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)",
        "When the toolbox is used for several minutes with other filters, this appears:\nCUDA error: out of memory at filter.cu:12",
        "After every round of self-play the memory usage will increase.\nCUDA error: out of memory",
    ] {
        let explanation = explain_text(text);
        assert!(causes(&explanation).contains(&Cause::Leak), "{text}\n{:?}", causes(&explanation));
    }
    let trials = explain_text(
        "xgboost.core.XGBoostError: std::bad_alloc: cudaErrorMemoryAllocation: out of memory\nIt comes after the sweep did 40 trials on the dask cluster.",
    );
    assert!(steps(&trials).contains("client.restart()"), "{}", steps(&trials));
    let host = explain_text(
        "After every game the memory usage grows. At last the system runs out of memory and kills the actor.",
    );
    assert!(causes(&host).contains(&Cause::Leak), "{:?}", causes(&host));
    let once = explain_text("The first call fails.\nCUDA error: out of memory at filter.cu:12");
    assert!(!causes(&once).contains(&Cause::Leak));
}

#[test]
fn steps_fit_the_program() {
    for (text, unwanted) in [
        (
            "KawPow light cache for epoch 12 calculated\nKawPow failed to initialize DAG: <kawpow_prepare>:62 \"out of memory\"",
            "batch",
        ),
        ("miner: GPU 0: CUDA error: out of memory, hashrate 0, epoch 40, training is not involved", "batch"),
        (
            "OpenCV Error: Insufficient memory (Failed to allocate 752274018375883 bytes) in OutOfMemoryError\nrunning \"/opt/OpenDroneMap/bin/odm_orthophoto\" -resolution 10.0",
            "print(",
        ),
        (
            "error: (-4:Insufficient memory) Failed to allocate 452274018375883 bytes in function 'OutOfMemoryError'\nstitcher -o out.tif",
            "print(",
        ),
        (
            "cuvid: Failed cuvidCreateDecoder 2 (CUDA_ERROR_OUT_OF_MEMORY)\nOnly this clip.",
            "VISIBLE_DEVICES=-1",
        ),
        (
            "OpenEncodeSessionEx failed: out of memory (10): nvenc\nCUDA error: out of memory",
            "VISIBLE_DEVICES=-1",
        ),
        (
            "Browser console of the chat page, model qwen-1.5b:\nvkAllocateMemory failed with VK_ERROR_OUT_OF_DEVICE_MEMORY\n    at CheckVkOOMThenSuccessImpl (<URL>)",
            "graphics acceleration",
        ),
    ] {
        let explanation = explain_text(text);
        let steps = steps(&explanation);
        assert!(!steps.contains(unwanted), "{text}\n{steps}");
        assert!(!steps.is_empty(), "{text}");
    }
    let steps = steps(&explain_text(
        "cuvid: Failed cuvidCreateDecoder 2 (CUDA_ERROR_OUT_OF_MEMORY)\nOnly this clip.",
    ));
    assert!(steps.contains("--avsw"), "{steps}");
}

#[test]
fn an_error_that_names_host_memory_is_not_a_title() {
    let explanation = explain_text("boostlib.core.BoostError: Out of Host Memory");
    assert_ne!(explanation.verdict.certainty, Certainty::Likely, "{explanation:?}");
    let cached = "llama_kv_cache_init:      CUDA0 KV buffer size =   912.00 MiB\n\
        llama_new_context_with_model:  CUDA_Host input buffer size   =    11.02 MiB\n\
        CUDA error: out of memory";
    assert_ne!(explain_text(cached).verdict.cause, Cause::HostMemory);
}
