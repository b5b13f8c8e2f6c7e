//! Every allocation of a recording with its birth and its end, and who is live at any moment.
//!
//! Allocations are numbered: first those that are older than the recording, by address, then the others in the order
//! of their birth. An allocation is live at position `p` (after `p` events) exactly when
//!
//! ```text
//! born < p ≤ died          born: the event that allocated it, older ones are born before everything
//! ```
//!
//! where `died` is the event that completed its free, or that handed its address out again because the free was lost.
//! So the live set of a moment is what a checkpoint lists and has not died, and what was born since: no event is
//! replayed. A checkpoint costs four bytes per live block and comes no more often than once in as many events, so all
//! of them together take at most four bytes per event.

use makeroom_core::{Action, DeviceTrace, FastMap, StackId, Start, StreamId};

/// No event, no allocation.
const NONE: u32 = u32::MAX;
/// Events between two checkpoints, at least.
const CHECKPOINT_EVENTS: usize = 1 << 14;

/// One allocation, put together.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// Its number: first those older than the recording, by address, then in order of allocation.
    pub number: u32,
    /// Where it begins.
    pub address: u64,
    /// What the program asked for.
    pub requested: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Who asked for it.
    pub stack: StackId,
    /// The event that allocated it; `None` when it is older than the recording.
    pub born: Option<usize>,
    /// The event that ended it; `None` when it lives to the end.
    pub died: Option<usize>,
    /// The event that requested its free.
    pub asked: Option<usize>,
    /// Its free was requested before the recording began.
    pub is_pending_early: bool,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Allocations {
    /// How many are older than the recording.
    pub older: usize,
    /// By number, without the older ones: the event that allocated it. Ascends.
    born: Vec<u32>,
    /// By number: the event that requested its free.
    asked: Vec<u32>,
    /// By number: the event that ended it.
    died: Vec<u32>,
    /// By event: the allocation it is about.
    of_event: Vec<u32>,
    /// Events that handed an address out again, and the allocations that ended with that. Ascends.
    replaced: Vec<(u32, u32)>,
    checkpoints: Vec<Checkpoint>,
    /// By stack: all that was ever asked for.
    pub asked_by_stack: Vec<u64>,
    /// The position at which most is live, and how much that is.
    pub peak: (usize, u64),
}

#[derive(Clone, Debug)]
struct Checkpoint {
    position: usize,
    live: Vec<u32>,
}

impl Allocations {
    /// Reads them; `stacks` is how many stacks the trace has.
    pub fn new(device: &DeviceTrace, start: &Start, stacks: usize) -> Self {
        let older = start.blocks.len();
        let mut table = Self {
            older,
            asked: vec![NONE; older],
            died: vec![NONE; older],
            of_event: Vec::with_capacity(device.events.len()),
            asked_by_stack: vec![0; stacks],
            ..Self::default()
        };
        let mut live_at: FastMap<u64, u32> =
            start.blocks.iter().zip(0..).map(|(block, number)| (block.address.0, number)).collect();
        let mut live = start.live().get();
        let mut has_peak = false;
        table.peak = (0, live);
        table.checkpoints.push(Checkpoint { position: 0, live: (0..older as u32).collect() });
        let mut since_checkpoint = 0;
        for (index, event) in device.events.iter().enumerate() {
            since_checkpoint += 1;
            if since_checkpoint > CHECKPOINT_EVENTS.max(live_at.len()) {
                since_checkpoint = 0;
                let mut live: Vec<u32> = live_at.values().copied().collect();
                live.sort_unstable();
                table.checkpoints.push(Checkpoint { position: index, live });
            }
            let address = event.address.0;
            let about = match event.action {
                Action::Alloc => {
                    let number = (older + table.born.len()) as u32;
                    table.born.push(index as u32);
                    table.asked.push(NONE);
                    table.died.push(NONE);
                    if let Some(lost) = live_at.insert(address, number) {
                        live = live.saturating_sub(table.size_of(lost, device, start));
                        table.died[lost as usize] = index as u32;
                        table.replaced.push((index as u32, lost));
                    }
                    live = live.saturating_add(event.size.get());
                    if let Some(asked) = table.asked_by_stack.get_mut(event.stack.index()) {
                        *asked = asked.saturating_add(event.size.get());
                    }
                    if live > table.peak.1 || !has_peak && live >= table.peak.1 {
                        table.peak = (index + 1, live);
                        has_peak = true;
                    }
                    number
                }
                Action::FreeRequested => match live_at.get(&address) {
                    Some(&number) => {
                        table.asked[number as usize] = index as u32;
                        number
                    }
                    None => NONE,
                },
                Action::FreeCompleted => match live_at.remove(&address) {
                    Some(number) => {
                        live = live.saturating_sub(table.size_of(number, device, start));
                        table.died[number as usize] = index as u32;
                        number
                    }
                    None => NONE,
                },
                _ => NONE,
            };
            table.of_event.push(about);
        }
        table
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.died.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.died.len()
    }

    /// What an allocation asked for.
    pub fn size_of(&self, number: u32, device: &DeviceTrace, start: &Start) -> u64 {
        match start.blocks.get(number as usize) {
            Some(older) => older.requested.get(),
            None => device.events.get(self.birth(number)).map_or(0, |event| event.size.get()),
        }
    }

    fn birth(&self, number: u32) -> usize {
        self.born[number as usize - self.older] as usize
    }

    /// Everything about one.
    pub fn get(&self, number: u32, device: &DeviceTrace, start: &Start) -> Option<Allocation> {
        let event_of = |column: &[u32]| column.get(number as usize).filter(|&&event| event != NONE).copied();
        let (died, asked) = (event_of(&self.died), event_of(&self.asked));
        let (died, asked) = (died.map(|event| event as usize), asked.map(|event| event as usize));
        if let Some(older) = start.blocks.get(number as usize) {
            return Some(Allocation {
                number,
                address: older.address.0,
                requested: older.requested.get(),
                stream: older.stream,
                stack: older.stack,
                born: None,
                died,
                asked,
                is_pending_early: older.is_pending,
            });
        }
        let born = *self.born.get(number as usize - self.older)? as usize;
        let event = device.events.get(born)?;
        Some(Allocation {
            number,
            address: event.address.0,
            requested: event.size.get(),
            stream: event.stream,
            stack: event.stack,
            born: Some(born),
            died,
            asked,
            is_pending_early: false,
        })
    }

    /// The allocation that an event makes, frees or asks to free.
    pub fn of_event(&self, event: usize) -> Option<u32> {
        self.of_event.get(event).copied().filter(|&number| number != NONE)
    }

    /// The allocation that an event ended by handing its address out again.
    pub fn replaced_by(&self, event: usize) -> Option<u32> {
        let place = self.replaced.binary_search_by_key(&(event as u32), |&(event, _)| event).ok()?;
        self.replaced.get(place).map(|&(_, lost)| lost)
    }

    /// The numbers of those that are live at a position, ascending.
    pub fn live_at(&self, position: usize) -> Vec<u32> {
        let after = self.checkpoints.partition_point(|checkpoint| checkpoint.position <= position);
        let Some(checkpoint) = after.checked_sub(1).and_then(|index| self.checkpoints.get(index)) else {
            return Vec::new();
        };
        let is_alive = |&number: &u32| self.died[number as usize] as usize >= position;
        let mut live: Vec<u32> = checkpoint.live.iter().copied().filter(is_alive).collect();
        let born_before = |position: usize| self.born.partition_point(|&born| (born as usize) < position);
        let since = born_before(checkpoint.position)..born_before(position);
        live.extend(since.map(|index| (index + self.older) as u32).filter(is_alive));
        live
    }
}

impl Allocation {
    /// Whether its free waits for a stream at a position.
    pub fn is_pending(&self, position: usize) -> bool {
        self.is_pending_early || self.asked.is_some_and(|asked| asked < position)
    }
}
