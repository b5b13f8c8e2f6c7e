//! Who asked: the calling thread's stack as a number.
//!
//! A stack is interned as a list of words, so a stack that was seen before costs its walk and one look-up:
//!
//! ```text
//! ┌────────────────────────────┬─────────────────────────┬────────────────────────────────────┐
//! │ native count, Python count │ return addresses, inner │ Python frames: function << 32 | at │
//! └────────────────────────────┴─────────────────────────┴────────────────────────────────────┘
//! ```
//!
//! Names are found later, by the writer: `writer::definitions`.
//!
//! A tensor's allocation carries only Python's frames. On threads that have none (PyTorch's backward pass) the thread's
//! own name stands for the stack: [`THREAD`], then the name.

mod native;

pub(crate) use native::any as any_caller;

use std::cell::Cell;
use std::mem::MaybeUninit;

use crate::config::{StackMode, config};
use crate::python;
use crate::record::intern::{intern, words_of};

/// The first word of a stack that is only a thread's name; no stack has so many frames.
pub(crate) const THREAD: u64 = u64::MAX;

thread_local! {
    static OWN_NAME: Cell<u32> = const { Cell::new(0) };
}

/// Frames kept of each kind; outer ones are left out.
const MOST_NATIVE: usize = 64;
const MOST_PYTHON: usize = 128;

/// How much of a stack is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Native frames and Python's.
    Full,
    /// Python's only; where there are none, the thread's name.
    PythonOnly,
}

/// The words of a stack on their way into the table. What is not written is not touched: it would be more than the stack.
pub(crate) struct Words {
    words: [MaybeUninit<u64>; 1 + MOST_NATIVE + MOST_PYTHON],
    /// So many of them are written.
    count: usize,
}

impl Words {
    /// Room for a head and what follows it.
    #[inline]
    fn new() -> Self {
        Self { words: [const { MaybeUninit::uninit() }; _], count: 0 }
    }

    /// Adds a word, if there is room.
    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        if let Some(place) = self.words.get_mut(self.count) {
            place.write(word);
            self.count += 1;
        }
    }

    #[inline]
    fn set_head(&mut self, word: u64) {
        if let Some(place) = self.words.first_mut() {
            place.write(word);
        }
    }

    #[inline]
    fn all(&self) -> &[u64] {
        // SAFETY: `push` has written the first `count` words, of which there are no more than there is room for.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.count) }
    }
}

/// The number of the calling thread's stack, 0 if there is none or no room for it.
pub(crate) fn capture(depth: Depth) -> u32 {
    let mut words = Words::new();
    words.push(0);
    let native = match depth {
        Depth::Full => native::walk(&mut words, MOST_NATIVE),
        Depth::PythonOnly => 0,
    };
    let python = match config().stacks {
        StackMode::Full => python::walk(&mut words, MOST_PYTHON),
        _ => 0,
    };
    if native + python == 0 {
        return if depth == Depth::PythonOnly { own_name() } else { 0 };
    }
    words.set_head(native as u64 | (python as u64) << 32);
    intern(words.all())
}

/// The calling thread's name as a stack, asked for once per thread.
fn own_name() -> u32 {
    let known = OWN_NAME.get();
    if known != 0 {
        return known;
    }
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most sixteen bytes, the last of them zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let mut words = vec![THREAD];
    words_of(name.split(|&byte| byte == 0).next().unwrap_or_default(), &mut words);
    let number = intern(&words);
    OWN_NAME.set(number);
    number
}
