//! Tests of the answers about jobs of many ranks.
//!
//! They are one program, because each further one would link the crates under test again.

mod answer;
mod clusters;
mod ends;
mod evidence;
mod logs;
mod support;
