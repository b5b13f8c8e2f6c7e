//! Matches short texts with NFAs, which are quick to build and slow to run.
//!
//! Building only an NFA, without a reverse NFA, lazy DFAs and a prefilter, takes a fraction of the time of a full compilation.
//! Most long patterns are alternations of phrases, and a text contains the words of only a few. Each alternative therefore has
//! its own NFA, until a caller needs the position of a match.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{Input, meta};

use super::ascii;
use super::words::Words;

/// After searching this many bytes, the pattern is compiled. With this limit, a log of 1 MB takes no longer than without NFAs,
/// and a single line takes less than half as long.
const SEARCH_LIMIT: usize = 16 << 10;

/// Maximum length of a text. For each search, the backtracker clears one bit per NFA state and byte of the text, and its cache
/// keeps the memory for these bits.
const MAX_TEXT_LEN: usize = 2 << 10;

/// Shorter patterns are not split, because each NFA has a fixed cost.
const MIN_SPLIT_LEN: usize = 192;

/// The NFAs of one pattern, for texts that [`ascii::suffices_for`] accepts.
#[derive(Debug, Default)]
pub(super) struct NfaSearch {
    whole: OnceLock<Option<meta::Regex>>,
    /// Empty if the pattern is not split.
    alternatives: OnceLock<Vec<Alternative>>,
    searched: AtomicUsize,
}

/// Whether a text may match, according to the NFAs.
pub(super) enum NfaLookup<'pattern> {
    NoMatch,
    /// The text may match; the NFA of the whole pattern finds out.
    PossibleMatch(&'pattern meta::Regex),
    /// The pattern has no form for ASCII, so it has no NFA.
    NoAsciiForm,
}

/// A top-level alternative. Its NFA is built for the first text that contains its words.
#[derive(Debug)]
struct Alternative {
    source: String,
    words: Option<Words>,
    nfa: OnceLock<Option<meta::Regex>>,
}

impl NfaSearch {
    /// Whether searching a text is still cheaper than compiling the pattern. Counts each short text toward the limit.
    pub(super) fn is_cheap_for(&self, text: &str) -> bool {
        text.len() <= MAX_TEXT_LEN
            && self.searched.fetch_add(text.len(), Ordering::Relaxed) + text.len() <= SEARCH_LIMIT
    }

    /// Whether the text matches. Returns `None` if the pattern, or an alternative that may match, has no form for ASCII.
    pub(super) fn is_match(&self, source: &str, text: &str) -> Option<bool> {
        let alternatives = self.alternatives(source);
        if alternatives.is_empty() || self.whole.get().is_some() {
            return Some(is_match(self.whole(source)?, text));
        }
        for alternative in alternatives {
            if alternative.is_match(text)? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// The NFA that finds the positions of a match and its groups, if the text may match.
    pub(super) fn nfa_for(&self, source: &str, text: &str) -> NfaLookup<'_> {
        let is_split = self.whole.get().is_none() && !self.alternatives(source).is_empty();
        if is_split && self.is_match(source, text) == Some(false) {
            return NfaLookup::NoMatch;
        }
        self.whole(source).map_or(NfaLookup::NoAsciiForm, NfaLookup::PossibleMatch)
    }

    fn whole(&self, source: &str) -> Option<&meta::Regex> {
        self.whole.get_or_init(|| build(source, WhichCaptures::All)).as_ref()
    }

    fn alternatives(&self, source: &str) -> &[Alternative] {
        self.alternatives.get_or_init(|| {
            let split = (source.len() >= MIN_SPLIT_LEN).then(|| Words::split_alternatives(source)).flatten();
            let alternative = |(source, words)| Alternative { source, words, nfa: OnceLock::new() };
            split.unwrap_or_default().into_iter().map(alternative).collect()
        })
    }
}

impl Alternative {
    fn is_match(&self, text: &str) -> Option<bool> {
        if self.words.as_ref().is_some_and(|words| !words.are_in(text.as_bytes(), &mut 0)) {
            return Some(false);
        }
        let nfa = self.nfa.get_or_init(|| build(&self.source, WhichCaptures::Implicit));
        Some(is_match(nfa.as_ref()?, text))
    }
}

/// Does not call `meta::Regex::is_match`, which searches texts over 128 bytes with the `PikeVM`: the backtracker is faster.
fn is_match(nfa: &meta::Regex, text: &str) -> bool {
    nfa.search_half(&Input::new(text)).is_some()
}

fn build(source: &str, groups: WhichCaptures) -> Option<meta::Regex> {
    let config = meta::Config::new()
        .hybrid(false)
        .dfa(false)
        .onepass(false)
        .auto_prefilter(false)
        .utf8_empty(false)
        .which_captures(groups);
    meta::Builder::new().configure(config).build_from_hir(&ascii::parse(source)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_compiled_after_the_search_limit() {
        let search = NfaSearch::default();
        assert!(!search.is_cheap_for(&"x".repeat(MAX_TEXT_LEN + 1)));
        let line = "x".repeat(MAX_TEXT_LEN);
        assert!(
            (0..SEARCH_LIMIT / MAX_TEXT_LEN).all(|_| search.is_cheap_for(&line)) && !search.is_cheap_for("x")
        );
    }

    #[test]
    fn only_alternatives_whose_words_occur_get_an_nfa() {
        let search = NfaSearch::default();
        let phrases: Vec<String> = (100..120).map(|number| format!(r"\bphrase{number} (\d)")).collect();
        let source = phrases.join("|");
        assert_eq!(search.is_match(&source, "phrase107 x"), Some(false));
        assert_eq!(search.is_match(&source, "phrase107 1"), Some(true));
        let built = |alternative: &&Alternative| alternative.nfa.get().is_some();
        assert_eq!(search.alternatives.get().unwrap().iter().filter(built).count(), 1);
        assert!(
            matches!(search.nfa_for(&source, "phrase107 x"), NfaLookup::NoMatch)
                && search.whole.get().is_none()
        );
        let NfaLookup::PossibleMatch(whole) = search.nfa_for(&source, "phrase107 1") else {
            panic!("a match")
        };
        let mut groups = whole.create_captures();
        whole.search_captures(&Input::new("phrase107 1"), &mut groups);
        assert_eq!(groups.get_group(8).map(|group| group.range()), Some(10..11));
    }

    #[test]
    fn a_pattern_without_a_form_for_ascii_is_unknown() {
        let search = NfaSearch::default();
        assert_eq!(search.is_match(r"\p{Han}", "text"), None);
        assert!(matches!(search.nfa_for(r"\p{Han}", "text"), NfaLookup::NoAsciiForm));
    }
}
