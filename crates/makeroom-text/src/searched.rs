//! The part of a text that settings, the program and the machine are looked for in: all of a short text; of a long
//! log its beginning, where programs print their configuration, and the lines around the failure.

use makeroom_search::contains_folded;

use crate::boundaries;

/// A text up to this long is searched whole.
const LONGEST_WHOLE: usize = 2 << 20;
/// Of a longer one, this much of its beginning …
pub(super) const HEAD: usize = 1 << 20;
/// … and this much before and behind the failure.
pub(super) const BEFORE: usize = 768 << 10;
pub(super) const BEHIND: usize = 256 << 10;

/// The searched parts of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Searched<'log> {
    whole: &'log str,
    head: &'log str,
    around: &'log str,
}

impl<'log> From<&'log str> for Searched<'log> {
    /// All of a text.
    fn from(text: &'log str) -> Self {
        Self { whole: text, head: text, around: "" }
    }
}

impl<'log> Searched<'log> {
    /// The parts of a text with a failure at this offset.
    pub(crate) fn around(text: &'log str, failure: usize) -> Self {
        if text.len() <= LONGEST_WHOLE {
            return text.into();
        }
        let from = boundaries::floor(text, failure.saturating_sub(BEFORE).max(HEAD));
        let to = boundaries::floor(text, (failure + BEHIND).max(from));
        Self { whole: text, head: &text[..boundaries::floor(text, HEAD)], around: &text[from..to] }
    }

    /// All of the text, for a setting that counts wherever it is.
    pub(crate) fn whole(&self) -> &'log str {
        self.whole
    }

    /// The parts, in order.
    pub(crate) fn parts(&self) -> [&'log str; 2] {
        [self.head, self.around]
    }

    /// Whether any part satisfies a condition.
    pub(crate) fn any(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        self.parts().into_iter().any(is_wanted)
    }

    /// Whether the text contains words, in any case; `-` and `_` are the same.
    pub(crate) fn contains(&self, words: &str) -> bool {
        self.any(|part| contains_folded(part, words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_failure_of_a_long_log_are_searched() {
        let mut text = String::from("--gpu-memory-utilization 0.9\n");
        text.push_str(&"step\n".repeat(1 << 20));
        let failure = text.len();
        text.push_str("CUDA out of memory\n");
        text.push_str(&"é\n".repeat(1 << 20));
        let searched = Searched::around(&text, failure);
        assert!(searched.contains("GPU_memory_utilization") && searched.contains("cuda OUT of"));
        assert!(searched.parts().iter().map(|part| part.len()).sum::<usize>() < 3 << 20);
        assert!(!searched.contains("missing"));
    }
}
