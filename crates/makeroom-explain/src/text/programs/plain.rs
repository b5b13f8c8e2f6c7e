//! Any program that none of the other files knows.

use super::{Program, Work};

/// A program without remedies of its own.
pub(super) const PLAIN: Program = Program {
    name: "the program",
    frameworks: &[],
    marks: &[],
    work: Work::Other,
    advise: |_, _| Vec::new(),
};
