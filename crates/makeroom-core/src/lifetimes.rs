//! The lifetime of each allocation, for tables and timelines, including those from before the recording.
//!
//! An address that is allocated again without a free ends the previous block, as everywhere in makeroom: its free was
//! lost with older events.

use crate::{Action, Address, Bytes, DeviceTrace, FastMap, StackId, Start, StreamId};

/// One allocation of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Its address.
    pub address: Address,
    /// Requested size.
    pub size: Bytes,
    /// Its stream.
    pub stream: StreamId,
    /// The call stack of the allocation.
    pub stack: StackId,
    /// Index of the event that allocated it; `None` if it is older than the recording.
    pub born: Option<usize>,
    /// Index of the event that completed its free; `None` if it outlives the recording.
    pub freed: Option<usize>,
}

/// All allocations of a device: first those older than the recording, then in order of allocation.
pub fn lifetimes(device: &DeviceTrace) -> Vec<Lifetime> {
    let mut rows: Vec<Lifetime> = Start::new(device)
        .blocks
        .iter()
        .map(|block| Lifetime {
            address: block.address,
            size: block.requested,
            stream: block.stream,
            stack: block.stack,
            born: None,
            freed: None,
        })
        .collect();
    let mut live: FastMap<u64, usize> = rows.iter().map(|row| row.address.0).zip(0..).collect();
    for (index, event) in device.events.iter().enumerate() {
        match event.action {
            Action::Alloc => {
                let lost = live.insert(event.address.0, rows.len());
                if let Some(row) = lost.and_then(|row| rows.get_mut(row)) {
                    row.freed = Some(index);
                }
                rows.push(Lifetime {
                    address: event.address,
                    size: event.size,
                    stream: event.stream,
                    stack: event.stack,
                    born: Some(index),
                    freed: None,
                });
            }
            Action::FreeCompleted => {
                if let Some(row) = live.remove(&event.address.0).and_then(|row| rows.get_mut(row)) {
                    row.freed = Some(index);
                }
            }
            _ => {}
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    fn device(events: &[(Action, u64, u64)]) -> DeviceTrace {
        let mut device = DeviceTrace::default();
        for &(action, address, size) in events {
            device.events.push(Event {
                action,
                address: Address(address),
                size: Bytes::new(size),
                stream: StreamId(0),
                time_us: 0,
                stack: StackId::NONE,
            });
        }
        device
    }

    #[test]
    fn allocations_have_their_beginning_and_their_end() {
        let rows = lifetimes(&device(&[
            (Action::FreeCompleted, 7, 1),
            (Action::Alloc, 512, 10),
            (Action::Alloc, 1024, 20),
            (Action::FreeRequested, 512, 10),
            (Action::FreeCompleted, 512, 10),
            (Action::Alloc, 512, 30),
            (Action::Alloc, 512, 40),
        ]));
        let told: Vec<_> = rows.iter().map(|row| (row.size.get(), row.born, row.freed)).collect();
        assert_eq!(
            told,
            [
                (1, None, Some(0)),
                (10, Some(1), Some(4)),
                (20, Some(2), None),
                (30, Some(5), Some(6)),
                (40, Some(6), None)
            ]
        );
    }
}
