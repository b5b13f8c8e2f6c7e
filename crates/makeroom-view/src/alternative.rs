//! The recorded run under the setting that most often saves memory, as reserved memory over time.
//!
//! The page draws it into the chart of the recorded run, so it is computed as soon as the page opens. Reserved memory
//! changes only with calls to the driver, which are few; longer histories are merged, and a merged step shows its
//! maximum.

use std::sync::{Mutex, MutexGuard, PoisonError};

use makeroom_core::{Bytes, Trace};
use makeroom_sim::{AllocatorSpec, Settings, Workload, parse, require_pytorch};
use serde_json::{Value, json};

use crate::capacity::Capacity;
use crate::input::Recording;

/// The setting that is tried.
const SETTING: &str = "expandable_segments:True";
/// Steps of the line, at most.
const MOST_STEPS: usize = 4096;

/// Its progress.
#[derive(Debug, Default)]
pub(crate) struct Alternative {
    /// What the allocator could have had, if known, or at least had.
    room: Option<u64>,
    /// Whether it may have had more.
    is_least: bool,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
enum Progress {
    /// There is nothing to try: PyTorch's allocator was not recorded, or the setting was on.
    #[default]
    None,
    Idle,
    Running,
    Failed,
    Done(Value),
}

impl Alternative {
    /// What can be tried for a device.
    pub(crate) fn new(
        trace: &Trace,
        capacity: &Capacity,
        hidden_limit: Option<(Bytes, Bytes)>,
        position: usize,
        is_pinned: bool,
    ) -> Self {
        let is_on = Settings::recorded(&trace.settings).expandable_segments;
        let can_try = !is_pinned && !is_on && require_pytorch(trace, "replay").is_ok();
        let progress = if can_try { Progress::Idle } else { Progress::None };
        let known = capacity.room(position);
        let room = known.or(hidden_limit.map(|(least, _)| least.get()));
        Self { room, is_least: known.is_none(), progress: Mutex::new(progress) }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Poisoning is harmless: the state is only ever replaced as a whole.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks it as running; false if it is already running or done, or if there is nothing to try.
    pub(crate) fn begin(&self) -> bool {
        let mut progress = self.lock();
        let may_begin = matches!(*progress, Progress::Idle | Progress::Failed);
        if may_begin {
            *progress = Progress::Running;
        }
        may_begin
    }

    /// Marks it as failed, unless it is done.
    pub(crate) fn give_up(&self) {
        let mut progress = self.lock();
        if matches!(*progress, Progress::Running) {
            *progress = Progress::Failed;
        }
    }

    /// Replays the run. Called once after `begin`.
    pub(crate) fn run(&self, recording: &Recording, device: usize) {
        let _running = Running(self);
        let Some((trace, _)) = recording.device(device) else { return };
        let Ok(spec) = parse(&format!("pytorch:{SETTING}")) else { return };
        let workload = Workload::new(trace, &recording.trace.stacks);
        let recorded = Settings::recorded(&recording.trace.settings);
        let as_recorded = AllocatorSpec::pytorch("recorded", recorded).run(&workload.program, None);
        let (mut line, mut outcome) = watched(&spec, &workload, self.room);
        let fits = self.room.map(|_| outcome.refusal.is_none());
        if fits == Some(false) {
            (line, outcome) = watched(&spec, &workload, None);
        }
        *self.lock() = Progress::Done(json!({
            "setting": SETTING,
            "command": format!("export PYTORCH_CUDA_ALLOC_CONF={SETTING}"),
            "peak_reserved": outcome.peak_reserved,
            "peak_as_recorded": as_recorded.peak_reserved,
            // A run that does not fit in the least that a limit can be may fit in the limit.
            "fits": fits.filter(|&fits| fits || !self.is_least),
            "exact": workload.program.older <= 1 && workload.program.lost == 0,
            "event": line.events,
            "reserved": line.reserved,
        }));
    }

    /// Progress and result as JSON.
    pub(crate) fn json(&self) -> Value {
        match &*self.lock() {
            Progress::None => json!({ "state": "none" }),
            Progress::Idle => json!({ "state": "idle" }),
            Progress::Running => json!({ "state": "running" }),
            Progress::Failed => json!({ "state": "failed" }),
            Progress::Done(result) => json!({ "state": "done", "result": result }),
        }
    }
}

fn watched(spec: &AllocatorSpec, workload: &Workload, room: Option<u64>) -> (Line, makeroom_sim::Outcome) {
    let mut line = Line::default();
    let outcome = spec.run_watched(&workload.program, room, |event, reserved| line.add(event + 1, reserved));
    (line, outcome)
}

/// Reserved memory over time: positions at which it changes, and its value from there on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    events: Vec<u32>,
    reserved: Vec<u64>,
}

impl Line {
    fn add(&mut self, event: u32, reserved: u64) {
        if self.reserved.last() == Some(&reserved) {
            return;
        }
        if self.events.len() >= MOST_STEPS {
            self.merge();
        }
        self.events.push(event);
        self.reserved.push(reserved);
    }

    /// Merges each two steps into one with their maximum.
    fn merge(&mut self) {
        self.events = self.events.chunks(2).filter_map(|pair| pair.first().copied()).collect();
        self.reserved = self.reserved.chunks(2).filter_map(|pair| pair.iter().max().copied()).collect();
    }
}

/// Marks a run as failed on drop, unless it is done.
struct Running<'run>(&'run Alternative);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_changes_only_and_keeps_its_maximum_when_it_is_merged() {
        let mut line = Line::default();
        for (event, reserved) in [(1, 5), (2, 5), (3, 9), (4, 2)] {
            line.add(event, reserved);
        }
        assert_eq!(line, Line { events: vec![1, 3, 4], reserved: vec![5, 9, 2] });
        line.merge();
        assert_eq!(line, Line { events: vec![1, 4], reserved: vec![9, 2] });
        for event in 5..100_000 {
            line.add(event, u64::from(event));
        }
        assert!(line.events.len() <= MOST_STEPS);
        assert_eq!(line.reserved.last(), Some(&99_999));
        assert!(line.events.is_sorted());
    }
}
