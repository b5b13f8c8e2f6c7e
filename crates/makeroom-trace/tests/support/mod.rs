//! Code shared by the tests of the readers.
#![allow(dead_code, unreachable_pub, reason = "`memory` and `growth` use part of it")]

pub mod content;
pub mod pickler;
pub mod rooms;
