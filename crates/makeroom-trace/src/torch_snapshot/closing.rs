//! Converts a complete dict or list to the object it represents.

use makeroom_core::{DeviceIndex, Frame, FrameId, NameId, PoolId, StackId};

use super::heap::{SnapshotHeap, handle};
use super::lists::{ClosedList, OpenList};
use super::object::Object;
use super::record::{self, BlockLabel, Kind, LooseAnnotation, Record, Tenant};
use super::words::Word;
use crate::pickle::{Fault, Heap, Limit, Value};

/// Lists that are kept as lists: one per segment, and in old snapshots one per block.
const LISTS: Limit = Limit { what: "lists", count: 1 << 22 };
/// Dicts that are kept as dicts: the snapshot and its settings.
const RECORDS: Limit = Limit { what: "snapshots in one", count: 1 << 20 };
/// Maximum number of dicts and lists of unknown meaning that are kept because the top-level dict may refer to them.
/// Newer recorders may write many, so the rest is dropped without an error.
const MOST_PLAIN_CONTAINERS: usize = 1 << 16;
/// Number of unknown actions that notes list by name.
const MOST_UNKNOWN_ACTIONS: usize = 8;

impl SnapshotHeap {
    pub(super) fn close_dict(&mut self, slot: u32) -> Result<Object, Fault> {
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
            Kind::Frame => Object::Frame(self.frame(record)),
            Kind::Block if !record::is_possible(record, Word::Size) => self.impossible(),
            Kind::Block => {
                let index = handle(self.blocks.len())?;
                self.blocks.push(record::block(record, |value| self.stack_of(value)));
                Object::Block(index)
            }
            Kind::Segment if !record::is_possible(record, Word::TotalSize) => self.impossible(),
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
                let requested = record.number(Word::RealSize).and_then(record::size);
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

    /// A frame. Code that `torch.compile` generated is shown at the line of the model that it was generated from.
    fn frame(&mut self, record: &Record) -> FrameId {
        let mut function = self.name(record.get(Word::Name));
        let mut file = self.name(record.get(Word::Filename));
        let mut line = record.number(Word::Line).and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        let library = self.name(record.get(Word::Library));
        if let Some(Value::Text(text)) = record.get(Word::OriginalTrace) {
            // The names are interned in the table that the text is in.
            let original = record::innermost_line(self.text_of(text))
                .map(|(file, line, function)| (file.to_owned(), line, function.to_owned()));
            if let Some((original_file, original_line, original_function)) = original {
                (file, line) = (self.stacks.name(&original_file), original_line);
                if !original_function.is_empty() {
                    function = self.stacks.name(&original_function);
                }
            }
        }
        self.stacks.frame(Frame { function, file, line, library })
    }

    fn event(&mut self, record: &Record) -> Result<Object, Fault> {
        let row = handle(self.events.len())?;
        let loose = match record::event(record, |value| self.stack_of(value)) {
            Ok(loose) => loose,
            Err(name) => {
                self.other_action(record, name);
                return Ok(Object::Nothing);
            }
        };
        let event = loose.event;
        if record::size(event.size.get()).is_none() {
            return Ok(self.impossible());
        }
        match loose.pool {
            None if self.events.pool(0).is_none() => self.events.push(event),
            pool => {
                let pool = pool.map_or(PoolId::DEFAULT, |pool| self.pool(pool));
                self.events.push_in_pool(event, pool);
            }
        }
        if let Some(label) = loose.label.and_then(|label| self.label(label)) {
            self.events.set_label(row as usize, label);
        }
        if let Some(context) = loose.compile_context.and_then(|context| self.label(context)) {
            self.events.set_compile_context(row as usize, context);
        }
        Ok(Object::Event(row))
    }

    /// A text that describes an event. Values that are not texts are counted.
    fn label(&mut self, value: Value) -> Option<NameId> {
        if !matches!(value, Value::Text(_)) {
            self.odd_labels += 1;
            return None;
        }
        Some(self.name(Some(value)))
    }

    /// An entry that is not an event of the allocator. The program may have attached a text to a block.
    fn other_action(&mut self, record: &Record, name: Value) {
        let is_label = matches!(record::word(name), Some(Word::Annotate | Word::UserDefined));
        let label = record.get(Word::UserMetadata).and_then(record::meant).filter(|_| is_label);
        match label.and_then(|label| self.label(label)) {
            Some(label) => {
                let address = record.number(Word::Addr).unwrap_or(0);
                self.block_labels.push(BlockLabel { row: self.events.len(), address, label });
            }
            None => self.count_unknown_action(name),
        }
    }

    /// Drops an object with an impossible size.
    fn impossible(&mut self) -> Object {
        self.impossible_sizes += 1;
        Object::Nothing
    }

    fn count_unknown_action(&mut self, name: Value) {
        let text = |value| if let Value::Text(text) = value { Some(self.text_of(text)) } else { None };
        let known = self.unknown_actions.iter().position(|&(action, _)| text(action) == text(name));
        match known {
            Some(index) => self.unknown_actions[index].1 += 1,
            None if self.unknown_actions.len() < MOST_UNKNOWN_ACTIONS => self.unknown_actions.push((name, 1)),
            None => self.further_unknown_actions += 1,
        }
    }

    /// The stack that a value represents.
    #[inline]
    fn stack_of(&self, value: Value) -> StackId {
        match self.get(value) {
            Some(Object::Stack(stack)) => stack,
            _ => StackId::NONE,
        }
    }

    /// The pool that a value represents.
    pub(super) fn pool(&self, value: Value) -> PoolId {
        match self.get(value) {
            Some(Object::Pool(index)) => self.pools.get(index as usize).copied().unwrap_or_default(),
            _ => PoolId::DEFAULT,
        }
    }

    pub(super) fn close_list(&mut self, slot: u32) -> Result<Object, Fault> {
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
