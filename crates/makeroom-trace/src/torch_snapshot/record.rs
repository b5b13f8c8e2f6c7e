//! A dict on its way from keys and values to what it stands for.
//!
//! The keys of a dict come in any order and in one or many portions. So they are collected, and when the dict is
//! placed somewhere its [`Kind`] says what to make of it. Keys without a meaning are dropped on arrival.

use makeroom_core::{
    Action, Address, AnnotationStage, Block, BlockState, Bytes, DeviceIndex, Event, NameId, Segment, StackId,
    StreamId,
};

use super::words::Word;
use crate::pickle::{TextId, Value};

/// What a dict is. Where keys of several kinds meet, the later of these wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Nothing in particular.
    #[default]
    Plain,
    /// The allocator's settings, or one of their tables.
    Settings,
    /// An earlier tenant of a block, in the snapshots of PyTorch before 2.1.
    Tenant,
    /// One end of a named span.
    Annotation,
    /// One function call.
    Frame,
    /// A part of a segment.
    Block,
    /// A piece of driver memory.
    Segment,
    /// Something that happened.
    Event,
    /// The whole.
    Snapshot,
}

/// Sizes begin to be none here: no machine has addresses for so much, and a size below zero lies far above.
const LEAST_IMPOSSIBLE_SIZE: u64 = 1 << 56;
/// From this many on, fields are looked over for keys that came more than once.
const CROWDED: usize = 2 * Word::COUNT as usize;

/// How many keys without a meaning are remembered, to say what a foreign pickle holds.
const MOST_FOREIGN_KEYS: usize = 6;

/// The keys and values of a dict, as far as they matter.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) fields: Vec<(Word, Value)>,
    pub(super) foreign_keys: Vec<TextId>,
    pub(super) kind: Kind,
}

impl Record {
    /// Takes in keys and their values.
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

    /// Leaves the last value of each key, in order. A file may repeat a key a million times, and what looks one up
    /// must not walk over them all.
    #[cold]
    fn forget_repeated(&mut self) {
        let mut is_seen = [false; Word::COUNT as usize];
        self.fields.reverse();
        self.fields.retain(|&(word, _)| !std::mem::replace(&mut is_seen[word as usize], true));
        self.fields.reverse();
    }

    /// Forgets everything, for the next dict.
    pub(super) fn clear(&mut self) {
        self.fields.clear();
        self.foreign_keys.clear();
        self.kind = Kind::Plain;
    }

    /// The value of a key; the last one counts, as in Python.
    pub(super) fn get(&self, key: Word) -> Option<Value> {
        self.fields.iter().rev().find(|(word, _)| *word == key).map(|&(_, value)| value)
    }

    /// The integer under a key.
    pub(super) fn number(&self, key: Word) -> Option<u64> {
        number(self.get(key)?)
    }
}

/// A value as an integer, if it is one or stands for one.
#[inline]
pub(super) fn number(value: Value) -> Option<u64> {
    match value {
        Value::Int(number) => Some(number),
        Value::Bool(value) => Some(u64::from(value)),
        Value::Float(value) if value.is_finite() => Some(value as u64),
        _ => None,
    }
}

/// A number as a size, if it can be one.
#[inline]
pub(super) fn size(number: u64) -> Option<Bytes> {
    (number < LEAST_IMPOSSIBLE_SIZE).then_some(Bytes::new(number))
}

/// Whether the number under a key can be a size; a missing one can.
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

/// An event out of its dict, and the value that names its pool; the stack is found by `stack_of`.
#[inline]
pub(super) fn event(
    record: &Record,
    mut stack_of: impl FnMut(Value) -> StackId,
) -> Result<(Event, Option<Value>), Value> {
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
    let mut pool = None;
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
            _ => {}
        }
    }
    event.action = action(named).ok_or(named)?;
    if event.action == Action::OutOfMemory {
        event.address = Address(device_free.unwrap_or(u64::MAX));
    }
    Ok((event, pool))
}

/// A block as its dict describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LooseBlock {
    pub(super) block: Block,
    /// Old snapshots give no addresses; the blocks then follow each other.
    pub(super) has_address: bool,
    /// The earlier tenants, newest first, where old snapshots keep the request and the stack.
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

/// A segment as its dict describes it; the blocks are still a list elsewhere.
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

/// The device a dict names; a negative one is none.
pub(super) fn device(record: &Record) -> Option<u32> {
    record.number(Word::Device).and_then(|device| u32::try_from(device).ok())
}

/// Which end of a span a dict marks.
pub(super) fn stage(record: &Record) -> Option<AnnotationStage> {
    match record.get(Word::Stage).and_then(word)? {
        Word::Start => Some(AnnotationStage::Start),
        Word::End => Some(AnnotationStage::End),
        _ => None,
    }
}

/// One end of a named span.
#[derive(Clone, Copy, Debug)]
pub(super) struct LooseAnnotation {
    pub(super) name: NameId,
    pub(super) stage: AnnotationStage,
    pub(super) device: Option<DeviceIndex>,
    pub(super) time_us: u64,
}

/// An earlier tenant of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenant {
    pub(super) requested: Option<Bytes>,
    pub(super) stack: StackId,
}

#[cfg(test)]
mod tests {
    use super::*;

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
