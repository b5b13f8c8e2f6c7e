//! Reduces a recording to the memory that a comparison needs, and to its growth. Every comparison uses this function, so that
//! the command line and the page of `view` report the same.

use makeroom_core::{DeviceTrace, Trace};
use makeroom_explain::{Grouped, Growing, GrowingLine as ExplainedLine, growing, line_of};
use makeroom_kind::Kinds;

use crate::profile::{GrowingLine, Profile, StepGrowth};

/// Growing lines that are kept.
const MOST_GROWING: usize = 5;

/// The moment to which a recording is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Its peak.
    Peak,
    /// The failed request that limits the run, or its peak if none does.
    Need,
}

impl Profile {
    /// Reduces the recording of a device whose kinds are known to one moment, and to the growth from step to step.
    pub fn of_run(trace: &Trace, device: &DeviceTrace, kinds: &Kinds, moment: Moment) -> Self {
        let line = |stack| line_of(trace, stack);
        let failure = Grouped::failure(device, kinds);
        let profile = match moment {
            Moment::Peak => Self::of_kinds(device, kinds, line),
            Moment::Need => Self::of_need(device, kinds, failure, line),
        };
        // Equal parts of a recording are not steps: growth from one to the next may be on purpose.
        let growth = growing(trace, device, kinds).filter(|growing| growing.parts.is_none());
        Self {
            growth: growth.map(step_growth),
            source: Some(trace.kind.into()),
            is_incomplete: moment == Moment::Peak && failure.is_some(),
            ..profile
        }
    }
}

fn step_growth(growing: Growing) -> StepGrowth {
    let line = |line: ExplainedLine| GrowingLine {
        place: line.place,
        kind: line.kind.id().to_owned(),
        bytes: line.bytes.get(),
        keeper: line.keeper,
    };
    let lines = growing.lines.into_iter().take(MOST_GROWING).map(line).collect();
    StepGrowth {
        steps: growing.steps as u64,
        measured_by: growing.measured_by,
        bytes: growing.bytes.get(),
        lines,
    }
}
