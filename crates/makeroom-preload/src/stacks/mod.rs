//! Captures the calling thread's stack as a number.
//!
//! A stack is interned as a list of words, so a stack that was seen before costs its walk and one lookup:
//!
//! ```text
//! ┌────────────────────────────┬─────────────────────────┬────────────────────────────────────┐
//! │ native count, Python count │ return addresses, inner │ Python frames: function << 32 | at │
//! └────────────────────────────┴─────────────────────────┴────────────────────────────────────┘
//! ```
//!
//! The writer resolves names later: `writer::definitions`.
//!
//! A tensor allocation carries only Python frames. On threads that have none (PyTorch's backward pass) the thread's
//! name replaces the stack: [`THREAD`], then the name.

mod native;

pub(crate) use native::any as any_caller;

use std::cell::Cell;

use crate::config::{StackMode, config};
use crate::python;
use crate::record::intern::{intern, words_of};
use crate::record::words::{MOST_NATIVE, MOST_PYTHON, Words};

/// The first word of a stack that is only a thread's name; no stack has this many frames.
pub(crate) const THREAD: u64 = u64::MAX;

thread_local! {
    static OWN_NAME: Cell<u32> = const { Cell::new(0) };
}

/// Which frames of a stack to capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Native and Python frames.
    Full,
    /// Python frames only; if there are none, the thread's name.
    PythonOnly,
}

/// The number of the calling thread's stack, 0 if it is empty or the table is full.
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

/// The calling thread's name as a stack, queried once per thread.
fn own_name() -> u32 {
    let known = OWN_NAME.get();
    if known != 0 {
        return known;
    }
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most sixteen bytes, including the terminating NUL.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let mut words = vec![THREAD];
    words_of(name.split(|&byte| byte == 0).next().unwrap_or_default(), &mut words);
    let number = intern(&words);
    OWN_NAME.set(number);
    number
}
