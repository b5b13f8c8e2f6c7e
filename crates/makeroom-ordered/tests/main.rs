//! Tests of the maps and sets, against the standard ones and on hostile keys.
//!
//! They are one program, because each additional one would link the crate again.

mod compared;
mod hostile;
