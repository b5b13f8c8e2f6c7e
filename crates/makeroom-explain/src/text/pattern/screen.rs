//! Tells whether a short text matches, with an automaton that is quick to build and slow to run.
//!
//! Most patterns whose words occur in a text do not match it, and of those that do, many are only asked whether they do.
//! Compiling a pattern for fast searches takes several times as long as building this automaton, which has no reverse
//! searches, no literals to skip to, and no groups.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex_automata::meta;
use regex_automata::nfa::thompson::WhichCaptures;

use super::ascii;

/// Searching this many bytes costs about as much as compiling the pattern for fast searches.
const MOST_SEARCHED: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Screen {
    automaton: OnceLock<Option<meta::Regex>>,
    searched: AtomicUsize,
}

impl Screen {
    /// Whether a text matches that [`ascii::suffices_for`] accepts. `None` if so much has been searched that the pattern
    /// should be compiled, or if it has no form for ASCII.
    pub(super) fn is_match(&self, source: &str, text: &str) -> Option<bool> {
        if self.searched.fetch_add(text.len(), Ordering::Relaxed) + text.len() > MOST_SEARCHED {
            return None;
        }
        Some(self.automaton.get_or_init(|| build(source)).as_ref()?.is_match(text))
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
    fn it_answers_until_much_has_been_searched() {
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
