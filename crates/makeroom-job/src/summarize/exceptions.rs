//! Names of Python's exceptions: which word of a line is one, and which of them only pass on the failure of another process.

/// Exceptions that report the failure of another process, or a request to end.
const PASSED_ON: [&str; 11] = [
    "DistBackendError",
    "DistStoreError",
    "DistNetworkError",
    "ChildFailedError",
    "ProcessRaisedException",
    "ProcessExitedException",
    "SignalException",
    "RayTaskError",
    "CalledProcessError",
    "KeyboardInterrupt",
    "SystemExit",
];

/// `ValueError: x`, also after the prefix of a logger.
pub(super) fn exception(line: &str) -> Option<&str> {
    let mut from = 0;
    for word in line.split(' ') {
        let name = word.split_once(':').map_or(word, |(name, _)| name);
        let last = name.rsplit('.').next().unwrap_or(name);
        let is_exception =
            ["Error", "Exception"].iter().any(|end| last.len() > end.len() && last.ends_with(end));
        if is_name(name) && is_exception && last.starts_with(|letter: char| letter.is_ascii_uppercase()) {
            // Of the text of a sentence, `an Error: x`, only the whole line counts.
            let ends_name = word.len() > name.len() || line.len() == from + word.len();
            return line.get(from..).filter(|_| ends_name);
        }
        from += word.len() + 1;
    }
    None
}

/// An exception whose name does not end like one: `queue.Empty`, `KeyboardInterrupt`, `Timeout: x`.
pub(super) fn unusual_exception(line: &str) -> Option<&str> {
    let name = line.split_once(": ").map_or(line, |(name, _)| name);
    let last = name.rsplit('.').next().unwrap_or(name);
    let is_class = last.starts_with(|letter: char| letter.is_ascii_uppercase())
        && last.contains(|letter: char| letter.is_ascii_lowercase());
    let is_known = PASSED_ON.contains(&name) || name.contains('.') || name.len() < line.len();
    (is_name(name) && is_class && is_known).then_some(line)
}

fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
}

pub(super) fn is_passed_on(error: &str) -> bool {
    let name = error.split([':', '(']).next().unwrap_or(error);
    // Ray's own exceptions report what happened to a worker.
    name.starts_with("ray.exceptions.") || PASSED_ON.iter().any(|passed| name.ends_with(passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_told_from_other_lines() {
        for line in ["ValueError: x", "a.b.MyError: x", "KeyError", "ModuleNotFoundError: No module"] {
            assert_eq!(exception(line), Some(line));
        }
        assert_eq!(exception("ERROR 10:00 - ValueError: x"), Some("ValueError: x"));
        for line in ["step 1", "an Error: x", "ValueError in a sentence", "lowerError: x", "x-Error: y", ""] {
            assert_eq!(exception(line), None, "{line}");
        }
        for line in
            ["queue.Empty", "KeyboardInterrupt", "Timeout: x", "ExceptionGroup: two (2 sub-exceptions)"]
        {
            assert_eq!(unusual_exception(line), Some(line));
        }
        for line in ["INFO: step 3", "Killed", "step 3: loss", "", "10.0.0.1"] {
            assert_eq!(unusual_exception(line), None, "{line}");
        }
        assert!(
            is_passed_on("torch.distributed.DistBackendError: x")
                && is_passed_on("ray.exceptions.ActorDiedError: x")
                && !is_passed_on("ValueError: DistBackendError")
        );
    }
}
