//! Tests of `makeroom index` and `makeroom fleet`, on local files and a server.
//!
//! They are one program, because each further one would link the crates under test again.

mod document;
mod local;
mod server;
mod support;
