//! From a hook to the writer: one ring of events per thread, and tables of what events refer to by number.

pub(crate) mod event;
pub(crate) mod intern;
pub(crate) mod memory;
pub(crate) mod ring;
pub(crate) mod threads;
