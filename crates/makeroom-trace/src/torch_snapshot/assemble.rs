//! Assembles a trace from the parts of a snapshot, guided by its top-level dict.
//!
//! Each part is used once: a file may refer to one list of events from a thousand places, and the trace must not
//! become a thousand times as large.

use makeroom_core::{
    Address, AllocatorSettings, Annotation, Block, Bytes, DeviceIndex, DeviceTrace, Events, Segment, Trace,
    TraceKind,
};
use makeroom_ordered::OrderedMap;

use super::heap::SnapshotHeap;
use super::lists::Run;
use super::object::Object;
use super::record::{LooseSegment, Record, number, size};
use super::words::Word;
use crate::MOST_DEVICES;
use crate::error::Error;
use crate::pickle::{Heap, Value};

/// The trace of a snapshot, given the top value and the length of the pickle.
pub(super) fn assemble(mut heap: SnapshotHeap, top: Value, offset: u64) -> Result<Trace, Error> {
    if let Value::Object(id) = top {
        heap.close(id).map_err(|_| Error::NotASnapshot { offset, found: "too many objects".to_owned() })?;
    }
    let record = match heap.get(top) {
        Some(Object::Record(index)) => heap.records.get(index as usize).cloned().unwrap_or_default(),
        Some(Object::List(_)) if heap.holds_segments(top) => {
            Record { fields: vec![(Word::Segments, top)], ..Record::default() }
        }
        _ => return Err(Error::NotASnapshot { offset, found: heap.describe(top) }),
    };
    for key in [Word::Segments, Word::DeviceTraces] {
        if record.get(key).is_some_and(|value| !heap.is_list(value)) {
            let found = format!("a dict whose `{}` is not a list", key.text());
            return Err(Error::NotASnapshot { offset, found });
        }
    }
    if record.get(Word::Segments).or(record.get(Word::DeviceTraces)).is_none() {
        return Err(Error::NotASnapshot { offset, found: heap.describe(top) });
    }

    let mut trace = Trace::new(TraceKind::TorchSnapshot);
    let mut devices = OrderedMap::new();
    heap.place_segments(&record, &mut devices, &mut trace.notes);
    heap.place_annotations(&record, &mut trace);
    heap.apply_block_labels();
    heap.note_unknown_actions(&mut trace.notes);
    heap.note_unknown_parts(&record, &mut trace.notes);
    if heap.impossible_sizes > 0 {
        let count = heap.impossible_sizes;
        trace.notes.push(format!("entries with an impossible size, skipped: {count}"));
    }
    trace.settings = heap.settings(&record);
    trace.stacks = std::mem::take(&mut heap.stacks);
    trace.host = heap.host(&record);
    heap.place_events(&record, &mut devices, &mut trace.notes);
    if devices.len() > MOST_DEVICES {
        return Err(Error::TooMany { offset, what: "devices", limit: MOST_DEVICES as u64 });
    }
    trace.devices = devices.into_values().collect();
    Ok(trace)
}

type Devices = OrderedMap<u32, DeviceTrace>;

fn device_at(devices: &mut Devices, index: u32) -> &mut DeviceTrace {
    devices
        .entry(index)
        .or_insert_with(|| DeviceTrace { device: DeviceIndex(index), ..DeviceTrace::default() })
}

impl SnapshotHeap {
    fn is_list(&self, value: Value) -> bool {
        // A list of irrelevant items is not kept.
        matches!(
            self.get(value),
            Some(Object::List(_) | Object::EventList(_) | Object::Empty | Object::Nothing | Object::Stack(_))
        )
    }

    fn holds_segments(&self, list: Value) -> bool {
        self.items(list).iter().any(|&item| matches!(self.get(item), Some(Object::Segment(_))))
    }

    /// The containers in a list.
    pub(super) fn items(&self, list: Value) -> Vec<Value> {
        match self.get(list) {
            Some(Object::List(index)) => {
                let items = self.lists.get(index as usize).map(|list| &*list.items).unwrap_or_default();
                items.iter().map(|&id| Value::Object(id)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The first container in a list.
    fn first_item(&self, list: Value) -> Option<Value> {
        let Some(Object::List(index)) = self.get(list) else { return None };
        self.lists.get(index as usize)?.items.first().map(|&id| Value::Object(id))
    }

    /// The numbers in a list.
    fn numbers(&self, list: Value) -> Vec<u64> {
        match self.get(list) {
            Some(Object::List(index)) => {
                self.lists.get(index as usize).map(|list| list.numbers.to_vec()).unwrap_or_default()
            }
            Some(Object::Pool(_)) => {
                let pool = self.pool(list);
                vec![pool.0, pool.1]
            }
            _ => Vec::new(),
        }
    }

    /// Describes a pickle that is not a snapshot.
    fn describe(&self, top: Value) -> String {
        match top {
            Value::None => "None".to_owned(),
            Value::Bool(_) => "a boolean".to_owned(),
            Value::Int(_) | Value::Float(_) => "a number".to_owned(),
            Value::Text(_) => "a string".to_owned(),
            Value::Opaque => "bytes, a set or a huge number".to_owned(),
            Value::Object(_) => match self.get(top) {
                Some(Object::Record(index)) => self.describe_dict(index),
                Some(Object::Empty) => "an empty list".to_owned(),
                Some(Object::Event(_)) => "one trace entry".to_owned(),
                Some(Object::EventList(_)) => {
                    "a list of trace entries without the snapshot around it".to_owned()
                }
                Some(Object::Segment(_) | Object::Block(_)) => "one segment or block".to_owned(),
                Some(Object::Stack(_)) => "a list of stack frames".to_owned(),
                Some(Object::List(_) | Object::Pool(_)) => "a list of something else".to_owned(),
                _ => "an empty dict or a list of something else".to_owned(),
            },
        }
    }

    fn describe_dict(&self, index: u32) -> String {
        let Some(record) = self.records.get(index as usize) else { return "a dict".to_owned() };
        let known = record.fields.iter().map(|(word, _)| word.text());
        let foreign = record.foreign_keys.iter().map(|&key| self.text_of(key));
        let keys: Vec<_> = known
            .chain(foreign)
            .take(6)
            .map(|key| format!("`{}`", key.chars().take(40).collect::<String>().escape_debug()))
            .collect();
        if keys.is_empty() {
            return "a dict whose keys are not strings".to_owned();
        }
        format!("a dict with the keys {}", keys.join(", "))
    }

    fn place_segments(&mut self, record: &Record, devices: &mut Devices, notes: &mut Vec<String>) {
        let Some(list) = record.get(Word::Segments) else { return };
        let mut passed_over = 0;
        for item in self.items(list) {
            let Some(index) = self.take(item, Object::segment) else {
                passed_over += 1;
                continue;
            };
            let Some(loose) = self.segments.get(index as usize).cloned() else { continue };
            let device = loose.device;
            let segment = self.segment(loose);
            device_at(devices, device).segments.push(segment);
        }
        if passed_over > 0 {
            notes.push(format!("entries of `segments` that are not segments, skipped: {passed_over}"));
        }
    }

    pub(super) fn segment(&mut self, loose: LooseSegment) -> Segment {
        let mut segment = loose.segment;
        segment.pool = loose.pool.map(|pool| self.pool(pool)).unwrap_or_default();
        let blocks = loose.blocks.map(|list| self.items(list)).unwrap_or_default();
        if let Some(list) = loose.blocks {
            self.take(list, Object::list);
        }
        let mut next = segment.address.0;
        for item in blocks {
            let Some(index) = self.take(item, Object::block) else { continue };
            let Some(loose) = self.blocks.get(index as usize).copied() else { continue };
            let mut block = loose.block;
            if !loose.has_address {
                block.address = Address(next);
            }
            next = block.address.0.wrapping_add(block.size.get());
            if let Some(history) = loose.history {
                self.apply_history(&mut block, history);
            }
            segment.blocks.push(block);
        }
        segment
    }

    /// Old snapshots store the requested size and the stack of a block in the newest entry of its history.
    fn apply_history(&self, block: &mut Block, history: Value) {
        let Some(newest) = self.first_item(history) else { return };
        let Some(Object::Tenant(index)) = self.get(newest) else { return };
        let Some(tenant) = self.tenants.get(index as usize) else { return };
        if block.requested.is_none() {
            block.requested = tenant.requested;
        }
        block.stack = tenant.stack;
    }

    fn place_annotations(&mut self, record: &Record, trace: &mut Trace) {
        let Some(list) = record.get(Word::ExternalAnnotations) else { return };
        for item in self.items(list) {
            let Some(index) = self.take(item, Object::annotation) else { continue };
            let Some(&loose) = self.annotations.get(index as usize) else { continue };
            trace.annotations.push(Annotation {
                name: self.stacks.name_text(loose.name).to_owned(),
                stage: loose.stage,
                device: loose.device,
                time_us: loose.time_us,
            });
        }
    }

    fn note_unknown_actions(&self, notes: &mut Vec<String>) {
        for &(name, count) in &self.unknown_actions {
            let name = match name {
                Value::Text(text) => self.text_of(text).chars().take(40).collect(),
                _ => String::from("(not a string)"),
            };
            notes.push(format!("trace entries of the unknown kind `{name}`, skipped: {count}"));
        }
        if self.further_unknown_actions > 0 {
            let count = self.further_unknown_actions;
            notes.push(format!("trace entries of other unknown kinds, skipped: {count}"));
        }
    }

    fn settings(&self, record: &Record) -> AllocatorSettings {
        let Some(Object::Record(index)) =
            record.get(Word::AllocatorSettings).and_then(|value| self.get(value))
        else {
            return AllocatorSettings::default();
        };
        let Some(settings) = self.records.get(index as usize) else { return AllocatorSettings::default() };
        let text = settings.get(Word::CudaAllocConf).or(settings.get(Word::AllocConf));
        AllocatorSettings {
            text: match text {
                Some(Value::Text(text)) => Some(self.text_of(text).to_owned()),
                _ => None,
            },
            // PyTorch writes −1 for "no limit", which is the maximum as an unsigned number.
            max_split_size: settings.number(Word::MaxSplitSize).map(Bytes::new),
            garbage_collection_threshold: match settings.get(Word::CollectionThreshold) {
                Some(Value::Float(threshold)) => Some(threshold),
                Some(Value::Int(threshold)) => Some(threshold as f64),
                _ => None,
            },
            expandable_segments: settings.number(Word::ExpandableSegments).map(|number| number != 0),
            roundup_power2_divisions: settings
                .get(Word::RoundupDivisions)
                .and_then(|table| self.roundup_divisions(table)),
            pool_limits: settings.get(Word::PoolLimits).map(|list| {
                self.numbers(list).into_iter().map(|limit| size(limit).unwrap_or(Bytes::ZERO)).collect()
            }),
        }
    }

    fn roundup_divisions(&self, table: Value) -> Option<[u32; 16]> {
        let Some(Object::Record(index)) = self.get(table) else { return None };
        let mut divisions = [0; 16];
        for &(word, value) in &self.records.get(index as usize)?.fields {
            if let (Some(size), Some(number)) = (word.division(), number(value)) {
                divisions[size] = u32::try_from(number).unwrap_or(0);
            }
        }
        Some(divisions)
    }

    fn place_events(mut self, record: &Record, devices: &mut Devices, notes: &mut Vec<String>) {
        let Some(list) = record.get(Word::DeviceTraces) else { return };
        let mut runs_by_device = Vec::new();
        for (device, item) in self.items(list).into_iter().enumerate() {
            if let Some(index) = self.take(item, Object::event_list) {
                runs_by_device.push((device, std::mem::take(&mut self.event_lists[index as usize])));
            }
        }
        if let Some(index) = self.take(list, Object::event_list) {
            notes.push("`device_traces` is a single list; its entries were assigned to device 0".to_owned());
            runs_by_device.push((0, std::mem::take(&mut self.event_lists[index as usize])));
        }
        let (overflowed, most) = (record.get(Word::TraceOverflowed), record.get(Word::TraceMaxEntries));
        for (device, runs) in &runs_by_device {
            let flag = self.of_device(overflowed, *device).map(|flag| flag != 0);
            // Without a flag, a recorder that had room left has lost nothing.
            let count: u64 = runs.iter().map(|run| run.len()).sum();
            let room = self.of_device(most, *device);
            let had_room = room.is_some_and(|room| count < room);
            device_at(devices, *device as u32).overflowed = flag.or(had_room.then_some(false));
        }
        // Free the pickle's objects before copying events.
        let mut all = std::mem::take(&mut self.events);
        drop(self);
        let named: u64 = runs_by_device.iter().flat_map(|(_, runs)| runs).map(|run| run.len()).sum();
        let mut once = (named > all.len() as u64).then(|| Once::new(all.len()));
        for (device, runs) in runs_by_device {
            device_at(devices, device as u32).events = select(&mut all, &runs, once.as_mut());
        }
        if let Some(once) = once {
            let count = once.repeated;
            notes.push(format!("trace entries listed more than once, counted once: {count}"));
        }
    }

    /// The value for a device, which a recorder writes once, or once per device.
    fn of_device(&self, value: Option<Value>, device: usize) -> Option<u64> {
        number(value?).or_else(|| self.numbers(value?).get(device).copied())
    }
}

/// Which rows were placed already, for files that list a row more often than there are rows.
pub(super) struct Once {
    is_placed: Vec<bool>,
    repeated: u64,
}

impl Once {
    pub(super) fn new(rows: usize) -> Self {
        Self { is_placed: vec![false; rows], repeated: 0 }
    }

    pub(super) fn is_first(&mut self, row: usize) -> bool {
        let is_first =
            self.is_placed.get_mut(row).is_some_and(|is_placed| !std::mem::replace(is_placed, true));
        self.repeated += u64::from(!is_first);
        is_first
    }
}

/// The rows of some runs; all of them without a copy when the runs are all there is.
fn select(all: &mut Events, runs: &[Run], mut once: Option<&mut Once>) -> Events {
    if let [run] = runs
        && run.start == 0
        && run.end as usize == all.len()
        && once.is_none()
    {
        return std::mem::take(all);
    }
    let mut selected = Events::default();
    for row in runs.iter().flat_map(|run| run.start as usize..run.end as usize) {
        if once.as_mut().is_some_and(|once| !once.is_first(row)) {
            continue;
        }
        selected.push_from(all, row);
    }
    selected
}
