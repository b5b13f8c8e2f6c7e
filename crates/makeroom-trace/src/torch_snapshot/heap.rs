//! What the pickle machine builds for a snapshot, in place of Python objects.
//!
//! An object is one 8-byte entry: what it has become, and where that is. It is open while keys or items may
//! still come, and closed once it is placed in another container; a closed one is a row, a handle or a position,
//! and cannot change. Everything that is kept costs a small multiple of its bytes in the file: shared objects are
//! referred to, never copied, however deep a file nests them.

use makeroom_core::{DeviceIndex, Events, FastMap, Frame, FrameId, NameId, PoolId, StackId, Stacks};

use super::lists::{ClosedList, OpenList, Run};
use super::record::{self, Kind, LooseBlock, LooseSegment, Record, number};
use super::words::Word;
use crate::pickle::{Fault, Heap, Limit, ObjectId, TextId, Value};

/// The columns look a stream up among those they know; programs have a few dozen.
const STREAMS: Limit = Limit { what: "streams", count: 1 << 12 };
/// Lists that are kept as lists: one per segment, and one per block in old snapshots.
const LISTS: Limit = Limit { what: "lists", count: 1 << 22 };
/// Dicts that are kept as dicts: the snapshot and its settings.
const RECORDS: Limit = Limit { what: "snapshots in one", count: 1 << 20 };
const UNFINISHED: Limit = Limit { what: "unfinished containers", count: 1 << 22 };
/// Handles are 32 bits wide.
const OBJECTS: Limit = Limit { what: "containers", count: u32::MAX as usize };
/// Dicts and lists without a known meaning that are kept in case the top-level dict gives them one. Newer recorders
/// may write many, so what is beyond is dropped and no error.
const MOST_PLAIN_CONTAINERS: usize = 1 << 16;
/// Names of unknown actions that are told apart in the notes.
const MOST_UNKNOWN_ACTIONS: usize = 8;

/// What became of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// Open, nothing in it yet.
    NewDict,
    NewList,
    /// Open, with a position in [`SnapshotHeap::open_dicts`] or [`SnapshotHeap::open_lists`].
    OpenDict(u32),
    OpenList(u32),
    /// Closed: an empty list or tuple.
    Empty,
    /// Closed: a row of the event columns.
    Event(u32),
    Frame(FrameId),
    Stack(StackId),
    /// Closed, with a position in the heap's table of the same name.
    EventList(u32),
    Pool(u32),
    Block(u32),
    Segment(u32),
    Annotation(u32),
    Tenant(u32),
    List(u32),
    Record(u32),
    /// Closed: without a use.
    Nothing,
}

impl Object {
    /// The position of an event list.
    pub(super) fn event_list(self) -> Option<u32> {
        if let Self::EventList(position) = self { Some(position) } else { None }
    }

    /// The position of a block.
    pub(super) fn block(self) -> Option<u32> {
        if let Self::Block(position) = self { Some(position) } else { None }
    }

    /// The position of a segment.
    pub(super) fn segment(self) -> Option<u32> {
        if let Self::Segment(position) = self { Some(position) } else { None }
    }

    /// The position of an annotation.
    pub(super) fn annotation(self) -> Option<u32> {
        if let Self::Annotation(position) = self { Some(position) } else { None }
    }

    /// The position of a list.
    pub(super) fn list(self) -> Option<u32> {
        if let Self::List(position) = self { Some(position) } else { None }
    }

    /// Whether keys or items may still come.
    #[inline]
    fn is_open(self) -> bool {
        matches!(self, Self::NewDict | Self::NewList | Self::OpenDict(_) | Self::OpenList(_))
    }
}

/// One end of a named span.
#[derive(Clone, Copy, Debug)]
pub(super) struct LooseAnnotation {
    pub(super) name: NameId,
    pub(super) stage: makeroom_core::AnnotationStage,
    pub(super) device: Option<DeviceIndex>,
    pub(super) time_us: u64,
}

/// An earlier tenant of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenant {
    pub(super) requested: u64,
    pub(super) stack: StackId,
}

/// Everything that a snapshot has brought so far.
#[derive(Default)]
pub(super) struct SnapshotHeap {
    pub(super) stacks: Stacks,
    /// Events of all devices, in the order of the file.
    pub(super) events: Events,
    pub(super) event_lists: Vec<Box<[Run]>>,
    pub(super) pools: Vec<PoolId>,
    pool_positions: FastMap<(u64, u64), u32>,
    pub(super) blocks: Vec<LooseBlock>,
    pub(super) segments: Vec<LooseSegment>,
    pub(super) annotations: Vec<LooseAnnotation>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) lists: Vec<ClosedList>,
    pub(super) records: Vec<Record>,
    /// Entries whose action is not known, by its name.
    pub(super) unknown_actions: Vec<(Value, u64)>,
    objects: Vec<Object>,
    /// The names that are no [`Word`]; a [`TextId`] counts on from the words.
    names: Vec<NameId>,
    open_dicts: Vec<Record>,
    vacant_dicts: Vec<u32>,
    open_lists: Vec<OpenList>,
    vacant_lists: Vec<u32>,
}

impl Heap for SnapshotHeap {
    fn text(&mut self, bytes: &[u8]) -> Value {
        if let Some(word) = Word::of(bytes) {
            return Value::Text(TextId(word as u32));
        }
        let Ok(id) = u32::try_from(self.names.len() + Word::COUNT as usize) else { return Value::Opaque };
        self.names.push(self.stacks.name(&String::from_utf8_lossy(bytes)));
        Value::Text(TextId(id))
    }

    #[inline]
    fn dict(&mut self) -> Result<Value, Fault> {
        self.object(Object::NewDict).map(Value::Object)
    }

    #[inline]
    fn list(&mut self) -> Result<Value, Fault> {
        self.object(Object::NewList).map(Value::Object)
    }

    fn tuple(&mut self, items: &[Value]) -> Result<Value, Fault> {
        let tuple = self.object(Object::NewList)?;
        self.append(Value::Object(tuple), items)?;
        self.close(tuple)?;
        Ok(Value::Object(tuple))
    }

    fn append(&mut self, list: Value, items: &[Value]) -> Result<(), Fault> {
        let Value::Object(id) = list else { return Err(Fault::NotAList) };
        if items.is_empty() {
            return Ok(());
        }
        let slot = match self.objects[id.0 as usize] {
            Object::OpenList(slot) => slot,
            Object::NewList => {
                let slot = vacant(&mut self.vacant_lists, &mut self.open_lists)?;
                self.objects[id.0 as usize] = Object::OpenList(slot);
                slot
            }
            Object::NewDict | Object::OpenDict(_) => return Err(Fault::NotAList),
            _ => return Err(Fault::Changed),
        };
        for &item in items {
            self.place(item, id)?;
            let list = &mut self.open_lists[slot as usize];
            let Value::Object(item_id) = item else {
                if let Some(number) = number(item) {
                    list.push_number(number);
                }
                continue;
            };
            match self.objects[item_id.0 as usize] {
                Object::Frame(frame) => list.frames.push(frame),
                Object::Event(row) => list.push_event(row),
                object => {
                    list.is_wanted |=
                        !matches!(object, Object::Nothing | Object::Record(_) | Object::Pool(_));
                    list.items.push(item_id);
                }
            }
        }
        Ok(())
    }

    fn insert(&mut self, dict: Value, pairs: &[Value]) -> Result<(), Fault> {
        let Value::Object(id) = dict else { return Err(Fault::NotADict) };
        let slot = match self.objects[id.0 as usize] {
            Object::OpenDict(slot) => slot,
            Object::NewDict => {
                let slot = vacant(&mut self.vacant_dicts, &mut self.open_dicts)?;
                self.objects[id.0 as usize] = Object::OpenDict(slot);
                slot
            }
            Object::NewList | Object::OpenList(_) => return Err(Fault::NotADict),
            _ => return Err(Fault::Changed),
        };
        let (pairs, _) = pairs.as_chunks();
        for [_, value] in pairs {
            self.place(*value, id)?;
        }
        self.open_dicts[slot as usize].extend(pairs);
        Ok(())
    }

    #[inline]
    fn settle(&mut self, value: Value) -> Result<(), Fault> {
        match value {
            Value::Object(id) if matches!(self.objects[id.0 as usize], Object::OpenDict(_)) => self.close(id),
            _ => Ok(()),
        }
    }

    fn text_of(&self, text: TextId) -> &str {
        match Word::at(text.0) {
            Some(word) => word.text(),
            None => self.stacks.name_text(self.name_behind(text)),
        }
    }
}

/// A cleared slot of a table of open containers.
fn vacant<T: Default>(vacancies: &mut Vec<u32>, slots: &mut Vec<T>) -> Result<u32, Fault> {
    if let Some(slot) = vacancies.pop() {
        return Ok(slot);
    }
    if slots.len() >= UNFINISHED.count {
        return Err(Fault::TooMany(&UNFINISHED));
    }
    slots.push(T::default());
    Ok(slots.len() as u32 - 1)
}

/// A position in a table as a handle.
#[inline]
fn handle(position: usize) -> Result<u32, Fault> {
    u32::try_from(position).map_err(|_| Fault::TooMany(&OBJECTS))
}

impl SnapshotHeap {
    #[inline]
    fn object(&mut self, object: Object) -> Result<ObjectId, Fault> {
        let id = handle(self.objects.len())?;
        self.objects.push(object);
        Ok(ObjectId(id))
    }

    /// What became of a container.
    #[inline]
    pub(super) fn get(&self, value: Value) -> Option<Object> {
        match value {
            Value::Object(id) => self.objects.get(id.0 as usize).copied(),
            _ => None,
        }
    }

    /// The position of a container of the wanted kind, once: a second reference to it finds nothing.
    pub(super) fn take(&mut self, value: Value, wanted: impl Fn(Object) -> Option<u32>) -> Option<u32> {
        let Value::Object(id) = value else { return None };
        let object = self.objects.get_mut(id.0 as usize)?;
        let position = wanted(*object)?;
        *object = Object::Nothing;
        Some(position)
    }

    /// The name behind a text.
    fn name_behind(&self, text: TextId) -> NameId {
        self.names.get((text.0 - Word::COUNT.min(text.0)) as usize).copied().unwrap_or_default()
    }

    /// A text as a name.
    pub(super) fn name(&mut self, value: Option<Value>) -> NameId {
        match value {
            Some(Value::Text(text)) => match Word::at(text.0) {
                Some(word) => self.stacks.name(word.text()),
                None => self.name_behind(text),
            },
            _ => NameId::default(),
        }
    }

    /// Closes a value that is placed in a container, which it may not contain itself.
    #[inline]
    fn place(&mut self, value: Value, container: ObjectId) -> Result<(), Fault> {
        let Value::Object(id) = value else { return Ok(()) };
        if !self.objects[id.0 as usize].is_open() {
            return Ok(());
        }
        if id == container {
            return Err(Fault::Changed);
        }
        self.close(id)
    }

    /// Turns an open container into what it stands for.
    pub(super) fn close(&mut self, id: ObjectId) -> Result<(), Fault> {
        let closed = match self.objects[id.0 as usize] {
            Object::OpenDict(slot) => self.close_dict(slot)?,
            Object::OpenList(slot) => self.close_list(slot)?,
            Object::NewList => Object::Empty,
            Object::NewDict => Object::Nothing,
            closed => closed,
        };
        self.objects[id.0 as usize] = closed;
        Ok(())
    }

    fn close_dict(&mut self, slot: u32) -> Result<Object, Fault> {
        let mut record = std::mem::take(&mut self.open_dicts[slot as usize]);
        let closed = self.interpret(&mut record)?;
        record.clear();
        self.open_dicts[slot as usize] = record;
        self.vacant_dicts.push(slot);
        Ok(closed)
    }

    fn interpret(&mut self, record: &mut Record) -> Result<Object, Fault> {
        Ok(match record.kind {
            Kind::Event => self.event(record)?,
            Kind::Frame => {
                let function = self.name(record.get(Word::Name));
                let file = self.name(record.get(Word::Filename));
                let line = record.number(Word::Line).and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
                Object::Frame(self.stacks.frame(Frame { function, file, line }))
            }
            Kind::Block => {
                let index = handle(self.blocks.len())?;
                self.blocks.push(record::block(record, |value| self.stack_of(value)));
                Object::Block(index)
            }
            Kind::Segment => {
                let index = handle(self.segments.len())?;
                self.segments.push(record::segment(record, |value| self.stack_of(value)));
                Object::Segment(index)
            }
            Kind::Annotation => match record::stage(record) {
                Some(stage) => {
                    let index = handle(self.annotations.len())?;
                    let name = self.name(record.get(Word::Name));
                    let device = record::device(record).map(DeviceIndex);
                    let time_us = record.number(Word::TimeUs).unwrap_or(0);
                    self.annotations.push(LooseAnnotation { name, stage, device, time_us });
                    Object::Annotation(index)
                }
                None => Object::Nothing,
            },
            Kind::Tenant => {
                let index = handle(self.tenants.len())?;
                let requested = record.number(Word::RealSize).unwrap_or(0);
                let stack = record.get(Word::Frames).map_or(StackId::NONE, |value| self.stack_of(value));
                self.tenants.push(Tenant { requested, stack });
                Object::Tenant(index)
            }
            Kind::Plain if self.records.len() >= MOST_PLAIN_CONTAINERS => Object::Nothing,
            Kind::Plain | Kind::Settings | Kind::Snapshot => {
                if self.records.len() >= RECORDS.count {
                    return Err(Fault::TooMany(&RECORDS));
                }
                self.records.push(record.clone());
                Object::Record(self.records.len() as u32 - 1)
            }
        })
    }

    fn event(&mut self, record: &Record) -> Result<Object, Fault> {
        let row = handle(self.events.len())?;
        match record::event(record, |value| self.stack_of(value)) {
            Ok((event, None)) if self.events.pool(0).is_none() => self.events.push(event),
            Ok((event, pool)) => {
                let pool = pool.map_or(PoolId::DEFAULT, |pool| self.pool(pool));
                self.events.push_in_pool(event, pool);
            }
            Err(name) => {
                self.count_unknown_action(name);
                return Ok(Object::Nothing);
            }
        }
        if self.events.streams().len() > STREAMS.count {
            return Err(Fault::TooMany(&STREAMS));
        }
        Ok(Object::Event(row))
    }

    fn count_unknown_action(&mut self, name: Value) {
        let text = |heap: &Self, value| match value {
            Value::Text(text) => heap.text_of(text).to_owned(),
            _ => String::new(),
        };
        let wanted = text(self, name);
        let known = self.unknown_actions.iter().position(|&(action, _)| text(self, action) == wanted);
        match known {
            Some(index) => self.unknown_actions[index].1 += 1,
            None if self.unknown_actions.len() < MOST_UNKNOWN_ACTIONS => self.unknown_actions.push((name, 1)),
            None => {
                if let Some((_, count)) = self.unknown_actions.last_mut() {
                    *count += 1;
                }
            }
        }
    }

    /// The stack that a value stands for.
    #[inline]
    fn stack_of(&self, value: Value) -> StackId {
        match self.get(value) {
            Some(Object::Stack(stack)) => stack,
            _ => StackId::NONE,
        }
    }

    /// The pool that a value stands for.
    pub(super) fn pool(&self, value: Value) -> PoolId {
        match self.get(value) {
            Some(Object::Pool(index)) => self.pools.get(index as usize).copied().unwrap_or_default(),
            _ => PoolId::DEFAULT,
        }
    }

    fn close_list(&mut self, slot: u32) -> Result<Object, Fault> {
        let mut list = std::mem::take(&mut self.open_lists[slot as usize]);
        let closed = if !list.runs.is_empty() {
            self.event_lists.push(list.runs.as_slice().into());
            Object::EventList(handle(self.event_lists.len())? - 1)
        } else if list.is_wanted {
            if self.lists.len() >= LISTS.count {
                return Err(Fault::TooMany(&LISTS));
            }
            self.keep_list(&list)
        } else if !list.frames.is_empty() {
            Object::Stack(self.stacks.stack(&list.frames))
        } else if let [first, second] = list.numbers[..] {
            let next = handle(self.pools.len())?;
            let index = *self.pool_positions.entry((first, second)).or_insert(next);
            if index == next {
                self.pools.push(PoolId(first, second));
            }
            Object::Pool(index)
        } else if !list.numbers.is_empty() && self.lists.len() < MOST_PLAIN_CONTAINERS {
            self.keep_list(&list)
        } else {
            Object::Nothing
        };
        list.clear();
        self.open_lists[slot as usize] = list;
        self.vacant_lists.push(slot);
        Ok(closed)
    }

    fn keep_list(&mut self, list: &OpenList) -> Object {
        let (items, numbers) = (list.items.as_slice().into(), list.numbers.as_slice().into());
        self.lists.push(ClosedList { items, numbers });
        Object::List(self.lists.len() as u32 - 1)
    }
}
