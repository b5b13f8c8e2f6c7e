//! Segments over time: which segment contained an address at an event, and which memory pool it belonged to.
//!
//! Addresses are reused, so a location is identified by address and time. Recorders name the pool only for segments
//! that exist at the end. A segment that was freed earlier is assumed to belong to the default pool, unless `check`
//! finds that the recording makes no sense that way and assumes another pool.
//!
//! An expandable segment is a reserved range. Its pages are mapped from the front, so all pages that were ever mapped
//! are contiguous, and two such runs of pages are two ranges. A segment exists as long as any of its pages does.

use std::collections::{BTreeMap, HashMap};

use makeroom_core::{Action, DeviceTrace, Event, FastMap, PoolId, Ranges};

/// A segment, from its allocation to its free.
#[derive(Clone, Debug)]
pub(crate) struct SegmentLifetime {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) pool: PoolId,
    /// The event that allocated it; `None` if it is older than the recording.
    pub(crate) first: Option<usize>,
    /// The event that freed it; `None` if it outlived the recording.
    pub(crate) last: Option<usize>,
    /// The stream and the run of releases that freed it.
    ended_with: Option<(u64, usize)>,
}

impl SegmentLifetime {
    fn was_there(&self, address: u64, event: usize) -> bool {
        (self.start..self.end).contains(&address)
            && self.first.is_none_or(|first| first <= event)
            && self.last.is_none_or(|last| event <= last)
    }
}

/// All segments of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentLifetimes {
    all: Vec<SegmentLifetime>,
    /// The segment that an event allocated or freed.
    turns: FastMap<usize, u32>,
    /// The segment that a release affected.
    releases: FastMap<usize, u32>,
    assumed: usize,
}

impl SegmentLifetimes {
    pub(crate) fn new(device: &DeviceTrace) -> Self {
        Builder::new(device).build(device)
    }

    /// The segment that a release affected.
    pub(crate) fn of_release(&self, event: usize) -> Option<&SegmentLifetime> {
        self.releases.get(&event).map(|&index| &self.all[index as usize])
    }

    /// The segment that an event allocated or freed.
    pub(crate) fn turn(&self, event: usize) -> Option<&SegmentLifetime> {
        self.turns.get(&event).map(|&index| &self.all[index as usize])
    }

    /// The segments that are older than the recording.
    pub(crate) fn older(&self) -> impl Iterator<Item = &SegmentLifetime> {
        self.all.iter().filter(|lifetime| lifetime.first.is_none())
    }

    /// The number of segments with an assumed pool.
    pub(crate) fn assumed(&self) -> usize {
        self.assumed
    }

    /// A segment that may have belonged to a destroyed pool: the recording does not name its pool.
    pub(crate) fn suspect(&self, address: u64, event: usize) -> Option<usize> {
        self.all.iter().position(|lifetime| {
            lifetime.was_there(address, event)
                && lifetime.ended_with.is_some()
                && lifetime.pool == PoolId::DEFAULT
        })
    }

    /// The same with one more segment in a destroyed pool. Segments released together on one stream were in one pool.
    pub(crate) fn with_assumed_pool(&self, index: usize) -> Self {
        let mut lifetimes = self.clone();
        if let Some(lifetime) = lifetimes.all.get_mut(index)
            && let Some((stream, run)) = lifetime.ended_with
        {
            lifetime.pool = assumed_pool(stream, run);
            lifetimes.assumed += 1;
        }
        lifetimes
    }

    /// The assumed pools, each with the first release of its memory.
    pub(crate) fn assumed_pools(&self) -> Vec<(usize, PoolId)> {
        let mut first: HashMap<PoolId, usize> = HashMap::new();
        for (&event, &index) in &self.releases {
            let lifetime = &self.all[index as usize];
            if lifetime.is_assumed() {
                first.entry(lifetime.pool).and_modify(|first| *first = event.min(*first)).or_insert(event);
            }
        }
        let mut pools: Vec<(usize, PoolId)> = first.into_iter().map(|(pool, event)| (event, pool)).collect();
        pools.sort_unstable_by_key(|&(event, pool)| (event, pool.0, pool.1));
        pools
    }
}

impl SegmentLifetime {
    /// Whether its pool was assumed.
    pub(crate) fn is_assumed(&self) -> bool {
        self.ended_with.is_some_and(|(stream, run)| self.pool == assumed_pool(stream, run))
    }
}

/// PyTorch counts its pools up from zero; these count down from the maximum.
fn assumed_pool(stream: u64, run: usize) -> PoolId {
    PoolId(!stream, run as u64)
}

/// Which memory pool an address belongs to at the current event.
pub(crate) struct PoolFinder<'lifetimes> {
    lifetimes: &'lifetimes SegmentLifetimes,
    /// The current private segments, by start address.
    now: BTreeMap<u64, u32>,
}

impl<'lifetimes> PoolFinder<'lifetimes> {
    pub(crate) fn new(lifetimes: &'lifetimes SegmentLifetimes) -> Self {
        let older = lifetimes.all.iter().zip(0..).filter(|(lifetime, _)| lifetime.first.is_none());
        let private = older.filter(|(lifetime, _)| lifetime.pool != PoolId::DEFAULT);
        Self { lifetimes, now: private.map(|(lifetime, index)| (lifetime.start, index)).collect() }
    }

    /// Processes an event that allocates or frees driver memory.
    pub(crate) fn see(&mut self, event: usize) {
        let Some(&index) = self.lifetimes.turns.get(&event) else { return };
        let lifetime = &self.lifetimes.all[index as usize];
        if lifetime.pool == PoolId::DEFAULT {
            return;
        }
        if lifetime.first == Some(event) {
            self.now.insert(lifetime.start, index);
        } else if lifetime.last == Some(event) && self.now.get(&lifetime.start) == Some(&index) {
            self.now.remove(&lifetime.start);
        }
    }

    pub(crate) fn pool_of(&self, address: u64) -> PoolId {
        let below = self.now.range(..=address).next_back();
        below
            .map(|(_, &index)| &self.lifetimes.all[index as usize])
            .filter(|lifetime| address < lifetime.end)
            .map_or(PoolId::DEFAULT, |lifetime| lifetime.pool)
    }
}

/// Tracks the segments through a recording.
struct Builder {
    lifetimes: SegmentLifetimes,
    /// The current fixed segments, by address.
    fixed: FastMap<u64, u32>,
    /// The reserved ranges, by address.
    ranges: Vec<ReservedRange>,
    /// The start of the current run of releases.
    run: Option<usize>,
}

struct ReservedRange {
    start: u64,
    end: u64,
    mapped: i128,
    lifetime: Option<u32>,
}

impl Builder {
    fn new(device: &DeviceTrace) -> Self {
        let mut ever = Ranges::default();
        let expandable = || device.segments.iter().filter(|segment| segment.is_expandable);
        for segment in expandable() {
            ever.insert(segment.address.0, segment.size.get());
        }
        for event in device.events.iter() {
            if matches!(event.action, Action::SegmentMap | Action::SegmentUnmap) {
                ever.insert(event.address.0, event.size.get());
            }
        }
        let ranges = ever.iter().map(|(start, size)| ReservedRange {
            start,
            end: start.saturating_add(size),
            mapped: 0,
            lifetime: None,
        });
        let mut builder = Self {
            lifetimes: SegmentLifetimes::default(),
            fixed: FastMap::default(),
            ranges: ranges.collect(),
            run: None,
        };
        // Memory mapped at the end, minus memory mapped during the recording, existed at the start.
        for segment in expandable() {
            builder.add_mapped(segment.address.0, i128::from(segment.size.get()));
        }
        for event in device.events.iter() {
            let size = i128::from(event.size.get());
            match event.action {
                Action::SegmentMap => builder.add_mapped(event.address.0, -size),
                Action::SegmentUnmap => builder.add_mapped(event.address.0, size),
                _ => {}
            }
        }
        builder
    }

    fn add_mapped(&mut self, address: u64, size: i128) {
        if let Some(range) = self.range_of(address) {
            self.ranges[range].mapped += size;
        }
    }

    fn range_of(&self, address: u64) -> Option<usize> {
        let range = self.ranges.partition_point(|range| range.start <= address).checked_sub(1)?;
        (address < self.ranges[range].end).then_some(range)
    }

    fn build(mut self, device: &DeviceTrace) -> SegmentLifetimes {
        for range in 0..self.ranges.len() {
            if self.ranges[range].mapped > 0 {
                self.open_range(range, None);
            }
        }
        for (index, event) in device.events.iter().enumerate() {
            match event.action {
                Action::SegmentFree | Action::SegmentUnmap => {
                    self.run.get_or_insert(index);
                }
                // The allocator synchronizes the device in the middle of a release.
                Action::FreeCompleted => {}
                _ => self.run = None,
            }
            match event.action {
                Action::SegmentAlloc => {
                    let lifetime = self.add(event.address.0, event.size.get(), Some(index));
                    self.fixed.insert(event.address.0, lifetime);
                }
                Action::SegmentFree => {
                    let known = self.fixed.remove(&event.address.0);
                    let lifetime = known.unwrap_or_else(|| self.add(event.address.0, event.size.get(), None));
                    self.lifetimes.releases.insert(index, lifetime);
                    self.end(lifetime, index, &event);
                }
                Action::SegmentMap | Action::SegmentUnmap => self.follow_range(index, &event),
                _ => {}
            }
        }
        self.name_pools(device);
        self.lifetimes
    }

    fn follow_range(&mut self, index: usize, event: &Event) {
        let Some(range) = self.range_of(event.address.0) else { return };
        let size = i128::from(event.size.get());
        if event.action == Action::SegmentMap {
            self.ranges[range].mapped += size;
            if self.ranges[range].lifetime.is_none() {
                self.open_range(range, Some(index));
            }
            return;
        }
        self.ranges[range].mapped -= size;
        let Some(lifetime) = self.ranges[range].lifetime else { return };
        self.lifetimes.releases.insert(index, lifetime);
        if self.ranges[range].mapped <= 0 {
            self.ranges[range].lifetime = None;
            self.end(lifetime, index, event);
        }
    }

    fn open_range(&mut self, range: usize, first: Option<usize>) {
        let ReservedRange { start, end, .. } = self.ranges[range];
        let lifetime = self.add(start, end - start, first);
        self.ranges[range].lifetime = Some(lifetime);
    }

    fn add(&mut self, start: u64, size: u64, first: Option<usize>) -> u32 {
        let end = start.saturating_add(size);
        let index = self.lifetimes.all.len() as u32;
        self.lifetimes.all.push(SegmentLifetime {
            start,
            end,
            pool: PoolId::DEFAULT,
            first,
            last: None,
            ended_with: None,
        });
        self.lifetimes.turns.extend(first.map(|event| (event, index)));
        index
    }

    fn end(&mut self, lifetime: u32, index: usize, event: &Event) {
        self.lifetimes.turns.insert(index, lifetime);
        let lifetime = &mut self.lifetimes.all[lifetime as usize];
        lifetime.last = Some(index);
        lifetime.ended_with = self.run.map(|run| (event.stream.0, run));
    }

    /// Assigns the recorded pools to the segments that exist at the end.
    fn name_pools(&mut self, device: &DeviceTrace) {
        for segment in &device.segments {
            let address = segment.address.0;
            let known = if segment.is_expandable {
                self.range_of(address).and_then(|range| self.ranges[range].lifetime)
            } else {
                self.fixed.get(&address).copied()
            };
            let lifetime = known.unwrap_or_else(|| self.add(address, segment.size.get(), None));
            self.lifetimes.all[lifetime as usize].pool = segment.pool;
        }
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Address, Bytes, Segment};

    use super::*;

    #[test]
    fn an_address_belongs_to_a_pool_only_while_its_segment_is_there() {
        let mut device = DeviceTrace::default();
        for (action, address) in [
            (Action::SegmentAlloc, 100),
            (Action::SegmentFree, 100),
            (Action::SegmentAlloc, 100),
            (Action::SegmentMap, 1000),
            (Action::SegmentMap, 1010),
            (Action::SegmentUnmap, 1000),
            (Action::SegmentUnmap, 1010),
        ] {
            device.events.push(Event::new(action, address, 10));
        }
        device.segments.push(Segment {
            address: Address(100),
            size: Bytes::new(10),
            pool: PoolId(0, 7),
            ..Segment::default()
        });
        let lifetimes = SegmentLifetimes::new(&device);
        assert_eq!(lifetimes.suspect(105, 1), Some(0));
        assert_eq!(lifetimes.suspect(105, 2), None);
        let range = lifetimes.suspect(1015, 4).unwrap();
        let lifetimes = lifetimes.with_assumed_pool(range);
        let assumed = lifetimes.of_release(6).unwrap().pool;
        assert_eq!(lifetimes.assumed_pools(), [(5, assumed)]);

        let mut finder = PoolFinder::new(&lifetimes);
        let pools: Vec<[PoolId; 2]> = (0..7)
            .map(|index| {
                finder.see(index);
                [finder.pool_of(109), finder.pool_of(1015)]
            })
            .collect();
        let (default, named) = (PoolId::DEFAULT, PoolId(0, 7));
        assert_eq!(pools[..3], [[default, default], [default, default], [named, default]]);
        assert_eq!(pools[3..], [[named, assumed], [named, assumed], [named, assumed], [named, default]]);
    }

    #[test]
    fn as_many_pools_as_segments_take_no_longer_than_one() {
        let mut device = DeviceTrace::default();
        for number in 0..50_000 {
            device.events.push(Event::new(Action::SegmentAlloc, number * 100, 100));
            device.segments.push(Segment {
                address: Address(number * 100),
                size: Bytes::new(100),
                pool: PoolId(1, number),
                ..Segment::default()
            });
        }
        let lifetimes = SegmentLifetimes::new(&device);
        let mut finder = PoolFinder::new(&lifetimes);
        for number in 0..50_000 {
            finder.see(number as usize);
            assert_eq!(finder.pool_of(number * 100 + 99), PoolId(1, number));
        }
    }
}
