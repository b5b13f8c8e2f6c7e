//! Dicts under construction.
//!
//! The keys of a dict arrive in any order and in several batches, so they are collected. When the dict is placed in
//! another container, its [`Kind`] determines what it becomes. Unknown keys are dropped on arrival.

use makeroom_core::{
    Action, Address, AnnotationStage, Block, BlockState, Bytes, DeviceIndex, Event, NameId, Segment, StackId,
    StreamId,
};

use super::words::Word;
use crate::pickle::{TextId, Value};

/// The kind of a dict. If its keys suggest several, the last one in this list wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Unknown.
    #[default]
    Plain,
    /// The allocator's settings, or one of their tables.
    Settings,
    /// A previous allocation in a block, in snapshots of PyTorch before 2.1.
    Tenant,
    /// The start or the end of a named span.
    Annotation,
    /// A stack frame.
    Frame,
    /// A part of a segment.
    Block,
    /// A piece of driver memory.
    Segment,
    /// An allocator event.
    Event,
    /// The top-level dict.
    Snapshot,
}

/// Larger sizes are impossible: no machine has that much address space. Negative sizes are far above.
const LEAST_IMPOSSIBLE_SIZE: u64 = 1 << 56;
/// From this many fields on, repeated keys are removed.
const CROWDED: usize = 2 * Word::COUNT as usize;

/// Number of unknown keys to remember, to describe a pickle that is not a snapshot.
const MOST_FOREIGN_KEYS: usize = 6;

/// The relevant keys and values of a dict.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) fields: Vec<(Word, Value)>,
    pub(super) foreign_keys: Vec<TextId>,
    pub(super) kind: Kind,
}

impl Record {
    /// Adds keys and values.
    #[inline]
    pub(super) fn extend(&mut self, pairs: &[[Value; 2]]) {
        for &[key, value] in pairs {
            let Value::Text(key) = key else { continue };
            if let Some(word) = Word::at(key.0) {
                self.kind = self.kind.max(word.kind());
                self.fields.push((word, value));
                if self.fields.len() >= CROWDED {
                    self.forget_repeated();
                }
            } else if self.foreign_keys.len() < MOST_FOREIGN_KEYS {
                self.foreign_keys.push(key);
            }
        }
    }

    /// Keeps the last value of each key, in order. A file may repeat a key a million times, which would make lookups
    /// slow.
    #[cold]
    fn forget_repeated(&mut self) {
        let mut is_seen = [false; Word::COUNT as usize];
        self.fields.reverse();
        self.fields.retain(|&(word, _)| !std::mem::replace(&mut is_seen[word as usize], true));
        self.fields.reverse();
    }

    /// Clears it for the next dict.
    pub(super) fn clear(&mut self) {
        self.fields.clear();
        self.foreign_keys.clear();
        self.kind = Kind::Plain;
    }

    /// The value of a key; the last one wins, as in Python.
    pub(super) fn get(&self, key: Word) -> Option<Value> {
        self.fields.iter().rev().find(|(word, _)| *word == key).map(|&(_, value)| value)
    }

    /// The integer under a key.
    pub(super) fn number(&self, key: Word) -> Option<u64> {
        number(self.get(key)?)
    }
}

/// A value as an integer; also a boolean or a finite float.
#[inline]
pub(super) fn number(value: Value) -> Option<u64> {
    match value {
        Value::Int(number) => Some(number),
        Value::Bool(value) => Some(u64::from(value)),
        Value::Float(value) if value.is_finite() => Some(value as u64),
        _ => None,
    }
}

/// A number as a size, if it is possible.
#[inline]
pub(super) fn size(number: u64) -> Option<Bytes> {
    (number < LEAST_IMPOSSIBLE_SIZE).then_some(Bytes::new(number))
}

/// Whether the number under a key is missing or a possible size.
pub(super) fn is_possible(record: &Record, key: Word) -> bool {
    record.number(key).is_none_or(|number| size(number).is_some())
}

/// A value as one of the words.
pub(super) fn word(value: Value) -> Option<Word> {
    match value {
        Value::Text(text) => Word::at(text.0),
        _ => None,
    }
}

/// The action with this name.
pub(super) fn action(value: Value) -> Option<Action> {
    Some(match word(value)? {
        Word::Alloc => Action::Alloc,
        Word::FreeRequested => Action::FreeRequested,
        Word::FreeCompleted => Action::FreeCompleted,
        Word::SegmentAlloc => Action::SegmentAlloc,
        Word::SegmentFree => Action::SegmentFree,
        Word::SegmentMap => Action::SegmentMap,
        Word::SegmentUnmap => Action::SegmentUnmap,
        Word::Snapshot => Action::Snapshot,
        Word::Oom => Action::OutOfMemory,
        _ => return None,
    })
}

/// An event as described by its dict.
pub(super) struct LooseEvent {
    pub(super) event: Event,
    /// Identifies its pool.
    pub(super) pool: Option<Value>,
    /// The program's own label.
    pub(super) label: Option<Value>,
    /// The compiled frame that it comes from.
    pub(super) compile_context: Option<Value>,
}

/// A text that says something; recorders write `N/A` and empty ones.
#[inline]
pub(super) fn meant(value: Value) -> Option<Value> {
    let is_empty =
        matches!(word(value), Some(Word::NotAvailable | Word::Empty)) || matches!(value, Value::None);
    (!is_empty).then_some(value)
}

/// The event of a dict. `stack_of` looks up its stack. Fails with the name of an unknown action.
#[inline]
pub(super) fn event(
    record: &Record,
    mut stack_of: impl FnMut(Value) -> StackId,
) -> Result<LooseEvent, Value> {
    let mut event = Event {
        action: Action::Snapshot,
        address: Address(0),
        size: Bytes::ZERO,
        stream: StreamId(0),
        time_us: 0,
        stack: StackId::NONE,
    };
    let mut named = Value::None;
    let mut device_free = None;
    let (mut pool, mut label, mut compile_context) = (None, None, None);
    for &(key, value) in &record.fields {
        let amount = number(value).unwrap_or(0);
        match key {
            Word::Action => named = value,
            Word::Addr => event.address = Address(amount),
            Word::DeviceFree => device_free = Some(amount),
            Word::Size => event.size = Bytes::new(amount),
            Word::Stream => event.stream = StreamId(amount),
            Word::TimeUs => event.time_us = amount,
            Word::Frames => event.stack = stack_of(value),
            Word::PoolId => pool = Some(value),
            Word::UserMetadata => label = meant(value),
            Word::CompileContext => compile_context = meant(value),
            _ => {}
        }
    }
    event.action = action(named).ok_or(named)?;
    if event.action == Action::OutOfMemory {
        event.address = Address(device_free.unwrap_or(u64::MAX));
    }
    Ok(LooseEvent { event, pool, label, compile_context })
}

/// A block as described by its dict.
#[derive(Clone, Copy, Debug)]
pub(super) struct LooseBlock {
    pub(super) block: Block,
    /// False in old snapshots, where the blocks are contiguous.
    pub(super) has_address: bool,
    /// Previous allocations, newest first. Old snapshots store the requested size and the stack there.
    pub(super) history: Option<Value>,
}

pub(super) fn block(record: &Record, mut stack_of: impl FnMut(Value) -> StackId) -> LooseBlock {
    let state = match record.get(Word::State).and_then(word) {
        Some(Word::ActiveAllocated) => BlockState::Live,
        Some(Word::ActivePendingFree | Word::ActiveAwaitingFree) => BlockState::PendingFree,
        _ => BlockState::Free,
    };
    let address = record.number(Word::Address);
    let block = Block {
        address: Address(address.unwrap_or(0)),
        size: Bytes::new(record.number(Word::Size).unwrap_or(0)),
        requested: record.number(Word::RequestedSize).and_then(size),
        state,
        stack: record.get(Word::Frames).map_or(StackId::NONE, &mut stack_of),
    };
    LooseBlock { block, has_address: address.is_some(), history: record.get(Word::History) }
}

/// A segment as described by its dict; its blocks are in a separate list.
#[derive(Clone, Debug)]
pub(super) struct LooseSegment {
    pub(super) segment: Segment,
    pub(super) device: u32,
    pub(super) pool: Option<Value>,
    pub(super) blocks: Option<Value>,
}

pub(super) fn segment(record: &Record, mut stack_of: impl FnMut(Value) -> StackId) -> LooseSegment {
    let segment = Segment {
        address: Address(record.number(Word::Address).unwrap_or(0)),
        size: Bytes::new(record.number(Word::TotalSize).unwrap_or(0)),
        stream: StreamId(record.number(Word::Stream).unwrap_or(0)),
        is_small: record.get(Word::SegmentType).and_then(word) == Some(Word::Small),
        is_expandable: record.number(Word::IsExpandable) == Some(1),
        stack: record.get(Word::Frames).map_or(StackId::NONE, &mut stack_of),
        ..Segment::default()
    };
    LooseSegment {
        segment,
        device: device(record).unwrap_or(0),
        pool: record.get(Word::SegmentPoolId),
        blocks: record.get(Word::Blocks),
    }
}

/// The device of a dict; `None` if negative.
pub(super) fn device(record: &Record) -> Option<u32> {
    record.number(Word::Device).and_then(|device| u32::try_from(device).ok())
}

/// Whether a dict is the start or the end of a span.
pub(super) fn stage(record: &Record) -> Option<AnnotationStage> {
    match record.get(Word::Stage).and_then(word)? {
        Word::Start => Some(AnnotationStage::Start),
        Word::End => Some(AnnotationStage::End),
        _ => None,
    }
}

/// The start or the end of a named span.
#[derive(Clone, Copy, Debug)]
pub(super) struct LooseAnnotation {
    pub(super) name: NameId,
    pub(super) stage: AnnotationStage,
    pub(super) device: Option<DeviceIndex>,
    pub(super) time_us: u64,
}

/// A previous allocation in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenant {
    pub(super) requested: Option<Bytes>,
    pub(super) stack: StackId,
}

/// A text that the program attached to a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockLabel {
    /// Number of rows before it.
    pub(super) row: usize,
    pub(super) address: u64,
    pub(super) label: NameId,
}

/// The innermost line of a Python stack trace as text: file, line and function.
///
/// ```text
///   File "model.py", line 88, in forward
///     scores = q @ k
/// ```
pub(super) fn innermost_line(trace: &str) -> Option<(&str, u32, &str)> {
    let line = trace.lines().rfind(|line| line.trim_start().starts_with("File \""))?;
    let (file, rest) = line.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let (number, function) = rest.split_once(", in ").unwrap_or((rest, ""));
    Some((file, number.trim().parse().ok()?, function.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_frames_have_the_line_of_the_model() {
        let trace = "  File \"a.py\", line 3, in main\n    m(x)\n  File \"model.py\", line 88, in forward\n    q @ k\n";
        assert_eq!(innermost_line(trace), Some(("model.py", 88, "forward")));
        assert_eq!(innermost_line("File \"m.py\", line 7"), Some(("m.py", 7, "")));
        for text in ["", "File", "File \"m.py\"", "File \"m.py\", line x, in f", "no trace"] {
            assert_eq!(innermost_line(text), None, "{text}");
        }
    }

    #[test]
    fn a_key_that_is_repeated_without_end_takes_no_more_room_than_one() {
        let mut record = Record::default();
        let key = |word: Word| Value::Text(TextId(word as u32));
        record.extend(&[[key(Word::Addr), Value::Int(7)], [key(Word::Size), Value::Int(1)]]);
        let repeated: Vec<_> = (0..100_000).map(|number| [key(Word::Size), Value::Int(number)]).collect();
        record.extend(&repeated);
        assert!(record.fields.len() < CROWDED);
        assert_eq!((record.number(Word::Addr), record.number(Word::Size)), (Some(7), Some(99_999)));
    }
}
