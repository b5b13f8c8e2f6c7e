//! Whether a recorded run is healthy, and whether its live memory grew: one word and one sentence each, decided here for
//! the text, the JSON and the page of `view`.
//!
//! ```text
//! failed      something failed
//! growing     nothing failed, and memory grows from step to step
//! leaking     the process did not free memory before it exited
//! wasteful    at the peak, at least 1/10 of the reserved memory, and at least 32 MiB, was not needed
//! healthy     none of these
//! unknown     the input does not show it: the recording is too short, or the input is not a recording
//! ```
//!
//! The first word that applies counts.

use makeroom_core::Bytes;

use crate::{Cause, Explanation, Growth, Site};

/// Less unused memory than this is not worth a change.
const LEAST_WASTE: Bytes = Bytes::mib(32);
/// Nor is a smaller share of the reserved memory.
const LEAST_WASTE_SHARE: f64 = 0.1;
/// A smaller rise is slight, and values that differ by less are alike.
pub(crate) const SLIGHT_GROWTH: f64 = 0.05;
/// A line stands for the growth if it has at least this share of it.
const MAIN_SHARE: f64 = 0.5;

/// The memory of a recorded run as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Peak live memory.
    pub live: Bytes,
    /// Memory that was reserved at the moment of the explanation, which is the peak of live memory if nothing failed; `None`
    /// if the recording has no segments.
    pub reserved: Option<Bytes>,
    /// Memory at the moment of the explanation that rounding took.
    pub rounding: Bytes,
    /// Memory at the moment of the explanation that was freed and waits for a stream.
    pub waiting: Bytes,
    /// How live memory developed.
    pub trend: Trend,
}

/// How live memory developed after the first quarter of the steps, in which optimizers and caches fill up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    /// It keeps growing; `Explanation::growth` has the figures.
    Grows,
    /// It did not grow.
    Steady(Settled),
    /// It is higher at the end, but too little, too rarely or in too few steps to be called growth.
    Higher(Settled),
    /// It goes up and down.
    Varies(Settled),
    /// It dropped once, and has kept growing since then.
    Regrows(Settled),
    /// There is nothing to compare.
    TooShort,
}

impl Trend {
    /// The word for a run in which nothing else is wrong. A leak in its first steps looks like any other start, so it takes
    /// enough steps without a rise to call a run healthy.
    fn state(self) -> HealthState {
        let is_healthy = match self {
            Self::Grows | Self::Regrows(_) | Self::TooShort => false,
            Self::Steady(settled) => !settled.are_few,
            Self::Higher(settled) => !settled.are_few && settled.is_slight(),
            // Equal parts of a recording do different work, so they cannot be compared like steps.
            Self::Varies(settled) => !settled.are_few && (settled.are_steps || settled.are_alike),
        };
        if is_healthy { HealthState::Healthy } else { HealthState::Unknown }
    }
}

/// The lowest live memory of each step that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The first and the last of these steps, counted from 1.
    pub steps: (usize, usize),
    /// Whether these are steps of the program rather than equal parts of the recording.
    pub are_steps: bool,
    /// Whether they are too few to call anything growth.
    pub are_few: bool,
    /// Whether at least 3/4 of the values are alike, and none is much higher than the first.
    pub are_alike: bool,
    /// The values of the first and of the last of these steps.
    pub ends: (Bytes, Bytes),
    /// The lowest and the highest value.
    pub range: (Bytes, Bytes),
}

impl Settled {
    fn is_slight(&self) -> bool {
        (self.ends.1 - self.ends.0).share_of(self.ends.1) < SLIGHT_GROWTH
    }

    fn regrows(&self) -> String {
        let ((what, when), (first, last)) = (self.phrases(), self.ends);
        format!("{what} rose from {first} to {last} {when}, after a drop.")
    }

    /// Live memory at which moments, and in which part of the recording, for a sentence.
    fn phrases(&self) -> (&'static str, String) {
        let (first, last) = self.steps;
        if self.are_steps {
            ("Live memory after each step", format!("in steps {first} to {last}"))
        } else {
            ("Live memory", "after the first quarter of the recording".to_owned())
        }
    }

    fn steady(&self) -> String {
        let (first, last) = self.steps;
        if !self.are_steps {
            return "Live memory did not grow after the first quarter of the recording.".to_owned();
        }
        let (low, most) = self.range;
        let at_most = if (most - low).share_of(most) < SLIGHT_GROWTH { "" } else { "at most " };
        let kept = if most.is_zero() {
            String::new()
        } else {
            format!("; {at_most}{most} stays live after each step")
        };
        format!("Live memory did not grow from step {first} to step {last}{kept}.")
    }

    fn higher(&self) -> String {
        let ((what, when), (first, last)) = (self.phrases(), self.ends);
        if self.are_few {
            format!(
                "{what} rose from {first} to {last} {when}, but the recording is too short to show whether it keeps growing."
            )
        } else if self.is_slight() {
            format!("{what} rose only slightly {when}, from {first} to {last}.")
        } else {
            format!("{what} rose from {first} to {last} {when}, but not steadily.")
        }
    }

    fn varies(&self) -> String {
        let ((what, when), (least, most)) = (self.phrases(), self.range);
        if self.are_alike {
            format!("{what} rose by less than 5 % {when}, without steady growth.")
        } else if self.are_steps {
            format!("{what} varied from {least} to {most} {when}, without steady growth.")
        } else {
            // The lowest values of parts of the recording are not the range of live memory.
            format!("{what} went up and down, without steady growth.")
        }
    }
}

/// The word for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// Something failed.
    Failed,
    /// Memory grows from step to step.
    Growing,
    /// Memory was not freed before the process exited.
    Leaking,
    /// A substantial part of the reserved memory was not needed.
    Wasteful,
    /// None of these.
    Healthy,
    /// The input does not show it, for example because it is too short.
    Unknown,
}

impl HealthState {
    /// The word, in text and in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Growing => "growing",
            Self::Leaking => "leaking",
            Self::Wasteful => "wasteful",
            Self::Healthy => "healthy",
            Self::Unknown => "unknown",
        }
    }
}

/// The word for a run, and the sentence with the figures that decide it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The word.
    pub state: HealthState,
    /// Why; `None` if the verdict says it.
    pub because: Option<String>,
}

impl Usage {
    /// What is wasted, if that is worth a change: freed memory that waits for a stream, or reserved memory beyond the live
    /// memory.
    pub(crate) fn waste(&self) -> Option<Waste> {
        let reserved = self.reserved?;
        let is_much = |bytes: Bytes| bytes >= LEAST_WASTE && bytes.share_of(reserved) >= LEAST_WASTE_SHARE;
        let unused = reserved - self.live - self.rounding;
        if is_much(self.waiting) && self.waiting >= unused {
            Some(Waste::Waiting(self.waiting, reserved))
        } else {
            is_much(unused).then_some(Waste::Unused(unused, reserved))
        }
    }
}

/// Memory that is wasted, and the reserved memory that it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waste {
    /// Freed, but waiting for a stream.
    Waiting(Bytes, Bytes),
    /// Never live at the same time as the rest.
    Unused(Bytes, Bytes),
}

impl Explanation {
    /// Whether the run is healthy.
    pub fn health(&self) -> Health {
        let told = |state, because: String| Health { state, because: Some(because) };
        let silent = |state| Health { state, because: None };
        match self.verdict.cause {
            Cause::Undetermined if self.request.is_none() => return silent(HealthState::Unknown),
            Cause::None => {}
            _ => return silent(HealthState::Failed),
        }
        if let Some(growth) = self.growth.as_ref().filter(|growth| growth.is_in_steps) {
            return told(HealthState::Growing, growth.sentence());
        }
        let found = |cause| self.causes.iter().find(|finding| finding.cause == cause);
        if let Some(host) = found(Cause::HostMemory) {
            return told(HealthState::Growing, host.summary.clone());
        }
        if let Some(leak) = found(Cause::Leak) {
            return told(HealthState::Leaking, leak.summary.clone());
        }
        // CUDA does not report a full in-kernel heap as an error, so kernels may have failed.
        let (Some(usage), None) = (&self.usage, found(Cause::SharedMemoryOrKernelResource)) else {
            return silent(HealthState::Unknown);
        };
        match (usage.waste(), usage.reserved) {
            (Some(Waste::Waiting(bytes, reserved)), _) => told(
                HealthState::Wasteful,
                format!("{bytes} of the {reserved} reserved was freed but still waits for a stream."),
            ),
            (Some(Waste::Unused(bytes, reserved)), _) => told(
                HealthState::Wasteful,
                format!(
                    "{bytes} ({:.0} %) of the {reserved} reserved at the peak is cached; {} is live.",
                    100.0 * bytes.share_of(reserved),
                    usage.live
                ),
            ),
            (None, Some(reserved)) => told(
                usage.trend.state(),
                format!("Little is wasted: at the peak, {} was live and {reserved} reserved.", usage.live),
            ),
            (None, None) => told(usage.trend.state(), format!("Live memory peaked at {}.", usage.live)),
        }
    }

    /// Whether live memory grew, in one sentence; `None` if the input has no history.
    pub fn growth_sentence(&self) -> Option<String> {
        if let Some(growth) = &self.growth {
            return Some(growth.sentence());
        }
        Some(match self.usage.as_ref()?.trend {
            Trend::Grows => return None,
            Trend::Steady(settled) => settled.steady(),
            Trend::Higher(settled) => settled.higher(),
            Trend::Varies(settled) => settled.varies(),
            Trend::Regrows(settled) => settled.regrows(),
            Trend::TooShort => "The recording is too short to show whether memory grows.".to_owned(),
        })
    }

    /// Whether growth was measured at all.
    pub fn is_growth_measured(&self) -> bool {
        self.growth.is_some() || self.usage.as_ref().is_some_and(|usage| usage.trend != Trend::TooShort)
    }
}

impl Growth {
    /// How much live memory grew, and where, in one sentence.
    pub fn sentence(&self) -> String {
        let line = self.main_line().map_or(String::new(), |site| format!(", mostly at {}", site.place));
        if self.is_in_steps {
            let Self { first, last, .. } = self;
            format!("{} grew from {first} to {last} {}{line}.", self.moment(), self.pace())
        } else {
            format!(
                "Live memory grew from {} to {}{line}, and almost nothing was freed.",
                self.first, self.last
            )
        }
    }

    /// The innermost line of the program that has at least half of the growth.
    pub fn main_line(&self) -> Option<&Site> {
        let mut line = self.leaking.first()?;
        let all: Bytes = self.leaking.iter().map(|site| site.bytes).sum();
        if line.bytes.share_of(all) < MAIN_SHARE {
            return None;
        }
        while let Some(callee) = line.callees.first() {
            if !callee.is_own || callee.bytes.share_of(all) < MAIN_SHARE {
                break;
            }
            line = callee;
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Trace, TraceKind};

    use super::*;
    use crate::{TraceQuestion, explain_trace};

    /// The explanation of an empty recording.
    fn explain_nothing() -> Explanation {
        explain_trace(&Trace::new(TraceKind::TorchSnapshot), &TraceQuestion::default())
    }

    fn usage(live: u64, reserved: u64, waiting: u64) -> Usage {
        let [live, reserved, waiting] = [live, reserved, waiting].map(Bytes::mib);
        Usage { live, reserved: Some(reserved), rounding: Bytes::ZERO, waiting, trend: Trend::TooShort }
    }

    #[test]
    fn waste_is_a_tenth_of_the_reserved_memory_and_worth_a_change() {
        assert_eq!(usage(900, 999, 0).waste(), None);
        assert_eq!(usage(900, 1000, 0).waste(), Some(Waste::Unused(Bytes::mib(100), Bytes::mib(1000))));
        assert_eq!(usage(60, 91, 0).waste(), None);
        assert_eq!(usage(400, 500, 99).waste(), Some(Waste::Unused(Bytes::mib(100), Bytes::mib(500))));
        assert_eq!(usage(400, 500, 101).waste(), Some(Waste::Waiting(Bytes::mib(101), Bytes::mib(500))));
        assert_eq!(Usage { reserved: None, ..usage(900, 0, 500) }.waste(), None);
        assert_eq!(Usage { rounding: Bytes::mib(1), ..usage(900, 1000, 0) }.waste(), None);
        // Damaged recordings have impossible figures.
        assert_eq!(usage(900, 10, 0).waste(), None);
    }

    #[test]
    fn every_explanation_has_one_word() {
        let state = |explanation: &Explanation| explanation.health().state.name();
        let mut failed = explain_nothing();
        failed.verdict.cause = Cause::LiveDataFillsDevice;
        assert_eq!(state(&failed), "failed");
        let mut none = explain_nothing();
        assert_eq!((none.verdict.cause, state(&none)), (Cause::None, "unknown"));
        none.usage = Some(usage(900, 999, 0));
        assert_eq!(state(&none), "unknown", "too short to show a leak");
        let settled = Settled {
            steps: (3, 9),
            are_steps: true,
            are_few: false,
            are_alike: true,
            ends: (Bytes::mib(10), Bytes::mib(10)),
            range: (Bytes::mib(10), Bytes::mib(10)),
        };
        none.usage = Some(Usage { trend: Trend::Steady(settled), ..usage(900, 999, 0) });
        assert_eq!(state(&none), "healthy");
        let few = Settled { are_few: true, ends: (Bytes::mib(10), Bytes::mib(20)), ..settled };
        none.usage = Some(Usage { trend: Trend::Higher(few), ..usage(900, 999, 0) });
        assert_eq!(state(&none), "unknown");
        none.usage = Some(usage(400, 500, 0));
        assert_eq!(state(&none), "wasteful");
        let because = none.health().because.unwrap();
        assert_eq!(
            because,
            "100.00 MiB (20 %) of the 500.00 MiB reserved at the peak is cached; 400.00 MiB is live."
        );
        let leak = crate::Finding::new(Cause::Leak, crate::Certainty::Possible, "1 MiB was never freed.");
        none.causes.push(leak);
        assert_eq!(state(&none), "leaking");
    }

    #[test]
    fn growth_has_a_sentence_even_if_there_is_none() {
        let mut explanation = explain_nothing();
        assert_eq!(explanation.growth_sentence(), None);
        let ends = (Bytes::mib(100), Bytes::mib(200));
        let settled =
            Settled { steps: (13, 48), are_steps: true, are_few: false, are_alike: false, ends, range: ends };
        let parts = Settled { are_steps: false, ..settled };
        let mut told = |trend| {
            explanation.usage = Some(Usage { trend, ..usage(9, 9, 0) });
            explanation.growth_sentence().unwrap()
        };
        assert_eq!(
            told(Trend::Steady(settled)),
            "Live memory did not grow from step 13 to step 48; at most 200.00 MiB stays live after each step."
        );
        assert_eq!(
            told(Trend::Steady(parts)),
            "Live memory did not grow after the first quarter of the recording."
        );
        assert_eq!(
            told(Trend::Varies(settled)),
            "Live memory after each step varied from 100.00 MiB to 200.00 MiB in steps 13 to 48, without steady growth."
        );
        assert_eq!(told(Trend::Varies(parts)), "Live memory went up and down, without steady growth.");
        assert_eq!(
            told(Trend::Varies(Settled { are_alike: true, ..parts })),
            "Live memory rose by less than 5 % after the first quarter of the recording, without steady growth."
        );
        let higher = "Live memory after each step rose from 100.00 MiB to 200.00 MiB in steps 13 to 48";
        assert_eq!(told(Trend::Higher(settled)), format!("{higher}, but not steadily."));
        assert_eq!(
            told(Trend::Higher(Settled { are_few: true, ..settled })),
            format!("{higher}, but the recording is too short to show whether it keeps growing.")
        );
        let slight = Settled { ends: (Bytes::mib(100), Bytes::mib(104)), ..settled };
        assert!(
            told(Trend::Higher(slight)).contains("rose only slightly in steps 13 to 48, from 100.00 MiB")
        );
        assert!(told(Trend::TooShort).contains("too short"));
    }
}
