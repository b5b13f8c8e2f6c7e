//! What several modules share.

pub(crate) mod machine;
