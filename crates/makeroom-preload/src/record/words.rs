//! Buffer for one stack as a list of words, filled while the stack is walked and then interned.

use std::mem::MaybeUninit;

/// Maximum number of frames of each kind; outer ones are dropped.
pub(crate) const MOST_NATIVE: usize = 64;
pub(crate) const MOST_PYTHON: usize = 128;

/// Buffer for the words of a stack. Unused words stay uninitialized: zeroing them would write more than the stack
/// itself.
pub(crate) struct Words {
    words: [MaybeUninit<u64>; 1 + MOST_NATIVE + MOST_PYTHON],
    /// Number of words written.
    count: usize,
}

impl Words {
    /// An empty buffer, with space for the head word and all frames.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { words: [const { MaybeUninit::uninit() }; _], count: 0 }
    }

    /// Appends a word, if there is space.
    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        if let Some(place) = self.words.get_mut(self.count) {
            place.write(word);
            self.count += 1;
        }
    }

    /// Overwrites the head word.
    #[inline]
    pub(crate) fn set_head(&mut self, word: u64) {
        if let Some(place) = self.words.first_mut() {
            place.write(word);
        }
    }

    /// The words written so far.
    #[inline]
    pub(crate) fn all(&self) -> &[u64] {
        // SAFETY: `push` has written the first `count` words, and never counts past the end.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.count) }
    }
}
