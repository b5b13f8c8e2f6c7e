//! The CUDA driver as the hooks see it: its types, its structures as far as they are read, and where its functions
//! are.

pub(crate) mod devices;
pub(crate) mod place;
pub(crate) mod real;
pub(crate) mod types;
