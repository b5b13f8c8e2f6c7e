//! From hook to writer: one ring buffer of events per thread, and interned tables that events refer to by number.

pub(crate) mod event;
pub(crate) mod figures;
pub(crate) mod intern;
pub(crate) mod lost;
pub(crate) mod memory;
pub(crate) mod ring;
pub(crate) mod seen;
pub(crate) mod threads;
pub(crate) mod wake;
pub(crate) mod words;
