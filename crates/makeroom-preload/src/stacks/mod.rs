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

use std::cell::Cell;

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

/// The number of the calling thread's stack, 0 if there is none or no room for it.
pub(crate) fn capture(depth: Depth) -> u32 {
    let mut words = [0; 1 + MOST_NATIVE + MOST_PYTHON];
    let Some((head, frames)) = words.split_first_mut() else { return 0 };
    let native = match depth {
        Depth::Full => frames.get_mut(..MOST_NATIVE).map_or(0, native::walk),
        Depth::PythonOnly => 0,
    };
    let python = match config().stacks {
        StackMode::Full => frames.get_mut(native..native + MOST_PYTHON).map_or(0, python::walk),
        _ => 0,
    };
    if native + python == 0 {
        return if depth == Depth::PythonOnly { own_name() } else { 0 };
    }
    *head = native as u64 | (python as u64) << 32;
    words.get(..=native + python).map_or(0, intern)
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
