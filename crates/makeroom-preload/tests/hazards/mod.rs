//! One small program per hazard, run with and without the library, on a minimal driver and on the software GPU. A
//! hazard passes if output and exit status are the same and the recording is complete, or says what is missing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod calls;
mod ends;
mod files;
mod loading;
mod processes;
mod threads;
