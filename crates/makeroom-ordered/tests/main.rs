//! Tests of the maps and sets, against the standard ones and on hostile keys.
//!
//! They are one program, because each additional one would link the crate again.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compared;
mod hostile;
