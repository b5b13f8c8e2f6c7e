//! Encodes records into the payload of a frame.
//!
//! It runs inside users' programs, on the thread that just allocated memory: no I/O, no locks, no logging, no panics.
//! It only appends to a buffer, and while that has [`LONGEST_EVENT`] bytes to spare, an event allocates nothing.
//!
//! ```
//! use makeroom_core::{Address, Bytes};
//! use makeroom_trace::room::{Encoder, Event, EventKind, StackNumber, ThreadNumber, seal};
//!
//! let mut encoder = Encoder::new(ThreadNumber(4711), Vec::with_capacity(64 << 10));
//! encoder.event(&Event {
//!     kind: EventKind::DeviceAlloc,
//!     time_ns: 123_456,
//!     address: Address(0x7f00_0000_0000),
//!     size: Bytes::mib(2),
//!     ..Event::default()
//! });
//! let batch = encoder.replace(Vec::with_capacity(64 << 10));   // in the writer
//! let mut frame = Vec::new();
//! seal(&batch, &mut frame);
//! assert_eq!(frame.len(), 9 + 15);
//! ```

use makeroom_core::Bytes;

use super::buffer::Buffer;
use super::layout::{ALIGNED, ALIGNED_SHIFT, Chain, EVENT, LONG_KIND, LONGEST_EVENT, field, measured, tag};
use super::record::{
    Compacted, DeviceDefinition, Dropped, End, Event, FrameDefinition, FrameNumber, NameNumber, Note, Record,
    Sample, StackNumber, ThreadNumber,
};
use super::varint::fold;

/// Appends the records of one thread to a buffer.
///
/// Everything since the last [`Self::replace`] is a batch: the payload of one frame.
#[derive(Clone, Debug)]
pub struct Encoder {
    thread: ThreadNumber,
    bytes: Buffer,
    /// Length of an empty batch.
    start: usize,
    chain: Chain,
    events: u64,
}

impl Encoder {
    /// An encoder for one thread. The buffer's content is discarded, its capacity is used.
    pub fn new(thread: ThreadNumber, buffer: Vec<u8>) -> Self {
        let bytes = Buffer::new(buffer);
        let mut encoder = Self { thread, bytes, start: 0, chain: Chain::default(), events: 0 };
        encoder.clear();
        encoder
    }

    /// Discards the batch: after a fork, the parent writes its records.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.put(self.thread.0);
        self.start = self.bytes.len();
        self.chain = Chain::default();
        self.events = 0;
    }

    /// Returns the batch and continues in another buffer, whose content is discarded.
    #[must_use = "the batch is the only copy of its records"]
    pub fn replace(&mut self, buffer: Vec<u8>) -> Vec<u8> {
        let batch = std::mem::replace(&mut self.bytes, Buffer::new(buffer));
        self.clear();
        batch.into_bytes()
    }

    /// The current batch.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    /// Length of the batch.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the batch contains no record.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() <= self.start
    }

    /// Number of events in the batch, which are lost if it is discarded.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Whether an event fits without growing the buffer.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.bytes.room() >= LONGEST_EVENT
    }

    /// Appends an event.
    #[inline]
    pub fn event(&mut self, event: &Event) {
        let chain = self.chain;
        let delta = event.address.0.wrapping_sub(chain.address.0).cast_signed();
        let size = event.size.get();
        let has_address = delta != 0;
        let has_size = event.size != chain.size;
        let has_place = event.device != chain.device || event.context != chain.context;
        let present = |is_present: bool, bit: u8| if is_present { bit } else { 0 };
        let fields = present(has_address, field::ADDRESS)
            | present(has_size, field::SIZE)
            | present(event.stack != chain.stack, field::STACK)
            | present(event.stream != chain.stream, field::STREAM)
            | present(has_place, field::PLACE)
            | present(event.pool != chain.pool, field::POOL)
            | present(event.result != 0, field::RESULT)
            | present(event.extra != 0, field::EXTRA);
        let unaligned = (delta as u64 | if has_size { size } else { 0 }) & ((1 << ALIGNED_SHIFT) - 1);
        let is_aligned = unaligned == 0 && (has_address || has_size);
        let shift = if is_aligned { ALIGNED_SHIFT } else { 0 };

        let number = event.kind.number();
        let head = EVENT | present(is_aligned, ALIGNED);
        let bytes = &mut self.bytes;
        bytes.reserve(LONGEST_EVENT);
        if number < LONG_KIND {
            bytes.extend(&[head | number, fields]);
        } else {
            bytes.extend(&[head | LONG_KIND, number, fields]);
        }
        bytes.put(fold(event.time_ns.wrapping_sub(chain.time_ns).cast_signed()));
        if has_address {
            bytes.put(fold(delta >> shift));
        }
        if has_size {
            bytes.put(size >> shift);
        }
        if fields & field::STACK != 0 {
            bytes.put(u64::from(event.stack.0));
        }
        if fields & !(field::ADDRESS | field::SIZE | field::STACK) != 0 {
            put_rare_fields(bytes, event, fields);
        }
        self.events += 1;
        self.chain = Chain {
            time_ns: event.time_ns,
            address: event.address,
            size: event.size,
            stack: event.stack,
            stream: event.stream,
            device: event.device,
            context: event.context,
            pool: event.pool,
        };
    }

    /// Defines a name.
    pub fn name(&mut self, number: NameNumber, text: &[u8]) {
        self.record_with(tag::NAME, |bytes| {
            bytes.put(u64::from(number.0));
            bytes.extend(text);
        });
    }

    /// Defines a stack frame. Its names must be defined already.
    pub fn frame(&mut self, number: FrameNumber, frame: &FrameDefinition) {
        self.record_with(tag::FRAME, |bytes| {
            bytes.put(u64::from(number.0));
            bytes.extend(&[frame.origin.number()]);
            for value in [frame.function.0, frame.file.0, frame.line, frame.library.0] {
                bytes.put(u64::from(value));
            }
            bytes.put(frame.offset);
        });
    }

    /// Defines a stack, innermost frame first. Its frames must be defined already.
    pub fn stack(&mut self, number: StackNumber, frames: &[FrameNumber]) {
        self.record_with(tag::STACK, |bytes| {
            bytes.put(u64::from(number.0));
            // Frames that were recorded together have numbers close to each other.
            let mut before = 0;
            for frame in frames {
                bytes.put(fold(i64::from(frame.0) - before));
                before = i64::from(frame.0);
            }
        });
    }

    /// Describes a device.
    pub fn device(&mut self, device: &DeviceDefinition) {
        self.record_with(tag::DEVICE, |bytes| {
            bytes.put(u64::from(device.device.0));
            bytes.put_text(&device.uuid);
            bytes.put_text(&device.name);
            bytes.put(device.total.get());
        });
    }

    /// Appends a sample.
    pub fn sample(&mut self, sample: &Sample) {
        let delta = self.advance(sample.time_ns);
        self.record_with(tag::SAMPLE, |bytes| {
            bytes.put(delta);
            let values = [
                (measured::RESIDENT, sample.resident),
                (measured::CGROUP_USAGE, sample.cgroup_usage),
                (measured::CGROUP_LIMIT, sample.cgroup_limit),
                (measured::PINNED, sample.pinned),
            ];
            let present = values.iter().filter(|(_, value)| value.is_some());
            let fields = present.fold(0, |fields, (bit, _)| fields | bit);
            bytes.extend(&[fields | if sample.device.is_some() { measured::DEVICE } else { 0 }]);
            if let Some(device) = sample.device {
                bytes.put(u64::from(device.device.0));
                bytes.put(device.free.get());
                bytes.put(device.total.get());
            }
            for value in values.into_iter().filter_map(|(_, value)| value) {
                bytes.put(value.get());
            }
        });
    }

    /// Records that events were dropped.
    pub fn dropped(&mut self, dropped: &Dropped) {
        let delta = self.advance(dropped.time_ns);
        self.record_with(tag::DROPPED, |bytes| {
            bytes.put(delta);
            bytes.put(dropped.events);
            bytes.extend(&[dropped.reason.number()]);
        });
    }

    /// Appends a note from the recorder.
    pub fn note(&mut self, note: &Note) {
        let delta = self.advance(note.time_ns);
        self.record_with(tag::NOTE, |bytes| {
            bytes.put(delta);
            bytes.extend(&[note.severity.number()]);
            bytes.extend(&note.text);
        });
    }

    /// Records the end of the process.
    pub fn end(&mut self, end: &End) {
        let delta = self.advance(end.time_ns);
        self.record_with(tag::END, |bytes| {
            bytes.put(delta);
            bytes.extend(&[end.reason.number()]);
            bytes.put(u64::from(end.status));
        });
    }

    /// Records the memory limit that applies to each device.
    pub fn limit(&mut self, limit: Bytes) {
        self.record_with(tag::LIMIT, |bytes| bytes.put(limit.get()));
    }

    /// Records an environment variable.
    pub fn variable(&mut self, name: &[u8], value: &[u8]) {
        self.record_with(tag::VARIABLE, |bytes| {
            bytes.put_text(name);
            bytes.extend(value);
        });
    }

    /// Records the process's place in a job.
    pub fn job<'value>(&mut self, fields: impl IntoIterator<Item = (u64, &'value [u8])>) {
        self.record_with(tag::JOB, |bytes| {
            for (field, value) in fields {
                bytes.put(field);
                bytes.put_text(value);
            }
        });
    }

    /// Records that older events were left out.
    pub fn compacted(&mut self, compacted: &Compacted) {
        self.record_with(tag::COMPACTED, |bytes| {
            // Not a difference: a reader that does not know this record could not follow.
            bytes.put(compacted.time_ns);
            bytes.put(compacted.events);
            bytes.put(compacted.failures);
        });
    }

    /// Records the figures of a device's paged memory.
    pub fn pages(&mut self, device: u64, figures: impl IntoIterator<Item = (u64, u64)>) {
        self.record_with(tag::PAGES, |bytes| {
            bytes.put(device);
            for (figure, value) in figures {
                bytes.put(figure);
                bytes.put(value);
            }
        });
    }

    /// Appends any record, as the reader returned it.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Name { number, text } => self.name(*number, text),
            Record::Frame { number, frame } => self.frame(*number, frame),
            Record::Stack { number, frames } => self.stack(*number, frames),
            Record::Device(device) => self.device(device),
            Record::Event(event) => self.event(event),
            Record::Sample(sample) => self.sample(sample),
            Record::Dropped(dropped) => self.dropped(dropped),
            Record::Note(note) => self.note(note),
            Record::End(end) => self.end(end),
            Record::Limit(limit) => self.limit(*limit),
            Record::Variable { name, value } => self.variable(name, value),
            Record::Job(fields) => self.job(fields.iter().map(|(field, value)| (*field, value.as_slice()))),
            Record::Compacted(compacted) => self.compacted(compacted),
            Record::Pages { device, figures } => self.pages(*device, figures.iter().copied()),
            Record::Unknown { kind, body } => {
                self.record_with(*kind, |bytes| bytes.extend(body));
            }
        }
    }

    /// Advances the chain's time and returns the encoded difference.
    fn advance(&mut self, time_ns: u64) -> u64 {
        let delta = fold(time_ns.wrapping_sub(self.chain.time_ns).cast_signed());
        self.chain.time_ns = time_ns;
        delta
    }

    /// Appends a record with its length, which is known only after its body is written.
    fn record_with(&mut self, tag: u8, write_body: impl FnOnce(&mut Buffer)) {
        self.bytes.extend(&[tag & !EVENT]);
        let start = self.bytes.len();
        write_body(&mut self.bytes);
        self.bytes.insert_length(start);
    }
}

fn put_rare_fields(bytes: &mut Buffer, event: &Event, fields: u8) {
    if fields & field::STREAM != 0 {
        bytes.put(event.stream.0);
    }
    if fields & field::PLACE != 0 {
        bytes.put(u64::from(event.device.0));
        bytes.put(event.context.0);
    }
    if fields & field::POOL != 0 {
        bytes.put(event.pool.0);
    }
    if fields & field::RESULT != 0 {
        bytes.put(u64::from(event.result));
    }
    if fields & field::EXTRA != 0 {
        bytes.put(event.extra);
    }
}
