//! Rendering, encoding, mining and password recovery.

use super::Program;

pub(super) const PROGRAMS: &[&Program] = &[];
