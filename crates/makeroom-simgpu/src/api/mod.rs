//! The exported functions, a file per kind. Each checks what it was given, asks the machine, and writes the
//! answer.
//!
//! Order matters where a real driver's does: a missing context is told before a missing place for the result.

#![allow(non_snake_case, reason = "the names are the driver's")]

mod arrays;
mod capture;
mod context;
mod control;
mod copies;
mod device;
mod events;
mod exchange;
mod fills;
mod first_forms;
mod graphs;
mod host;
mod interop;
mod launch;
mod limits;
mod memory;
mod modules;
mod pointers;
mod pools;
mod primary;
mod resolve;
mod start;
mod streams;
mod virtual_memory;
