//! A pickle machine that only builds data.
//!
//! A pickle is a program for a stack machine: push a number, push a dict, move the values above the mark into it,
//! memoize the top, push a memoized value. This machine runs the opcodes of protocols 0 to 5 that build data. Every
//! opcode with which a file could look up or call something is an error.
//!
//! The machine builds no objects itself. Containers belong to a [`Heap`], which decides what to keep; the machine
//! moves 16-byte [`Value`]s. So a reader can keep only the columns it needs from a gigabyte of dicts, and values that
//! the memo shares are never expanded. Nothing here recurses, whatever the nesting depth.
//!
//! The stream is read in chunks and never held as a whole. A length field is trusted only as far as its bytes have
//! arrived.

mod complaints;
mod containers;
mod literals;
mod machine;
mod memo;
mod opcode;
mod opening;
mod source;
mod text_forms;
mod value;

pub(crate) use machine::{Product, run};
pub(crate) use opening::is_opening;
pub(crate) use value::{Fault, Heap, Limit, ObjectId, TextId, Value};
