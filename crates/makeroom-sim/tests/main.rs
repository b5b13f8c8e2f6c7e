//! Tests of the allocator models and of replays, on recordings of real runs and on hostile ones.
//!
//! They are one program, because each further one would link the crates under test again.

mod cuda_async;
mod exactness;
mod growth;
mod hostile;
mod makeroom;
mod models;
mod paged;
mod support;
