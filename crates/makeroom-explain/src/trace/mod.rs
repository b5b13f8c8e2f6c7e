//! Recordings: rebuild the memory at the failure or at the peak, account for it, and say who holds it.
//!
//! ```text
//! history.rs   one pass: running totals, peak, failures, floors of steps
//! state.rs     all blocks and segments at chosen moments
//! pieces.rs    reserved memory cut into live, rounding and unused pieces
//! sites.rs     live memory by place in the program
//! steps.rs     steps, and what grows from one to the next
//! verdict.rs   the cause;  fixes.rs  what to do;  account.rs  the ledger
//! alternatives.rs   the same run under other settings
//! ```

mod account;
mod alternatives;
mod fixes;
mod history;
mod pieces;
mod room;
mod sites;
mod state;
mod steps;
mod verdict;

pub use room::Room;

use makeroom_core::{Action, Bytes, DeviceIndex, DeviceTrace, Trace, TraceKind};
use makeroom_sim::Settings;

use self::fixes::StepSplit;
use self::history::History;
use self::pieces::Pieces;
use self::state::{State, states_at};
use self::steps::Steps;
use self::verdict::Refusal;
use crate::{Cause, Certainty, Explanation, Finding, Fix, InputKind, InputSummary, Ledger, Request, Verdict};

/// What to explain of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceQuestion {
    /// How much memory there was.
    pub room: Room,
    /// The device; without it the one that failed first, or the one that held most.
    pub device: Option<DeviceIndex>,
}

/// Explains a recording.
pub fn explain_trace(trace: &Trace, question: &TraceQuestion) -> Explanation {
    let Some(device) = chosen_device(trace, question.device) else { return empty(trace) };
    let mut explanation = Subject::new(trace, device).explain(question.room);
    let others = trace.devices.len() - 1;
    if others > 0 && question.device.is_none() {
        explanation.notes.push(format!(
            "{others} more device{} in this recording; `--device N` explains another",
            if others == 1 { " is" } else { "s are" }
        ));
    }
    explanation
}

/// The device asked for; else the one that failed first; else the one that held most.
fn chosen_device(trace: &Trace, asked: Option<DeviceIndex>) -> Option<&DeviceTrace> {
    if asked.is_some() {
        return trace.device(asked);
    }
    let first_failure = |device: &DeviceTrace| {
        let index = device.events.actions().iter().position(|&action| action == Action::OutOfMemory)?;
        device.events.get(index).map(|event| event.time_us)
    };
    let failed = trace.devices.iter().filter_map(|device| Some((first_failure(device)?, device)));
    if let Some((_, device)) = failed.min_by_key(|(time, _)| *time) {
        return Some(device);
    }
    match trace.devices.as_slice() {
        [only] => Some(only),
        devices => devices
            .iter()
            .max_by_key(|device| (History::new(device, &[]).peak_live, std::cmp::Reverse(device.device))),
    }
}

/// One device of a recording.
struct Subject<'trace> {
    trace: &'trace Trace,
    device: &'trace DeviceTrace,
    steps: Steps,
    history: History,
    settings: Settings,
}

impl<'trace> Subject<'trace> {
    fn new(trace: &'trace Trace, device: &'trace DeviceTrace) -> Self {
        let steps = Steps::find(trace, device);
        let history = History::new(device, &steps.starts);
        Self { trace, device, steps, history, settings: Settings::recorded(&trace.settings) }
    }

    fn has_segments(&self) -> bool {
        self.history.peak_reserved.is_some()
    }

    fn explain(&self, room: Room) -> Explanation {
        let failure = self.history.failures.first().copied();
        let moment = failure.or(self.history.peak);
        let mut states = states_at(self.device, &self.history, &[moment]);
        let state = states.pop().unwrap_or_default();
        let pieces = Pieces::new(self.device, &self.settings, &state, moment);
        let growth = steps::growth(self.trace, self.device, &self.history, &self.steps);
        let (sites, other_sites) = sites::tree(&self.trace.stacks, &sites::by_stack(&state.blocks));
        let mut explanation = Explanation {
            input: self.input(),
            request: None,
            verdict: Verdict { cause: Cause::None, certainty: Certainty::Certain, summary: String::new() },
            causes: Vec::new(),
            ledger: None,
            sites,
            other_sites,
            growth,
            alternatives: Vec::new(),
            futile: Vec::new(),
            next: Vec::new(),
            notes: self.notes(),
        };
        let room = self.possible_room(room, &mut explanation);
        match failure.and_then(|index| Some((index, self.device.events.get(index)?))) {
            Some((index, event)) => {
                self.explain_failure(&mut explanation, room, (index, event), &state, &pieces);
            }
            None => self.explain_peak(&mut explanation, room, &pieces),
        }
        explanation
    }

    /// The room that was named, unless the run is known to have held more than that.
    fn possible_room(&self, room: Room, explanation: &mut Explanation) -> Room {
        match (room.limit(), self.history.peak_reserved) {
            (Some(limit), Some(reserved)) if reserved > limit => {
                explanation.notes.insert(
                    0,
                    format!(
                        "the run held up to {reserved}, so {limit} was not its limit and is not used here"
                    ),
                );
                explanation.next.push(
                    Fix::new("to see whether it would have fit")
                        .command(format!("makeroom replay --memory {}MiB …", limit.get() >> 20)),
                );
                Room::Unknown
            }
            _ => room,
        }
    }

    fn explain_failure(
        &self,
        explanation: &mut Explanation,
        room: Room,
        (index, event): (usize, makeroom_core::Event),
        state: &State,
        pieces: &Pieces,
    ) {
        let measured = self
            .trace
            .process
            .as_ref()
            .and_then(|process| process.device_sample_near(self.device.device, event.time_us));
        let refusal = Refusal {
            event,
            pieces,
            room,
            holder: if framework(self.trace) == Some("pytorch") { "PyTorch" } else { "the program" },
            measured,
            growth: explanation.growth.as_ref(),
            has_segments: self.has_segments(),
            settings: &self.settings,
        };
        let mut causes = refusal.findings();
        let split = self.split(index, state);
        let alternatives =
            alternatives::alternatives(self.trace, self.device, &self.history.start, room.limit());
        fixes::attach(&mut causes, self.trace, &refusal, split, &alternatives);
        let first = &causes[0];
        explanation.verdict =
            Verdict { cause: first.cause, certainty: first.certainty, summary: first.summary.clone() };
        explanation.futile = fixes::futile(first.cause, self.trace, &refusal, split, &alternatives);
        explanation.ledger = Some(self.ledger(room, pieces, Some(&refusal)));
        explanation.request = Some(Request {
            bytes: Some(event.size),
            device: Some(self.device.device),
            site: sites::place_of(&self.trace.stacks, event.stack),
        });
        if room == Room::Unknown && measured.is_none() {
            explanation.next.push(say_the_room());
        }
        let later = self.history.failures.len() - 1;
        if later > 0 {
            explanation.notes.push(format!("{later} more refusals follow; the first one decides"));
        }
        explanation.alternatives = alternatives;
        explanation.causes = causes;
    }

    fn explain_peak(&self, explanation: &mut Explanation, room: Room, pieces: &Pieces) {
        if self.device.events.is_empty() {
            return self.explain_final_state(explanation, room, pieces);
        }
        let live = self.history.peak_live;
        let summary = match self.history.peak_reserved {
            // What other libraries hold beside PyTorch's segments is live too.
            Some(reserved) => format!(
                "No allocation was refused. At its peak the run had {live} live in {} reserved, {:.0} % of it unused; the most it reserved was {}{}.",
                pieces.reserved + pieces.homeless,
                100.0 * pieces.slack(),
                reserved.max(pieces.reserved + pieces.homeless),
                room.limit().map_or(String::new(), |limit| format!(" of the {limit} there is"))
            ),
            None => format!("No allocation was refused. At its peak the run had {live} live."),
        };
        explanation.verdict =
            Verdict { cause: Cause::None, certainty: Certainty::Certain, summary: summary.clone() };
        explanation.causes.push(Finding {
            cause: Cause::None,
            certainty: Certainty::Certain,
            bytes: Some(live),
            summary,
            evidence: vec![format!("{} events, none of them a refusal", self.device.events.len())],
            fixes: Vec::new(),
        });
        if let Some(growth) = &explanation.growth {
            explanation.causes.push(Finding {
                cause: Cause::Leak,
                certainty: Certainty::Possible,
                bytes: Some(growth.last - growth.first),
                summary: format!(
                    "What stays live after each step grew from {} to {} over {} steps.",
                    growth.first, growth.last, growth.steps
                ),
                evidence: Vec::new(),
                fixes: crate::advice::leak(),
            });
        }
        explanation.ledger = Some(self.ledger(room, pieces, None));
        if room == Room::Unknown && self.has_segments() && self.trace.kind != TraceKind::Room {
            explanation.next.push(say_the_room());
        }
    }

    /// A snapshot without history says what was there when it was taken, and nothing of what failed.
    fn explain_final_state(&self, explanation: &mut Explanation, room: Room, pieces: &Pieces) {
        let summary = format!(
            "The snapshot has no history: it shows what was there when it was taken, {} live in {} reserved, not what failed.",
            pieces.live, pieces.reserved
        );
        explanation.verdict = Verdict {
            cause: Cause::Undetermined,
            certainty: Certainty::Undetermined,
            summary: summary.clone(),
        };
        explanation.causes.push(Finding {
            cause: Cause::Undetermined,
            certainty: Certainty::Undetermined,
            bytes: Some(pieces.live),
            summary,
            evidence: Vec::new(),
            fixes: Vec::new(),
        });
        explanation.ledger = Some(self.ledger(room, pieces, None));
        explanation.next.push(crate::advice::record_snapshot());
    }

    /// What of the live memory is older than the step that failed, where steps are marked.
    fn split(&self, failure: usize, state: &State) -> Option<StepSplit> {
        let start = self.steps.start_of(failure).filter(|_| self.steps.are_marked)?;
        let growing: Bytes = state
            .blocks
            .iter()
            .filter(|block| block.born.is_some_and(|born| born >= start))
            .map(|block| block.requested)
            .sum();
        Some(StepSplit { lasting: state.live() - growing, growing })
    }

    fn ledger(&self, room: Room, pieces: &Pieces, refusal: Option<&Refusal<'_>>) -> Ledger {
        let is_of_tensors = self.trace.kind != TraceKind::Room || framework(self.trace).is_some();
        let what_is_live = if is_of_tensors { "live tensors" } else { "live memory" };
        account::ledger(self.device.device, room, pieces, self.has_segments(), what_is_live, refusal)
    }

    fn input(&self) -> InputSummary {
        InputSummary { kind: input_kind(self.trace), framework: framework(self.trace) }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.trace.notes.clone();
        let older: Bytes = self.history.start.live();
        if older >= Bytes::mib(1) && !self.device.events.is_empty() {
            notes.push(format!(
                "the recording began late: {older} was live before its first event, without a stack unless it lives to the end"
            ));
        }
        if self.device.overflowed == Some(true) {
            notes.push("the recorder's ring overflowed: the oldest events are lost".to_owned());
        }
        if self.history.start.unmatched_frees > 0 {
            notes.push(format!(
                "{} frees have no allocation in this recording",
                self.history.start.unmatched_frees
            ));
        }
        notes
    }
}

fn input_kind(trace: &Trace) -> InputKind {
    match trace.kind {
        TraceKind::TorchSnapshot => InputKind::TorchSnapshot,
        TraceKind::RmmLog => InputKind::RmmLog,
        TraceKind::Room => InputKind::RoomTrace,
    }
}

/// The framework whose allocations were recorded, as in `--json`; of a whole process only where its tensors were.
fn framework(trace: &Trace) -> Option<&'static str> {
    match trace.kind {
        TraceKind::TorchSnapshot => Some("pytorch"),
        TraceKind::RmmLog => Some("rmm"),
        TraceKind::Room => {
            trace.process.as_ref().is_some_and(|process| process.sees_tensors).then_some("pytorch")
        }
    }
}

fn say_the_room() -> Fix {
    Fix::new("a snapshot holds neither the card's size nor a limit; say it to have the account closed")
        .command("makeroom why --card SIZE …   (or --memory SIZE, where the program set a limit)")
}

fn empty(trace: &Trace) -> Explanation {
    let summary = "The recording is empty: it holds no events and no memory.".to_owned();
    Explanation {
        input: InputSummary { kind: input_kind(trace), framework: None },
        request: None,
        verdict: Verdict { cause: Cause::None, certainty: Certainty::Certain, summary },
        causes: Vec::new(),
        ledger: None,
        sites: Vec::new(),
        other_sites: Bytes::ZERO,
        growth: None,
        alternatives: Vec::new(),
        futile: Vec::new(),
        next: Vec::new(),
        notes: trace.notes.clone(),
    }
}
