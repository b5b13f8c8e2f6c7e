//! A recording that was read once, with the analyses of it.

use std::collections::HashMap;
use std::sync::Arc;

use makeroom_core::{Bytes, DeviceIndex, DeviceTrace, Trace, TraceKind};
use makeroom_explain::{By, Moments, Room, TraceQuestion, explain_running, explain_trace, grouped, watch};
use makeroom_report::watched_json;
use makeroom_sim::{AllocatorSpec, Comparing, Memory, Settings, Workload, candidates, require_pytorch, tune};
use makeroom_view::{Opened, OpenedInput};
use pyo3::prelude::*;

use crate::answer::Answer;
use crate::buffers::{self, Buffer};
use crate::columns::{self, Moment};
use crate::failure::usage;
use crate::table::Table;

/// A recording.
#[pyclass(frozen, module = "makeroom._impl._native")]
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    name: String,
    /// Size of the file, if it is one.
    bytes: Option<u64>,
    trace: Arc<Trace>,
}

/// The options of every analysis: the available memory and the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    room: Room,
    device: Option<DeviceIndex>,
}

impl Question {
    pub(crate) fn new(memory: Option<u64>, card: Option<u64>, device: Option<u32>) -> PyResult<Self> {
        let room = match (memory, card) {
            (Some(_), Some(_)) => {
                return Err(usage(
                    "memory and card cannot both be given".to_owned(),
                    Some("memory is the allocator's limit; card is the size of the whole GPU"),
                ));
            }
            (Some(memory), None) => Room::Limit(Bytes::new(memory)),
            (None, Some(card)) => Room::Card(Bytes::new(card)),
            (None, None) => Room::Unknown,
        };
        Ok(Self { room, device: device.map(DeviceIndex) })
    }

    pub(crate) fn asked(self) -> TraceQuestion {
        TraceQuestion { room: self.room, device: self.device }
    }

    fn memory(self) -> Memory {
        Memory { bytes: self.room.limit().map(Bytes::get) }
    }
}

impl Recording {
    pub(crate) fn new(name: String, bytes: Option<u64>, trace: Trace) -> Self {
        Self { name, bytes, trace: Arc::new(trace) }
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The recording as an input of the page.
    pub(crate) fn opened(&self, question: TraceQuestion) -> Opened {
        let input = OpenedInput::Trace(Box::new((*self.trace).clone()));
        Opened { name: self.name.clone(), bytes: self.bytes, input, question }
    }

    fn device(&self, question: Question) -> PyResult<&DeviceTrace> {
        self.trace.device(question.device).ok_or_else(|| match question.device {
            Some(asked) => {
                let present: Vec<String> =
                    self.trace.devices.iter().map(|device| device.device.to_string()).collect();
                usage(
                    format!("{}: no device {asked}; recorded: {}", self.name, present.join(", ")),
                    Some("omit device to let makeroom choose"),
                )
            }
            None => usage(
                format!("{}: the recording is empty", self.name),
                Some("the program allocated no GPU memory; makeroom.why() shows what else was recorded"),
            ),
        })
    }

    fn require_pytorch(&self, purpose: &'static str) -> PyResult<()> {
        require_pytorch(&self.trace, purpose).map_err(|error| {
            usage(
                format!("{}: {error}", self.name),
                Some("makeroom.replay() runs its requests under other allocators"),
            )
        })
    }
}

#[pymethods]
impl Recording {
    /// `torch-snapshot`, `rmm-log` or `room-trace`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.trace.kind {
            TraceKind::TorchSnapshot => "torch-snapshot",
            TraceKind::RmmLog => "rmm-log",
            TraceKind::Room => "room-trace",
            TraceKind::JaxProfile => "jax-profile",
        }
    }

    /// Indices of the recorded devices.
    #[getter]
    fn devices(&self) -> Vec<u32> {
        self.trace.devices.iter().map(|device| device.device.0).collect()
    }

    /// Remarks about the recording.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.trace.notes.clone()
    }

    /// Number of events.
    fn __len__(&self) -> usize {
        self.trace.event_count()
    }

    /// Explains why memory ran out. With `running`, live memory is not a leak: the process can still free it.
    #[pyo3(signature = (memory = None, card = None, device = None, running = false))]
    fn why(
        &self,
        py: Python<'_>,
        memory: Option<u64>,
        card: Option<u64>,
        device: Option<u32>,
        running: bool,
    ) -> PyResult<Answer> {
        let question = Question::new(memory, card, device)?;
        if device.is_some() {
            self.device(question)?;
        }
        let asked = question.asked();
        let explain = if running { explain_running } else { explain_trace };
        Ok(py.detach(|| Answer::explanation(explain(&self.trace, &asked))))
    }

    /// Groups the live memory at the failure or the peak.
    #[pyo3(signature = (by, device = None))]
    fn grouped(&self, py: Python<'_>, by: &str, device: Option<u32>) -> PyResult<Answer> {
        let by = By::from_id(by).ok_or_else(|| {
            let names: Vec<&str> = By::ALL.iter().map(|by| by.id()).collect();
            usage(format!("cannot group by {by:?}"), Some(&format!("use {}", names.join(", "))))
        })?;
        let question = Question::new(None, None, device)?;
        self.device(question)?;
        let found = py.detach(|| grouped(&self.trace, question.device, by));
        found
            .map(Answer::grouped)
            .ok_or_else(|| usage(format!("{}: the recording is empty", self.name), None))
    }

    /// Replays the recording under other allocators.
    #[pyo3(signature = (allocators, memory = None, card = None, device = None, checks = false, finds_smallest = true))]
    #[expect(clippy::too_many_arguments, reason = "the options of the command")]
    fn replay(
        &self,
        py: Python<'_>,
        allocators: Vec<String>,
        memory: Option<u64>,
        card: Option<u64>,
        device: Option<u32>,
        checks: bool,
        finds_smallest: bool,
    ) -> PyResult<Answer> {
        let question = Question::new(memory, card, device)?;
        let subject = self.device(question)?;
        if checks {
            self.require_pytorch("check")?;
        }
        let named: Vec<AllocatorSpec> = allocators
            .iter()
            .map(|name| makeroom_sim::parse(name).map_err(|error| usage(error.to_string(), None)))
            .collect::<PyResult<_>>()?;
        let comparing = Comparing { allocators: named, memory: question.memory(), checks, finds_smallest };
        Ok(py.detach(|| {
            let comparison = comparing.run(&self.trace, subject, |_| {});
            Answer::replay(comparison, question.room.limit())
        }))
    }

    /// Finds the best settings of PyTorch's allocator for the recording.
    #[pyo3(signature = (memory = None, card = None, device = None))]
    fn tune(
        &self,
        py: Python<'_>,
        memory: Option<u64>,
        card: Option<u64>,
        device: Option<u32>,
    ) -> PyResult<Answer> {
        let question = Question::new(memory, card, device)?;
        let subject = self.device(question)?;
        self.require_pytorch("tune")?;
        Ok(py.detach(|| {
            let workload = Workload::new(subject, &self.trace.stacks);
            let settings = candidates(&workload, question.memory());
            let recorded = Settings::recorded(&self.trace.settings);
            let tuning = tune(&workload, &recorded, question.memory(), &settings, |_, _| {});
            let notes = workload.notes(&self.trace);
            Answer::tuning(tuning, question.room.limit(), notes)
        }))
    }

    /// Memory between marks, as JSON. Marks are times, or counts of later allocations and frees where a device has them.
    fn watched(&self, py: Python<'_>, times_us: Vec<u64>, changes_after: HashMap<u32, Vec<u64>>) -> String {
        let changes_after =
            changes_after.into_iter().map(|(device, counts)| (DeviceIndex(device), counts)).collect();
        let moments = Moments { times: times_us, changes_after };
        py.detach(|| watched_json(&watch(&self.trace, &moments)).to_string())
    }

    /// The recording without some live buffers and devices, and with more notes.
    fn without(
        &self,
        py: Python<'_>,
        buffers: Vec<Buffer>,
        devices: Vec<u32>,
        notes: Vec<String>,
    ) -> PyResult<Self> {
        if self.trace.kind != TraceKind::JaxProfile {
            return Err(usage(format!("{}: not a profile of live buffers", self.name), None));
        }
        let mut trace = (*self.trace).clone();
        py.detach(|| {
            buffers::remove(&mut trace, &buffers);
            buffers::remove_devices(&mut trace, &devices);
        });
        trace.notes.extend(notes);
        Ok(Self::new(self.name.clone(), self.bytes, trace))
    }

    /// Table of all events.
    fn events(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| columns::events(&self.trace))
    }

    /// Table of all allocations, with the times of allocation and free.
    fn allocations(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| columns::allocations(&self.trace, Moment::Ever, None))
    }

    /// Table of the allocations that are live after an event, or at the peak of each device.
    #[pyo3(signature = (event = None, device = None))]
    fn live(&self, py: Python<'_>, event: Option<usize>, device: Option<u32>) -> PyResult<Table> {
        let question = Question::new(None, None, device)?;
        let Some(event) = event else {
            if device.is_some() {
                self.device(question)?;
            }
            return py.detach(|| columns::allocations(&self.trace, Moment::Peak, question.device));
        };
        let subject = self.device(question)?;
        let events = subject.events.len();
        if event >= events {
            return Err(usage(format!("{}: no event {event}; there are {events}", self.name), None));
        }
        py.detach(|| columns::allocations(&self.trace, Moment::After(event), Some(subject.device)))
    }

    /// For each device: its index, the event after which the most memory was live, and the amount.
    fn peaks(&self, py: Python<'_>) -> Vec<(u32, usize, u64)> {
        let peak = |device: &DeviceTrace| {
            let (event, bytes) = columns::peak(device);
            (device.device.0, event, bytes)
        };
        py.detach(|| self.trace.devices.iter().map(peak).collect())
    }

    /// Table of the allocator's segments at the end of the recording.
    fn segments(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| columns::segments(&self.trace))
    }

    /// Table of the frames of all stacks.
    fn frames(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| columns::frames(&self.trace))
    }
}
