//! The heap that the pickle machine fills for a snapshot, instead of Python objects.
//!
//! An object is one 8-byte entry: its kind, and an index. It is open while keys or items may be added, and closed
//! once it is placed in another container. A closed object is a row, a handle or an index, and cannot change.
//! Everything that is kept costs a small multiple of its bytes in the file, because shared objects are referenced,
//! never copied, however deep a file nests them.

use makeroom_core::{Events, FastMap, NameId, PoolId, Stacks};

use super::lists::{ClosedList, OpenList, Run};
use super::object::Object;
use super::record::{BlockLabel, LooseAnnotation, LooseBlock, LooseSegment, Record, Tenant, number};
use super::words::Word;
use crate::pickle::{Fault, Heap, Limit, ObjectId, TextId, Value};

const UNFINISHED: Limit = Limit { what: "unfinished containers", count: 1 << 20 };
/// Handles are 32 bits wide.
const OBJECTS: Limit = Limit { what: "containers", count: u32::MAX as usize };

/// The content of a snapshot so far.
#[derive(Default)]
pub(super) struct SnapshotHeap {
    pub(super) stacks: Stacks,
    /// Events of all devices, in file order.
    pub(super) events: Events,
    pub(super) event_lists: Vec<Box<[Run]>>,
    pub(super) pools: Vec<PoolId>,
    pub(super) pool_positions: FastMap<(u64, u64), u32>,
    pub(super) blocks: Vec<LooseBlock>,
    pub(super) segments: Vec<LooseSegment>,
    pub(super) annotations: Vec<LooseAnnotation>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) lists: Vec<ClosedList>,
    pub(super) records: Vec<Record>,
    /// Texts that the program attached to blocks, in file order.
    pub(super) block_labels: Vec<BlockLabel>,
    /// Number of labels that are not texts.
    pub(super) odd_labels: u64,
    /// Number of entries by unknown action.
    pub(super) unknown_actions: Vec<(Value, u64)>,
    /// Entries of further unknown actions.
    pub(super) further_unknown_actions: u64,
    /// Number of dropped events, blocks and segments with impossible sizes.
    pub(super) impossible_sizes: u64,
    objects: Vec<Object>,
    /// Names that are not a [`Word`]; their [`TextId`]s follow those of the words.
    names: Vec<NameId>,
    pub(super) open_dicts: Vec<Record>,
    pub(super) vacant_dicts: Vec<u32>,
    pub(super) open_lists: Vec<OpenList>,
    pub(super) vacant_lists: Vec<u32>,
}

impl Heap for SnapshotHeap {
    fn text(&mut self, bytes: &[u8]) -> Value {
        if let Some(word) = Word::from_text(bytes) {
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
            let object = self.placed(item, id)?;
            let list = &mut self.open_lists[slot as usize];
            match object {
                Some((_, Object::Frame(frame))) => list.frames.push(frame),
                Some((_, Object::Event(row))) => list.push_event(row),
                Some((item, object)) => {
                    list.is_wanted |=
                        !matches!(object, Object::Nothing | Object::Record(_) | Object::Pool(_));
                    list.items.push(item);
                }
                None => {
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
        let (pairs, _) = pairs.as_chunks();
        for [_, value] in pairs {
            self.placed(*value, id)?;
        }
        self.open_dicts[slot as usize].extend(pairs);
        Ok(())
    }

    #[inline]
    fn settle(&mut self, value: Value) -> Result<(), Fault> {
        match value {
            Value::Object(id) if matches!(self.objects[id.0 as usize], Object::OpenDict(_)) => {
                self.close(id).map(drop)
            }
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

/// A free slot in a table of open containers.
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

/// An index in a table as a handle.
#[inline]
pub(super) fn handle(position: usize) -> Result<u32, Fault> {
    u32::try_from(position).map_err(|_| Fault::TooMany(&OBJECTS))
}

impl SnapshotHeap {
    #[inline]
    fn object(&mut self, object: Object) -> Result<ObjectId, Fault> {
        let id = handle(self.objects.len())?;
        self.objects.push(object);
        Ok(ObjectId(id))
    }

    /// The object of a container.
    #[inline]
    pub(super) fn get(&self, value: Value) -> Option<Object> {
        match value {
            Value::Object(id) => self.objects.get(id.0 as usize).copied(),
            _ => None,
        }
    }

    /// Takes the index of a container of a kind. A second reference to it finds nothing.
    pub(super) fn take(&mut self, value: Value, wanted: impl Fn(Object) -> Option<u32>) -> Option<u32> {
        let Value::Object(id) = value else { return None };
        let object = self.objects.get_mut(id.0 as usize)?;
        let position = wanted(*object)?;
        *object = Object::Nothing;
        Some(position)
    }

    /// The name of a text.
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

    /// The object of a value that is placed in a container; `None` if it is not a container. Placing a container in
    /// itself is an error.
    #[inline]
    fn placed(&mut self, value: Value, container: ObjectId) -> Result<Option<(ObjectId, Object)>, Fault> {
        let Value::Object(id) = value else { return Ok(None) };
        let object = self.objects[id.0 as usize];
        if !object.is_open() {
            return Ok(Some((id, object)));
        }
        if id == container {
            return Err(Fault::Changed);
        }
        self.close(id).map(|object| Some((id, object)))
    }

    /// Converts an open container to the object it represents.
    pub(super) fn close(&mut self, id: ObjectId) -> Result<Object, Fault> {
        let closed = match self.objects[id.0 as usize] {
            Object::OpenDict(slot) => self.close_dict(slot)?,
            Object::OpenList(slot) => self.close_list(slot)?,
            Object::NewList => Object::Empty,
            Object::NewDict => Object::Nothing,
            closed => closed,
        };
        self.objects[id.0 as usize] = closed;
        Ok(closed)
    }
}
