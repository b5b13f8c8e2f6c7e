//! Every allocation of a device with its lifetime, in the order of `makeroom_core::lifetimes`: first those older than
//! the recording, by address, then in order of allocation.

use makeroom_core::{Action, AddressTable, Bytes, DeviceTrace, FastMap, PoolId, StackId, Start, StreamId};

use crate::{Kind, Phase, Rule};

/// No event.
const NONE: u32 = u32::MAX;

/// One allocation.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// Its address.
    pub address: u64,
    /// Requested size.
    pub size: Bytes,
    /// Its stream.
    pub stream: StreamId,
    /// The call stack of the allocation.
    pub stack: StackId,
    /// What it is used for.
    pub kind: Kind,
    /// The rule that determined its kind.
    pub rule: Rule,
    /// What the program was doing when it allocated this; `None` if the recording does not show it.
    pub phase: Option<Phase>,
    /// The call stack of the free.
    pub(crate) free_stack: StackId,
    born: u32,
    released: u32,
    freed: u32,
}

impl Allocation {
    /// Index of the event that allocated it; `None` if it is older than the recording.
    pub fn born(&self) -> Option<usize> {
        index(self.born)
    }

    /// Index of the event that requested its free.
    pub fn released(&self) -> Option<usize> {
        index(self.released)
    }

    /// Index of the event that completed its free; `None` if it outlives the recording.
    pub fn freed(&self) -> Option<usize> {
        index(self.freed)
    }

    /// Whether it is live after `position` events.
    pub fn is_live_at(&self, position: usize) -> bool {
        self.born().is_none_or(|born| born < position) && self.freed().is_none_or(|freed| freed >= position)
    }

    /// The event that gave it back, or `usize::MAX`.
    pub(crate) fn end(&self) -> usize {
        self.released().or(self.freed()).unwrap_or(usize::MAX)
    }

    /// Whether the program never gave it back.
    pub(crate) fn is_kept(&self) -> bool {
        self.end() == usize::MAX
    }

    /// Sets its kind.
    pub(crate) fn set(&mut self, kind: Kind, rule: Rule) {
        self.kind = kind;
        self.rule = rule;
    }

    /// Whether it has no kind yet.
    pub(crate) fn is_open(&self) -> bool {
        self.rule == Rule::NoRule
    }
}

/// The address of an allocation by its number.
fn address(rows: &[Allocation], number: u32) -> u64 {
    rows.get(number as usize).map_or(0, |row| row.address)
}

fn index(event: u32) -> Option<usize> {
    (event != NONE).then_some(event as usize)
}

/// The allocations of a device, without kinds, and the position and bytes of the peak.
pub(crate) struct Table {
    pub(crate) rows: Vec<Allocation>,
    /// Number of events before the moment at which most is live, and the live bytes then.
    pub(crate) peak: (usize, Bytes),
}

impl Table {
    pub(crate) fn new(device: &DeviceTrace) -> Self {
        let start = Start::new(device);
        let row = |address, size, stream, stack, born| Allocation {
            address,
            size,
            stream,
            stack,
            kind: Kind::Unknown,
            rule: Rule::NoRule,
            phase: None,
            free_stack: StackId::NONE,
            born,
            released: NONE,
            freed: NONE,
        };
        let mut rows: Vec<Allocation> = start
            .blocks
            .iter()
            .map(|block| {
                let mut row = row(block.address.0, block.requested, block.stream, block.stack, NONE);
                // Its free was requested before the recording began: at the first event, as far as anyone knows.
                row.released = if block.is_pending { 0 } else { NONE };
                row
            })
            .collect();
        let mut live_at = AddressTable::default();
        for number in 0..rows.len() as u32 {
            live_at.insert(number, |number| address(&rows, number));
        }
        let mut live = start.live();
        let mut peak = (0, live);
        for (event_index, event) in device.events.iter().enumerate() {
            let at = event_index as u32;
            match event.action {
                Action::Alloc => {
                    let number = rows.len() as u32;
                    rows.push(row(event.address.0, event.size, event.stream, event.stack, at));
                    let lost = live_at.insert(number, |number| address(&rows, number));
                    if let Some(lost) = lost.and_then(|lost| rows.get_mut(lost as usize)) {
                        live = live - lost.size;
                        lost.freed = at;
                    }
                    live += event.size;
                    if live > peak.1 {
                        peak = (event_index + 1, live);
                    }
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    let is_complete = event.action == Action::FreeCompleted;
                    let address_of = |number| address(&rows, number);
                    let number = if is_complete {
                        live_at.remove(event.address.0, address_of)
                    } else {
                        live_at.get(event.address.0, address_of)
                    };
                    let Some(row) = number.and_then(|number| rows.get_mut(number as usize)) else { continue };
                    if row.released == NONE {
                        row.released = at;
                        row.free_stack = event.stack;
                    }
                    if is_complete {
                        row.freed = at;
                        live = live - row.size;
                    }
                }
                _ => {}
            }
        }
        Self { rows, peak }
    }

    /// The private pool of each allocation that is in one.
    ///
    /// Newer recorders write the pool of each event. Others only write that of the segments at the end; an allocation
    /// belongs to such a segment if it was made after the segment.
    pub(crate) fn private_pools(&self, device: &DeviceTrace) -> FastMap<usize, PoolId> {
        let mut segments: Vec<(u64, u64, PoolId)> = device
            .segments
            .iter()
            .filter(|segment| segment.pool != PoolId::DEFAULT)
            .map(|segment| {
                let end = segment.address.0.saturating_add(segment.size.get());
                (segment.address.0, end, segment.pool)
            })
            .collect();
        segments.sort_unstable_by_key(|&(address, _, _)| address);
        let mut since: FastMap<u64, usize> = FastMap::default();
        for (at, event) in device.events.iter().enumerate() {
            if matches!(event.action, Action::SegmentAlloc | Action::SegmentMap) {
                since.insert(event.address.0, at);
            }
        }
        let mut pools = FastMap::default();
        for (number, row) in self.rows.iter().enumerate() {
            let of_event = row.born().and_then(|born| device.events.pool(born));
            let of_segment = || {
                let after = segments.partition_point(|&(address, _, _)| address <= row.address);
                let &(address, end, pool) = segments.get(after.checked_sub(1)?)?;
                let since = since.get(&address).copied().unwrap_or(0);
                (row.address < end && row.born().unwrap_or(0) >= since).then_some(pool)
            };
            if let Some(pool) = of_event.or_else(of_segment).filter(|&pool| pool != PoolId::DEFAULT) {
                pools.insert(number, pool);
            }
        }
        pools
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use makeroom_core::{Address, Event, Segment};

    #[test]
    fn lifetimes_have_a_request_and_a_completion() {
        let mut device = DeviceTrace::default();
        for (action, address, size) in [
            (Action::FreeRequested, 7, 3),
            (Action::FreeCompleted, 7, 3),
            (Action::Alloc, 512, 10),
            (Action::FreeRequested, 512, 10),
            (Action::Alloc, 1024, 20),
            (Action::FreeCompleted, 512, 10),
            (Action::Alloc, 1024, 5),
        ] {
            device.events.push(Event::new(action, address, size));
        }
        let table = Table::new(&device);
        let rows: Vec<_> =
            table.rows.iter().map(|row| (row.size.get(), row.born(), row.released(), row.freed())).collect();
        assert_eq!(
            rows,
            [
                (3, None, Some(0), Some(1)),
                (10, Some(2), Some(3), Some(5)),
                (20, Some(4), None, Some(6)),
                (5, Some(6), None, None)
            ]
        );
        assert_eq!(table.peak, (5, Bytes::new(30)));
        let live: Vec<_> =
            (0..8).map(|at| table.rows.iter().filter(|row| row.is_live_at(at)).count()).collect();
        assert_eq!(live, [1, 1, 0, 1, 1, 2, 1, 1]);
    }

    #[test]
    fn allocations_belong_to_the_private_segment_that_existed_then() {
        let mut device = DeviceTrace::default();
        device.events.push(Event::new(Action::Alloc, 4096, 1));
        device.events.push(Event::new(Action::FreeCompleted, 4096, 1));
        device.events.push(Event::new(Action::SegmentAlloc, 4096, 4096));
        device.events.push(Event::new(Action::Alloc, 4096, 2));
        device.events.push(Event::new(Action::Alloc, 16384, 3));
        let pool = PoolId(3, 0);
        let (address, size) = (Address(4096), Bytes::new(4096));
        device.segments.push(Segment { address, size, pool, ..Segment::default() });
        let pools = Table::new(&device).private_pools(&device);
        assert_eq!(pools.into_iter().collect::<Vec<_>>(), [(1, pool)]);
    }
}
