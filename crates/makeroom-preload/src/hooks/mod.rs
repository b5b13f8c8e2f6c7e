//! The hooks, between the program and the driver.
//!
//! [`table`] lists every hooked function, in the grammar of `grammar`; the other modules are its building blocks.

pub(crate) mod call;
pub(crate) mod capture;
mod code;
#[macro_use]
mod grammar;
mod mark;
mod resolve;
pub(crate) mod table;
pub(crate) mod tensors;
pub(crate) mod waits;
