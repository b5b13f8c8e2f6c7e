//! TensorRT's allocator and builder, and TensorRT-LLM on top of them.
//!
//! | wording | versions |
//! |---|---|
//! | `Cuda Error in allocate: 2 (out of memory)` | 5 – 7 |
//! | `[defaultAllocator.cpp::allocate::19] Error Code 1: Cuda Runtime (out of memory)` | 8 – |
//! | `Requested amount of memory (2147483648 bytes) could not be allocated` | 7 |
//! | `OutOfMemory Error in allocate: 0`, `Out of memory error during getBestTactic: …` | 7 |
//! | `Requested amount of GPU memory (2147483648 bytes) could not be allocated` | 8 – |
//! | `Error Code 2: OutOfMemory (no further information)`, `OutOfMemory (Requested size was 123 bytes.)` | 8 – |
//! | `User allocator error allocating 123-byte buffer` | 10 – |
//! | `Skipping tactic 3 due to insufficient memory on requested size of 123 detected` (a warning, with the errors above it) | 8 – |
//! | `Could not find any implementation for node …`, `Engine could not be created from network` below such lines | 7 – |
//! | `Tactic Device request: 4096MB Available: 3072MB. Device memory is insufficient to use tactic.` (a warning) | 8.4 – |
//! | `requires 123 bytes of scratch space, but only 45 is available. Try increasing the workspace size` | 7 – |
//! | `[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, …): out of memory` | all |
//! | `Memory usage when calculating max tokens in paged kv cache: total: 24.00 GiB, available: 0.50 GiB` | 0.9 – |
//! | `maxTokensInPagedKvCache must be large enough to process at least 1 sequence to completion` | all |

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty, Fix};
use makeroom_search::{Regex, contains_folded, mixed_pattern, pattern};

use crate::facts::{Facts, Resource, Severity, Statement};
use crate::family::Family;
use crate::figures::{binary_size, captured_number, captured_size, find_size, size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "Cuda Error in ",
        "Cuda Runtime (out of memory)",
        "Requested amount of GPU memory",
        "Requested amount of memory",
        "OutOfMemory Error in",
        "during getBestTactic",
        "find any implementation for node",
        "Engine could not be created",
        "Error Code 2: OutOfMemory",
        "User allocator error allocating",
        "due to insufficient memory on requested size",
        "due to insuficient memory on requested size",
        "Device memory is insufficient to use tactic",
        "bytes of scratch space",
        "[TensorRT-LLM][ERROR]",
        "PagedKvCache must be large enough",
    ],
    read,
};

static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:Requested amount of (?:GPU )?memory \(|Requested size was |allocating )(\d+)[ -]?(bytes?\b)?",
    )
});
static SKIPPED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)on requested size of (\d+)"));
static SCRATCH: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)requires (\d+) bytes of scratch space, but only (\d+) (?:bytes )?is available")
});
static TACTIC: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)Tactic Device request: (\d+) ?(MB) Available: (\d+) ?(MB)"));
static CACHE_ROOM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)paged kv cache: total: ([\d.]+) ?(GiB), available: ([\d.]+) ?(GiB)"));

/// The same words in other letters are those of checks in CUDA's samples, with the program's own file.
static SAMPLES: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(?:Cuda|CUDA|cuda) error in "));

/// The builder gave up.
static GAVE_UP: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)find any implementation for node|Engine could not be created"));
/// The builder continues with another tactic.
static SKIPS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)Skipping tactic|insuff?icient to use tactic"));

/// The errors of one tactic stand this many lines above the line that skips it.
const LINES_TO_SKIP: usize = 6;
/// The builder gives up this many lines below the last tactic that failed.
const LINES_TO_FAILURE: usize = 40;

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    if SAMPLES.is_match(line) {
        return None;
    }
    let is_llm = line.contains("TensorRT-LLM") || line.contains("PagedKvCache");
    let mut facts = Facts::new(
        if is_llm { Framework::TensorRtLlm } else { Framework::TensorRt },
        Resource::Device,
        passage,
    );
    if let Some(found) = SCRATCH.captures(line) {
        state_workspace(&mut facts, size(&found[1], "B")?, size(&found[2], "B")?);
        return Some(facts);
    }
    let tactic = TACTIC.captures(line);
    // The paste may have lost the figures.
    if tactic.is_some() || contains_folded(line, "insufficient to use tactic") {
        if let Some(found) = tactic {
            (facts.request, facts.free) =
                (binary_size(&found[1], &found[2]), binary_size(&found[3], &found[4]));
        }
        // Without any tactic left the build fails, and the text says so.
        if !is_build_failed(passage) {
            facts.severity = Severity::Warning;
            skip_tactic(&mut facts, passage);
        }
        return Some(facts);
    }
    if GAVE_UP.is_match(line) {
        let mut near =
            passage.before().take(LINES_TO_FAILURE).filter(|line| is_about_memory(line)).peekable();
        near.peek()?;
        facts.request = near.find_map(|line| find_size(&REQUEST, line));
        return Some(facts);
    }
    if contains_folded(line, "PagedKvCache must be large enough") {
        facts.lead(
            Cause::ArtificialLimit,
            "The KV cache that kv_cache_free_gpu_mem_fraction or max_tokens_in_paged_kv_cache allows is too small for one full-length sequence.",
        );
    } else if !is_about_memory(line) {
        return None;
    }
    if SKIPPED.is_match(line) {
        facts.severity = Severity::Warning;
        facts.request = SKIPPED.captures(line).and_then(|found| captured_number(&found, 1)).map(skipped_size);
        skip_tactic(&mut facts, passage);
        return Some(facts);
    }
    // The allocator's error and the size that it could not get stand on neighboring lines.
    let nearest = passage.onward().take(2).chain(passage.before().take(1));
    if !is_llm && passage.onward().take(LINES_TO_SKIP).any(|line| SKIPS.is_match(line)) {
        facts.severity = Severity::Warning;
    }
    facts.request = nearest.filter(|line| is_about_memory(line)).find_map(|line| find_size(&REQUEST, line));
    if let Some(found) = passage.before().find_map(|line| CACHE_ROOM.captures(line)) {
        facts.total = captured_size(&found, 1);
        facts.free = captured_size(&found, 3);
    }
    Some(facts)
}

/// Whether the text says that the build failed, in the words of a tool or of a person.
fn is_build_failed(passage: &Passage<'_>) -> bool {
    static FAILED: LazyLock<Regex> = LazyLock::new(|| {
        mixed_pattern(
            r"(?i)\bbuild(?:ing)?\b(?: the)?(?: (?:engine|serialized network))?(?: file)?(?: \w+){0,2} (?:fail(?:s|ed|ure)|aborted|stopped|died|crashed|was killed)|\b(?:fail(?:s|ed)|unable|could not|cannot) (?:to )?(?:build|create|serialize)\b.{0,24}\b(?:engine|network|plan)|\bengine (?:build|creation|generation)\b.{0,16}\bfailed|failed to (?:build|create) (?:the )?(?:\w+ )?engine|构建.{0,16}失败|生成.{0,16}失败|転換.{0,8}失敗|ビルド.{0,8}失敗|빌드.{0,8}실패|(?-i:^Killed\b)|core dumped|'NoneType' object has no attribute '(?:serialize|create_execution_context)'",
        )
    });
    passage.all().any(|line| FAILED.is_match(line))
}

/// The builder goes on with another tactic, which may be slower.
fn skip_tactic(facts: &mut Facts, passage: &Passage<'_>) {
    static OTHER: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\bassert(?:ion)?\b|\bfatal\b|\bsegmentation fault\b"));
    let needs = facts.request.map_or(String::new(), |request| format!(" that needs {request}"));
    let rest = if passage.all().any(|line| OTHER.is_match(line)) {
        "the failure in the log is unrelated"
    } else {
        "nothing else failed"
    };
    let summary = format!(
        "Line {}: TensorRT skipped a tactic{needs} for lack of memory and continued with another one, which may be slower; {rest}.",
        facts.line
    );
    let fix = Fix::new(
        "to try all tactics, free GPU memory before the build; to skip the large ones without a warning, cap the workspace",
    )
    .command("config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)   (C++: setMemoryPoolLimit)");
    facts.aftermath = Some(Statement::new(Cause::None, Certainty::Certain, summary).mended_by(vec![fix]));
}

fn is_about_memory(line: &str) -> bool {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)out of memory|OutOfMemory|GPU memory|amount of memory|insuff?icient memory|allocator error",
        )
    });
    WORDS.is_match(line)
}

/// From 8.4 on the builder counts in mebibytes here; no tactic asks for less than one.
fn skipped_size(count: u64) -> Bytes {
    if count < 1 << 20 { Bytes::mib(count) } else { Bytes::new(count) }
}

fn state_workspace(facts: &mut Facts, request: Bytes, workspace: Bytes) {
    facts.request = Some(request);
    let summary = format!(
        "A layer needs {request} of workspace, but the limit is {workspace}; the GPU's memory is not the limit."
    );
    facts.state(Cause::ArtificialLimit, Certainty::Certain, summary);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::explain_text;
    use crate::find::facts_in;

    #[test]
    fn the_allocator_and_the_size_it_could_not_get() {
        let text = "[11/22/2024-13:40:47] [E] Error[1]: [defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)\n[11/22/2024-13:40:47] [W] [TRT] Requested amount of GPU memory (2147483648 bytes) could not be allocated. There may not be enough free memory for allocation to succeed.\n[11/22/2024-13:40:47] [E] 2: [safeDeserialize.cpp::load::269] Error Code 2: OutOfMemory (no further information)";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.line), ("tensorrt", 1));
        assert_eq!(facts.request, Some(Bytes::gib(2)));
        assert!(facts.statements.is_empty());
        for text in [
            "[virtualMemoryBuffer.cpp::resizePhysical::154] Error Code 2: OutOfMemory (Requested size was 2147483648 bytes.)",
            "[E] Error[9]: Error Code: 9: Skipping tactic 0x0 due to exception [tunable_graph.cpp:create:117] autotuning: User allocator error allocating 2147483648-byte buffer",
        ] {
            assert_eq!(facts_in(text).unwrap().request, Some(Bytes::gib(2)), "{text}");
        }
        let old = "[E] [TRT] ../rtSafe/safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out of memory)";
        assert_eq!(facts_in(old).unwrap().framework_id(), "tensorrt");
    }

    #[test]
    fn a_skipped_tactic_is_a_warning() {
        let text = "[W] [TRT] Skipping tactic 3 due to insufficient memory on requested size of 268435456 detected for tactic 4.";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.severity, facts.request), (Severity::Warning, Some(Bytes::mib(256))));
        let text = "[W] [TRT] Tactic Device request: 4096MB Available: 3072MB. Device memory is insufficient to use tactic.\n[W] [TRT] UNSUPPORTED_STATESkipping tactic 3 due to insufficient memory on requested size of 4096 detected for tactic 0x4.";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.request, facts.free), (Some(Bytes::gib(4)), Some(Bytes::gib(3))));
        for text in [
            "[W] [TRT] Skipping tactic 1 due to insufficient memory on requested size of 5368709120 detected for tactic 0x2.\n[I] Engine built in 12.5 sec.",
            "[W] [TRT] Tactic Device request: 5120MB Available: 3072MB. Device memory is insufficient to use tactic.",
        ] {
            let explanation = explain_text(text);
            assert_eq!(explanation.verdict.cause, Cause::None, "{text}");
            assert!(explanation.verdict.summary.contains("skipped a tactic that needs 5.00 GiB"), "{text}");
            let command = explanation.causes[0].fixes[0].command.as_deref();
            assert!(command.is_some_and(|command| command.contains("setMemoryPoolLimit")), "{text}");
        }
    }

    #[test]
    fn a_tactic_before_a_failed_build_is_the_failure() {
        let tactic = "[W] [TRT] Tactic Device request: 640MB Available: 311MB. Device memory is insufficient to use tactic.";
        for rest in [
            "build engine file failed",
            "[E] Failed to build the serialized engine",
            "AttributeError: 'NoneType' object has no attribute 'serialize'",
            "The build of the engine stops here: engine generation for INT8 failed after 40 s.",
            "构建 engine 70 秒后失败",
        ] {
            let facts = facts_in(&format!("{tactic}\n{rest}")).unwrap();
            assert_eq!((facts.severity, facts.free), (Severity::Failure, Some(Bytes::mib(311))), "{rest}");
        }
        let other = explain_text(&format!("{tactic}\nThe fatal error is an assertion in the Conv node."));
        assert!(other.verdict.summary.contains("is unrelated"), "{}", other.verdict.summary);
    }

    #[test]
    fn a_workspace_that_is_too_small() {
        let text = "[E] Internal error: plugin node Resize_1 requires 33554432 bytes of scratch space, but only 16777216 is available. Try increasing the workspace size with IBuilder::setMaxWorkspaceSize().";
        let facts = facts_in(text).unwrap();
        let stated = &facts.statements[0];
        assert_eq!((stated.cause, stated.certainty), (Cause::ArtificialLimit, Certainty::Certain));
    }

    #[test]
    fn tensorrt_llm() {
        let text = "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 24.00 GiB, available: 0.50 GiB\n[TensorRT-LLM][ERROR] [TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mCudaStream->get()): out of memory (/code/tensorrt_llm/cpp/tensorrt_llm/runtime/tllmBuffers.h:112)";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.request), ("tensorrt-llm", None));
        assert_eq!((facts.total, facts.free), (Some(Bytes::gib(24)), Some(Bytes::mib(512))));
        assert!(facts.statements.is_empty());
        assert!(facts_in("[TensorRT-LLM][ERROR] Assertion failed: hidden size").is_none());
    }

    #[test]
    fn the_errors_of_a_skipped_tactic_are_warnings_too() {
        let skipped = "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no further information)\n[TRT] [W] Requested amount of GPU memory (8589934592 bytes) could not be allocated. There may not be enough free memory for allocation to succeed.\n[TRT] [W] Skipping tactic 8 due to insufficient memory on requested size of 8589934592 detected for tactic 0x3c.\n";
        assert_eq!(facts_in(skipped).unwrap().severity, Severity::Warning);
        let failed = format!(
            "{skipped}[E] Error[10]: IBuilder::buildSerializedNetwork: Error Code 10: Internal Error (Could not find any implementation for node {{ForeignNode[a...b]}}.)\n[E] Engine could not be created from network"
        );
        let facts = facts_in(&failed).unwrap();
        assert_eq!((facts.severity, facts.request), (Severity::Failure, Some(Bytes::gib(8))));
        assert!(
            facts_in(
                "[E] Error Code 10: Internal Error (Could not find any implementation for node Conv_3.)"
            )
            .is_none()
        );
    }

    #[test]
    fn the_words_of_version_7() {
        let text = "[TensorRT] ERROR: Requested amount of memory (268435456 bytes) could not be allocated. There may not be enough free memory for allocation to succeed.\n[TensorRT] ERROR: ../rtSafe/WeightsPtr.cpp (92) - OutOfMemory Error in allocate: 0";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.request), ("tensorrt", Some(Bytes::mib(256))));
    }
}
