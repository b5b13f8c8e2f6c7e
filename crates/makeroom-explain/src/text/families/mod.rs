//! One file per family of formats.

pub(super) mod generic;
pub(super) mod pytorch;
pub(super) mod pytorch_async;
pub(super) mod pytorch_host;
