//! Tests of `makeroom index` and `makeroom fleet`, on local files and a server.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod document;
mod local;
mod server;
mod support;
