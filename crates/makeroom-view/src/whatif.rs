//! Replays the recording under other allocators in the background, one by one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use makeroom_report::replay_run_json;
use makeroom_sim::{AllocatorSpec, Memory, Workload, recorded_allocator, usual_allocators};
use serde_json::{Value, json};

use crate::input::Input;

/// Progress of the replays of one device.
#[derive(Debug, Default)]
pub(crate) struct WhatIf {
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    state: State,
    rows: Vec<Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Running,
    Done,
    Failed,
}

/// The allocators to replay an input under: its own, then the common ones.
pub(crate) fn allocators(input: &Input) -> Vec<AllocatorSpec> {
    let Some(recording) = &input.trace else { return Vec::new() };
    recorded_allocator(&recording.trace).into_iter().chain(usual_allocators(&recording.trace)).collect()
}

impl WhatIf {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Poisoning is harmless: rows are pushed as a whole.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks it as running; false if it is already running or done.
    pub(crate) fn begin(&self) -> bool {
        let mut progress = self.lock();
        let may_begin = matches!(progress.state, State::Idle | State::Failed);
        if may_begin {
            *progress = Progress { state: State::Running, rows: Vec::new() };
        }
        may_begin
    }

    /// Runs all replays. Called once after `begin`.
    pub(crate) fn run(&self, input: &Input, device: usize) {
        let running = Running(self);
        let Some(recording) = &input.trace else { return };
        let Some((trace, timeline)) = recording.device(device) else { return };
        // The limit of the recorded run, if the user gave none.
        let recorded = recording.capacities.get(device).and_then(|one| one.room(timeline.interest()));
        let memory = Memory { bytes: input.room.limit().map(makeroom_core::Bytes::get).or(recorded) };
        let workload = Workload::new(trace, &recording.trace.stacks);
        let recorded = recorded_allocator(&recording.trace);
        let first = recorded.iter().map(|spec| workload.run_recorded(spec, memory, true));
        let others = usual_allocators(&recording.trace);
        let others = others.iter().map(|spec| workload.run(spec, memory, true));
        for run in first.chain(others) {
            let row = replay_run_json(&run);
            running.0.lock().rows.push(row);
        }
        running.0.lock().state = State::Done;
    }

    /// Marks it as failed.
    pub(crate) fn give_up(&self) {
        drop(Running(self));
    }

    /// The progress as JSON.
    pub(crate) fn json(&self, input: &Input) -> Value {
        let progress = self.lock();
        let state = match progress.state {
            State::Idle => "idle",
            State::Running => "running",
            State::Done => "done",
            State::Failed => "failed",
        };
        json!({
            "state": state,
            "done": progress.rows.len(),
            "of": allocators(input).len(),
            "rows": progress.rows,
        })
    }
}

/// Marks a run as failed on drop, unless it is done.
struct Running<'run>(&'run WhatIf);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        if progress.state == State::Running {
            progress.state = State::Failed;
        }
    }
}
