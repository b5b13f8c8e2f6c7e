//! Finds the files of a job and reduces each to rows, for the command and the Python module.
//!
//! ```text
//! find.rs   lists the files to read: folders, patterns, archives
//! read.rs   reads them one by one on two threads
//! ```
//!
//! The answer from the rows is `makeroom-job`'s.
#![forbid(unsafe_code)]

mod find;
mod read;

pub use find::{Files, find, is_recording_name, open_plain};
pub use read::{Watcher, read, read_object, read_recording, reduce};
