//! Searches for hundreds of words at once, ignoring ASCII case.
//!
//! An Aho-Corasick automaton finds them in one pass, but building it takes longer than searching a short text without it. So
//! the first 16 KiB are searched by comparing each position with the words that start with the same letter. The automaton is
//! built only when more text follows.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use aho_corasick::AhoCorasick;

/// The automaton is built once more than this many bytes have been searched in all.
const COMPARED_BEFORE_BUILDING: usize = 16 << 10;

/// A set of words, each identified by its index.
#[derive(Debug)]
pub struct WordSet {
    words: Vec<Cow<'static, str>>,
    /// The indices of the words, by their first letter in lower case.
    by_letter: Vec<Vec<usize>>,
    automaton: OnceLock<Option<AhoCorasick>>,
    compared: AtomicUsize,
}

/// Where a word is in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    /// The offset after its last byte.
    pub end: usize,
    /// The offset of its first byte.
    pub start: usize,
    /// The index of the word.
    pub word: usize,
}

impl WordSet {
    /// The words must not be empty.
    pub fn new(words: Vec<Cow<'static, str>>) -> Self {
        let mut by_letter = vec![Vec::new(); 1 << u8::BITS];
        for (number, word) in words.iter().enumerate() {
            if let Some(first) = word.as_bytes().first() {
                by_letter[usize::from(first.to_ascii_lowercase())].push(number);
            }
        }
        Self { words, by_letter, automaton: OnceLock::new(), compared: AtomicUsize::new(0) }
    }

    /// All occurrences of all words, including overlapping ones, ordered by where they end. Boxed, so that the search is compiled
    /// here and not in each caller.
    pub fn occurrences<'text>(&'text self, text: &'text str) -> Box<dyn Iterator<Item = Occurrence> + 'text> {
        let is_compared = self.automaton.get().is_none()
            && self.compared.fetch_add(text.len(), Ordering::Relaxed) + text.len()
                <= COMPARED_BEFORE_BUILDING;
        if is_compared {
            return Box::new(self.compare(text.as_bytes()).into_iter());
        }
        let automaton = self.automaton().into_iter();
        Box::new(automaton.flat_map(move |automaton| automaton.find_overlapping_iter(text)).map(|found| {
            Occurrence { end: found.end(), start: found.start(), word: found.pattern().as_usize() }
        }))
    }

    fn automaton(&self) -> Option<&AhoCorasick> {
        let build = || {
            let words = self.words.iter().map(|word| word.as_bytes());
            AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok()
        };
        self.automaton.get_or_init(build).as_ref()
    }

    fn compare(&self, text: &[u8]) -> Vec<Occurrence> {
        let mut found = Vec::new();
        for (start, letter) in text.iter().enumerate() {
            for &word in &self.by_letter[usize::from(letter.to_ascii_lowercase())] {
                let wanted = self.words[word].as_bytes();
                let end = start + wanted.len();
                if text.get(start..end).is_some_and(|part| part.eq_ignore_ascii_case(wanted)) {
                    found.push(Occurrence { end, start, word });
                }
            }
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn comparing_finds_what_the_automaton_finds(
            words in prop::collection::vec("[aAbB./]{1,4}", 1..12),
            text in "[abAB./ é]{0,60}",
        ) {
            let words = WordSet::new(words.into_iter().map(Cow::Owned).collect());
            let compared = words.compare(text.as_bytes());
            prop_assert!(compared.iter().copied().eq(words.occurrences(&text)), "a short text is compared");
            words.compared.store(usize::MAX / 2, Ordering::Relaxed);
            let found: Vec<Occurrence> = words.occurrences(&text).collect();
            prop_assert!(words.automaton.get().is_some());
            prop_assert_eq!(compared, found);
        }
    }
}
