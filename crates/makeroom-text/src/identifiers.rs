//! Names that contain the words of a memory error without reporting one: branches, files, links, options, tests and
//! settings (`21-cuda-out-of-memory-in-eval`, `test_oom.py`, `OOM_RETRY`, `--oom-policy`).

use std::borrow::Cow;
use std::sync::LazyLock;

use makeroom_search::{Regex, pattern};

/// A word with its joints: hyphens, underscores, slashes, dots.
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:https?://|--)?[\w./#-]*(?:oom|out[_-]?of[_-]?(?:\w+[_-])?memory)[\w./#-]*")
});
static FILE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\.(?:py|sh|rs|cpp|cu|cc|h|md|log|out|ya?ml|txt|json|toml|ipynb|png)$"));
/// The words that join `oom` in reports: `CUDA-OOM`, `oom_kill`.
const REPORTED: [&str; 22] = [
    "oom",
    "ooms",
    "cuda",
    "gpu",
    "vram",
    "cpu",
    "host",
    "kill",
    "killer",
    "killed",
    "kills",
    "killing",
    "error",
    "errors",
    "exception",
    "crash",
    "event",
    "events",
    "ram",
    "hip",
    "kernel",
    "memory",
];

/// Whether a word that names a memory error is the name of something else.
fn is_name(token: &str) -> bool {
    let lower = token.to_ascii_lowercase();
    if lower.starts_with("http") || lower.starts_with("--") || FILE.is_match(&lower) {
        return true;
    }
    let parts: Vec<&str> = lower.split(['-', '_', '/']).filter(|part| !part.is_empty()).collect();
    // A branch: words joined by hyphens or slashes, more than the error's own.
    let is_slug = lower.contains('-') && !lower.contains(['_', '.']);
    if is_slug && parts.len() >= 3 {
        let known = ["out", "of"];
        let others = parts.iter().filter(|part| !known.contains(part) && !REPORTED.contains(part)).count();
        let is_numbered = parts[0].bytes().all(|byte| byte.is_ascii_digit());
        let is_short = parts.contains(&"oom") || lower.contains('/');
        return is_numbered || others >= 2 || is_short && others >= 1;
    }
    // A setting or a function: `oom` with other words.
    parts.len() >= 2 && parts.contains(&"oom") && parts.iter().any(|part| !REPORTED.contains(part))
}

/// A line without the names of branches, files, links, options and settings that contain the words of a memory error.
pub(crate) fn without_names(line: &str) -> Cow<'_, str> {
    TOKEN.replace_all(line, |token| if is_name(token) { "NAME" } else { token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_removed() {
        for line in [
            "on the `7-cuda-out-of-memory-when-saving` branch",
            "see https://example.org/issues/3-out-of-memory",
            "tests/test_oom.py::test_retry",
            "set OOM_RETRY=3",
            "use --oom-policy skip",
            "git checkout fix/oom-in-eval",
            "job `gpu-oom-stress` is slow",
        ] {
            let rest = without_names(line).to_ascii_lowercase();
            assert!(!rest.contains("oom") && !rest.contains("memory"), "{line}: {rest}");
        }
    }

    #[test]
    fn errors_stay() {
        for line in [
            "CUDA_ERROR_OUT_OF_MEMORY",
            "cuda-out-of-memory",
            "out-of-memory-error",
            "torch.cuda.OutOfMemoryError: CUDA out of memory.",
            "oom-kill:constraint=CONSTRAINT_NONE",
            "killed by the OOM-killer",
            "VK_ERROR_OUT_OF_DEVICE_MEMORY",
            "CUDA-OOM after an hour",
        ] {
            assert_eq!(without_names(line), line);
        }
    }
}
