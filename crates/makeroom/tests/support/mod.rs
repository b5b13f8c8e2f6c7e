//! Code shared by several modules.

pub(crate) mod machine;
