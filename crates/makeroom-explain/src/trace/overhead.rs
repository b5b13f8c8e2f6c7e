//! What a device holds beside the memory that this process asked for: its contexts and code, and other processes.
//!
//! The driver says how much is free. At each such moment
//!
//! ```text
//! total − free = taken + rest        rest = others + contexts + what came to them since
//! ```
//!
//! The rest just after the first context was made, less what it was before (if somebody measured that), is what a
//! context takes; further contexts by what the rest grew when they were made. What came to it since is laid to code, the
//! in-kernel heap, the driver's pools and its pages as far as each of them can be that large, and no further: the
//! remainder stays unaccounted.

use makeroom_core::{Bytes, ContextRecord, DeviceSample, DeviceTrace, Event, ProcessRecord, Start, Taken};

use crate::thresholds::{CONTEXT_CEILING, CONTEXT_TYPICAL};

/// What the driver sets aside for kernels that call malloc unless it is told otherwise.
pub(crate) const DEFAULT_HEAP: Bytes = Bytes::mib(8);
/// Device memory comes in pages of this size.
const PAGE: u64 = 2 << 20;
/// The driver's pools grow by this much.
const POOL_CHUNK: u64 = 32 << 20;

/// What a device holds beside what this process asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overhead {
    /// The contexts of this process.
    pub(crate) contexts: Bytes,
    /// How many they are.
    pub(crate) context_count: usize,
    /// What of it the first of them alone would not take.
    pub(crate) further_contexts: Bytes,
    /// Code that was loaded since.
    pub(crate) code: Bytes,
    /// The in-kernel heap beyond its default.
    pub(crate) heap: Bytes,
    /// What the driver's own pools keep.
    pub(crate) pools: Bytes,
    /// Physical memory that lies at no address.
    pub(crate) unmapped: Bytes,
    /// What the driver's pages take beyond what was asked for.
    pub(crate) pages: Bytes,
    /// Other processes.
    pub(crate) others: Bytes,
    /// Whether contexts and other processes were told apart by their usual sizes alone.
    pub(crate) is_split_by_size: bool,
}

/// What is measured of one device.
pub(crate) struct Measured<'trace> {
    process: &'trace ProcessRecord,
    device: &'trace DeviceTrace,
    /// The samples of the device with the rest at each.
    rests: Vec<(DeviceSample, i64)>,
}

/// Measures a device while its events are walked through.
pub(crate) struct Measuring<'trace> {
    process: &'trace ProcessRecord,
    device: &'trace DeviceTrace,
    /// The next sample.
    next: usize,
    rests: Vec<(DeviceSample, i64)>,
}

impl<'trace> Measuring<'trace> {
    pub(crate) fn new(process: &'trace ProcessRecord, device: &'trace DeviceTrace) -> Self {
        let mut measuring = Self { process, device, next: 0, rests: Vec::new() };
        measuring.skip_others();
        measuring
    }

    /// Goes on to the next sample of this device.
    fn skip_others(&mut self) {
        let samples = self.process.device_samples.iter().skip(self.next);
        self.next += samples.take_while(|sample| sample.device != self.device.device).count();
    }

    fn add(&mut self, taken: Bytes) {
        if let Some(&sample) = self.process.device_samples.get(self.next) {
            self.rests.push((sample, (sample.total - sample.free).difference(taken)));
            self.next += 1;
            self.skip_others();
        }
    }

    /// An event is about to happen: the samples before it are of the memory that is taken now.
    #[inline]
    pub(crate) fn before(&mut self, position: usize, event: &Event, taken: Bytes) {
        let samples = &self.process.device_samples;
        while samples.get(self.next).is_some_and(|sample| !sample.is_after(position, event)) {
            self.add(taken);
        }
    }

    /// Whether there are no more samples.
    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.process.device_samples.len()
    }

    /// The measurements, once all events have happened.
    pub(crate) fn finish(mut self, taken: Bytes) -> Measured<'trace> {
        while !self.is_done() {
            self.add(taken);
        }
        Measured { process: self.process, device: self.device, rests: self.rests }
    }
}

impl<'trace> Measured<'trace> {
    pub(crate) fn new(process: &'trace ProcessRecord, device: &'trace DeviceTrace, start: &Start) -> Self {
        let mut measuring = Measuring::new(process, device);
        let mut taken = Taken::new(start);
        for (position, event) in device.events.iter().enumerate() {
            measuring.before(position, &event, taken.bytes());
            if measuring.is_done() {
                break;
            }
            taken.apply(&event);
        }
        measuring.finish(taken.bytes())
    }

    /// The overhead at a moment, closed by the sample nearest to it if `is_closed`: nothing may have changed between
    /// them. `None` where the device was never asked.
    pub(crate) fn at(&self, time_us: u64, blocks: &[Bytes], is_closed: bool) -> Option<Overhead> {
        let contexts: Vec<&ContextRecord> =
            self.process.contexts.iter().filter(|context| context.device == self.device.device).collect();
        let first_us = contexts.iter().map(|context| context.created_us).min().unwrap_or(0);
        let &(base, base_rest) = self.rests.iter().find(|(sample, _)| sample.time_us >= first_us)?;
        let before = self.rests.iter().rev().find(|(sample, _)| sample.time_us < first_us);
        let base_rest = bytes(base_rest);
        // Contexts that nobody measured one by one share what was measured when all of them were there.
        let together =
            contexts.iter().filter(|context| is_alive(context, base.time_us)).count().max(1) as u64;
        let mut overhead = Overhead::default();
        let measured = match before {
            Some(&(_, rest)) => {
                overhead.others = bytes(rest).min(base_rest);
                base_rest - overhead.others
            }
            None if base_rest <= each(CONTEXT_CEILING, together) => base_rest,
            None => {
                overhead.is_split_by_size = true;
                overhead.others = base_rest - each(CONTEXT_TYPICAL, together);
                each(CONTEXT_TYPICAL, together)
            }
        };
        let first_cost = Bytes::new(measured.get() / together);
        for context in contexts.iter().filter(|context| is_alive(context, time_us)) {
            let mut cost = self.cost(context, base.time_us, first_cost);
            if context.created_us == first_us && overhead.context_count == 0 {
                cost += measured - each(first_cost, together);
            }
            if overhead.context_count > 0 {
                overhead.further_contexts += cost;
            }
            overhead.context_count += 1;
            overhead.contexts += cost;
        }
        if contexts.is_empty() {
            overhead.contexts = measured;
        }
        if is_closed {
            let nearest = self.rests.iter().min_by_key(|(sample, _)| sample.time_us.abs_diff(time_us));
            let &(sample, rest) = nearest?;
            overhead.close(bytes(rest), self.bounds(time_us, sample.time_us, blocks));
        }
        Some(overhead)
    }

    /// What one context takes. Those that were there when the device was first measured, at `base_us`, share that.
    fn cost(&self, context: &ContextRecord, base_us: u64, first_cost: Bytes) -> Bytes {
        if context.created_us <= base_us {
            return first_cost;
        }
        let after = self.rests.partition_point(|(sample, _)| sample.time_us < context.created_us);
        let around =
            after.checked_sub(1).and_then(|before| self.rests.get(before)).zip(self.rests.get(after));
        around
            .map_or(first_cost, |(before, after)| bytes(after.1.saturating_sub(before.1)))
            .min(CONTEXT_CEILING)
    }

    /// How large each of the things that grow can be, at most. `asked_us` is when the device was asked.
    fn bounds(&self, time_us: u64, asked_us: u64, blocks: &[Bytes]) -> Overhead {
        // Images are loaded early and take memory when their first kernel runs: any of them may have come since.
        let code = self
            .process
            .code
            .iter()
            .filter(|code| code.loaded_us <= time_us && code.unloaded_us.is_none_or(|end| end > time_us));
        let limits = self.process.heap_limits.iter().rev();
        let mut heap = limits.filter(|limit| limit.device == self.device.device && limit.time_us <= time_us);
        let waiting = self.process.stream_frees.iter().find(|frees| frees.device == self.device.device);
        let waiting = waiting
            .and_then(|frees| frees.at_refusal)
            .map_or(Bytes::ZERO, |waiting| round_up(waiting.bytes, POOL_CHUNK) + Bytes::new(POOL_CHUNK));
        let mut keeps = self.process.driver_keeps.iter();
        let keeps = keeps.rfind(|keeps| keeps.device == self.device.device && keeps.time_us == asked_us);
        let keeps = keeps.copied().unwrap_or_default();
        let (small, large): (Vec<Bytes>, Vec<Bytes>) = blocks.iter().partition(|size| size.get() < PAGE);
        let in_pages: Bytes = large.iter().map(|&size| round_up(size, PAGE) - size).sum();
        Overhead {
            code: code.map(|code| code.size).sum(),
            heap: heap.next().map_or(Bytes::ZERO, |limit| limit.limit - DEFAULT_HEAP),
            // A recording that asked the pools knows; in others they keep at most what waits.
            pools: (keeps.streams + keeps.graphs).max(waiting),
            unmapped: keeps.unmapped,
            // Small blocks share pages and leave holes between them.
            pages: in_pages + round_up(small.into_iter().sum(), PAGE),
            ..Overhead::default()
        }
    }
}

impl Overhead {
    /// Lays what came since to whatever can have taken it, in the order of how sure that is.
    fn close(&mut self, rest: Bytes, bounds: Self) {
        let known = self.contexts + self.others;
        if rest < known {
            // Somebody else gave memory back meanwhile.
            self.others = self.others - (known - rest).min(self.others);
            return;
        }
        let mut grown = rest - known;
        for (part, bound) in [
            (&mut self.heap, bounds.heap),
            (&mut self.unmapped, bounds.unmapped),
            (&mut self.pools, bounds.pools),
            // Contexts and code together are bounded too.
            (&mut self.code, bounds.code.min(CONTEXT_CEILING - self.contexts)),
            (&mut self.pages, bounds.pages),
        ] {
            *part = grown.min(bound);
            grown = grown - *part;
        }
        // No context grows by that much: it is somebody else's.
        if grown > CONTEXT_CEILING {
            self.others += grown;
        }
    }
}

fn is_alive(context: &ContextRecord, time_us: u64) -> bool {
    context.created_us <= time_us && context.destroyed_us.is_none_or(|end| end > time_us)
}

fn each(size: Bytes, count: u64) -> Bytes {
    Bytes::new(size.get().saturating_mul(count))
}

fn round_up(size: Bytes, grain: u64) -> Bytes {
    Bytes::new(size.get().checked_next_multiple_of(grain).unwrap_or(u64::MAX))
}

fn bytes(difference: i64) -> Bytes {
    Bytes::new(u64::try_from(difference).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Action, Address, DeviceIndex, Event, StackId, StreamId};

    use super::*;

    const TOTAL: Bytes = Bytes::gib(8);

    /// Samples as times and used mebibytes, contexts as times, and one block of 1 GiB at time 50.
    fn recording(samples: &[(u64, u64)], contexts: &[u64]) -> (ProcessRecord, DeviceTrace) {
        let mut process = ProcessRecord::default();
        process.device_samples.extend(samples.iter().map(|&(time_us, used)| DeviceSample {
            time_us,
            device: DeviceIndex(0),
            free: TOTAL - Bytes::mib(used),
            total: TOTAL,
            events_before: None,
            thread: None,
        }));
        process.contexts.extend(
            contexts.iter().map(|&created_us| ContextRecord { created_us, ..ContextRecord::default() }),
        );
        let mut device = DeviceTrace::default();
        device.events.push(Event {
            action: Action::Alloc,
            address: Address(1 << 30),
            size: Bytes::gib(1),
            stream: StreamId(0),
            time_us: 50,
            stack: StackId::NONE,
        });
        (process, device)
    }

    fn at(time_us: u64, (process, device): &(ProcessRecord, DeviceTrace)) -> Overhead {
        Measured::new(process, device, &Start::default()).at(time_us, &[Bytes::gib(1)], true).unwrap()
    }

    #[test]
    fn what_the_first_context_takes_is_what_was_used_after_it() {
        let overhead = at(60, &recording(&[(11, 527), (60, 527 + 1024)], &[10]));
        assert_eq!((overhead.contexts, overhead.others), (Bytes::mib(527), Bytes::ZERO));
        // The device was asked only when memory had been taken.
        assert_eq!(at(60, &recording(&[(60, 527 + 1024)], &[10])).contexts, Bytes::mib(527));
    }

    #[test]
    fn other_processes_are_told_by_a_measurement_from_before_or_by_their_size() {
        let measured = at(60, &recording(&[(5, 300), (11, 827), (60, 827 + 1024)], &[10]));
        assert_eq!((measured.contexts, measured.others), (Bytes::mib(527), Bytes::mib(300)));
        let by_size = at(60, &recording(&[(11, 4000), (60, 4000 + 1024)], &[10]));
        assert_eq!((by_size.contexts, by_size.others), (CONTEXT_TYPICAL, Bytes::mib(3400)));
        assert!(by_size.is_split_by_size);
        let grown = at(60, &recording(&[(11, 527), (60, 3000 + 1024)], &[10]));
        assert_eq!(grown.others, Bytes::mib(3000 - 527));
        let gone = at(60, &recording(&[(5, 300), (11, 827), (60, 627 + 1024)], &[10]));
        assert_eq!(gone.others, Bytes::mib(100));
    }

    #[test]
    fn further_contexts_are_measured_when_they_are_made() {
        let overhead = at(60, &recording(&[(11, 527), (21, 927), (60, 927 + 1024)], &[10, 20]));
        assert_eq!((overhead.contexts, overhead.context_count), (Bytes::mib(927), 2));
        assert_eq!(overhead.further_contexts, Bytes::mib(400));
    }

    #[test]
    fn a_block_of_the_same_microsecond_is_not_taken_from_a_context() {
        // The second context is measured at 50 µs, before the block of the same microsecond; and after it.
        for (events_before, used) in [(0, 927), (1, 927 + 1024)] {
            let mut recording = recording(&[(11, 527), (50, used), (60, 927 + 1024)], &[10, 20]);
            recording.0.device_samples[1].events_before = Some(events_before);
            assert_eq!(at(60, &recording).further_contexts, Bytes::mib(400), "{events_before}");
        }
    }

    #[test]
    fn contexts_that_were_measured_together_share_what_was_measured() {
        let overhead = at(60, &recording(&[(31, 1536 + 300), (60, 1536 + 300 + 1024)], &[10, 20]));
        assert_eq!((overhead.contexts, overhead.context_count), (Bytes::mib(1836), 2));
        assert_eq!((overhead.others, overhead.further_contexts), (Bytes::ZERO, Bytes::mib(918)));
        let mut one_is_gone = recording(&[(5, 100), (31, 1636), (60, 868 + 1024)], &[10, 20]);
        one_is_gone.0.contexts[1].destroyed_us = Some(40);
        let overhead = at(60, &one_is_gone);
        assert_eq!((overhead.contexts, overhead.others), (Bytes::mib(768), Bytes::mib(100)));
    }

    #[test]
    fn what_came_since_is_laid_to_code_as_far_as_code_can_be_that_large() {
        let mut recording = recording(&[(11, 527), (60, 677 + 1024)], &[10]);
        recording.0.code.push(makeroom_core::CodeRecord {
            size: Bytes::mib(100),
            loaded_us: 30,
            ..makeroom_core::CodeRecord::default()
        });
        let overhead = at(60, &recording);
        assert_eq!((overhead.contexts, overhead.code), (Bytes::mib(527), Bytes::mib(100)));
        assert_eq!((overhead.others, overhead.pages), (Bytes::ZERO, Bytes::ZERO));
    }

    #[test]
    fn what_the_driver_keeps_is_told_where_it_was_asked() {
        let mut recording = recording(&[(11, 527), (60, 527 + 1024 + 1300 + 500)], &[10]);
        recording.0.driver_keeps.push(makeroom_core::DriverKeeps {
            time_us: 60,
            streams: Bytes::mib(1300),
            unmapped: Bytes::mib(500),
            ..makeroom_core::DriverKeeps::default()
        });
        let overhead = at(60, &recording);
        assert_eq!((overhead.pools, overhead.unmapped), (Bytes::mib(1300), Bytes::mib(500)));
        assert_eq!((overhead.contexts, overhead.others), (Bytes::mib(527), Bytes::ZERO));
    }
}
