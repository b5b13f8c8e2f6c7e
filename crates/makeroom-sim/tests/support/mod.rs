//! What several modules share.

pub(crate) mod cpu_time;
