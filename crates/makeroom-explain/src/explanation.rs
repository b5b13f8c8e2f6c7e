//! The answer to "why", as data. Nothing here prints; `makeroom-report` renders it.

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_kind::{Kind, Rule};

use crate::{Cause, Certainty, Ledger, RunSummary, Usage};

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What was read.
    pub input: InputSummary,
    /// The request that failed, if one did and it is known.
    pub request: Option<Request>,
    /// The one cause named.
    pub verdict: Verdict,
    /// All causes considered that apply, the verdict's first.
    pub causes: Vec<Finding>,
    /// Where the memory is, as an account that adds up.
    pub ledger: Option<Ledger>,
    /// Who holds the live memory, largest first.
    pub sites: Vec<Site>,
    /// What the live memory is spread over when `sites` leaves some out: the bytes of all others together.
    pub other_sites: Bytes,
    /// Live memory from step to step.
    pub growth: Option<Growth>,
    /// The memory of the run as a whole; `None` without a history.
    pub usage: Option<Usage>,
    /// The limit that the recording does not contain: at least the first figure, less than the second.
    pub hidden_limit: Option<(Bytes, Bytes)>,
    /// What a recorded process left behind or missed, in addition to the failed allocation.
    pub run: Option<RunSummary>,
    /// What the same run needs under other settings; only for recordings that failed.
    pub alternatives: Vec<Alternative>,
    /// Things people try that cannot help here, each with the reason.
    pub wont_help: Vec<String>,
    /// How to get more information, each with the exact command.
    pub next: Vec<Fix>,
    /// What the reader should know about the input: errors that follow, recording that began late, ….
    pub notes: Vec<String>,
}

impl Explanation {
    /// An explanation that has only a verdict.
    pub fn new(input: InputSummary, verdict: Verdict) -> Self {
        Self {
            input,
            request: None,
            verdict,
            causes: Vec::new(),
            ledger: None,
            sites: Vec::new(),
            other_sites: Bytes::ZERO,
            growth: None,
            usage: None,
            hidden_limit: None,
            run: None,
            alternatives: Vec::new(),
            wont_help: Vec::new(),
            next: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// What kind of input was explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSummary {
    /// The kind, as in `--json`.
    pub kind: InputKind,
    /// The framework in the input.
    pub framework: Framework,
}

/// The kinds of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A log or a message.
    ErrorText,
    /// A PyTorch memory snapshot.
    TorchSnapshot,
    /// A log of RMM's logging resource.
    RmmLog,
    /// A `.room` recording of a whole process.
    RoomTrace,
    /// JAX's device memory profile.
    JaxProfile,
}

impl InputKind {
    /// The name in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ErrorText => "error-text",
            Self::TorchSnapshot => "torch-snapshot",
            Self::RmmLog => "rmm-log",
            Self::RoomTrace => "room-trace",
            Self::JaxProfile => "jax-profile",
        }
    }
}

/// A request for memory that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How much was asked for; `None` when the input does not say.
    pub bytes: Option<Bytes>,
    /// On which device.
    pub device: Option<DeviceIndex>,
    /// Where in the program, as `file:line function`.
    pub site: Option<String>,
}

/// The cause named, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// How sure that is.
    pub certainty: Certainty,
    /// One or two sentences with the deciding figures.
    pub summary: String,
}

impl Verdict {
    /// How sure it is, where that is worth a word.
    pub fn told_certainty(&self) -> Option<Certainty> {
        let says_it = matches!(self.cause, Cause::None | Cause::Undetermined);
        (!says_it && self.certainty != Certainty::Undetermined).then_some(self.certainty)
    }

    /// The cause and how sure it is, as a person reads it.
    pub fn title(&self) -> String {
        let certainty = self.told_certainty().map_or(String::new(), |certainty| format!(" ({certainty})"));
        format!("{}{certainty}", self.cause.title())
    }
}

/// One cause with its evidence and its fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// How sure that is.
    pub certainty: Certainty,
    /// How many bytes this cause stands for, where that can be said.
    pub bytes: Option<Bytes>,
    /// One or two sentences with the deciding figures.
    pub summary: String,
    /// The figures, one sentence each.
    pub evidence: Vec<String>,
    /// What decides whether this is the cause, where that is open.
    pub check: Option<Fix>,
    /// What to do, the most effective first.
    pub fixes: Vec<Fix>,
}

impl Finding {
    /// A cause without evidence or fixes yet.
    pub fn new(cause: Cause, certainty: Certainty, summary: impl Into<String>) -> Self {
        Self {
            cause,
            certainty,
            bytes: None,
            summary: summary.into(),
            evidence: Vec::new(),
            check: None,
            fixes: Vec::new(),
        }
    }

    /// How many bytes the cause stands for.
    #[must_use]
    pub fn bytes(mut self, bytes: Bytes) -> Self {
        self.bytes = Some(bytes);
        self
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// What to do, in words.
    pub action: String,
    /// The line to paste, if there is one.
    pub command: Option<String>,
    /// What it frees, where that can be computed.
    pub frees: Option<Bytes>,
}

impl Fix {
    /// Something to do, in words.
    pub fn new(action: impl Into<String>) -> Self {
        Self { action: action.into(), command: None, frees: None }
    }

    /// The line to paste.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }

    /// What it frees.
    #[must_use]
    pub fn frees(mut self, bytes: Bytes) -> Self {
        self.frees = Some(bytes);
        self
    }
}

/// A place in the program that holds live memory, with the places it was called from folded into a tree: the
/// program's own lines are nodes, runs of library frames are named on the node below them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The line, as `file:line function`.
    pub place: String,
    /// Whether it is a line of the program itself rather than of a library.
    pub is_own: bool,
    /// The program's line that called it, where that line stands for nothing else in the tree and both are compiled:
    /// compiled programs often ask through a function of their own that checks for errors.
    pub caller: Option<String>,
    /// The library call through which it asked, if its own line did not ask itself.
    pub through: Option<String>,
    /// Live bytes of this place and all below it.
    pub bytes: Bytes,
    /// How many live blocks that is.
    pub blocks: u64,
    /// The places it called, largest first. Their bytes sum to at most `bytes`.
    pub callees: Vec<Self>,
}

/// How live memory develops from step to step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// How many steps were compared.
    pub steps: usize,
    /// Into how many equal parts the recording was cut, where it shows no steps: then each of `steps` is such a part.
    pub parts: Option<usize>,
    /// What tells the steps apart ("Optimizer.step", "time").
    pub measured_by: String,
    /// Live bytes at the quietest moment of the first and of the last step compared.
    pub first: Bytes,
    /// See `first`.
    pub last: Bytes,
    /// How much the floor rises from one step to the next, on average.
    pub per_step: Bytes,
    /// Number of events before the moments of `first` and `last`.
    pub moments: (usize, usize),
    /// Whether enough was seen to speak of a leak. A few rounds may as well be data that is taken piece by piece.
    pub is_enough: bool,
    /// Whether there are steps at all: the program marked them, or memory comes back meanwhile. A program that only takes
    /// may fill the device on purpose.
    pub is_in_steps: bool,
    /// The places whose live bytes rise with the steps, fastest first.
    pub leaking: Vec<Site>,
    /// What that memory is, and the rule that shows why it is kept, largest first. Empty if no rule is likely.
    pub kinds: Vec<(Kind, Rule, Bytes)>,
}

impl Growth {
    /// How long it was seen to grow, and by how much a time, for a sentence.
    pub fn pace(&self) -> String {
        match self.parts {
            Some(parts) => format!(
                "over {} of {parts} equal intervals of the recording, {} per interval",
                self.steps, self.per_step
            ),
            None => format!("over {} steps, {}", self.steps, rate(self.last - self.first, self.steps)),
        }
    }

    /// When what is compared is live.
    pub fn moment(&self) -> &'static str {
        if self.parts.is_some() { "Live memory" } else { "Live memory after each step" }
    }
}

/// A growth by `bytes` over some steps as a rate: `1.00 MiB per step`, or per 1000 steps if a step adds less than 1 KiB.
pub fn rate(bytes: Bytes, steps: usize) -> String {
    let steps = steps.max(1) as u64;
    if steps >= 1000 && bytes.get() / steps < 1024 {
        let per_thousand = u128::from(bytes.get()) * 1000 / u128::from(steps);
        return format!("{} per 1000 steps", Bytes::new(u64::try_from(per_thousand).unwrap_or(u64::MAX)));
    }
    format!("{} per step", Bytes::new(bytes.get() / steps))
}

/// What a recorded run needs under a setting, found by running it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The setting of PyTorch's allocator; `None` is the recorded one.
    pub settings: Option<&'static str>,
    /// What it reserves at its peak when nothing limits it, or within the limit where it fits.
    pub needs: Bytes,
    /// Whether it completes in the room there was; `None` when that is not known or it is the recorded run.
    pub fits: Option<bool>,
    /// Whether nothing had to be assumed.
    pub is_exact: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_growth_is_told_per_thousand_steps() {
        assert_eq!(rate(Bytes::mib(30), 30), "1.00 MiB per step");
        assert_eq!(rate(Bytes::mib(100), 200_000), "512.00 KiB per 1000 steps");
        assert_eq!(rate(Bytes::gib(4), 100_000), "41.94 KiB per step");
        assert_eq!(rate(Bytes::new(u64::MAX), 0), format!("{} per step", Bytes::new(u64::MAX)));
    }

    #[test]
    fn a_title_says_how_sure_it_is_once() {
        let title = |cause, certainty| Verdict { cause, certainty, summary: String::new() }.title();
        assert_eq!(title(Cause::Fragmentation, Certainty::Likely), "FRAGMENTATION (likely)");
        assert_eq!(title(Cause::Undetermined, Certainty::Undetermined), "UNDETERMINED");
        assert_eq!(title(Cause::None, Certainty::Certain), "NOTHING FAILED");
    }
}
