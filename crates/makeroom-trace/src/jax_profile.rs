//! JAX's device memory profile: the buffers that are live at one moment, by call stack.
//!
//! `jax.profiler.save_device_memory_profile` writes a [pprof] profile, which is a protobuf message, usually compressed
//! with gzip. Each sample is a number of buffers of one size, allocated by one stack on one device:
//!
//! ```text
//! Profile  1 sample_type  2 sample  4 location  5 function  6 string_table
//! Sample   1 location_id (innermost first)  2 value (count, bytes)  3 label (kind, device)
//! ```
//!
//! There is no history: the trace has no events, and one segment per sample. Addresses are made up, because a profile has
//! none. Only the first line of a location is used, so that memory is bounded by the length of the file.
//!
//! [pprof]: https://github.com/google/pprof/blob/main/proto/profile.proto

use std::io::Read;

use makeroom_core::{
    Address, Block, BlockState, Bytes, DeviceIndex, DeviceTrace, FastMap, Frame, Segment, StackId, Trace,
    TraceKind,
};
use makeroom_ordered::{OrderedMap, OrderedSet};

use crate::MOST_DEVICES;
use crate::error::Error;
use crate::input::read_failed;
use crate::protobuf::{Message, Value};

/// Maximum length of a profile. JAX writes some hundred bytes for each stack.
const LONGEST: u64 = 256 << 20;
/// Maximum number of blocks; samples beyond it get one block each.
const MOST_BLOCKS: u64 = 1 << 20;
/// First address, and alignment of segments.
const ALIGNMENT: u64 = 1 << 21;

/// Whether data starts like a profile: with a sample type, which is two numbers.
pub(crate) fn is_opening(head: &[u8]) -> bool {
    let [0x0a, length @ 4..=12, 0x08, rest @ ..] = head else { return false };
    // The unit follows the type, at most five bytes later.
    let inside = rest.get(..usize::from(length - 1)).unwrap_or(rest);
    inside.iter().skip(1).take(5).any(|&byte| byte == 0x10)
}

/// Reads a profile to its end.
pub(crate) fn read(stream: impl Read) -> Result<Trace, Error> {
    let mut bytes = Vec::new();
    stream
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|cause| read_failed(bytes.len() as u64, cause))?;
    if bytes.len() as u64 > LONGEST {
        return Err(Error::TooMany { offset: LONGEST, what: "bytes of a memory profile", limit: LONGEST });
    }
    Profile::parse(&bytes)?.into_trace()
}

/// The parts of a profile that matter here. Texts are slices of the file.
#[derive(Default)]
struct Profile<'file> {
    /// Type and unit of each value of a sample.
    kinds: Vec<(u64, u64)>,
    samples: Vec<Sample<'file>>,
    /// The first line of each location: its function and line number.
    locations: FastMap<u64, (u64, u32)>,
    /// Name and file of each function.
    functions: FastMap<u64, (u64, u64)>,
    texts: Vec<&'file [u8]>,
}

/// A sample; its parts are read when the tables that they refer to are complete.
struct Sample<'file> {
    message: Message<'file>,
    values: Vec<u64>,
}

impl<'file> Profile<'file> {
    fn parse(bytes: &'file [u8]) -> Result<Self, Error> {
        let mut profile = Self::default();
        let mut message = Message::new(bytes);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (1, Value::Message(kind)) => profile.kinds.push(pair(kind, 1, 2)?),
                (2, Value::Message(sample)) => {
                    profile.samples.push(Sample { message: sample, values: sample.numbers(2)? });
                }
                (4, Value::Message(location)) => profile.add_location(location)?,
                (5, Value::Message(mut function)) => {
                    let (mut id, mut name, mut file) = (0, 0, 0);
                    while let Some(part) = function.next()? {
                        match part {
                            (1, Value::Number(number)) => id = number,
                            (2, Value::Number(number)) => name = number,
                            (4, Value::Number(number)) => file = number,
                            _ => {}
                        }
                    }
                    profile.functions.insert(id, (name, file));
                }
                (6, Value::Message(text)) => profile.texts.push(text.bytes()),
                _ => {}
            }
        }
        Ok(profile)
    }

    fn add_location(&mut self, mut location: Message<'file>) -> Result<(), Error> {
        let (mut id, mut first) = (0, None);
        while let Some(part) = location.next()? {
            match part {
                (1, Value::Number(number)) => id = number,
                (4, Value::Message(line)) if first.is_none() => first = Some(pair(line, 1, 2)?),
                _ => {}
            }
        }
        if let Some((function, line)) = first {
            self.locations.insert(id, (function, u32::try_from(line).unwrap_or(0)));
        }
        Ok(())
    }

    fn text(&self, index: u64) -> std::borrow::Cow<'file, str> {
        let text = usize::try_from(index).ok().and_then(|index| self.texts.get(index));
        String::from_utf8_lossy(text.copied().unwrap_or_default())
    }

    /// The positions of the count and of the bytes among the values of a sample.
    fn columns(&self) -> Result<(usize, usize), Error> {
        let column = |kind: &str, unit: &str| {
            self.kinds.iter().position(|&(one, other)| self.text(one) == kind && self.text(other) == unit)
        };
        let found = column("allocations", "count").zip(column("space", "bytes"));
        found.ok_or(Error::OtherFormat {
            format: "a pprof profile, but not one of live memory",
            hint: "save one of JAX's buffers: jax.profiler.save_device_memory_profile(\"memory.prof\")",
        })
    }

    fn into_trace(self) -> Result<Trace, Error> {
        let (count_at, bytes_at) = self.columns()?;
        let mut trace = Trace::new(TraceKind::JaxProfile);
        let mut devices: OrderedMap<u32, Device> = OrderedMap::new();
        let mut hosts = OrderedSet::new();
        let mut blocks_left = MOST_BLOCKS;
        for sample in &self.samples {
            let value = |index: usize| sample.values.get(index).copied().unwrap_or(0);
            let (count, bytes) = (value(count_at), value(bytes_at));
            if count == 0 || bytes == 0 {
                continue;
            }
            let name = self.device_of(sample.message)?;
            let device = devices.entry(index_of(&name)).or_default();
            if name.to_ascii_lowercase().contains("cpu") {
                hosts.insert(name);
            }
            let stack = self.stack(&mut trace, sample.message)?;
            // JAX counts buffers of one size; a remainder means that sizes differ.
            let is_exact = bytes.is_multiple_of(count) && count <= blocks_left;
            let count = if is_exact { count } else { 1 };
            blocks_left = blocks_left.saturating_sub(count);
            device.add(bytes, count, stack).ok_or(Error::Profile {
                offset: sample.message.offset(),
                problem: "the buffers of this profile exceed every address space",
            })?;
        }
        if devices.len() > MOST_DEVICES {
            return Err(Error::TooMany { offset: 0, what: "devices", limit: MOST_DEVICES as u64 });
        }
        trace.devices = devices.into_iter().map(|(index, device)| device.finish(index)).collect();
        if let Some(name) = hosts.first() {
            trace.notes.push(format!("the buffers of {name} are in host memory, not on a GPU"));
        }
        Ok(trace)
    }

    /// The device in the labels of a sample, such as `cuda:0`.
    fn device_of(&self, mut sample: Message<'file>) -> Result<String, Error> {
        while let Some((field, value)) = sample.next()? {
            if let (3, Value::Message(label)) = (field, value) {
                let (key, text) = pair(label, 1, 2)?;
                if self.text(key) == "device" {
                    return Ok(self.text(text).into_owned());
                }
            }
        }
        Ok(String::new())
    }

    fn stack(&self, trace: &mut Trace, sample: Message<'file>) -> Result<StackId, Error> {
        let mut frames = Vec::new();
        for location in sample.numbers(1)? {
            let Some(&(function, line)) = self.locations.get(&location) else { continue };
            let (name, file) = self.functions.get(&function).copied().unwrap_or_default();
            let frame = Frame {
                function: trace.stacks.name(&self.text(name)),
                file: trace.stacks.name(&self.text(file)),
                line,
                ..Frame::default()
            };
            frames.push(trace.stacks.frame(frame));
        }
        Ok(trace.stacks.stack(&frames))
    }
}

/// Two numbers of a message; 0 if missing.
fn pair(mut message: Message<'_>, first: u64, second: u64) -> Result<(u64, u64), Error> {
    let mut found = (0, 0);
    while let Some((field, value)) = message.next()? {
        if let Value::Number(number) = value {
            if field == first {
                found.0 = number;
            } else if field == second {
                found.1 = number;
            }
        }
    }
    Ok(found)
}

/// The number at the end of a device's name: 1 for `cuda:1`, 0 for `TFRT_CPU_0`.
fn index_of(name: &str) -> u32 {
    let digits = name.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let start = digits.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    digits[start..].parse().unwrap_or(0)
}

/// The segments of one device.
#[derive(Default)]
struct Device {
    segments: Vec<Segment>,
    end: u64,
}

impl Device {
    /// Adds a segment of equal live blocks; `None` if addresses run out.
    fn add(&mut self, bytes: u64, count: u64, stack: StackId) -> Option<()> {
        let address = self.end.checked_next_multiple_of(ALIGNMENT)?.max(ALIGNMENT);
        self.end = address.checked_add(bytes)?;
        let size = bytes / count;
        let block = |index| Block {
            address: Address(address + index * size),
            size: Bytes::new(size),
            requested: Some(Bytes::new(size)),
            state: BlockState::Live,
            stack,
        };
        self.segments.push(Segment {
            address: Address(address),
            size: Bytes::new(bytes),
            blocks: (0..count).map(block).collect(),
            stack,
            ..Segment::default()
        });
        Some(())
    }

    fn finish(self, index: u32) -> DeviceTrace {
        DeviceTrace { device: DeviceIndex(index), segments: self.segments, ..DeviceTrace::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_device_is_at_the_end_of_its_name() {
        for (name, index) in
            [("cuda:1", 1), ("TFRT_CPU_0", 0), ("gpu:12)", 12), ("", 0), ("no digits", 0), ("99999999999", 0)]
        {
            assert_eq!(index_of(name), index, "{name}");
        }
    }

    #[test]
    fn a_profile_is_told_from_text() {
        assert!(is_opening(b"\x0a\x04\x08\x01\x10\x02\x0a\x04"));
        assert!(is_opening(b"\x0a\x05\x08\xc8\x01\x10\x02"));
        for other in [&b"\n"[..], b"\n\nTraceback", b"\n\x04\x08", b"\x0a\x04\x10\x01\x08\x02", b""] {
            assert!(!is_opening(other), "{other:?}");
        }
    }
}
