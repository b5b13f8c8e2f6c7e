//! Any program that none of the other files knows.

use super::{Program, Work};

/// A program without program-specific steps.
pub(super) const PLAIN: Program = Program {
    name: "the program",
    frameworks: &[],
    marks: &[],
    work: Work::Other,
    advise: |_, _| Vec::new(),
};
