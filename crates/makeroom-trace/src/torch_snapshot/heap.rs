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
use crate::pickle::{Fault, Heap, ObjectId, TextId, Value};

/// The columns look a stream up among those they know; programs have a few dozen.
const MOST_STREAMS: usize = 1 << 12;
/// Lists that are kept as lists: one per segment, and one per block in old snapshots.
const MOST_LISTS: usize = 1 << 22;
/// Dicts that are kept as dicts: the snapshot and its settings.
const MOST_RECORDS: usize = 1 << 20;
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
        self.object(Object::NewDict)
    }

    #[inline]
    fn list(&mut self) -> Result<Value, Fault> {
        self.object(Object::NewList)
    }

    fn tuple(&mut self, items: &[Value]) -> Result<Value, Fault> {
        let tuple = self.list()?;
        self.append(tuple, items)?;
        self.close(tuple)?;
        Ok(tuple)
    }

    fn append(&mut self, list: Value, items: &[Value]) -> Result<(), Fault> {
        let Value::Object(id) = list else { return Err(Fault::NotAList) };
        if items.is_empty() {
            return Ok(());
        }
        if items.contains(&list) {
            return Err(Fault::Changed);
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
            let closed = self.close(item)?;
            let list = &mut self.open_lists[slot as usize];
            match (closed, item) {
                (Some(Object::Frame(frame)), _) => list.frames.push(frame),
                (Some(Object::Event(row)), _) => list.push_event(row),
                (Some(object), Value::Object(id)) => {
                    list.is_wanted |=
                        !matches!(object, Object::Nothing | Object::Record(_) | Object::Pool(_));
                    list.items.push(id);
                }
                _ => {
                    if let Some(number) = number(item) {
                        list.push_number(number);
                    }
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
        for pair in pairs.chunks_exact(2) {
            if pair[1] == dict {
                return Err(Fault::Changed);
            }
            self.close(pair[1])?;
            self.open_dicts[slot as usize].insert(pair[0], pair[1]);
        }
        Ok(())
    }

    #[inline]
    fn settle(&mut self, value: Value) -> Result<(), Fault> {
        match self.get(value) {
            Some(Object::OpenDict(_)) => self.close(value).map(drop),
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
    if slots.len() >= MOST_LISTS {
        return Err(Fault::TooMany { what: "unfinished containers", limit: MOST_LISTS as u64 });
    }
    slots.push(T::default());
    Ok(slots.len() as u32 - 1)
}

/// The position of what is pushed next; objects are counted in 32 bits.
fn position<T>(table: &[T], what: &'static str) -> Result<u32, Fault> {
    u32::try_from(table.len()).map_err(|_| Fault::TooMany { what, limit: u64::from(u32::MAX) })
}

impl SnapshotHeap {
    #[inline]
    fn object(&mut self, object: Object) -> Result<Value, Fault> {
        let id = position(&self.objects, "containers")?;
        self.objects.push(object);
        Ok(Value::Object(ObjectId(id)))
    }

    /// What became of a container.
    #[inline]
    pub(super) fn get(&self, value: Value) -> Option<Object> {
        match value {
            Value::Object(id) => self.objects.get(id.0 as usize).copied(),
            _ => None,
        }
    }

    /// Marks a container as used up, so that a second reference to it finds nothing.
    pub(super) fn take(&mut self, value: Value) -> Option<Object> {
        match value {
            Value::Object(id) => {
                self.objects.get_mut(id.0 as usize).map(|object| std::mem::replace(object, Object::Nothing))
            }
            _ => None,
        }
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

    /// Closes a container that is placed in another; gives what it is now.
    #[inline]
    pub(super) fn close(&mut self, value: Value) -> Result<Option<Object>, Fault> {
        let Value::Object(id) = value else { return Ok(None) };
        let closed = match self.objects[id.0 as usize] {
            Object::OpenDict(slot) => self.close_dict(slot)?,
            Object::OpenList(slot) => self.close_list(slot)?,
            Object::NewList => Object::Empty,
            Object::NewDict => Object::Nothing,
            closed => return Ok(Some(closed)),
        };
        self.objects[id.0 as usize] = closed;
        Ok(Some(closed))
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
                let index = position(&self.blocks, "blocks")?;
                self.blocks.push(record::block(record, |value| self.stack_of(value)));
                Object::Block(index)
            }
            Kind::Segment => {
                let index = position(&self.segments, "segments")?;
                self.segments.push(record::segment(record, |value| self.stack_of(value)));
                Object::Segment(index)
            }
            Kind::Annotation => match record::stage(record) {
                Some(stage) => {
                    let index = position(&self.annotations, "annotations")?;
                    let name = self.name(record.get(Word::Name));
                    let device = record::device(record).map(DeviceIndex);
                    let time_us = record.number(Word::TimeUs).unwrap_or(0);
                    self.annotations.push(LooseAnnotation { name, stage, device, time_us });
                    Object::Annotation(index)
                }
                None => Object::Nothing,
            },
            Kind::Tenant => {
                let index = position(&self.tenants, "earlier tenants of blocks")?;
                let requested = record.number(Word::RealSize).unwrap_or(0);
                let stack = record.get(Word::Frames).map_or(StackId::NONE, |value| self.stack_of(value));
                self.tenants.push(Tenant { requested, stack });
                Object::Tenant(index)
            }
            Kind::Plain if self.records.len() >= MOST_PLAIN_CONTAINERS => Object::Nothing,
            Kind::Plain | Kind::Settings | Kind::Snapshot => {
                if self.records.len() >= MOST_RECORDS {
                    return Err(Fault::TooMany { what: "snapshots in one", limit: MOST_RECORDS as u64 });
                }
                self.records.push(record.clone());
                Object::Record(self.records.len() as u32 - 1)
            }
        })
    }

    fn event(&mut self, record: &Record) -> Result<Object, Fault> {
        let Ok(row) = u32::try_from(self.events.len()) else {
            return Err(Fault::TooMany { what: "events", limit: u64::from(u32::MAX) });
        };
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
        if self.events.streams().len() > MOST_STREAMS {
            return Err(Fault::TooMany { what: "streams", limit: MOST_STREAMS as u64 });
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
            Object::EventList(position(&self.event_lists, "lists of events")? - 1)
        } else if list.is_wanted {
            if self.lists.len() >= MOST_LISTS {
                return Err(Fault::TooMany { what: "lists", limit: MOST_LISTS as u64 });
            }
            self.keep_list(&list)
        } else if !list.frames.is_empty() {
            Object::Stack(self.stacks.stack(&list.frames))
        } else if let [first, second] = list.numbers[..] {
            let next = position(&self.pools, "pools")?;
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
