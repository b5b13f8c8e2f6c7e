//! Checks whether a short text matches, with NFAs, which are quick to build and slow to run.
//!
//! Most patterns whose words occur in a text do not match it, and many of the others are only used with `is_match`. Without a
//! lazy DFA, a reverse NFA, a prefilter or capture groups, the NFA is built in a fraction of the time of a full compilation.
//! Most long patterns are alternations of phrases, and a text contains the words of only a few: each alternative gets its own
//! NFA.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{Input, meta};

use super::ascii;
use super::words::Words;

/// After this many bytes, the pattern is compiled. With this limit, a log of 1 MB takes no longer than without the screen, and
/// a single line takes less than half as long.
const MOST_SEARCHED: usize = 16 << 10;

/// Shorter patterns are not split, because each NFA has a fixed cost.
const SHORTEST_SPLIT: usize = 192;

#[derive(Debug, Default)]
pub(super) struct Screen {
    alternatives: OnceLock<Vec<Alternative>>,
    searched: AtomicUsize,
}

/// A top-level alternative, or a whole pattern that is not split. Its NFA is built for the first text that contains its words.
#[derive(Debug)]
struct Alternative {
    source: String,
    words: Option<Words>,
    nfa: OnceLock<Option<meta::Regex>>,
}

impl Screen {
    /// Whether the text matches; [`ascii::suffices_for`] must accept it. Returns `None` if an alternative that may match has
    /// no form for ASCII, or once more than [`MOST_SEARCHED`] bytes have been searched.
    pub(super) fn is_match(&self, source: &str, text: &str) -> Option<bool> {
        if self.searched.fetch_add(text.len(), Ordering::Relaxed) + text.len() > MOST_SEARCHED {
            return None;
        }
        for alternative in self.alternatives.get_or_init(|| alternatives(source)) {
            if alternative.is_match(text)? {
                return Some(true);
            }
        }
        Some(false)
    }
}

impl Alternative {
    fn is_match(&self, text: &str) -> Option<bool> {
        if self.words.as_ref().is_some_and(|words| !words.are_in(text.as_bytes(), &mut 0)) {
            return Some(false);
        }
        // Not `is_match`: in texts over 128 bytes, it uses the PikeVM, which takes longer than the backtracker.
        Some(self.nfa.get_or_init(|| build(&self.source)).as_ref()?.search_half(&Input::new(text)).is_some())
    }
}

fn alternatives(source: &str) -> Vec<Alternative> {
    let split = (source.len() >= SHORTEST_SPLIT).then(|| Words::split_alternatives(source)).flatten();
    split
        .unwrap_or_else(|| vec![(source.to_owned(), None)])
        .into_iter()
        .map(|(source, words)| Alternative { source, words, nfa: OnceLock::new() })
        .collect()
}

fn build(source: &str) -> Option<meta::Regex> {
    let config = meta::Config::new()
        .hybrid(false)
        .dfa(false)
        .onepass(false)
        .auto_prefilter(false)
        .utf8_empty(false)
        .which_captures(WhichCaptures::Implicit);
    meta::Builder::new().configure(config).build_from_hir(&ascii::parse(source)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_returns_none_after_the_search_limit() {
        let screen = Screen::default();
        let source = r"(?i)\bout of (\w+)";
        assert_eq!(screen.is_match(source, "Out of memory"), Some(true));
        assert_eq!(screen.is_match(source, "without of"), Some(false));
        assert_eq!(screen.is_match(source, &"x".repeat(MOST_SEARCHED)), None);
        assert_eq!(screen.is_match(source, "out of memory"), None);
    }

    #[test]
    fn only_alternatives_whose_words_occur_get_an_nfa() {
        let screen = Screen::default();
        let phrases: Vec<String> = (100..120).map(|number| format!(r"\bphrase{number} \d")).collect();
        let source = phrases.join("|");
        assert_eq!(screen.is_match(&source, "phrase107 x"), Some(false));
        assert_eq!(screen.is_match(&source, "phrase107 1"), Some(true));
        let built = |alternative: &&Alternative| alternative.nfa.get().is_some();
        assert_eq!(screen.alternatives.get().unwrap().iter().filter(built).count(), 1);
    }

    #[test]
    fn a_pattern_without_a_form_for_ascii_is_not_screened() {
        assert_eq!(Screen::default().is_match(r"\p{Han}", "text"), None);
    }
}
