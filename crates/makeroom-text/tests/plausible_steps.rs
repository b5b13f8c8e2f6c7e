//! Steps that fit the machine and the reader: the scheduler's option, the user's option, no step that cannot work.

use makeroom_explain::{Cause, Explanation};
use makeroom_text::explain_text;

fn steps(explanation: &Explanation) -> Vec<String> {
    let fixes = explanation.causes.iter().flat_map(|finding| &finding.fixes);
    fixes.map(|fix| format!("{} | {}", fix.action, fix.command.as_deref().unwrap_or(""))).collect()
}

/// The steps for a text have all of the first words and none of the second.
fn check(text: &str, wanted: &[&str], unwanted: &[&str]) {
    let explanation = explain_text(text);
    let steps = steps(&explanation).join("\n");
    for words in wanted {
        assert!(steps.contains(words), "{text}\nno {words}:\n{steps}");
    }
    for words in unwanted {
        assert!(!steps.contains(words), "{text}\n{words}:\n{steps}");
    }
}

#[test]
fn schedulers_get_their_own_options() {
    check(
        "sacct: State=OUT_OF_MEMORY MaxRSS 127.9G ReqMem 128G\nRuntimeError: DataLoader worker (pid 4471) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
        &["#SBATCH --mem="],
        &["docker"],
    );
    check(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=9912.0. Some of the step tasks have been OOM Killed.",
        &["#SBATCH --mem="],
        &["docker", "/swapfile"],
    );
    check(
        "kubectl describe pod trainer-0\n    Last State: Terminated\n      Reason: OOMKilled\n      Exit Code: 137",
        &["limits: {memory:"],
        &["docker run"],
    );
}

#[test]
fn small_boards_get_no_swap_file() {
    check(
        "[ 211.40] Killed process 702 (collectd) total-vm:64120kB, anon-rss:51200kB, file-rss:0kB",
        &["zram"],
        &["/swapfile"],
    );
    check(
        "Linux raspberrypi 5.10 armv7l\nOut of memory: Killed process 911 (python3) total-vm:910120kB, anon-rss:701200kB, file-rss:0kB",
        &["zram"],
        &["16G"],
    );
    check(
        "Out of memory: Killed process 5511 (python) total-vm:91012000kB, anon-rss:60120000kB, file-rss:0kB",
        &["/swapfile"],
        &["zram"],
    );
}

#[test]
fn users_of_a_kernel_are_not_asked_to_rewrite_it() {
    let error = "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 98304, Hardware limit: 65536. Reducing block sizes or `num_stages` may help.";
    check(
        &format!("model = AutoModel.from_pretrained(name)\n{error}"),
        &["attn_implementation=\"eager\""],
        &["triton.Config"],
    );
    check(
        &format!("torch._inductor.exc.InductorError: No valid triton configs. {error}"),
        &["torch.compiler.disable"],
        &["triton.Config"],
    );
    check(
        &format!("@triton.jit\ndef kernel(x, BLOCK_M: tl.constexpr):\n{error}"),
        &["triton.Config"],
        &["eager"],
    );
}

#[test]
fn pinned_memory_is_possible_where_the_text_points_to_it() {
    for (text, step) in [
        (
            "pin_memory() fails with \"CUDA error: out of memory\" above 600 MB in WSL2\n12 GB card, 11 free",
            "pin_memory=False",
        ),
        (
            "  File \"engine.py\", line 80, in stage\n    buffer = cudrv.pagelocked_empty(shape, dtype)\npycuda._driver.LogicError: cuMemHostAlloc failed: out of memory",
            "ulimit -l unlimited",
        ),
        (
            "./main -m /mnt/d/model-q4.bin --no-mmap -t 8\nllama_model_load_internal: mem required  = 7412.60 MB\nCUDA error 2 at ggml-cuda.cu:360: out of memory",
            "GGML_CUDA_NO_PINNED=1",
        ),
        (
            "x = np.ones((1500000, 900), dtype=np.float32)\ng = cupy.asarray(x)\ncupy.cuda.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory\n| 20%   35C    P8    11W / 250W |     90MiB / 11264MiB |      0%      Default |",
            "cupy.asarray(x[i:i + rows])",
        ),
    ] {
        let explanation = explain_text(text);
        assert!(explanation.causes.iter().any(|finding| finding.cause == Cause::HostMemory), "{text}");
        let steps = steps(&explanation).join("\n");
        assert!(steps.contains(step), "{text}\n{steps}");
    }
}

#[test]
fn graphics_programs_get_steps_for_any_maker() {
    let heap = "err:   Heap 0: 980 MB allocated, 900 MB used, 1010 MB allocated (driver), 1200 MB budget (driver), 1200 MB total";
    let text = format!(
        "Intel(R) UHD Graphics 620\nerr:   DxvkMemoryAllocator: Memory allocation failed\nerr:     Size:      33554432\nerr:     Mem flags: 0x1\nerr:     Mem types: 0x1\n{heap}"
    );
    let explanation = explain_text(&text);
    let checks = explanation.causes.iter().filter_map(|finding| finding.check.as_ref());
    assert!(
        checks.filter_map(|check| check.command.as_deref()).all(|command| !command.contains("nvidia-smi"))
    );
    let steps = steps(&explanation).join("\n");
    let reported = steps.split("maxDeviceMemory = ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let reported: u64 = reported.and_then(|number| number.parse().ok()).unwrap_or(u64::MAX);
    assert!(reported < 980, "{steps}");
}
