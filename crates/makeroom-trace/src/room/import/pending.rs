//! Frees in stream order that were not known to be back.
//!
//! Memory that was given back on a stream is the driver's pool's again when the stream has got there. A recording says
//! so in two ways: by a record, or by handing the memory out anew. What is left waits, or lies in the pool; either way
//! it is no leak, and a request outside of the pools cannot have it before the stream is waited for.

use std::collections::BTreeMap;

use makeroom_core::{AskedMeanwhile, Bytes, DeviceIndex, PendingFrees, StreamFrees};

use super::collect::{Role, Row};
use crate::room::EventKind;

/// The waiting frees of one device.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Size and stream, by address.
    waiting: BTreeMap<u64, (u64, u64)>,
    at_refusal: Option<PendingFrees>,
    asked: Option<AskedMeanwhile>,
}

impl Pending {
    /// Looks at an event before it happens. `size`: of what is at its address.
    pub(super) fn see(&mut self, row: &Row, size: Option<u64>) {
        match (row.role, row.kind) {
            (Role::Give, EventKind::StreamFree) => {
                self.waiting.insert(row.address, (size.unwrap_or(row.size), row.stream));
            }
            (Role::Complete, _) => {
                self.waiting.remove(&row.address);
            }
            (Role::Take, EventKind::TensorAlloc) => {}
            (Role::Take, EventKind::StreamAlloc) => self.hand_out(row.address, row.size),
            (Role::Take, _) => {
                self.ask(row);
                self.hand_out(row.address, row.size);
            }
            _ => {}
        }
    }

    /// A request was refused for good.
    pub(super) fn refused(&mut self) {
        if self.at_refusal.is_none() {
            self.at_refusal = Some(self.now());
        }
    }

    /// What to remember of the device, if there is anything.
    pub(super) fn finish(self, device: DeviceIndex) -> Option<StreamFrees> {
        let at_end = self.now();
        let at_refusal = self.at_refusal.filter(|pending| pending.frees > 0);
        let is_known = at_end.frees > 0 || at_refusal.is_some() || self.asked.is_some();
        is_known.then_some(StreamFrees { device, at_end, at_refusal, asked: self.asked })
    }

    fn ask(&mut self, row: &Row) {
        let is_largest = self.asked.is_none_or(|asked| row.size > asked.size.get());
        if !self.waiting.is_empty() && is_largest {
            let pending = self.now();
            self.asked = Some(AskedMeanwhile { size: Bytes::new(row.size), stack: row.stack, pending });
        }
    }

    /// Memory that is handed out was back.
    fn hand_out(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size.max(1));
        while let Some((&start, &(length, _))) = self.waiting.range(..end).next_back() {
            if start.saturating_add(length.max(1)) <= address {
                return;
            }
            self.waiting.remove(&start);
        }
    }

    fn now(&self) -> PendingFrees {
        let mut streams: Vec<u64> = self.waiting.values().map(|&(_, stream)| stream).collect();
        streams.sort_unstable();
        streams.dedup();
        PendingFrees {
            bytes: self.waiting.values().map(|&(size, _)| Bytes::new(size)).sum(),
            frees: self.waiting.len() as u64,
            streams: streams.len() as u64,
        }
    }
}
