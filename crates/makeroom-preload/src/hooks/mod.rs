//! The hooks, between the program and the driver.
//!
//! [`table`] lists every hooked function, in the grammar of `grammar`; the other modules are its building blocks.

mod code;
#[macro_use]
mod grammar;
mod loader;
mod mark;
mod reports;
mod resolve;
mod table;
mod waits;
