//! Programs of which a few settings are all there is to say: a list of marks and levers each.

mod agents;
mod generation;
mod science;

use super::Program;

pub(super) use agents::PROGRAMS as AGENTS;
pub(super) use generation::PROGRAMS as GENERATION;
pub(super) use science::PROGRAMS as SCIENCE;

/// A program whose steps are one table of levers.
macro_rules! program {
    ($constant:ident, $name:literal, $work:ident, $marks:expr, $levers:expr) => {
        const $constant: Program = Program {
            name: $name,
            frameworks: &[],
            marks: $marks,
            work: Work::$work,
            advise: |situation, cause| {
                const LEVERS: &[Lever] = $levers;
                lever::steps(situation, cause, LEVERS)
            },
        };
    };
}
use program;
