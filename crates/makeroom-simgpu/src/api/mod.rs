//! The exported functions, one file per topic. Each checks its arguments, calls the machine, and writes the result.
//!
//! The order of checks follows the real driver: a missing context is reported before a missing result pointer.

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
