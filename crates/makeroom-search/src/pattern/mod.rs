//! A regular expression that is compiled only for a text that may match it.
//!
//! `why` has hundreds of patterns, and a short text matches few of them. Compiling one takes about as long as searching
//! 256 KiB for a word, so compiling all of them would take nearly all the time of a short answer. A pattern therefore
//! first looks for the words that every match contains ([`Words`]); while they do not occur, it does not match. Once that
//! search has cost as much as compiling, as it does in long logs, the pattern is compiled in any case, because the compiled
//! one is faster. For ASCII text, a simpler pattern suffices ([`ascii`]), and as long as little text has been searched,
//! an NFA that is quick to build ([`NfaSearch`]).
//!
//! Uses `regex-automata`, the engine of the `regex` crate, because `regex` always builds all parts of the engine.

mod ascii;
mod matches;
mod nfa;
mod reader;
#[cfg(test)]
mod tests;
mod words;

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{Input, MatchKind, PatternSet, meta};

pub use matches::{Captures, Match};
use nfa::{NfaLookup, NfaSearch};
use words::Words;

/// Searching this many bytes costs about as much as compiling a pattern; bytes count once for each word.
const SEARCHED_BEFORE_COMPILING: usize = 256 << 10;

/// A regular expression for texts.
#[derive(Debug)]
pub struct Regex {
    source: String,
    gate: Gate,
    nfa: NfaSearch,
    /// Compiled for ASCII texts; `None` if the pattern has no such form.
    for_ascii: OnceLock<Option<meta::Regex>>,
    /// Compiled for all texts; `None` if the pattern is invalid.
    general: OnceLock<Option<meta::Regex>>,
}

/// How a text is searched.
enum Strategy {
    NoMatch,
    Nfa,
    Compiled,
}

impl Regex {
    /// A pattern that is part of this program. If it is invalid, debug builds panic when they check its syntax or compile it; in
    /// release builds, it matches nothing.
    pub(crate) fn new(source: String) -> Self {
        check_syntax(&source);
        Self {
            gate: Gate::new([&source[..]]),
            source,
            nfa: NfaSearch::default(),
            for_ascii: OnceLock::new(),
            general: OnceLock::new(),
        }
    }

    fn is_compiled(&self) -> bool {
        self.general.get().is_some() || self.for_ascii.get().is_some()
    }

    fn strategy(&self, text: &str) -> Strategy {
        if self.is_compiled() {
            return Strategy::Compiled;
        }
        match self.gate.find(text) {
            Found::NoMatch => Strategy::NoMatch,
            Found::PossibleMatch if ascii::suffices_for(text) && self.nfa.is_cheap_for(text) => Strategy::Nfa,
            Found::PossibleMatch | Found::NotSearched => Strategy::Compiled,
        }
    }

    fn compiled_for(&self, text: &str) -> Option<&meta::Regex> {
        if self.general.get().is_none() && ascii::suffices_for(text) {
            let compile = || compile_for_ascii(meta::Config::new(), &[&self.source]);
            if let Some(compiled) = self.for_ascii.get_or_init(compile) {
                return Some(compiled);
            }
        }
        let compile = || expect_valid(meta::Regex::new(&self.source));
        self.general.get_or_init(compile).as_ref()
    }

    /// The NFA or compiled pattern to search the text with; `None` if the text cannot match.
    fn for_text(&self, text: &str) -> Option<&meta::Regex> {
        match self.strategy(text) {
            Strategy::NoMatch => None,
            Strategy::Nfa => match self.nfa.nfa_for(&self.source, text) {
                NfaLookup::NoMatch => None,
                NfaLookup::PossibleMatch(nfa) => Some(nfa),
                NfaLookup::NoAsciiForm => self.compiled_for(text),
            },
            Strategy::Compiled => self.compiled_for(text),
        }
    }

    /// Whether a text matches.
    pub fn is_match(&self, text: &str) -> bool {
        let compiled = || self.compiled_for(text).is_some_and(|regex| regex.is_match(text));
        match self.strategy(text) {
            Strategy::NoMatch => false,
            Strategy::Nfa => self.nfa.is_match(&self.source, text).unwrap_or_else(compiled),
            Strategy::Compiled => compiled(),
        }
    }

    /// The first match, with its groups.
    pub fn captures<'text>(&self, text: &'text str) -> Option<Captures<'text>> {
        self.captures_at(text, 0)
    }

    /// The first match that starts at `start` or later.
    pub fn captures_at<'text>(&self, text: &'text str, start: usize) -> Option<Captures<'text>> {
        let regex = self.for_text(text)?;
        let mut groups = regex.create_captures();
        regex.search_captures(&Input::new(text).range(start..), &mut groups);
        groups.is_match().then(|| Captures::new(text, groups))
    }

    /// The first match.
    pub fn find<'text>(&self, text: &'text str) -> Option<Match<'text>> {
        let found = self.for_text(text)?.search(&Input::new(text))?;
        Some(Match::new(text, found.range()))
    }

    /// All matches; they do not overlap.
    pub fn find_iter<'regex, 'text: 'regex>(
        &'regex self,
        text: &'text str,
    ) -> impl Iterator<Item = Match<'text>> + 'regex {
        let matches = self.for_text(text).map(|regex| regex.find_iter(text));
        matches.into_iter().flatten().map(|found| Match::new(text, found.range()))
    }

    /// All matches with their groups; they do not overlap.
    pub fn captures_iter<'regex, 'text: 'regex>(
        &'regex self,
        text: &'text str,
    ) -> impl Iterator<Item = Captures<'text>> + 'regex {
        let matches = self.for_text(text).map(|regex| regex.captures_iter(text));
        matches.into_iter().flatten().map(|groups| Captures::new(text, groups))
    }

    /// The parts of a text between the matches.
    pub fn split<'regex, 'text: 'regex>(
        &'regex self,
        text: &'text str,
    ) -> impl Iterator<Item = &'text str> + 'regex {
        let regex = self.for_text(text);
        let whole = regex.is_none().then_some(text);
        regex.map(|regex| regex.split(text)).into_iter().flatten().map(|range| &text[range]).chain(whole)
    }

    /// The text with each match replaced.
    pub fn replace_all<'text, Replacement: AsRef<str>>(
        &self,
        text: &'text str,
        mut replacement: impl FnMut(&'text str) -> Replacement,
    ) -> Cow<'text, str> {
        let mut matches = self.find_iter(text).peekable();
        if matches.peek().is_none() {
            return Cow::Borrowed(text);
        }
        let mut replaced = String::with_capacity(text.len());
        let mut from = 0;
        for found in matches {
            replaced.push_str(&text[from..found.start()]);
            replaced.push_str(replacement(found.as_str()).as_ref());
            from = found.end();
        }
        replaced.push_str(&text[from..]);
        Cow::Owned(replaced)
    }
}

/// The compiled pattern, or `None` if it is invalid. Debug builds panic instead.
fn expect_valid(compiled: Result<meta::Regex, meta::BuildError>) -> Option<meta::Regex> {
    debug_assert!(compiled.is_ok(), "{compiled:?}");
    compiled.ok()
}

/// Panics in debug builds if a pattern has a syntax error.
fn check_syntax(source: &str) {
    // Checking more than the syntax would take most of the time of a short command. The rest is checked when the pattern is
    // compiled, for the first text that may match.
    debug_assert!(regex_syntax::ast::parse::Parser::new().parse(source).is_ok(), "{source}");
}

/// Compiles patterns for ASCII texts. Returns `None` if one of them has no such form.
fn compile_for_ascii(config: meta::Config, sources: &[impl AsRef<str>]) -> Option<meta::Regex> {
    let trees: Option<Vec<_>> = sources.iter().map(|source| ascii::parse(source.as_ref())).collect();
    meta::Builder::new().configure(config.utf8_empty(false)).build_many_from_hir(&trees?).ok()
}

/// Several patterns that are searched together.
#[derive(Debug)]
pub struct RegexSet {
    sources: Vec<String>,
    gate: Gate,
    for_ascii: OnceLock<Option<meta::Regex>>,
    general: OnceLock<Option<meta::Regex>>,
}

impl RegexSet {
    /// Patterns that are part of this program.
    pub(crate) fn new(sources: Vec<String>) -> Self {
        for source in &sources {
            check_syntax(source);
        }
        Self {
            gate: Gate::new(sources.iter().map(|source| &source[..])),
            sources,
            for_ascii: OnceLock::new(),
            general: OnceLock::new(),
        }
    }

    /// The patterns that match a text, in order.
    pub fn matches(&self, text: &str) -> Vec<usize> {
        let Some(compiled) = self.for_text(text) else { return Vec::new() };
        let mut found = PatternSet::new(compiled.pattern_len());
        compiled.which_overlapping_matches(&Input::new(text), &mut found);
        found.iter().map(|pattern| pattern.as_usize()).collect()
    }

    /// The compiled patterns, if the text may match one.
    fn for_text(&self, text: &str) -> Option<&meta::Regex> {
        if let Some(general) = self.general.get() {
            return general.as_ref();
        }
        if self.for_ascii.get().is_none() && self.gate.find(text) == Found::NoMatch {
            return None;
        }
        // Callers need to know which patterns match, not where.
        let config = || meta::Config::new().match_kind(MatchKind::All).which_captures(WhichCaptures::None);
        let for_ascii = || self.for_ascii.get_or_init(|| compile_for_ascii(config(), &self.sources)).as_ref();
        let general = || expect_valid(meta::Builder::new().configure(config()).build_many(&self.sources));
        let found = ascii::suffices_for(text).then(for_ascii).flatten();
        found.or_else(|| self.general.get_or_init(general).as_ref())
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
