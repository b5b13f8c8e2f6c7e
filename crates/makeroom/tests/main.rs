//! Tests of the command, on the software GPU.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod architecture;
mod demo;
mod doctor;
mod environment;
mod files;
mod findings;
mod fit;
mod gate;
mod groups;
mod help;
mod job;
mod launchers;
mod limited;
mod measured;
mod ps;
mod run;
mod sanitizers;
mod serve;
mod signals;
mod status;
mod support;
mod terminals;
mod top;
mod view;
mod why;
