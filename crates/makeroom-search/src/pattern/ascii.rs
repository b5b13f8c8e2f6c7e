//! A pattern for texts in ASCII, which compiles several times faster than the general one.
//!
//! `\w`, `\d`, `.` and letters in any case stand for hundreds of ranges of UTF-8, and most of the time of a short answer goes
//! into compiling them. Most texts are ASCII: for them, a class has only its ASCII characters, and everything else can never
//! match. Where both apply, the two patterns match at the same places, with the same groups.

use std::borrow::Cow;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::Hir;

/// Stands for characters outside of ASCII; texts that contain it need the general pattern.
const PLACEHOLDER: char = '\u{1}';

/// Whether a text needs no more than the pattern for ASCII.
#[inline]
pub(super) fn suffices_for(text: &str) -> bool {
    text.is_ascii() && memchr::memchr(PLACEHOLDER as u8, text.as_bytes()).is_none()
}

/// A syntax tree that matches like the pattern in texts that [`suffices_for`] accepts. `None` if the pattern has no such form, or
/// if it contains a non-ASCII space, because the flag `x` may ignore that space.
pub(super) fn parse(source: &str) -> Option<Hir> {
    if source.contains(|letter: char| !letter.is_ascii() && letter.is_whitespace()) {
        return None;
    }
    let replaced =
        |source: &str| source.chars().map(|c| if c.is_ascii() { c } else { PLACEHOLDER }).collect();
    let source: Cow<'_, str> = if source.is_ascii() { source.into() } else { Cow::Owned(replaced(source)) };
    ParserBuilder::new().unicode(false).utf8(false).build().parse(&source).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::OnceLock;

    use proptest::prelude::*;
    use regex_automata::meta;
    use regex_automata::util::captures::Captures;

    use super::super::compile_for_ascii;
    use super::super::nfa::{NfaLookup, NfaSearch};
    use super::*;

    pub(in super::super) const SOURCES: [&str; 16] = [
        // Long enough to be split.
        r"(?i)\bpytorch (\d)|out of [a-z]+$|^a,;|(?:x|ks)\d|größe \d|显存|\.py@x-\d|(?P<unit>KB|MB)\b|[|)]\s|\bin none of these texts\b|nor is this rather long phrase, which makes the pattern longer \d+",
        r"(?-u:\b)oom(?-u:\b)|(?-u:\w)+x",
        r"(?u:\b\w+)\r?$",
        r"^I(?:[0-9]{4})? |(?:a+)?b|(?:c*?)+d",
        r"[A-Z]+(?:[a-z]+)?|[a-z]+|[0-9]+",
        r"(?mR)^\s*$|x\b{start}|\b{end}y|(?:)z|\x{1F600}|[é]",
        r"(?:ab|a)(?:c|bcd)??(d*)",
        r"(?i)\b(?P<what>py)?torch(?: version)? (\d+)",
        r"(?ix) \b (?: out \s of | 显存 | größe ) \b [^，,;]* (\S+)?",
        r"[\w.-]{2,40}@\w+\.(?:py|cu)\b",
        r"^\s*(\W*)(.{0,20}?)$",
        r"(?m)^(?:a|b)+?\D",
        r"[^\x00-\x08]+[，。]?",
        r"(?i)k(?:s|ß)",
        r"(?s).+?x",
        r"\B(-?[0-9.,]+)\s?(?:[KMGT]i?B|字节)",
    ];

    #[test]
    fn a_pattern_that_needs_more_than_ascii_has_no_such_form() {
        assert_eq!(parse(r"\p{Han}+"), None);
        assert_eq!(parse(r"[a-é]"), None);
        assert_eq!(parse("(?x)a\u{3000}b"), None);
    }

    #[test]
    fn texts_with_other_characters_need_the_general_pattern() {
        for (text, suffices) in [("plain\n\t\x7f", true), ("", true), ("größe", false), ("a\u{1}b", false)]
        {
            assert_eq!(suffices_for(text), suffices, "{text:?}");
        }
    }

    /// Each pattern, compiled for all texts and for ASCII texts.
    fn both() -> &'static [(meta::Regex, meta::Regex)] {
        static BOTH: OnceLock<Vec<(meta::Regex, meta::Regex)>> = OnceLock::new();
        let for_ascii = |source: &str| compile_for_ascii(meta::Config::new(), &[source]).unwrap();
        let both = || SOURCES.map(|source| (meta::Regex::new(source).unwrap(), for_ascii(source))).into();
        BOTH.get_or_init(both)
    }

    #[test]
    fn groups_keep_their_names() {
        for (general, ascii) in both() {
            assert!(general.group_info().all_names().eq(ascii.group_info().all_names()), "{general:?}");
        }
    }

    fn groups(pattern: &meta::Regex, text: &str) -> Vec<Vec<Option<(usize, usize)>>> {
        let ranges = |captures: Captures| {
            captures.iter().map(|group| group.map(|group| (group.start, group.end))).collect()
        };
        pattern.captures_iter(text).map(ranges).collect()
    }

    proptest! {
        #[test]
        fn it_matches_like_the_general_pattern(text in "[ -~\n\t\r\x00\x7f]{0,80}|(?i:(pytorch|out of|a,;.py@x-1 KB|ks)[ 0-9a-z]{0,9}){0,5}") {
            prop_assume!(suffices_for(&text));
            for ((general, ascii), source) in both().iter().zip(SOURCES) {
                let expected = groups(general, &text);
                prop_assert_eq!(&groups(ascii, &text), &expected, "{}", source);
                let nfas = NfaSearch::default();
                prop_assert_eq!(nfas.is_match(source, &text), Some(!expected.is_empty()), "{}", source);
                match nfas.nfa_for(source, &text) {
                    NfaLookup::PossibleMatch(nfa) => prop_assert_eq!(groups(nfa, &text), expected, "{}", source),
                    NfaLookup::NoMatch => prop_assert!(expected.is_empty(), "{}", source),
                    NfaLookup::NoAsciiForm => prop_assert!(false, "{} has no form for ASCII", source),
                }
            }
        }
    }
}
