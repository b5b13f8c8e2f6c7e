//! The CUDA driver as the hooks see it: its types, the parts of its structures that are read, and the addresses of
//! its functions.

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod devices;
pub(crate) mod done;
pub(crate) mod function;
pub(crate) mod place;
pub(crate) mod real;
pub(crate) mod types;
