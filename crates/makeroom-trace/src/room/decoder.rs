//! Decodes the payload of a frame into records; the inverse of `encoder`.

use makeroom_core::{Address, Bytes, DeviceIndex, StreamId};

use super::cursor::Cursor;
use super::kind::EventKind;
use super::layout::{
    ALIGNED, ALIGNED_SHIFT, Chain, EVENT, LONG_KIND, MOST_JOB_FIELDS, MOST_PAGE_FIGURES, field, measured, tag,
};
use super::record::{
    Compacted, ContextHandle, DeviceDefinition, DeviceSample, DropReason, Dropped, End, EndReason, Event,
    FrameDefinition, FrameNumber, NameNumber, Note, Origin, PoolHandle, Record, Sample, Severity,
    StackNumber, ThreadNumber,
};
use super::varint::unfold;
use crate::error::Error;

/// The records of one frame, in order. Stops after an error.
#[derive(Clone, Debug)]
pub struct Records<'payload> {
    thread: ThreadNumber,
    cursor: Cursor<'payload>,
    chain: Chain,
    failed: bool,
}

impl<'payload> Records<'payload> {
    /// Starts to decode a payload, whose offset in the file is `offset`.
    pub(crate) fn new(payload: &'payload [u8], offset: u64) -> Result<Self, Error> {
        let mut cursor = Cursor::new(payload, offset);
        let thread = ThreadNumber(cursor.number("a thread")?);
        Ok(Self { thread, cursor, chain: Chain::default(), failed: false })
    }

    /// The thread that the records belong to.
    pub fn thread(&self) -> ThreadNumber {
        self.thread
    }

    /// Offset of the next record in the file.
    pub fn offset(&self) -> u64 {
        self.cursor.offset()
    }

    /// The next record, if it is an event: nearly all records are, and the others take more bytes to return.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Result<Event, Error>> {
        if self.failed || self.cursor.first()? & EVENT == 0 {
            return None;
        }
        let event = self.cursor.byte("a record").and_then(|tag| self.event(tag));
        self.failed = event.is_err();
        Some(event)
    }

    fn record(&mut self) -> Result<Record, Error> {
        let before = self.cursor.clone();
        let tag = self.cursor.byte("a record")?;
        if tag & EVENT != 0 {
            return self.event(tag).map(Record::Event);
        }
        if tag == 0 {
            return Err(before.error("a record"));
        }
        let length = self.cursor.number("the length of a record")?;
        let offset = self.cursor.offset();
        let mut body = Cursor::new(self.cursor.take(length, "a record of that length")?, offset);
        let record = self.body(tag, &mut body)?;
        if body.is_at_end() { Ok(record) } else { Err(body.error("the end of the record")) }
    }

    #[inline]
    fn event(&mut self, tag: u8) -> Result<Event, Error> {
        let cursor = &mut self.cursor;
        let number = match tag & LONG_KIND {
            LONG_KIND => {
                let before = cursor.clone();
                let number = cursor.byte("a kind of event")?;
                if number < LONG_KIND {
                    return Err(before.error("a kind of event from 63 on"));
                }
                number
            }
            number => number,
        };
        let fields = cursor.byte("the fields of an event")?;
        let has = |field: u8| fields & field != 0;
        let shift = if tag & ALIGNED != 0 { ALIGNED_SHIFT } else { 0 };
        let chain = &mut self.chain;
        chain.time_ns = chain.time_ns.wrapping_add(unfold(cursor.number("a time")?) as u64);
        if has(field::ADDRESS) {
            let delta = unfold(cursor.number("an address")?) << shift;
            chain.address = Address(chain.address.0.wrapping_add(delta as u64));
        }
        if has(field::SIZE) {
            chain.size = Bytes::new(cursor.number("a size")? << shift);
        }
        if has(field::STACK) {
            chain.stack = StackNumber(cursor.number32("a stack")?);
        }
        if has(field::STREAM) {
            chain.stream = StreamId(cursor.number("a stream")?);
        }
        if has(field::PLACE) {
            chain.device = DeviceIndex(cursor.number32("a device")?);
            chain.context = ContextHandle(cursor.number("a context")?);
        }
        if has(field::POOL) {
            chain.pool = PoolHandle(cursor.number("a pool")?);
        }
        let result = if has(field::RESULT) { cursor.number32("a result")? } else { 0 };
        let extra = if has(field::EXTRA) { cursor.number("an extra figure")? } else { 0 };
        Ok(Event {
            kind: EventKind::from_number(number),
            time_ns: chain.time_ns,
            device: chain.device,
            context: chain.context,
            address: chain.address,
            size: chain.size,
            stream: chain.stream,
            pool: chain.pool,
            stack: chain.stack,
            result,
            extra,
        })
    }

    fn body(&mut self, tag: u8, body: &mut Cursor<'_>) -> Result<Record, Error> {
        Ok(match tag {
            tag::NAME => {
                let number = NameNumber(defined(body, "the number of a name")?);
                Record::Name { number, text: body.take_rest().to_vec() }
            }
            tag::FRAME => Record::Frame {
                number: FrameNumber(defined(body, "the number of a frame")?),
                frame: FrameDefinition {
                    origin: Origin::from_number(body.byte("the origin of a frame")?),
                    function: NameNumber(body.number32("a function")?),
                    file: NameNumber(body.number32("a file")?),
                    line: body.number32("a line")?,
                    library: NameNumber(body.number32("a library")?),
                    offset: body.number("a place in a library")?,
                },
            },
            tag::STACK => {
                let number = StackNumber(defined(body, "the number of a stack")?);
                Record::Stack { number, frames: frames(body)? }
            }
            tag::DEVICE => Record::Device(DeviceDefinition {
                device: DeviceIndex(body.number32("a device")?),
                uuid: body.text("the identity of a device")?,
                name: body.text("the name of a device")?,
                total: Bytes::new(body.number("the memory of a device")?),
            }),
            tag::SAMPLE => Record::Sample(self.sample(body)?),
            tag::DROPPED => Record::Dropped(Dropped {
                time_ns: self.advance(body)?,
                events: body.number("a number of events")?,
                reason: DropReason::from_number(body.byte("a reason")?),
            }),
            tag::NOTE => Record::Note(Note {
                time_ns: self.advance(body)?,
                severity: Severity::from_number(body.byte("a severity")?),
                text: body.take_rest().to_vec(),
            }),
            tag::END => Record::End(End {
                time_ns: self.advance(body)?,
                reason: EndReason::from_number(body.byte("a reason")?),
                status: body.number32("a status")?,
            }),
            tag::LIMIT => Record::Limit(Bytes::new(body.number("a limit")?)),
            tag::VARIABLE => Record::Variable {
                name: body.text("the name of a variable")?,
                value: body.take_rest().to_vec(),
            },
            tag::JOB => {
                let mut fields = Vec::new();
                while !body.is_at_end() {
                    if fields.len() == MOST_JOB_FIELDS {
                        return Err(body.error("the end of the fields of a job"));
                    }
                    fields.push((body.number("a field of a job")?, body.text("the value of a field")?));
                }
                Record::Job(fields)
            }
            tag::COMPACTED => Record::Compacted(Compacted {
                time_ns: body.number("a time")?,
                events: body.number("a number of events")?,
                failures: body.number("a number of failures")?,
            }),
            tag::PAGES => {
                let (device, mut figures) = (body.number("a device")?, Vec::new());
                while !body.is_at_end() {
                    if figures.len() == MOST_PAGE_FIGURES {
                        return Err(body.error("the end of the figures of pages"));
                    }
                    figures.push((body.number("a figure of pages")?, body.number("the value of a figure")?));
                }
                Record::Pages { device, figures }
            }
            kind => Record::Unknown { kind, body: body.take_rest().to_vec() },
        })
    }

    fn sample(&mut self, body: &mut Cursor<'_>) -> Result<Sample, Error> {
        let time_ns = self.advance(body)?;
        let before = body.clone();
        let fields = body.byte("the fields of a sample")?;
        if fields & !measured::ALL != 0 {
            return Err(before.error("known fields of a sample"));
        }
        let device = if fields & measured::DEVICE != 0 {
            Some(DeviceSample {
                device: DeviceIndex(body.number32("a device")?),
                free: Bytes::new(body.number("free memory")?),
                total: Bytes::new(body.number("the memory of a device")?),
            })
        } else {
            None
        };
        let mut value = |bit: u8, expected| {
            if fields & bit == 0 {
                Ok(None)
            } else {
                body.number(expected).map(|value| Some(Bytes::new(value)))
            }
        };
        Ok(Sample {
            time_ns,
            device,
            resident: value(measured::RESIDENT, "a resident set")?,
            cgroup_usage: value(measured::CGROUP_USAGE, "a control group's usage")?,
            cgroup_limit: value(measured::CGROUP_LIMIT, "a control group's limit")?,
            pinned: value(measured::PINNED, "pinned memory")?,
        })
    }

    /// Advances the chain's time.
    fn advance(&mut self, body: &mut Cursor<'_>) -> Result<u64, Error> {
        let delta = unfold(body.number("a time")?);
        self.chain.time_ns = self.chain.time_ns.wrapping_add(delta as u64);
        Ok(self.chain.time_ns)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.cursor.is_at_end() {
            return None;
        }
        let record = self.record();
        self.failed = record.is_err();
        Some(record)
    }
}

/// The number that a definition assigns; 0 is reserved for "none".
fn defined(body: &mut Cursor<'_>, expected: &'static str) -> Result<u32, Error> {
    let before = body.clone();
    match body.number32(expected)? {
        0 => Err(before.error(expected)),
        number => Ok(number),
    }
}

fn frames(body: &mut Cursor<'_>) -> Result<Vec<FrameNumber>, Error> {
    let mut frames = Vec::new();
    let mut number = 0_u32;
    while !body.is_at_end() {
        let before = body.clone();
        let delta = unfold(body.number("a frame")?);
        number = i64::from(number)
            .checked_add(delta)
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| before.error("a frame"))?;
        frames.push(FrameNumber(number));
    }
    Ok(frames)
}
