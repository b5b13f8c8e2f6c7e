//! A pattern for texts in ASCII, which compiles several times faster than the general one.
//!
//! `\w`, `\d`, `.` and letters in any case stand for hundreds of ranges of UTF-8, and most of the time of a short answer goes
//! into compiling them. Most texts are ASCII: for them, a class has only its ASCII characters, and everything else can never
//! match. Where both apply, the two patterns match at the same places, with the same groups.

use std::fmt::Write as _;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Stands for characters outside of ASCII; texts that contain it need the general pattern.
const PLACEHOLDER: char = '\u{1}';
const LAST: u32 = 0x7f;

/// Whether a text needs no more than the pattern for ASCII.
#[inline]
pub(super) fn suffices_for(text: &str) -> bool {
    text.is_ascii() && memchr::memchr(PLACEHOLDER as u8, text.as_bytes()).is_none()
}

/// The pattern for ASCII; `None` if a pattern has no such form.
pub(super) fn of(source: &str) -> Option<String> {
    let mut text = String::new();
    write(&parse(source)?, &mut text);
    Some(text)
}

/// A syntax tree that matches what the pattern matches in texts that [`suffices_for`] accepts.
pub(super) fn parse(source: &str) -> Option<Hir> {
    let source: String = source.chars().map(|c| if c.is_ascii() { c } else { PLACEHOLDER }).collect();
    ParserBuilder::new().unicode(false).utf8(false).build().parse(&source).ok()
}

/// Matches nothing.
const NOTHING: &str = r"[^\s\S]";

/// Writes the part of an expression that matches ASCII. The printer of `regex_syntax` is not used: it prints `(?:x{4})?` as
/// `x{4}?`, which is lazy and not optional.
fn write(hir: &Hir, to: &mut String) {
    match hir.kind() {
        HirKind::Empty => to.push_str("(?:)"),
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) if text.is_ascii() => to.push_str(&regex_syntax::escape(text)),
            _ => to.push_str(NOTHING),
        },
        HirKind::Class(Class::Bytes(class)) => {
            write_class(class.iter().map(|range| (u32::from(range.start()), u32::from(range.end()))), to);
        }
        HirKind::Class(Class::Unicode(class)) => {
            write_class(class.iter().map(|range| (u32::from(range.start()), u32::from(range.end()))), to);
        }
        HirKind::Look(look) => to.push_str(look_of(*look)),
        HirKind::Repetition(repetition) => {
            to.push_str("(?:");
            write(&repetition.sub, to);
            let lazy = if repetition.greedy { "" } else { "?" };
            let max = repetition.max.map_or(String::new(), |max| max.to_string());
            let _ = write!(to, "){{{},{max}}}{lazy}", repetition.min);
        }
        HirKind::Capture(capture) => {
            let _ = match &capture.name {
                Some(name) => write!(to, "(?P<{name}>"),
                None => write!(to, "("),
            };
            write(&capture.sub, to);
            to.push(')');
        }
        HirKind::Concat(parts) => parts.iter().for_each(|part| write(part, to)),
        HirKind::Alternation(parts) => {
            to.push_str("(?:");
            for (number, part) in parts.iter().enumerate() {
                if number > 0 {
                    to.push('|');
                }
                write(part, to);
            }
            to.push(')');
        }
    }
}

fn write_class(ranges: impl Iterator<Item = (u32, u32)>, to: &mut String) {
    let mut ranges = ranges.take_while(|&(first, _)| first <= LAST).peekable();
    if ranges.peek().is_none() {
        to.push_str(NOTHING);
        return;
    }
    to.push('[');
    for (first, last) in ranges {
        let _ = write!(to, r"\x{first:02x}-\x{:02x}", last.min(LAST));
    }
    to.push(']');
}

fn look_of(look: Look) -> &'static str {
    match look {
        Look::Start => r"\A",
        Look::End => r"\z",
        Look::StartLF => "(?m:^)",
        Look::EndLF => "(?m:$)",
        Look::StartCRLF => "(?mR:^)",
        Look::EndCRLF => "(?mR:$)",
        Look::WordAscii | Look::WordUnicode => r"(?-u:\b)",
        Look::WordAsciiNegate | Look::WordUnicodeNegate => r"(?-u:\B)",
        Look::WordStartAscii | Look::WordStartUnicode => r"(?-u:\b{start})",
        Look::WordEndAscii | Look::WordEndUnicode => r"(?-u:\b{end})",
        Look::WordStartHalfAscii | Look::WordStartHalfUnicode => r"(?-u:\b{start-half})",
        Look::WordEndHalfAscii | Look::WordEndHalfUnicode => r"(?-u:\b{end-half})",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use proptest::prelude::*;

    use super::super::screen::Screen;
    use super::*;

    const SOURCES: [&str; 16] = [
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
    fn it_matches_nothing_that_is_not_ascii() {
        let pattern = regex::Regex::new(&of(r"(?i)[a-zé]+|显存|.").unwrap()).unwrap();
        assert_eq!(pattern.find("éa").map(|found| found.range()), Some(2..3));
        assert!(!pattern.is_match("显存"));
    }

    #[test]
    fn a_pattern_that_needs_more_than_ascii_has_no_such_form() {
        assert_eq!(of(r"\p{Han}+"), None);
        assert_eq!(of(r"[a-é]"), None);
    }

    #[test]
    fn texts_with_other_characters_need_the_general_pattern() {
        for (text, suffices) in [("plain\n\t\x7f", true), ("", true), ("größe", false), ("a\u{1}b", false)]
        {
            assert_eq!(suffices_for(text), suffices, "{text:?}");
        }
    }

    /// Each pattern in both forms.
    fn both() -> &'static [(regex::Regex, regex::Regex)] {
        static BOTH: OnceLock<Vec<(regex::Regex, regex::Regex)>> = OnceLock::new();
        let compile = |source: &str| regex::Regex::new(source).unwrap();
        BOTH.get_or_init(|| SOURCES.map(|source| (compile(source), compile(&of(source).unwrap()))).into())
    }

    #[test]
    fn groups_keep_their_names() {
        for (general, ascii) in both() {
            assert!(general.capture_names().eq(ascii.capture_names()), "{general}");
        }
    }

    fn groups(pattern: &regex::Regex, text: &str) -> Vec<Vec<Option<(usize, usize)>>> {
        let ranges = |captures: regex::Captures<'_>| {
            captures.iter().map(|group| group.map(|group| (group.start(), group.end()))).collect()
        };
        pattern.captures_iter(text).map(ranges).collect()
    }

    proptest! {
        #[test]
        fn it_matches_like_the_general_pattern(text in "[ -~\n\t\r\x00\x7f]{0,80}|(?i:(pytorch|out of|a,;.py@x-1 KB|ks)[ 0-9a-z]{0,9}){0,5}") {
            prop_assume!(suffices_for(&text));
            for ((general, ascii), source) in both().iter().zip(SOURCES) {
                prop_assert_eq!(groups(general, &text), groups(ascii, &text), "{}", general);
                let screened = Screen::default().is_match(source, &text);
                prop_assert_eq!(screened, Some(general.is_match(&text)), "{}", general);
            }
        }
    }
}
