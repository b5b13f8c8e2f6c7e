//! Code shared by several modules.

pub(crate) mod cpu_time;
