//! The hooks: what stands between a program and its driver.
//!
//! [`table`] lists every hooked function; the others are what its rows are made of.

pub(crate) mod call;
pub(crate) mod capture;
mod code;
mod mark;
mod resolve;
pub(crate) mod table;
pub(crate) mod tensors;
pub(crate) mod waits;
