//! The words that every match of a pattern contains.
//!
//! Every answer needs the words of hundreds of patterns, so they are read in one pass ([`Reader`]), without a syntax tree. If the
//! pass meets syntax that it does not know, the pattern has no words, which is always correct: then every text may match. The
//! same pass splits a pattern into its top-level alternatives.

use memchr::memchr2_iter;

use super::reader::{Part, Reader};

/// Letters outside ASCII that match `s` and `k` if case is ignored.
pub(super) const FOLDED: [char; 2] = ['ſ', '\u{212a}'];

/// The words that a match contains, in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Words {
    One(Vec<u8>),
    /// A letter outside ASCII, in any case, so that it has no bytes of its own.
    OutsideAscii,
    /// Every one of these.
    All(Vec<Self>),
    /// At least one of these.
    Any(Vec<Self>),
}

impl Words {
    /// The words of a pattern; `None` if a match need not contain any, or if they cannot be determined.
    pub(super) fn of(source: &str) -> Option<Self> {
        let mut reader = Reader::new(source);
        let words = reader.alternation().ok()?;
        if reader.rest.is_empty() { words } else { None }
    }

    /// The top-level alternatives of a pattern, each as a pattern with the same leading flags, and its words. `None` if the
    /// pattern cannot be split.
    pub(super) fn split_alternatives(source: &str) -> Option<Vec<(String, Option<Self>)>> {
        let mut reader = Reader::new(source);
        let flags = reader.leading_flags();
        let mut alternatives = Vec::new();
        loop {
            let from = reader.rest;
            let words = reader.concatenation().ok()?;
            let alternative = &from[..from.len() - reader.rest.len()];
            alternatives.push((format!("{flags}{alternative}"), words));
            if !reader.skip(b'|') {
                break;
            }
        }
        // Flags set inside an alternative may also apply to later ones.
        (reader.rest.is_empty() && !reader.sets_flags).then_some(alternatives)
    }

    /// Whether it is only one letter, which nearly every text contains.
    fn is_short(&self) -> bool {
        matches!(self, Self::One(word) if word.len() < 2)
    }

    /// Whether a text may contain a word that ASCII does not show: one with a letter that folds to it.
    pub(super) fn may_fold(text: &str) -> bool {
        !text.is_ascii() && text.contains(FOLDED)
    }

    /// Whether a text contains the words. Adds up the bytes that are searched.
    pub(super) fn are_in(&self, text: &[u8], searched: &mut usize) -> bool {
        match self {
            Self::One(word) => {
                *searched += text.len();
                contains(text, word)
            }
            Self::OutsideAscii => {
                *searched += text.len();
                !text.is_ascii()
            }
            Self::All(all) => all.iter().all(|words| words.are_in(text, searched)),
            Self::Any(any) => any.iter().any(|words| words.are_in(text, searched)),
        }
    }
}

/// Collects the words of consecutive parts. Consecutive letters form one word.
#[derive(Default)]
pub(super) struct Concatenation {
    all: Vec<Words>,
    /// The letters since the last part that was not a letter.
    letters: Vec<u8>,
    has_parts: bool,
}

impl Concatenation {
    pub(super) fn push(&mut self, part: Part) {
        self.has_parts = true;
        match part {
            Part::Letter(letter) => {
                self.letters.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Part::Other(words) => {
                self.end_word();
                self.all.extend(words.filter(|words| !words.is_short()));
            }
        }
    }

    fn end_word(&mut self) {
        if self.letters.len() > 1 {
            self.all.push(Words::One(self.letters.as_slice().into()));
        }
        self.letters.clear();
    }

    /// The words of all parts, including `last`.
    pub(super) fn finish(mut self, last: Option<Part>) -> Option<Words> {
        if !self.has_parts {
            return last?.words();
        }
        if let Some(last) = last {
            self.push(last);
        }
        if self.all.is_empty() {
            return Some(Words::One(self.letters)).filter(|word| !word.is_short());
        }
        self.end_word();
        // The cheapest first: a single missing word decides.
        self.all.sort_by_key(|words| !matches!(words, Words::One(_) | Words::OutsideAscii));
        self.all.dedup();
        Some(Words::All(self.all))
    }
}

/// Whether a text contains a word, in any case.
fn contains(text: &[u8], word: &[u8]) -> bool {
    let Some(&first) = word.first() else { return true };
    let Some(last) = text.len().checked_sub(word.len()) else { return false };
    memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), &text[..=last])
        .any(|start| text[start..start + word.len()].eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex_syntax::ast::parse::Parser;
    use regex_syntax::ast::{Ast, LiteralKind, RepetitionKind, RepetitionRange};

    use super::*;

    /// The words by the syntax tree of the pattern.
    fn by_tree(source: &str) -> Option<Words> {
        required(&Parser::new().parse(source).ok()?)
    }

    fn required(ast: &Ast) -> Option<Words> {
        part(ast).words()
    }

    fn part(ast: &Ast) -> Part {
        match ast {
            Ast::Literal(literal) => Part::of_letter(literal.c, literal.kind != LiteralKind::Verbatim),
            Ast::Group(group) => Part::Other(required(&group.ast)),
            Ast::Repetition(repetition) => {
                let least = match &repetition.op.kind {
                    RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore => 0,
                    RepetitionKind::OneOrMore => 1,
                    RepetitionKind::Range(
                        RepetitionRange::Exactly(least)
                        | RepetitionRange::AtLeast(least)
                        | RepetitionRange::Bounded(least, _),
                    ) => *least,
                };
                Part::Other(if least == 0 { None } else { required(&repetition.ast) })
            }
            Ast::Alternation(alternation) => {
                let branches: Option<Vec<Words>> = alternation.asts.iter().map(required).collect();
                Part::Other(branches.map(Words::Any))
            }
            Ast::Concat(concat) => {
                let mut parts: Vec<Part> = concat.asts.iter().map(part).collect();
                let last = parts.pop();
                let mut all = Concatenation::default();
                for part in parts {
                    all.push(part);
                }
                Part::Other(all.finish(last))
            }
            _ => Part::Other(None),
        }
    }

    /// Every part of the syntax that patterns use.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[a-d]{1,3}",
            Just(r"\d".to_owned()),
            Just(r"\.".to_owned()),
            Just(r"\ ".to_owned()),
            Just(r"\n".to_owned()),
            Just(r"\b".to_owned()),
            Just(r"\b{start}".to_owned()),
            Just(r"\x41".to_owned()),
            Just(r"[ab]".to_owned()),
            Just(r"[^]ab]".to_owned()),
            Just(r"[a[^b]\]c]".to_owned()),
            Just("[[:alpha:]_]".to_owned()),
            Just("[a # b]".to_owned()),
            Just("[ ]a]".to_owned()),
            Just("[-]".to_owned()),
            Just("[!-[b]".to_owned()),
            Just("]".to_owned()),
            Just(" # ab\n".to_owned()),
            Just(" ".to_owned()),
            Just(".".to_owned()),
            Just("显".to_owned()),
            Just("ö".to_owned()),
            Just("ſ".to_owned()),
            Just("(?x)".to_owned()),
            Just("(?i-x)".to_owned()),
        ];
        piece.prop_recursive(4, 24, 5, |inner| {
            let repetition = prop::sample::select(vec![
                "*",
                "?",
                "+",
                "+?",
                "{2}",
                "{0,3}",
                "{1,}?",
                "{ 2 , 3 }",
                "{2 # }\n}",
                " +",
            ]);
            let group =
                prop::sample::select(vec!["(", "(?:", "(?<name>", "(?P<name>", "(?i:", "(?x:", "(?i-x:"]);
            prop_oneof![
                (inner.clone(), repetition).prop_map(|(inner, repetition)| format!("{inner}{repetition}")),
                (group, inner.clone()).prop_map(|(group, inner)| format!("{group}{inner})")),
                prop::collection::vec(inner.clone(), 1..5).prop_map(|inner| inner.concat()),
                prop::collection::vec(inner, 2..4).prop_map(|inner| inner.join("|")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_words_are_those_of_the_syntax_tree(source in pieces()) {
            if let Some(words) = Words::of(&source)
                && regex_syntax::parse(&source).is_ok()
            {
                prop_assert_eq!(Some(words), by_tree(&source), "{}", source);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_pattern_matches_if_an_alternative_does(
            source in pieces(),
            texts in prop::collection::vec("[a-d .1\n\\]A-]{0,12}", 8),
        ) {
            if let (Some(alternatives), Ok(whole)) = (Words::split_alternatives(&source), regex::Regex::new(&source)) {
                let compile = |(alternative, words): (String, _)| (regex::Regex::new(&alternative).unwrap(), words);
                let alternatives: Vec<(_, Option<Words>)> = alternatives.into_iter().map(compile).collect();
                for text in texts {
                    let is_match = alternatives.iter().any(|(alternative, words)| {
                        let is_match = alternative.is_match(&text);
                        assert!(!is_match || words.as_ref().is_none_or(|words| words.are_in(text.as_bytes(), &mut 0)));
                        is_match
                    });
                    prop_assert_eq!(whole.is_match(&text), is_match, "{} in {}", source, text);
                }
            }
        }
    }

    #[test]
    fn alternatives_keep_the_flags_of_the_pattern() {
        let alternatives = |source| {
            let found = Words::split_alternatives(source)?;
            Some(found.into_iter().map(|(alternative, _)| alternative).collect::<Vec<_>>())
        };
        assert_eq!(alternatives("(?i)ab|c(d|e)").unwrap(), ["(?i)ab", "(?i)c(d|e)"]);
        assert_eq!(alternatives("(?x)a # b|c\n|d").unwrap(), ["(?x)a # b|c\n", "(?x)d"]);
        assert_eq!(alternatives("(?i:ab)|[|]|").unwrap(), ["(?i:ab)", "[|]", ""]);
        assert_eq!(alternatives("a(?i)b|c"), None);
    }

    #[test]
    fn common_syntax_is_known() {
        for source in [
            r"(?i)\b(?:py)?torch(?: version)? 2",
            "(?ix) \\b (?: out \\s of | 显存 ) \\b # a comment\n",
            r"a(?P<size>[\d.]+)\s*(?<unit>[KMG]i?B)\b.{2,}?bc|de",
            r"\[rank(\d+)\]: [^\]]*\]oom",
        ] {
            assert!(by_tree(source).is_some(), "{source}");
            assert_eq!(Words::of(source), by_tree(source), "{source}");
        }
    }

    #[test]
    fn a_text_without_the_words_cannot_match() {
        for (source, possible, impossible) in [
            (r"(?i)\b(?:py)?torch(?: version)? 2", "a Torch 2", "version py 2"),
            (r"(?:mem(?:ory)?|vram)\s*(\d+) used", "vram used", "memory of 3"),
            (r"(?ix) \b (?: out \s of | 显存 ) \b", "OF OUT", "out o"),
            (r"(?ix) \b (?: out \s of | 显存 ) \b", "显存", "显"),
            (r"(?:killed)+ by", "killed by", "killed"),
            (r"(?:killed){2,3} by", "killed by", "kill by"),
            (r"[Oo]ut \d+ of", "ut of", "out 3 from"),
            (r"\d+ Größe der", " Gr Ö e der", " Gr e der"),
            ("(?i)speicher|памят", "ПАМЯТ", "memory"),
            (r"a|bcd", "a", "bc"),
            ("(?i)ǅabc", "ǆabc", "abc"),
        ] {
            let words = Words::of(source).unwrap();
            assert!(words.are_in(possible.as_bytes(), &mut 0), "{source}: {possible}");
            assert!(!words.are_in(impossible.as_bytes(), &mut 0), "{source}: {impossible}");
        }
        for source in [r"(?:killed)*|x{0,3}", r"killed|", r"\d+", r"(unbalanced", "ſ"] {
            assert_eq!(Words::of(source), None, "{source}");
        }
    }
}
