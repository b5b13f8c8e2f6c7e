//! Patterns in which `\d`, `\w` and `\b` know ASCII only.
//!
//! Compiling the Unicode tables would take most of the time of a short answer, and next to non-ASCII text a Unicode `\b`
//! falls back to the slowest of the regex engines.

use std::borrow::Cow;

use crate::pattern::{Regex, RegexSet};

/// A pattern from source code. Its classes are those of ASCII, unless it contains non-ASCII letters. If it is invalid, debug
/// builds panic, and in release builds it matches nothing.
pub fn pattern(source: &str) -> Regex {
    Regex::new(with_ascii_classes(source).into_owned())
}

/// A pattern with words of several scripts in which `\d`, `\w` and `\b` stand next to ASCII letters only.
pub fn mixed_pattern(source: &str) -> Regex {
    Regex::new(ascii_classes(source))
}

/// Patterns like those of [`pattern`], searched together.
pub fn pattern_set<'source>(sources: impl IntoIterator<Item = &'source str>) -> RegexSet {
    RegexSet::new(sources.into_iter().map(|source| with_ascii_classes(source).into_owned()).collect())
}

fn with_ascii_classes(source: &str) -> Cow<'_, str> {
    if source.chars().any(|letter| !letter.is_ascii() && letter.is_alphanumeric()) {
        return Cow::Borrowed(source);
    }
    Cow::Owned(ascii_classes(source))
}

fn ascii_classes(source: &str) -> String {
    let mut pattern = String::with_capacity(source.len() * 2);
    let mut letters = source.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            pattern.push(letter);
            continue;
        }
        // Classes can be nested, so this also works inside brackets.
        match letters.next() {
            Some('d') => pattern.push_str("[0-9]"),
            Some('w') => pattern.push_str("[0-9A-Za-z_]"),
            Some('b') => pattern.push_str(r"(?-u:\b)"),
            other => pattern.extend(std::iter::once('\\').chain(other)),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_ascii_unless_the_pattern_has_other_letters() {
        assert_eq!(with_ascii_classes(r"\b[\w.-]+\\\d\s"), r"(?-u:\b)[[0-9A-Za-z_].-]+\\[0-9]\s");
        assert_eq!(with_ascii_classes(r"\bпамят\w+"), r"\bпамят\w+");
        // An English word directly after Chinese text, which has no spaces, and one before a typographic apostrophe.
        assert!(pattern(r"\boom\b").is_match("训练时oom了"));
        assert!(pattern(r"^\w+n['’]t [\w-]+$").is_match("didn’t fit-in"));
    }

    #[test]
    fn a_set_names_the_patterns_that_match() {
        let set = pattern_set([r"\boom\b", "memory", r"\d+ MiB"]);
        assert_eq!(set.matches("oom: 12 MiB"), [0, 2]);
        assert!(set.matches("room").is_empty());
    }
}
