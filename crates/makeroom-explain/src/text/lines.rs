//! What kind of line it is: a program's error, or a person's sentence about one; and whether a program handled the
//! error it printed.
//!
//! People paste logs with their own words around them, and the words mention memory too. An error outranks a
//! sentence; a handled error is a warning.

use std::sync::LazyLock;

use regex::Regex;

use super::figures::pattern;
use super::log::{Log, split_prefix};

/// Tokens that only programs print.
static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?x)
        (?i: \w*(?:Error|Exception|Fault|Failure)\b['\x60")\]>]*\s*[:(\[] )
      | \w+Error\b | \w+Exception\b
      | (?i: \b(?:error|fatal|critical|abort|panic(?:ked)?)\b \W{0,3}: )
      | \bERROR\b | \bFATAL\b | \bCRITICAL\b | \bError\s\d+\b | ^\s*E\s? \d{4}\b | \[E\] | \bE\s tensorflow
      | (?i: CUDA (?:\s driver|\s runtime)? \s error | CUDA \s failure | CUDA \s out \s of \s memory \. | HIP \s out \s of | XPU \s out \s of | MPS \s backend )
      | (?i: terminate \s called | what\(\): | tried \s to \s allocate | Traceback | core \s dumped | aborted | !!! )
      | (?i: oom-kill | out \s of \s memory: \s kill | killed \s process | invoked \s oom | oom_kill | OOMKilled )
      | (?i: \bfailed \b .{0,60} (?: memory | alloc) | (?: memory | malloc | alloc\w*) \b .{0,60} \bfailed\b | (?:unable|failed) \s to \s alloc )
      | CUDA_ERROR | cudaError | hipError | RESOURCE_EXHAUSTED | STATUS_ALLOC | CL_\w+ | VK_ERROR
      | (?i: \bOOM \s when | exit \s? code | signal \s 9 | SIGKILL | core \s dump )
        "#,
    )
});

/// Words of a person who tells about a program.
static PERSON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x)
        \bI\b(?:['’](?:m|ve|d|ll))? (?: \s | $ ) | \b[Mm]y\s | \b[Ww]e(?:['’]\w+)?\s | \b[Oo]ur\s | \b[Yy]ou(?:r|['’]re)?\s | \b[Aa]nyone\b
      | (?i: \b(?:how \s (?:can|do|to|much) | why \s (?:is|does|do|am) | is \s there | does \s this | can \s (?:we|this|it|someone) | what \s (?:is|does) | thanks | thank \s you | hello | hi\s (?:all|there|everyone) | any \s (?:idea|help|advice) | would \s be | it \s (?:seems|implies|looks|means|happens) | it['’]s \s | there['’]s \s | in \s order \s to | due \s to \s the | for \s example | e\.g\. | because | however | instead \s of | sometimes | often | always | usually | make \s sure ) \b )
      | \?\s*$
        ",
    )
});

/// A heading or an item of a list in a document.
static HEADING: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*(?:#{1,6}\s|\d{1,2}[.)]\s|[-*+]\s|//|--\s|\|)"));

/// A line of source code or of a patch that mentions the error.
static SOURCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?x) ^\s*(?:[+-]\s*)?(?: except\b | catch\b | raise\s+\w | throw\s | assert\b | def\s | elif\b | if\b.{0,120}[:{)]\s*$ | //\s | /\*|\*\s | return\s | import\s | from\s+\w+\s+import | class\s+\w+.*:\s*$ | print\(|log(?:ger|ging)?\.\w+\( | case\s )
      | \btest_\w+ .* \b(?:PASSED|ok)\b
        "#,
    )
});

/// Denials and conditions: nothing ran out.
static DENIAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:no|not|without|never|avoids?|avoiding|prevents?|preventing|to fix|fix(?:es|ed)?|in case of|if (?:you|it|there|the|we)|when(?:ever)? (?:you|it|there)|may|might|could|can|would|likely to|risk of|potential(?:ly)?|handle|catch(?:es)?)\b[^.;:]{0,40}(?:out[ -]of[ -](?:\w+ )?memory|\boom\b|memory error)",
    )
});

/// The program went on: it retried, fell back, skipped.
static HANDLED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \bretry(?:ing)?\b (?: \s (?:with|in|using|batch|on) | \.\.\. | …)? | \bretried\b | \bfall(?:ing|s)?[\s-]?back\b | \bfell \s back | \bskipp(?:ing|ed)\b | \btrying \s (?:again|with|to \s recover|smaller|a \s smaller|next|lower) | \bwill \s (?:retry|try \s again|continue|skip|fall)
      | \breduc(?:ing|ed) \s (?:the \s)?(?:\w+\s)?(?:batch|chunk|tile|resolution|size) | \blower(?:ing|ed) \s (?:the \s)?batch | \battempting \s to \s recover | \brecover(?:ed|ing)\b | \bswitching \s to \s (?:tiled|cpu|slow|low|smaller)
      | not \s (?:a|an) \s (?:failure|error) | \bnot \s fatal | \bignor(?:ing|ed)\b | \bcontinuing \s (?:without|with|on) | \busing \s (?:cpu|host|system|managed|pageable) \s memory \s instead | \binstead \s using | \bevict(?:ing|ed)\b | \bsplitting \s (?:the\s)?batch | \boffload(?:ing|ed) \s to \s (?:cpu|system|shared) | \bswap(?:ping|ped) \s to
        ",
    )
});

/// A step of a run that goes on.
static PROGRESS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\d+%\|| it/s\b|\ds/it\b|\bstep[s]?[ :=/]+\d+|\bepoch[ :\[=]+\d+|\bloss[ :=]+-?\d|\biter(?:ation)?[s]?[ :=]+\d+",
    )
});

/// What a line that mentions memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// A program printed it.
    Error,
    /// A person wrote it, or it is source code.
    Prose,
}

/// What kind a line is.
pub(crate) fn kind(line: &str) -> LineKind {
    let (writer, body) = split_prefix(line);
    if SOURCE.is_match(body) {
        return LineKind::Prose;
    }
    if writer.is_some() || ERROR.is_match(line) {
        // Even a program's token may stand in a denial: "no CUDA out of memory anymore".
        let is_denied = DENIAL.is_match(body) && PERSON.is_match(body);
        return if is_denied { LineKind::Prose } else { LineKind::Error };
    }
    if HEADING.is_match(line) || PERSON.is_match(body) || DENIAL.is_match(body) {
        return LineKind::Prose;
    }
    LineKind::Error
}

/// Whether the words around an error say that the program went on without the memory.
pub(crate) fn is_handled(log: &Log, index: usize) -> bool {
    let line = log.line(index);
    if HANDLED.is_match(line) {
        return true;
    }
    // The sentence that says so may stand below the error, before any traceback.
    (index + 1..(index + 3).min(log.len())).any(|next| {
        let line = log.line(next);
        !line.contains("Traceback") && kind(line) == LineKind::Error && HANDLED.is_match(line)
    })
}

/// How many steps of a run a stretch of a log shows, up to `enough`.
pub(crate) fn progress_between(log: &Log, from: usize, to: usize, enough: usize) -> usize {
    /// A stretch longer than this is progress if its beginning is.
    const LINES_SEARCHED: usize = 2000;
    (from..to.min(from.saturating_add(LINES_SEARCHED)))
        .filter(|&index| PROGRESS.is_match(log.line(index)))
        .take(enough)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_sentences() {
        for line in [
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "When I run it I get RuntimeError: CUDA error: out of memory",
            "# [BUG] ERROR: Insufficient memory on accelerator",
            "[1234.5] Out of memory: Killed process 77 (python)",
            "GPUassert: out of memory solver.cu 214",
            "cudaMalloc failed: out of memory",
            "ran out of memory",
        ] {
            assert_eq!(kind(line), LineKind::Error, "{line}");
        }
        for line in [
            "I think you are running out of memory here.",
            "2. Out of GPU memory",
            "This change avoids out-of-memory on small cards",
            "    except torch.cuda.OutOfMemoryError:",
            "+ raise RuntimeError('out of memory')",
            "How can I avoid running out of memory?",
        ] {
            assert_eq!(kind(line), LineKind::Prose, "{line}");
        }
    }

    #[test]
    fn a_retry_is_a_handled_error() {
        let log = Log::new("Warning: Ran out of memory when decoding, retrying with tiled decoding.");
        assert!(is_handled(&log, 0));
        let log = Log::new("CUDA out of memory. Tried to allocate 1.00 GiB\nFalling back to CPU\nepoch 2");
        assert!(is_handled(&log, 0));
        let log = Log::new("CUDA out of memory. Tried to allocate 1.00 GiB\nTraceback (most recent call last):");
        assert!(!is_handled(&log, 0));
    }
}
