//! A regular expression that is compiled only for a text that may match it.
//!
//! `why` has hundreds of patterns, and a short text matches few of them. Compiling one takes about as long as searching
//! 256 KiB for a word, so compiling all of them would take nearly all the time of a short answer. A pattern therefore
//! first looks for the words that every match contains ([`Words`]); while they do not occur, it does not match. Once that
//! search has cost as much as compiling, as it does in long logs, the pattern is compiled in any case, because the compiled
//! one is faster. For a text in ASCII, a simpler pattern is compiled ([`ascii`]). As long as little text has been searched,
//! NFAs first check whether the text matches at all ([`Screen`]).

mod ascii;
mod reader;
mod screen;
mod words;

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex::{CaptureMatches, Captures, Matches, Split};
use screen::Screen;
use words::Words;

/// Searching this many bytes costs about as much as compiling a pattern; bytes count once for each word.
const SEARCHED_BEFORE_COMPILING: usize = 256 << 10;

/// A regular expression, with the interface of `regex::Regex` as far as it is used here.
#[derive(Debug)]
pub(crate) struct Regex {
    source: String,
    compiled: OnceLock<regex::Regex>,
    /// The pattern for texts in ASCII, if it has such a form.
    for_ascii: OnceLock<Option<regex::Regex>>,
    screen: Screen,
    gate: Gate,
}

impl Regex {
    /// A pattern that is part of this program. It cannot be wrong in a build whose tests passed, because debug builds
    /// check each one; a wrong one matches nothing.
    pub(crate) fn new(source: String) -> Self {
        debug_assert!(regex_syntax::parse(&source).is_ok(), "{source}");
        Self {
            gate: Gate::new([&source[..]]),
            source,
            compiled: OnceLock::new(),
            for_ascii: OnceLock::new(),
            screen: Screen::default(),
        }
    }

    #[cfg(test)]
    fn is_compiled(&self) -> bool {
        self.compiled.get().is_some() || self.for_ascii.get().is_some()
    }

    #[allow(clippy::unwrap_used, reason = "the fallback is a constant that is valid")]
    fn compiled(&self) -> &regex::Regex {
        self.compiled.get_or_init(|| {
            regex::Regex::new(&self.source)
                .or_else(|error| {
                    debug_assert!(false, "{error}");
                    regex::Regex::new("$^x")
                })
                .unwrap()
        })
    }

    /// Whether the text matches, if that is known without compiling the pattern.
    fn screened(&self, text: &str) -> Option<bool> {
        if self.compiled.get().is_some() || self.for_ascii.get().is_some() {
            return None;
        }
        match self.gate.find(text) {
            Found::NoMatch => Some(false),
            Found::PossibleMatch if ascii::suffices_for(text) => self.screen.is_match(&self.source, text),
            Found::PossibleMatch | Found::NotSearched => None,
        }
    }

    /// The compiled pattern, if the text may match it.
    fn for_text(&self, text: &str) -> Option<&regex::Regex> {
        (self.screened(text) != Some(false)).then(|| self.compiled_for(text))
    }

    fn compiled_for(&self, text: &str) -> &regex::Regex {
        if let Some(compiled) = self.compiled.get() {
            return compiled;
        }
        let compile = || regex::Regex::new(&ascii::of(&self.source)?).ok();
        let for_ascii = || self.for_ascii.get_or_init(compile).as_ref();
        ascii::suffices_for(text).then(for_ascii).flatten().unwrap_or_else(|| self.compiled())
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.screened(text).unwrap_or_else(|| self.compiled_for(text).is_match(text))
    }

    pub(crate) fn captures<'text>(&self, text: &'text str) -> Option<Captures<'text>> {
        self.for_text(text)?.captures(text)
    }

    pub(crate) fn captures_at<'text>(&self, text: &'text str, start: usize) -> Option<Captures<'text>> {
        self.for_text(text)?.captures_at(text, start)
    }

    pub(crate) fn find<'text>(&self, text: &'text str) -> Option<regex::Match<'text>> {
        self.for_text(text)?.find(text)
    }

    pub(crate) fn find_iter<'me, 'text: 'me>(
        &'me self,
        text: &'text str,
    ) -> impl Iterator<Item = regex::Match<'text>> + 'me {
        self.for_text(text)
            .map(|regex| -> Matches<'me, 'text> { regex.find_iter(text) })
            .into_iter()
            .flatten()
    }

    pub(crate) fn captures_iter<'me, 'text: 'me>(
        &'me self,
        text: &'text str,
    ) -> impl Iterator<Item = Captures<'text>> + 'me {
        self.for_text(text)
            .map(|regex| -> CaptureMatches<'me, 'text> { regex.captures_iter(text) })
            .into_iter()
            .flatten()
    }

    pub(crate) fn split<'me, 'text: 'me>(
        &'me self,
        text: &'text str,
    ) -> impl Iterator<Item = &'text str> + 'me {
        let regex = self.for_text(text);
        let whole = regex.is_none().then_some(text);
        regex.map(|regex| -> Split<'me, 'text> { regex.split(text) }).into_iter().flatten().chain(whole)
    }

    pub(crate) fn replace_all<'text>(
        &self,
        text: &'text str,
        replacement: impl regex::Replacer,
    ) -> Cow<'text, str> {
        match self.for_text(text) {
            Some(regex) => regex.replace_all(text, replacement),
            None => Cow::Borrowed(text),
        }
    }
}

/// Several patterns that are searched together.
#[derive(Debug)]
pub(crate) struct RegexSet {
    sources: Vec<String>,
    compiled: OnceLock<Option<regex::RegexSet>>,
    for_ascii: OnceLock<Option<regex::RegexSet>>,
    gate: Gate,
}

impl RegexSet {
    /// Patterns that are part of this program.
    pub(crate) fn new(sources: Vec<String>) -> Self {
        debug_assert!(sources.iter().all(|source| regex_syntax::parse(source).is_ok()), "{sources:?}");
        Self {
            gate: Gate::new(sources.iter().map(|source| &source[..])),
            sources,
            compiled: OnceLock::new(),
            for_ascii: OnceLock::new(),
        }
    }

    /// The patterns that match a text, in order.
    pub(crate) fn matches(&self, text: &str) -> impl Iterator<Item = usize> {
        self.for_text(text).map(|set| set.matches(text)).into_iter().flatten()
    }

    /// The compiled patterns, if the text may match one.
    fn for_text(&self, text: &str) -> Option<&regex::RegexSet> {
        let compile = || regex::RegexSet::new(&self.sources).ok();
        let compile_for_ascii = || {
            let sources: Option<Vec<String>> = self.sources.iter().map(|source| ascii::of(source)).collect();
            regex::RegexSet::new(sources?).ok()
        };
        if let Some(compiled) = self.compiled.get() {
            return compiled.as_ref();
        }
        let is_known = self.for_ascii.get().is_some();
        if !is_known && self.gate.find(text) == Found::NoMatch {
            return None;
        }
        let for_ascii = || self.for_ascii.get_or_init(compile_for_ascii).as_ref();
        let found = ascii::suffices_for(text).then(for_ascii).flatten();
        found.or_else(|| self.compiled.get_or_init(compile).as_ref())
    }
}

/// What a search for the words of a pattern finds in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    NoMatch,
    /// The words occur, or the pattern has none.
    PossibleMatch,
    /// The words are not searched, because searching has already cost as much as compiling.
    NotSearched,
}

/// Tells texts that cannot match from those that may.
#[derive(Debug)]
struct Gate {
    /// `None` if a match need not contain any word.
    words: Option<Words>,
    searched: AtomicUsize,
}

impl Gate {
    fn new<'source>(sources: impl IntoIterator<Item = &'source str>) -> Self {
        let words: Option<Vec<Words>> = sources.into_iter().map(Words::of).collect();
        Self { words: words.map(Words::Any), searched: AtomicUsize::new(0) }
    }

    fn find(&self, text: &str) -> Found {
        let Some(words) = &self.words else { return Found::PossibleMatch };
        if self.searched.load(Ordering::Relaxed) > SEARCHED_BEFORE_COMPILING {
            return Found::NotSearched;
        }
        let mut searched = 0;
        let may_match = words.are_in(text.as_bytes(), &mut searched);
        self.searched.fetch_add(searched, Ordering::Relaxed);
        if may_match || Words::may_fold(text) { Found::PossibleMatch } else { Found::NoMatch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_the_words_does_not_compile_the_pattern() {
        let regex = Regex::new(r"(?i)\bask(\d)".to_owned());
        assert!(!regex.is_match("as 3") && regex.captures("as3").is_none());
        assert_eq!(regex.replace_all("nothing", "x"), "nothing");
        assert_eq!(regex.split("a whole").collect::<Vec<_>>(), ["a whole"]);
        assert_eq!(regex.find_iter("none").count() + regex.captures_iter("none").count(), 0);
        assert!(!regex.is_compiled());
    }

    #[test]
    fn a_pattern_is_compiled_for_a_match_or_a_long_text() {
        let regex = Regex::new(r"(?i)\bask(\d)".to_owned());
        assert!(!regex.is_match("task3") && regex.is_match("ASK3"));
        assert!(regex.captures("task3").is_none() && !regex.is_compiled());
        assert!(regex.captures("ASK3").is_some() && regex.is_compiled());
        assert_eq!(regex.split("one ask1 two").collect::<Vec<_>>(), ["one ", " two"]);
        let regex = Regex::new(r"(?i)\bask(\d)".to_owned());
        assert!(!regex.is_match(&"task3 ".repeat(4000)) && regex.is_compiled());
    }

    #[test]
    fn a_set_is_compiled_for_a_text_with_a_word_of_any_pattern() {
        let set = RegexSet::new(vec![r"\bone \d".to_owned(), r"\btwo \d".to_owned()]);
        assert_eq!(set.matches("three 3").count(), 0);
        assert!(set.compiled.get().is_none() && set.for_ascii.get().is_none());
        assert_eq!(set.matches("two 2, one 1").collect::<Vec<_>>(), [0, 1]);
        assert_eq!(set.matches("two 2").collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn letters_that_fold_to_ascii_match() {
        for text in ["a\u{17f}k", "as\u{212a}"] {
            assert!(Regex::new("(?i)ask".to_owned()).is_match(text), "{text}");
        }
    }

    #[test]
    fn a_long_log_compiles_the_pattern() {
        let regex = Regex::new("never in the log".to_owned());
        let line = "step 12 loss 0.25";
        assert!(!regex.is_match(line) && !regex.is_compiled());
        for _ in 0..=SEARCHED_BEFORE_COMPILING / line.len() {
            assert!(!regex.is_match(line));
        }
        assert!(regex.is_compiled());
    }

    #[test]
    fn a_text_in_ascii_does_not_compile_the_general_pattern() {
        let regex = Regex::new(r"(?i)\bgröße|size \d+".to_owned());
        assert!(regex.find("Size 3").is_some() && regex.compiled.get().is_none());
        assert!(regex.is_match("Größe") && regex.compiled.get().is_some());
        let set = RegexSet::new(vec![r"größe".to_owned(), r"size \d".to_owned()]);
        assert_eq!(set.matches("size 3").collect::<Vec<_>>(), [1]);
        assert!(set.compiled.get().is_none());
        assert_eq!(set.matches("größe, size 3").collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_pattern_without_a_form_for_ascii_matches_texts_in_ascii() {
        let regex = Regex::new(r"\p{Letter}+ (\d)".to_owned());
        assert_eq!(&regex.captures("count 7").unwrap()[1], "7");
    }
}
