//! Parts of a snapshot that newer recorders add: texts that the program attached to its memory, pinned host memory, and
//! parts that are not known yet, which are named in a note.

use makeroom_core::{Action, DeviceTrace, FastMap, SortCompact as _};

use super::assemble::Once;
use super::heap::SnapshotHeap;
use super::object::Object;
use super::record::Record;
use super::words::Word;
use crate::pickle::Heap;

impl SnapshotHeap {
    /// Labels the allocation of each block that the program attached a text to.
    pub(super) fn apply_block_labels(&mut self) {
        let mut labels = std::mem::take(&mut self.block_labels).into_iter().peekable();
        let mut allocated: FastMap<u64, usize> = FastMap::default();
        for row in 0..=self.events.len() {
            while let Some(label) = labels.next_if(|label| label.row <= row) {
                if let Some(&allocation) = allocated.get(&label.address) {
                    self.events.set_label(allocation, label.label);
                }
            }
            if labels.peek().is_none() {
                return;
            }
            if let Some(event) = self.events.get(row).filter(|event| event.action == Action::Alloc) {
                allocated.insert(event.address.0, row);
            }
        }
    }

    /// Pinned host memory.
    pub(super) fn host(&mut self, record: &Record) -> Option<DeviceTrace> {
        let mut host = DeviceTrace::default();
        for item in record.get(Word::HostSegments).map(|list| self.items(list)).unwrap_or_default() {
            let Some(index) = self.take(item, Object::segment) else { continue };
            let Some(loose) = self.segments.get(index as usize).cloned() else { continue };
            let segment = self.segment(loose);
            host.segments.push(segment);
        }
        host.segments.sort_compact_by_key(|segment| segment.address);
        // One list, or one per device. A file may list a row more than once.
        let mut once = Once::new(if record.get(Word::HostTraces).is_some() { self.events.len() } else { 0 });
        let list = record.get(Word::HostTraces);
        let lists = list.into_iter().chain(list.map(|list| self.items(list)).unwrap_or_default());
        for list in lists {
            let Some(index) = self.take(list, Object::event_list) else { continue };
            let runs = std::mem::take(&mut self.event_lists[index as usize]);
            for row in runs.iter().flat_map(|run| run.start as usize..run.end as usize) {
                if once.is_first(row) {
                    host.events.push_from(&self.events, row);
                }
            }
        }
        (!host.segments.is_empty() || !host.events.is_empty()).then_some(host)
    }

    /// Parts of a snapshot that a newer recorder wrote.
    pub(super) fn note_unknown_parts(&self, record: &Record, notes: &mut Vec<String>) {
        let names = record.foreign_keys.iter().map(|&key| self.text_of(key));
        let names: Vec<String> = names
            .map(|name| format!("`{}`", name.chars().take(40).collect::<String>().escape_debug()))
            .collect();
        if !names.is_empty() {
            notes
                .push(format!("parts of the snapshot that this version does not read: {}", names.join(", ")));
        }
        if self.odd_labels > 0 {
            notes.push(format!("labels of events that are not text, skipped: {}", self.odd_labels));
        }
    }
}
