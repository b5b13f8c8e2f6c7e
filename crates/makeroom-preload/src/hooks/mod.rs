//! The hooks, between the program and the driver.
//!
//! [`table`] lists every hooked function; the other modules are its building blocks.

pub(crate) mod call;
pub(crate) mod capture;
mod code;
mod mark;
mod resolve;
pub(crate) mod table;
pub(crate) mod tensors;
pub(crate) mod waits;
