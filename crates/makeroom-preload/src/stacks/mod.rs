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

mod native;

use crate::config::{StackMode, config};
use crate::python;
use crate::record::intern::intern;

/// Frames kept of each kind; outer ones are left out.
const MOST_NATIVE: usize = 64;
const MOST_PYTHON: usize = 128;

/// How much of a stack is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Native frames and Python's.
    Full,
    /// Python's only; where there are none, nothing.
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
        return 0;
    }
    *head = native as u64 | (python as u64) << 32;
    words.get(..=native + python).map_or(0, intern)
}
