//! Tests of the recorder and its pool in real programs, on the software GPU.
//!
//! They are one program, because each further one would link the crates under test again.

mod bounded;
mod cost;
mod dependencies;
mod hazards;
mod hooks;
mod limits;
mod modules;
mod paging;
mod paging_model;
mod pool;
mod python;
mod support;
