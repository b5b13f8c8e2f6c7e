//! Converts a `.room` file to a trace.
//!
//! ```text
//! definitions.rs  maps names, frames and stacks to the trace's own tables
//! collect.rs      one pass over the file: rows of device memory, and everything else
//! rows.rs         these rows, packed
//! refusals.rs     finds failed requests that were retried
//! segments.rs     finds the driver memory that a framework divides into tensors
//! blocks.rs       live allocations by address, and those in a segment that is freed
//! devices.rs      converts rows, in order of time, to the events of each device
//! pending.rs      stream-ordered frees that are not known to be complete
//! keeps.rs        memory that the driver keeps beyond live allocations
//! silences.rs     how long the recording is silent between two records
//! process.rs      pinned memory, contexts, code, measurements
//! ```
//!
//! **Tensors and driver memory.** If a framework's blocks were recorded, they are the allocations of the trace, and the
//! driver memory of that framework is segments: all memory requested by PyTorch's allocator, according to its stack,
//! and all memory that contained tensors. Driver memory of other code (NCCL, another framework, the program itself) is
//! an allocation like a tensor. Without tensors, all driver memory is.
//!
//! Memory that does not belong to this process is not an allocation: address ranges, and memory imported from other
//! processes or other APIs. Managed memory counts on the device where it was requested; memory of graphs counts from
//! the creation of its node. Memory that is not freed ends with its segment or its context.

mod blocks;
mod collect;
mod definitions;
mod devices;
mod keeps;
mod pending;
mod process;
mod refusals;
mod rows;
mod segments;
mod silences;

use std::collections::BTreeMap;
use std::io::Read;

use makeroom_core::{Bytes, Trace, TraceKind};

use self::collect::Collected;
use super::{Frame, Header, Reader};
use crate::error::Error;

/// The variables that PyTorch's allocator reads, the newer one first.
const TORCH_SETTINGS: [&str; 2] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];

/// Reads a file up to its last complete frame.
pub(crate) fn read(stream: impl Read) -> Result<Trace, Error> {
    let mut reader = Reader::new(stream)?;
    let mut trace = Trace::new(TraceKind::Room);
    let clock = Clock::new(reader.header());
    let mut collected = Collected::new(clock);
    while let Some(frame) = reader.next_frame()? {
        match frame {
            Frame::Records(mut records) => {
                let thread = records.thread();
                loop {
                    let offset = records.offset();
                    if let Some(event) = records.next_event() {
                        collected.add_event(thread, &event?, offset)?;
                        continue;
                    }
                    let Some(record) = records.next() else { break };
                    collected.add(&mut trace.stacks, thread, record?, offset)?;
                }
            }
            Frame::Unknown { .. } => collected.unknown += 1,
        }
    }
    collected.sort();
    let name_text = |name| trace.stacks.name_text(name).to_owned();
    let (mut process, pinned, ended) = process::assemble(reader.header(), clock, &mut collected, name_text);
    process.threads = threads(&collected);
    process.unread = reader.unread().map_or(Bytes::ZERO, |unread| unread.bytes);
    devices::assemble(&mut trace, clock, &mut collected, &ended, &mut process);
    trace.notes.extend(notes(&collected, &process));
    trace.settings.text = torch_settings(&process.identity.environment);
    trace.pinned = pinned;
    trace.process = Some(process);
    Ok(trace)
}

/// The IDs of the threads, by the index that rows have.
fn threads(collected: &Collected) -> Vec<u64> {
    let mut threads: Vec<_> = collected.threads.iter().map(|(thread, &index)| (index, thread.0)).collect();
    threads.sort_unstable();
    threads.into_iter().map(|(_, thread)| thread).collect()
}

/// The settings of PyTorch's allocator. `None` also if its two variables contradict each other: which of them applies
/// depends on PyTorch's version.
fn torch_settings(environment: &BTreeMap<String, String>) -> Option<String> {
    let mut given = TORCH_SETTINGS.iter().filter_map(|&name| environment.get(name));
    let first = given.next()?;
    given.all(|other| other == first).then(|| first.clone())
}

/// Notes for the readers of a result about the recording.
fn notes(collected: &Collected, process: &makeroom_core::ProcessRecord) -> Vec<String> {
    let warnings =
        process.remarks.iter().filter(|remark| remark.is_warning).map(|remark| remark.text.clone());
    let mut notes: Vec<String> = warnings.collect();
    notes.dedup();
    if let Some(left_out) = process.compacted {
        let failures = match left_out.failures {
            0 => String::new(),
            1 => ", including 1 failed request".to_owned(),
            many => format!(", including {many} failed requests"),
        };
        notes.push(format!(
            "ring recording: {} older events were left out{failures}; live memory is complete, earlier peaks are not",
            left_out.events
        ));
    }
    let mut count = |what: &str, number: u64| {
        if number > 0 {
            notes.push(format!("{what}: {number}"));
        }
    };
    count("events that the recorder dropped", process.dropped);
    count("events whose stack is missing from the file", collected.undefined);
    count("records of a later version of makeroom, skipped", collected.unknown);
    if let Some((kind, error)) = collected.first_failed {
        notes.push(format!(
            "calls that failed for reasons other than memory: {}; the first: {} with error {error}",
            collected.failed,
            kind.name()
        ));
    }
    if !process.unread.is_zero() {
        notes.push(format!(
            "the file ends with {} of incomplete data, which was not read: the program was killed, or the disk was full",
            process.unread
        ));
    }
    notes
}

/// Converts the monotonic times of records to dates.
#[derive(Clone, Copy, Debug)]
struct Clock {
    wall_ns: u64,
    monotonic_ns: u64,
}

impl Clock {
    fn new(header: &Header) -> Self {
        Self { wall_ns: header.wall_ns, monotonic_ns: header.monotonic_ns }
    }

    /// Nanoseconds since the header was written; negative before that. Correct if the clock wraps.
    fn since(self, time_ns: u64) -> i64 {
        time_ns.wrapping_sub(self.monotonic_ns).cast_signed()
    }

    /// Microseconds since the epoch.
    fn date_us(self, since_ns: i64) -> u64 {
        self.wall_ns.saturating_add_signed(since_ns) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_come_out_right_across_a_wrap_of_the_clock() {
        let clock = Clock { wall_ns: 5_000_000, monotonic_ns: u64::MAX - 999 };
        assert_eq!(clock.date_us(clock.since(u64::MAX - 999)), 5_000);
        assert_eq!(clock.date_us(clock.since(1_000)), 5_002);
        assert_eq!(clock.date_us(clock.since(u64::MAX - 2_999)), 4_998);
        assert_eq!(clock.date_us(i64::MIN), 0);
    }
}
