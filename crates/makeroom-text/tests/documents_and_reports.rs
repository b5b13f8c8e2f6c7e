//! Documents that quote an out-of-memory error are not failures; reports and notes about a run are.
#![allow(clippy::unwrap_used, reason = "tests")]

use makeroom_explain::Cause;
use makeroom_text::explain_text;

/// Guides, runbooks, changelogs, pull requests, source code and templates.
const DOCUMENTS: &[&str] = &[
    // A list of errors with advice.
    "## Troubleshooting\n\n### `torch.cuda.OutOfMemoryError: CUDA out of memory`\n\nLower `per_device_train_batch_size`, or turn on gradient checkpointing in the config.\n\n### `ModuleNotFoundError: No module named 'xformers'`\n\nRun `pip install xformers`.\n",
    "# FAQ\n\n**Q: The worker stops with `CUDA error: out of memory`.**\n\nA: Close other programs that use the GPU, or pass `--precision fp16`.\n\n**Q: The port is taken.**\n\nA: Set `PORT`.\n",
    "| Error | Cause | Fix |\n|---|---|---|\n| `CUDA out of memory` | model too large for the card | use `--load-in-4bit` |\n| `Connection refused` | server not running | start it first |\n",
    "Common problems:\n- `cudaMalloc failed: out of memory`: reduce `-ngl` until the model loads\n- `failed to open GGUF file`: check the path\n- slow generation: make sure the build has CUDA enabled\n",
    // Conditions.
    "If you see `RESOURCE_EXHAUSTED: Out of memory` at startup, set `XLA_PYTHON_CLIENT_MEM_FRACTION=.70` and restart the notebook.",
    "The default settings need a 16 GB card. You may get `HIP out of memory` on smaller ones; in that case choose the `small` preset.",
    "When you run out of VRAM the server prints:\n\n```\nRuntimeError: CUDA out of memory.\n```\n\nReduce the context length in `config.yaml` and restart it.\n",
    "Wenn du `CUDA out of memory` siehst, verringere die Batchgröße in `train.yaml`.\n\n```bash\nexport BATCH=2\n```\n",
    "如果出现 `CUDA out of memory`，请把 batch_size 调小，或者换用更小的模型。\n",
    // Symptom, cause, fix.
    "**Symptom:** pod restarts with `OOMKilled`\n**Cause:** the limit is below what the tokenizer cache needs\n**Fix:** raise `resources.limits.memory`\n",
    "### Engine build stops\n\nSymptom: `Error Code 2: OutOfMemory (no further information)`\nCause: the workspace is larger than the free memory.\nFix: lower `--memPoolSize=workspace` or close other programs.\n",
    // A runbook.
    "### Inference node down\n\n1. Look at the journal. If the service reports `CUDA error: out of memory`, continue with step 2, else page the owner.\n2. Restart the service:\n\n```bash\nsudo systemctl restart inference\n```\n",
    // Changelogs, commits, pull requests.
    "## [2.4.1] - 2025-03-02\n\n### Fixed\n- `CUDA out of memory` when two uploads arrive at the same time\n- wrong icon on the start page\n",
    "# Changelog\n\n- fix(loader): CUDA error: out of memory on the second call of `load()`\n- feat(api): new endpoint for embeddings\n",
    "Release cached blocks before evaluation\n\nThe evaluator raised `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.10 GiB` because the cache was kept.\n\nFixes #4182\nSigned-off-by: A. Developer <a@example.org>\n",
    "Improve the wording of the allocator's message\n\nBefore:\n\n    RuntimeError: out of memory allocating 512000000000 bytes\n\nAfter:\n\n    RuntimeError: out of memory: 512,000,000,000 bytes requested\n",
    "diff --git a/pool.cc b/pool.cc\n@@ -31,7 +31,7 @@\n-  LOG(ERROR) << \"CUDA out of memory\";\n+  LOG(ERROR) << \"CUDA out of memory, requested \" << bytes;\n",
    // Source code.
    "def test_oom():\n    with pytest.raises(RuntimeError, match=\"CUDA out of memory\"):\n        allocate(1 << 60)\n",
    "if (status == cudaErrorMemoryAllocation) {\n    fprintf(stderr, \"CUDA error: out of memory\\n\");\n    return kRetry;\n}\n",
    "std::string Describe(Status s) {\n  switch (s) {\n    case Status::kOom: return \"CUDA_ERROR_OUT_OF_MEMORY\";\n    default: return \"unknown\";\n  }\n}\n",
    // Placeholders.
    "The message has this form:\n\n```\nRuntimeError: CUDA out of memory. Tried to allocate X.XX GiB (GPU 0; YY GiB total capacity)\n```\n",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate <size> GiB. GPU 0 has a total capacity of <total> GiB\n",
];

/// Reports and notes that quote errors in the same forms.
const REPORTS: &[&str] = &[
    "If the level stops loading, the launcher shows:\n\"The engine is using more video memory than this machine has.\"\n",
    "使用 RTX 3050 训练时报 `CUDA out of memory` 错误，如果不换显卡，请问能否解决？\n",
    "### Describe the bug\n\nWhen I load the second adapter I get `CUDA out of memory`. How can I lower the use? I already set `load_in_8bit`.\n",
    "# Training crashes\n\nSteps to reproduce:\n1. run `python train.py`\n2. wait\n\n```\nTraceback (most recent call last):\n  File \"train.py\", line 31, in <module>\n    loss.backward()\nRuntimeError: CUDA out of memory.\n```\n\nTry reducing the batch size did not help.\n",
    "### Run 12\n- **Error**: `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB. GPU 0 has a total capacity of 23.60 GiB of which 1.10 GiB is free.`\n- **Fix**: lower the micro batch to 2\n",
    "The job died last night with `CUDA error: out of memory`. Set `--max-batch 4` now, will report tomorrow.",
    "server_1 | 10:31:07 ERROR CUDA out of memory\nserver_1 | 10:31:07 hint: reduce --batch-size\n",
    "cudaMalloc failed: out of memory\nTry reducing the number of layers with -ngl\n",
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
    "- RTX 3060, driver 551\n- loads fine, then `CUDA error: out of memory` at the first prompt\n- my other machine works\n",
];

#[test]
fn a_quoted_error_is_not_a_failure() {
    for text in DOCUMENTS {
        let explanation = explain_text(text);
        assert_eq!(explanation.verdict.cause, Cause::None, "{text}\n{}", explanation.verdict.summary);
    }
}

#[test]
fn a_description_is_said_to_be_one_and_leads_to_the_log() {
    for text in [DOCUMENTS[0], DOCUMENTS[4], DOCUMENTS[12], DOCUMENTS[20]] {
        let explanation = explain_text(text);
        let summary = &explanation.verdict.summary;
        assert!(summary.contains("not a log of one"), "{text}\n{summary}");
        assert!(explanation.notes.iter().any(|note| note.contains("2>&1 | makeroom why")), "{text}");
    }
}

#[test]
fn a_report_in_the_same_form_is_a_failure() {
    for text in REPORTS {
        let explanation = explain_text(text);
        assert_ne!(explanation.verdict.cause, Cause::None, "{text}\n{}", explanation.verdict.summary);
    }
}

/// Errors that only look like a lack of memory.
#[test]
fn other_failures_are_not_claimed() {
    for text in [
        "WebGL: CONTEXT_LOST_WEBGL: loseContext: context lost\nviewer: possible browser memory leak, or two backends at once",
        "[h264 @ 0x5611] No device available for decoder: device type vaapi needed for codec h264.\nDevice setup failed for decoder on input stream #0:0 : Cannot allocate memory",
        "kernel reduce: unspecified launch failure\nerror allocating device memory: out of memory\nerror allocating device memory: out of memory",
        "CUDA error: an illegal memory access was encountered at advect.cu:88\nCUDA error: out of memory at advect.cu:91",
    ] {
        let explanation = explain_text(text);
        assert_eq!(explanation.verdict.cause, Cause::None, "{text}\n{}", explanation.verdict.summary);
    }
    // The crash of an earlier run does not explain the error of a later one.
    let text = "pass 1: unspecified launch failure\nProcess finished with exit code 134\nsecond try:\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  CUDA error: out of memory";
    assert_ne!(explain_text(text).verdict.cause, Cause::None);
}
