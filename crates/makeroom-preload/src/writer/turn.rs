//! One turn of the writer: drains all rings and writes the events.

use std::time::Duration;

use makeroom_core::{Address, Bytes, DeviceIndex, StreamId};
use makeroom_trace::protocol::Message;
use makeroom_trace::room::{
    ContextHandle, DeviceSample, DropReason, Dropped, Encoder, End, EndReason, Event, EventKind, Header,
    Note, PoolHandle, Sample, Severity, ThreadNumber, seal,
};

use super::bounded::Bounded;
use super::definitions::Definitions;
use super::host::Host;
use super::live::Live;
use super::output::{Failure, Output};
use super::reports::Reports;
use super::{header, keeping};
use crate::config::{Keep, config};
use crate::driver::types::OUT_OF_MEMORY;
use crate::record::event::{RawEvent, SAMPLE};
use crate::record::{figures, lost, threads};
use crate::{clock, cost, notices};

/// Intervals between host memory samples: shorter while a program starts, so that short programs get enough.
const HOST_INTERVAL_NS: u64 = 1_000_000_000;
const FIRST_HOST_INTERVAL_NS: u64 = 90_000_000;
const FIRST_HOST_SAMPLES: u32 = 100;
/// How long a process of a job is silent at most, apart from a turn of the writer.
const BEAT_NS: u64 = 70_000_000;
/// Minimum interval between status messages to `run`.
const STATUS_INTERVAL_NS: u64 = 100_000_000;
/// A longer batch of definitions is sealed before the turn ends.
const LONG_BATCH: usize = 4 << 20;

/// The writer's state.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The file; `None` once it can no longer be written. Failed allocations are still reported.
    output: Option<Output>,
    path: Vec<u8>,
    reports: Reports,
    /// When the recording began, and when it was last written.
    began_ns: u64,
    written_ns: u64,
    definitions: Definitions,
    host: Host,
    last_host_ns: u64,
    last_pages_ns: u64,
    host_samples: u32,
    notices_said: u32,
    notices_told: u32,
    has_tensors: bool,
    buffer: Vec<u8>,
    refusals: Vec<RawEvent>,
    /// Whether any allocation failed.
    has_refused: bool,
    /// The records that every file of this process starts with, as a frame.
    start: Vec<u8>,
    /// If the file must not exceed a size.
    bounded: Option<Bounded>,
    /// Events lost so far, by reason: the writer was busy, or the thread was recording.
    lost: [u64; 2],
    /// The process's live memory, if `run` displays it, and when it was last reported.
    live: Option<Live>,
    told_ns: u64,
}

impl Writer {
    /// A writer for a file that already has its header.
    pub(crate) fn new(output: Output, reports: Reports, header: Header) -> Self {
        let mut definitions = Definitions::new(ThreadNumber(0));
        settings(&mut definitions.encoder);
        let mut start = Vec::new();
        seal(definitions.encoder.bytes(), &mut start);
        if let Keep::Last(count) = config().keep {
            keeping::keep_newest(output.path(), count);
        }
        let began_ns = header.monotonic_ns;
        let bounded = config().ring.map(|bytes| Bounded::new(header, bytes, output.length()));
        Self {
            path: output.path().to_vec(),
            output: Some(output),
            reports,
            began_ns,
            written_ns: began_ns,
            definitions,
            host: Host::new(),
            last_host_ns: 0,
            last_pages_ns: 0,
            host_samples: 0,
            notices_said: 0,
            notices_told: 0,
            has_tensors: false,
            buffer: Vec::new(),
            refusals: Vec::new(),
            has_refused: false,
            start,
            bounded,
            lost: [0; 2],
            live: config().is_watched.then(Live::default),
            told_ns: 0,
        }
    }

    /// Writes the pending events and, after them, the expected end.
    pub(crate) fn turn(&mut self, expected: Option<End>) -> Result<(), Failure> {
        self.turn_with(expected)
    }

    /// Writes the remaining events and the end: an exit status, or that the recorder was turned off.
    pub(crate) fn last_turn(&mut self, status: Option<i32>) -> Result<(), Failure> {
        let result = self.turn_with(Some(End {
            time_ns: clock::monotonic_ns(),
            reason: if status.is_some() { EndReason::Exit } else { EndReason::Detached },
            status: status.unwrap_or(0) as u32 & 0xff,
        }));
        if status.is_none() && !self.is_stopped() && result.is_ok() {
            self.tell_stop("the recorder failed and was turned off");
        }
        self.reports.deliver_all();
        if config().keep == Keep::Failed && status == Some(0) && !self.has_refused && result.is_ok() {
            self.output.iter().for_each(Output::remove);
        }
        result
    }

    /// Stops writing for good and reports why to `run`. Returns whether `run` is listening, and will receive failed
    /// allocations.
    pub(crate) fn stop(&mut self, failure: &Failure) -> bool {
        // Closed, so that it no longer looks like a file being written.
        self.output = None;
        self.tell_stop(&failure.to_string());
        self.tell_refusals();
        self.reports.deliver_all();
        self.is_heard()
    }

    /// Whether nothing is left to do: no file is written, and `run` is not listening.
    pub(crate) fn is_useless(&self) -> bool {
        self.is_stopped() && !self.is_heard()
    }

    fn is_stopped(&self) -> bool {
        self.output.is_none()
    }

    fn turn_with(&mut self, end: Option<End>) -> Result<(), Failure> {
        if self.is_stopped() {
            self.look_for_refusals();
        } else {
            self.write(end)?;
        }
        self.tell_notices();
        self.tell_refusals();
        self.tell_status();
        Ok(())
    }

    fn write(&mut self, end: Option<End>) -> Result<(), Failure> {
        let is_last = end.is_some();
        let mut definitions = Vec::new();
        let mut frames = Vec::new();
        for (_, ring) in threads::rings() {
            let thread = ring.thread.load(std::sync::atomic::Ordering::Acquire);
            let buffer = std::mem::take(&mut self.buffer);
            let mut encoder = Encoder::new(ThreadNumber(u64::from(thread)), buffer);
            ring.drain(|event| {
                self.see(event);
                self.encode(event, thread, &mut encoder);
                if self.definitions.encoder.len() > LONG_BATCH {
                    seal(self.definitions.encoder.bytes(), &mut definitions);
                    self.definitions.encoder.clear();
                }
            });
            if !encoder.is_empty() {
                seal(encoder.bytes(), &mut frames);
            }
            self.buffer = encoder.replace(Vec::new());
            threads::free_if_left(ring);
        }
        self.say();
        self.measure_host(end.is_some());
        self.beat(frames.is_empty());
        self.say_pages(end.is_some());
        if let Some(end) = end {
            self.say_cost();
            // Last, in a batch of its own.
            let mut encoder = Encoder::new(ThreadNumber(0), Vec::new());
            encoder.end(&end);
            seal(encoder.bytes(), &mut frames);
        }
        if !self.definitions.encoder.is_empty() {
            seal(self.definitions.encoder.bytes(), &mut definitions);
            self.definitions.encoder.clear();
        }
        definitions.append(&mut frames);
        if let Some(output) = self.output.as_mut().filter(|_| !definitions.is_empty()) {
            output.append(&definitions)?;
            self.written_ns = clock::monotonic_ns();
        }
        if !is_last {
            self.keep_bounded();
        }
        Ok(())
    }

    /// Drains all rings without writing.
    fn look_for_refusals(&mut self) {
        for (_, ring) in threads::rings() {
            ring.drain(|event| self.see(event));
            threads::free_if_left(ring);
        }
    }

    /// Updates the writer's state with an event, whether it is written or not.
    fn see(&mut self, raw: &RawEvent) {
        if raw.kind == SAMPLE {
            return;
        }
        if let Some(live) = &mut self.live {
            live.see(raw);
        }
        let kind = EventKind::from_number(raw.kind);
        let is_tensor = matches!(kind, EventKind::TensorAlloc | EventKind::TensorFree);
        self.has_tensors |= is_tensor;
        let is_refusal = i32::from(raw.result) == OUT_OF_MEMORY && kind != EventKind::LaunchFailed;
        if is_refusal && (is_tensor || !self.has_tensors || is_on_host(raw)) {
            // PyTorch empties its cache and retries before it fails: only that failure counts.
            self.refusals.push(*raw);
            self.has_refused = true;
        }
    }

    fn encode(&mut self, raw: &RawEvent, thread: u32, encoder: &mut Encoder) {
        let thread = ThreadNumber(u64::from(thread));
        self.definitions.device(raw.device);
        let device = DeviceIndex(u32::from(raw.device));
        if raw.kind == SAMPLE {
            let measured =
                DeviceSample { device, free: Bytes::new(raw.address), total: Bytes::new(raw.size) };
            let sample = Sample { time_ns: raw.time_ns, device: Some(measured), ..Sample::default() };
            encoder.sample(&sample);
            if let Some(bounded) = &mut self.bounded {
                bounded.set.sample(thread, &sample);
            }
            return;
        }
        let kind = EventKind::from_number(raw.kind);
        let extra = if kind == EventKind::LaunchFailed {
            self.definitions.interned_name(raw.extra)
        } else {
            raw.extra
        };
        let event = Event {
            kind,
            time_ns: raw.time_ns,
            device,
            context: ContextHandle(raw.context),
            address: Address(raw.address),
            size: Bytes::new(raw.size),
            stream: StreamId(raw.stream),
            pool: PoolHandle(raw.pool),
            stack: self.definitions.stack(raw.stack),
            result: u32::from(raw.result),
            extra,
        };
        encoder.event(&event);
        if let Some(bounded) = &mut self.bounded {
            bounded.set.see(thread, &event);
        }
    }

    /// Keeps the file below its bound.
    fn keep_bounded(&mut self) {
        let (Some(bounded), Some(output)) = (&mut self.bounded, &mut self.output) else { return };
        let (time_ns, lost) = (self.began_ns, self.lost);
        bounded.keep_bounded(output, &self.definitions, |start| {
            start.extend_from_slice(&self.start);
            let mut encoder = Encoder::new(ThreadNumber(0), Vec::new());
            for (events, reason) in lost.into_iter().zip([DropReason::Busy, DropReason::Nested]) {
                if events > 0 {
                    encoder.dropped(&Dropped { time_ns, events, reason });
                }
            }
            for notice in notices::unsaid(&mut 0) {
                let text = notice.text().as_bytes().to_vec();
                encoder.note(&Note { time_ns, severity: notice.severity(), text });
            }
            if !encoder.is_empty() {
                seal(encoder.bytes(), start);
            }
        });
    }

    /// Writes notes, and the number of lost events.
    fn say(&mut self) {
        let time_ns = clock::monotonic_ns();
        let encoder = &mut self.definitions.encoder;
        for notice in notices::unsaid(&mut self.notices_said) {
            let text = notice.text().as_bytes().to_vec();
            encoder.note(&Note { time_ns, severity: notice.severity(), text });
        }
        let lost = [(threads::take_dropped(), DropReason::Busy), (lost::take_nested(), DropReason::Nested)];
        for ((events, reason), total) in lost.into_iter().zip(&mut self.lost) {
            *total += events;
            if events > 0 {
                encoder.dropped(&Dropped { time_ns, events, reason });
            }
        }
    }

    /// Writes the recorder's overhead, if measured.
    fn say_cost(&mut self) {
        if let Some(text) = cost::text() {
            let time_ns = clock::monotonic_ns();
            let note = Note { time_ns, severity: Severity::Information, text: text.into_bytes() };
            self.definitions.encoder.note(&note);
        }
    }

    /// Writes the figures of paged memory from time to time, so that a recording of a killed process has them.
    fn say_pages(&mut self, is_last: bool) {
        let now = clock::monotonic_ns();
        if is_last || now.wrapping_sub(self.last_pages_ns) >= HOST_INTERVAL_NS {
            self.last_pages_ns = now;
            for used in figures::pages() {
                self.definitions.encoder.pages(used.device.0.into(), used.figures());
            }
        }
    }

    fn measure_host(&mut self, is_last: bool) {
        let now = clock::monotonic_ns();
        let is_first = self.host_samples < FIRST_HOST_SAMPLES;
        let interval = if is_first { FIRST_HOST_INTERVAL_NS } else { HOST_INTERVAL_NS };
        let is_due = now.wrapping_sub(self.last_host_ns) >= interval;
        if is_last || !self.refusals.is_empty() || is_due {
            self.last_host_ns = now;
            self.host_samples = self.host_samples.saturating_add(1);
            let sample = self.host.sample();
            self.definitions.encoder.sample(&sample);
        }
    }

    /// Writes the time if nothing else was written for a while, in a process of a job. If the launcher kills all
    /// processes after one has failed, the last time of each shows which one it was.
    fn beat(&mut self, has_no_events: bool) {
        let now = clock::monotonic_ns();
        let is_silent = has_no_events && self.definitions.encoder.is_empty();
        if is_silent && config().job.rank.is_some() && now.wrapping_sub(self.written_ns) >= BEAT_NS {
            let (device, resident, cgroup_usage, cgroup_limit, pinned) = (None, None, None, None, None);
            let sample = Sample { time_ns: now, device, resident, cgroup_usage, cgroup_limit, pinned };
            self.definitions.encoder.sample(&sample);
        }
    }

    /// Reports to `run` which file this process writes.
    pub(crate) fn tell_beginning(&mut self) {
        self.reports.send(&Message::Recording { file: self.path.clone() });
    }

    /// Whether `run` is listening.
    pub(crate) fn is_heard(&self) -> bool {
        self.reports.are_heard()
    }

    /// Reports to `run` that the recording stopped.
    fn tell_stop(&mut self, reason: &str) {
        let after = Duration::from_nanos(self.written_ns.saturating_sub(self.began_ns));
        self.reports.send(&Message::Stopped { after, reason: reason.to_owned() });
    }

    /// Sends the user's notices to `run`, or leaves them for a thread of the program to print.
    fn tell_notices(&mut self) {
        self.reports.deliver();
        for notice in notices::unsaid_to_user(&mut self.notices_told) {
            self.reports.send(&Message::Notice(notice.text().to_owned()));
            if !self.reports.are_heard() {
                notices::print_later(notice.text().to_owned());
            }
        }
    }

    /// Reports failed allocations to `run`, now that the file contains them.
    fn tell_refusals(&mut self) {
        for refused in std::mem::take(&mut self.refusals) {
            let device = (!is_on_host(&refused)).then(|| u32::from(refused.device));
            let (bytes, file) = (Bytes::new(refused.size), self.path.clone());
            self.reports.send(&Message::Refused { bytes, device, file });
        }
    }

    /// Reports live memory to `run`, if it displays that and it changed.
    fn tell_status(&mut self) {
        let now = clock::monotonic_ns();
        if now.wrapping_sub(self.told_ns) < STATUS_INTERVAL_NS {
            return;
        }
        if let Some(memory) = self.live.as_mut().and_then(Live::news) {
            self.told_ns = now;
            self.reports.mention(&Message::Status(memory));
        }
    }
}

/// Writes the settings that this process runs with, and its place in a job.
fn settings(encoder: &mut Encoder) {
    if let Some(limit) = config().limit {
        encoder.limit(Bytes::new(limit));
    }
    for (name, value) in &config().recorded {
        encoder.variable(name, value);
    }
    let job = header::place_in_job();
    let fields: Vec<(u64, String)> =
        job.fields().map(|(field, value)| (u64::from(field.number()), value)).collect();
    if !fields.is_empty() {
        encoder.job(fields.iter().map(|(field, value)| (*field, value.as_bytes())));
    }
}

/// Whether an event is about host memory.
fn is_on_host(raw: &RawEvent) -> bool {
    match EventKind::from_number(raw.kind) {
        EventKind::PinnedAlloc | EventKind::HostRegister => true,
        EventKind::PhysicalCreate => raw.extra != 0,
        _ => false,
    }
}
