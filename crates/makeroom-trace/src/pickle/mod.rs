//! A pickle machine for data.
//!
//! A pickle is a program for a stack machine: push a number, push a dict, move what is above the mark into it,
//! remember the top, push what was remembered. This machine runs the opcodes of protocols 0 to 5 that make data
//! and refuses, by name, every opcode with which a file could have something called or looked up.
//!
//! It builds no objects of its own. Containers belong to a [`Heap`] that decides what becomes of them; the
//! machine moves 16-byte [`Value`]s. So a reader can keep of a gigabyte of dicts the few columns it wants, and
//! nothing that the memo shares is ever expanded. Nothing here recurses, whatever the nesting.
//!
//! The stream is read in chunks and never held as a whole; a length field is believed only as far as the bytes
//! for it have arrived.

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
