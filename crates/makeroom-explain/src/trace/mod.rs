//! Recordings: rebuild the memory at the failure or at the peak, account for it, and say who holds it.
//!
//! ```text
//! history.rs   one pass: running totals, peak, failures, floors of steps
//! state.rs     all blocks and segments at chosen moments
//! segments.rs  what is taken from the driver;  cut.rs  one segment in parts;  ends.rs  where its blocks end
//! lifetimes.rs birth and end of every allocation: who is live when
//! pieces.rs    reserved memory cut into live, rounding and unused pieces
//! sites.rs     live memory by place in the program
//! steps.rs     steps, and what grows from one to the next;  rounds.rs  those of a loop that marks none;  trend.rs  if not
//! taken.rs     what a process took from the driver;  overhead.rs  what the device holds beside it
//! in_flight.rs driver calls that make a measurement of the device uncertain
//! source.rs    what the source of a recording is called;  notes.rs  what to know about it
//! beside.rs    what a whole process adds to the account
//! verdict.rs   the cause;  around.rs  causes outside of the allocator that was asked
//! fixes.rs     what to do;  account.rs  the ledger
//! grouped.rs   live memory by kind, line, stage, thread, …; group_names.rs, across.rs;  failure.rs  at which failure
//! alternatives.rs   the same run under other settings;  outside.rs  what other crates ask
//! ```

mod account;
mod across;
mod alternatives;
mod around;
mod cut;
mod ends;
mod failure;
mod fixes;
mod group_names;
mod grouped;
mod growing;
mod history;
mod in_flight;
mod keeper;
mod lifetimes;
mod notes;
mod outside;
mod overhead;
mod pieces;
mod process_overhead;
mod room;
mod rounds;
mod segments;
mod sites;
mod source;
mod state;
mod steps;
mod taken;
mod trend;
mod verdict;

pub use across::{Across, AcrossGroup, across};
pub use cut::{BlockSizes, Part, SizesAtEnd, cut, is_small};
pub use ends::BlockEnds;
pub use group_names::GroupNames;
pub use grouped::{By, Group, GroupGrowth, Grouped, grouped, grouped_at};
pub use growing::{Growing, GrowingLine, growing};
pub(crate) use history::History;
pub use lifetimes::{Allocation, Allocations};
pub use outside::{
    DeviceOverhead, HeldOverTime, LiveLine, OverheadStep, device_overhead, held_over_time, line_of,
    live_lines, overhead_over_time, place_of, step_starts,
};
pub(crate) use overhead::{DEFAULT_HEAP, Measured};
pub use room::Room;
use room::possible_room;
pub use segments::{HeldSegment, SegmentsHeld};
pub use sites::Places;
pub(crate) use sites::{HeldByStack, StackTotal, by_stack};
pub use state::LiveBlock;
pub(crate) use state::{State, states_at};
pub(crate) use taken::{at as taken_at, is_outside};

use makeroom_core::{Bytes, DeviceIndex, DeviceTrace, Framework, Holder, Trace, TraceKind};
use makeroom_sim::Settings;

use self::account::Account;
use self::fixes::StepSplit;
use self::pieces::Pieces;
use self::source::{framework, holder, input_kind};
use self::steps::Steps;
use self::verdict::Refusal;
use crate::{Cause, Certainty, Explanation, Finding, InputSummary, Request, Usage, Verdict};

/// What to explain of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceQuestion {
    /// How much memory there was.
    pub room: Room,
    /// The device; without it the one that failed first, or the one that held most.
    pub device: Option<DeviceIndex>,
}

/// Explains the memory of one device. [`explain_trace`](crate::explain_trace) also explains what the process leaked or missed.
pub fn explain_memory(trace: &Trace, question: &TraceQuestion) -> Explanation {
    let Some(device) = trace.device(question.device) else { return empty(trace) };
    let mut explanation = Subject::new(trace, device).explain(question.room);
    let others = trace.devices.len() - 1;
    if others > 0 && question.device.is_none() {
        explanation.notes.push(format!(
            "{others} more GPU{} in this recording; `--device N` explains another",
            if others == 1 { " is" } else { "s are" }
        ));
    }
    explanation
}

/// One device of a recording.
struct Subject<'trace> {
    trace: &'trace Trace,
    device: &'trace DeviceTrace,
    steps: Steps,
    history: History,
    settings: Settings,
    places: Places<'trace>,
}

impl<'trace> Subject<'trace> {
    fn new(trace: &'trace Trace, device: &'trace DeviceTrace) -> Self {
        let steps = Steps::find(trace, device);
        let history = History::new(device, &steps.starts);
        Self {
            trace,
            device,
            steps,
            history,
            settings: Settings::recorded(&trace.settings),
            places: Places::new(trace),
        }
    }

    /// What makeroom's own pool let itself take, where it wrote the recording.
    fn pool_limit(&self) -> Option<Bytes> {
        self.trace.settings.pool_limit(self.device.device)
    }

    fn has_segments(&self) -> bool {
        self.history.peak_reserved.is_some()
    }

    fn explain(&self, room: Room) -> Explanation {
        let failure = self.history.failures.first().copied();
        let moment = failure.or(self.history.peak);
        // What needs tables of its own comes first: they and the state need not be in memory at the same time.
        let growth = steps::growth(self.trace, self.device, &self.history, &self.steps);
        let held = self.peak_held();
        let mut states = states_at(self.device, &self.history, &[moment]);
        let state = states.pop().unwrap_or_default();
        let pieces = Pieces::new(self.device, &self.settings, &state, moment);
        let (sites, other_sites) = self.places.tree(&by_stack(&state.blocks));
        let verdict = Verdict { cause: Cause::None, certainty: Certainty::Certain, summary: String::new() };
        let mut explanation = Explanation {
            sites,
            other_sites,
            growth,
            notes: self.notes(),
            ..Explanation::new(self.input(), verdict)
        };
        explanation.usage = self.usage(&pieces);
        let is_said = room != Room::Unknown;
        let room = match (room, self.pool_limit()) {
            (Room::Unknown, Some(limit)) => Room::Limit(limit),
            _ => room,
        };
        let room = possible_room(room, held, &mut explanation);
        let is_closed = match failure.and_then(|index| Some((index, self.device.events.get(index)?))) {
            Some((index, event)) => {
                self.explain_failure(&mut explanation, room, (index, event), &state, &pieces)
            }
            None => self.explain_peak(&mut explanation, room, &state, &pieces),
        };
        if !is_closed && !is_said {
            explanation.next.push(fixes::say_the_room(self.trace.kind));
        }
        explanation
    }

    /// Explains the first refusal; says whether the account could be closed.
    fn explain_failure(
        &self,
        explanation: &mut Explanation,
        room: Room,
        (index, event): (usize, makeroom_core::Event),
        state: &State,
        pieces: &Pieces,
    ) -> bool {
        let overhead = self.overhead(event.time_us, state, true);
        let libraries = self.libraries(state);
        let mut refusal = Refusal {
            event,
            pieces,
            room,
            holder: holder(self.trace),
            pool_limit: self.pool_limit().filter(|&limit| room == Room::Limit(limit)),
            process_overhead: self.process_overhead(&event, overhead.as_ref(), &libraries),
            growth: explanation.growth.as_ref(),
            most_reserved: self.history.most_reserved,
            has_segments: self.has_segments(),
            settings: &self.settings,
            is_of_other: self.is_refused_to_other(index),
        };
        self.apply_limit_of_run(&mut refusal, index);
        let room = refusal.room;
        let mut causes = refusal.findings();
        let split = self.split(index, state);
        let hidden_limit = refusal.hidden_limit().filter(|_| causes[0].cause == Cause::ArtificialLimit);
        let start = &self.history.start;
        let alternatives =
            alternatives::alternatives(self.trace, self.device, start, room.limit(), hidden_limit);
        fixes::attach(&mut causes, self.trace, &refusal, split, &alternatives);
        let first = &causes[0];
        explanation.verdict =
            Verdict { cause: first.cause, certainty: first.certainty, summary: first.summary.clone() };
        explanation.wont_help = fixes::wont_help(first.cause, self.trace, &refusal, split, &alternatives);
        let account = self.account(room, pieces, Some(&refusal));
        explanation.ledger = Some(Account { libraries: &libraries, overhead, ..account }.ledger());
        explanation.request = Some(Request {
            bytes: Some(event.size),
            device: Some(self.device.device),
            site: self.places.site_of(event.stack),
        });
        let later = self.history.failures.len() - 1;
        if later > 0 {
            explanation.notes.push(format!("{later} more allocations failed later; this explains the first"));
        }
        explanation.alternatives = alternatives;
        explanation.hidden_limit = hidden_limit;
        explanation.causes = causes;
        room != Room::Unknown || overhead.is_some()
    }

    /// Explains a run that was refused nothing; says whether there is nothing to ask about the room it had.
    fn explain_peak(
        &self,
        explanation: &mut Explanation,
        room: Room,
        state: &State,
        pieces: &Pieces,
    ) -> bool {
        let is_empty = self.device.events.is_empty();
        // A recording of a run has all of its history, though nothing happened in it.
        if is_empty && self.trace.kind != TraceKind::Room {
            self.explain_final_state(explanation, room, pieces);
            return true;
        }
        let live = self.history.peak_live;
        let peak = self.history.peak.and_then(|index| self.device.events.get(index));
        let overhead = peak.and_then(|event| self.overhead(event.time_us, state, false));
        let (room, limit_of_run) = self.room_of_run(room, pieces, overhead.as_ref());
        let summary = match self.history.peak_reserved {
            _ if is_empty => {
                format!(
                    "No allocation failed; the process allocated no memory on GPU {}.",
                    self.device.device
                )
            }
            // What other libraries hold beside PyTorch's segments is live too.
            Some(reserved) => format!(
                "No allocation failed. At its peak the run had {live} live and {} reserved, {:.0} % of it unused; peak reserved memory was {}{}.",
                pieces.reserved + pieces.homeless,
                100.0 * pieces.unused_share(),
                self.peak_held().max(reserved).max(pieces.reserved + pieces.homeless),
                room.limit().map_or(String::new(), |limit| format!(" of {limit} available"))
            ),
            None => format!("No allocation failed. Peak live memory was {live}."),
        };
        explanation.verdict =
            Verdict { cause: Cause::None, certainty: Certainty::Certain, summary: summary.clone() };
        explanation.causes.push(Finding {
            evidence: vec![format!("{} events, none of them a failed allocation", self.device.events.len())],
            ..Finding::new(Cause::None, Certainty::Certain, summary).bytes(live)
        });
        if let Some(growth) = explanation.growth.as_ref().filter(|growth| growth.is_in_steps) {
            explanation.causes.push(Finding {
                fixes: fixes::leak(self.trace, Some(growth)),
                ..Finding::new(Cause::Leak, Certainty::Possible, growth.sentence())
                    .bytes(growth.last - growth.first)
            });
        } else {
            let waste = explanation.usage.as_ref().and_then(Usage::waste);
            explanation.causes[0].fixes = fixes::waste(self.trace, waste);
        }
        let (account, libraries) = (self.account(room, pieces, None), self.libraries(state));
        let account = Account { limit_of_run, libraries: &libraries, overhead, ..account };
        explanation.ledger = Some(account.ledger());
        room != Room::Unknown || !self.has_segments() || self.trace.kind == TraceKind::Room
    }

    /// A snapshot without history says what was there when it was taken, and nothing of what failed.
    fn explain_final_state(&self, explanation: &mut Explanation, room: Room, pieces: &Pieces) {
        let is_profile = self.trace.kind == TraceKind::JaxProfile;
        let summary = if is_profile {
            let buffers: usize = self.device.segments.iter().map(|segment| segment.blocks.len()).sum();
            format!(
                "The profile shows live memory at the moment it was saved, {} in {buffers} buffer{}, but not what failed.",
                pieces.live,
                if buffers == 1 { "" } else { "s" }
            )
        } else {
            format!(
                "The snapshot has no history. It shows the memory at the moment it was taken, {} live and {} reserved, but not what failed.",
                pieces.live, pieces.reserved
            )
        };
        explanation.verdict = Verdict {
            cause: Cause::Undetermined,
            certainty: Certainty::Undetermined,
            summary: summary.clone(),
        };
        explanation
            .causes
            .push(Finding::new(Cause::Undetermined, Certainty::Undetermined, summary).bytes(pieces.live));
        explanation.ledger = Some(self.account(room, pieces, None).ledger());
        let next = if is_profile { crate::advice::record_run() } else { crate::advice::record_snapshot() };
        explanation.next.push(next);
    }

    /// What of the live memory is older than the step that failed, where steps are marked.
    fn split(&self, failure: usize, state: &State) -> Option<StepSplit> {
        let start = self.steps.start_of(failure).filter(|_| self.steps.are_marked)?;
        let growing: Bytes = state
            .blocks
            .iter()
            .filter(|block| block.born().is_some_and(|born| born >= start))
            .map(|block| block.requested)
            .sum();
        Some(StepSplit { lasting: state.live() - growing, growing })
    }

    fn account<'account>(
        &self,
        room: Room,
        pieces: &'account Pieces,
        refusal: Option<&'account Refusal<'account>>,
    ) -> Account<'account> {
        Account {
            device: self.device.device,
            room,
            limit_of_run: refusal.and_then(Refusal::limit_of_run),
            pieces,
            has_segments: self.has_segments(),
            what_is_live: match holder(self.trace) {
                Holder::PyTorch => "live tensors",
                Holder::Pool | Holder::Program => "live memory",
            },
            refusal,
            libraries: &[],
            overhead: None,
        }
    }

    fn input(&self) -> InputSummary {
        InputSummary { kind: input_kind(self.trace), framework: framework(self.trace) }
    }
}

fn empty(trace: &Trace) -> Explanation {
    let summary = match trace.process {
        Some(_) => "The process allocated no device memory.",
        None => "The recording is empty: it contains no events and no memory.",
    };
    let input = InputSummary { kind: input_kind(trace), framework: Framework::Unknown };
    let verdict = Verdict { cause: Cause::None, certainty: Certainty::Certain, summary: summary.to_owned() };
    Explanation { notes: trace.notes.clone(), ..Explanation::new(input, verdict) }
}
