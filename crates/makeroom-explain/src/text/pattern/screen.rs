//! Checks whether a short text matches, by simulating an NFA, which is quick to build and slow to run.
//!
//! Most patterns whose words occur in a text do not match it, and many of the others are only used with `is_match`. Without a
//! lazy DFA, a reverse NFA, a prefilter and capture groups, the NFA is built in a fraction of the time of a full compilation.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex_automata::meta;
use regex_automata::nfa::thompson::WhichCaptures;

use super::ascii;

/// After this many bytes, the pattern is compiled. With this limit, a log of 1 MB takes no longer than without the screen, and
/// a single line takes half as long.
const MOST_SEARCHED: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Screen {
    nfa: OnceLock<Option<meta::Regex>>,
    searched: AtomicUsize,
}

impl Screen {
    /// Whether the text matches; [`ascii::suffices_for`] must accept it. Returns `None` if the pattern has no form for ASCII,
    /// or once more than [`MOST_SEARCHED`] bytes have been searched.
    pub(super) fn is_match(&self, source: &str, text: &str) -> Option<bool> {
        if self.searched.fetch_add(text.len(), Ordering::Relaxed) + text.len() > MOST_SEARCHED {
            return None;
        }
        Some(self.nfa.get_or_init(|| build(source)).as_ref()?.is_match(text))
    }
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
    fn a_pattern_without_a_form_for_ascii_is_not_screened() {
        assert_eq!(Screen::default().is_match(r"\p{Han}", "text"), None);
    }
}
