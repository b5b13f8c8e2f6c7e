//! A card and a GPU for tests of the pool, slow and obviously correct.
//!
//! The card fails where a driver fails, and panics if the pool does something it must never do: map a handle twice or
//! over another one, unmap memory that a block or the GPU still uses, or release a mapped handle. The GPU lags behind
//! by as much as a test allows; freed memory stays in use until the GPU has reached the free on its stream.

use std::collections::{BTreeMap, BTreeSet};

use makeroom_core::{Address, StreamId};
use makeroom_place::pool::{Backing, Fence, Handle, PAGE, Piece, Refused, Timeout};

/// Memory that the GPU may still use: freed on a stream after this much work had been submitted to it.
#[derive(Clone, Copy, Debug)]
struct Ghost {
    start: u64,
    end: u64,
    stream: StreamId,
    position: u64,
}

#[derive(Clone, Debug, Default)]
struct Timeline {
    submitted: u64,
    reached: u64,
    /// The position of each fence.
    fences: Vec<(Fence, u64)>,
}

/// The card.
#[derive(Clone, Debug, Default)]
pub(crate) struct Card {
    capacity: Option<u64>,
    next_address: u64,
    next_handle: u64,
    next_mark: u64,
    handles: BTreeMap<u64, u64>,
    /// The piece mapped at each address.
    pub(crate) mapped: BTreeMap<u64, Piece>,
    ranges: Vec<(u64, u64)>,
    streams: BTreeMap<StreamId, Timeline>,
    ghosts: Vec<Ghost>,
    /// Live blocks, to check that none of them loses its memory.
    pub(crate) live: BTreeMap<u64, u64>,
    /// The number of calls that could have failed.
    pub(crate) calls: u64,
    /// The index of the call that fails, from 0.
    pub(crate) refused_call: Option<u64>,
    /// Every call whose index is a multiple of this fails.
    pub(crate) refused_multiple: Option<u64>,
    /// Streams that wait for the calling thread: waiting for them always times out.
    pub(crate) stuck: BTreeSet<StreamId>,
    /// The streams that the pool waited for.
    pub(crate) waited: Vec<(StreamId, Timeout)>,
}

impl Card {
    pub(crate) fn new(capacity: Option<u64>) -> Self {
        Self { capacity, next_address: 0x7000_0000_0000, ..Self::default() }
    }

    /// Σ of the sizes of all existing handles.
    pub(crate) fn taken(&self) -> u64 {
        self.handles.values().sum()
    }

    fn grant(&mut self) -> Result<(), Refused> {
        let call = self.calls;
        self.calls += 1;
        let is_refused = self.refused_call == Some(call)
            || self.refused_multiple.is_some_and(|multiple| call.is_multiple_of(multiple));
        if is_refused { Err(Refused) } else { Ok(()) }
    }

    /// Submits work to a stream.
    pub(crate) fn submit(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default().submitted += 1;
    }

    /// Lets the GPU complete some of the submitted work.
    pub(crate) fn advance(&mut self, stream: StreamId, by: u64) {
        let timeline = self.streams.entry(stream).or_default();
        timeline.reached = (timeline.reached + by).min(timeline.submitted);
        self.lay_ghosts();
    }

    /// Completes all submitted work.
    pub(crate) fn finish(&mut self) {
        for timeline in self.streams.values_mut() {
            timeline.reached = timeline.submitted;
        }
        self.lay_ghosts();
    }

    fn lay_ghosts(&mut self) {
        let streams = &self.streams;
        self.ghosts.retain(|ghost| {
            streams.get(&ghost.stream).is_none_or(|timeline| timeline.reached < ghost.position)
        });
    }

    /// Records that a block was allocated for use on a stream.
    pub(crate) fn handed_out(&mut self, address: Address, size: u64, stream: StreamId) {
        let (start, end) = (address.0, address.0 + size);
        assert!(start.is_multiple_of(512), "{address} is not aligned");
        assert!(!overlaps(&self.live, start, end), "{address} overlaps a block in use");
        let mut at = start;
        while at < end {
            let (&from, piece) = self.mapped.range(..=at).next_back().expect("memory behind a block");
            assert!(from + piece.size > at, "{address}: nothing is mapped at {at:#x}");
            at = from + piece.size;
        }
        for ghost in &self.ghosts {
            let is_ordered = ghost.stream == stream || ghost.end <= start || ghost.start >= end;
            assert!(is_ordered, "{address} is still used by {:?}, handed out on {stream:?}", ghost.stream);
        }
        // Later work on the same stream runs after it, so only the rest of a ghost is left.
        let mut rest = Vec::new();
        for ghost in self.ghosts.drain(..) {
            rest.extend([
                Ghost { end: ghost.end.min(start), ..ghost },
                Ghost { start: ghost.start.max(end), ..ghost },
            ]);
        }
        rest.retain(|ghost| ghost.start < ghost.end);
        self.ghosts = rest;
        self.live.insert(start, size);
    }

    /// Records that a block was freed after use on these streams.
    pub(crate) fn given_back(&mut self, address: Address, streams: &[StreamId]) {
        let size = self.live.remove(&address.0).expect("a block in use");
        for &stream in streams {
            let position = self.streams.entry(stream).or_default().submitted;
            self.ghosts.push(Ghost { start: address.0, end: address.0 + size, stream, position });
        }
        self.lay_ghosts();
    }
}

fn overlaps(blocks: &BTreeMap<u64, u64>, start: u64, end: u64) -> bool {
    blocks.range(..end).next_back().is_some_and(|(&from, &size)| from + size > start)
}

impl Backing for Card {
    fn reserve(&mut self, size: u64) -> Result<Address, Refused> {
        self.grant()?;
        assert!(size > 0 && size.is_multiple_of(PAGE));
        let address = self.next_address;
        self.next_address += size + PAGE;
        self.ranges.push((address, address + size));
        Ok(Address(address))
    }

    fn create(&mut self, size: u64) -> Result<Handle, Refused> {
        self.grant()?;
        assert!(size > 0 && size.is_multiple_of(PAGE));
        if self.capacity.is_some_and(|capacity| self.taken() + size > capacity) {
            return Err(Refused);
        }
        self.next_handle += 1;
        self.handles.insert(self.next_handle, size);
        Ok(Handle(self.next_handle))
    }

    fn release(&mut self, piece: Piece) -> Result<(), Refused> {
        self.grant()?;
        assert!(self.mapped.values().all(|mapped| mapped.handle != piece.handle), "{piece:?} is mapped");
        assert_eq!(self.handles.remove(&piece.handle.0), Some(piece.size), "no such handle");
        Ok(())
    }

    fn map(&mut self, address: Address, pieces: &[Piece]) -> Result<(), Refused> {
        self.grant()?;
        let mut at = address.0;
        for &piece in pieces {
            let end = at + piece.size;
            assert!(at.is_multiple_of(PAGE));
            assert_eq!(self.handles.get(&piece.handle.0), Some(&piece.size), "no such handle");
            assert!(self.mapped.values().all(|mapped| mapped.handle != piece.handle), "mapped twice");
            assert!(self.ranges.iter().any(|&(from, to)| from <= at && end <= to), "not reserved");
            let before = self.mapped.range(..end).next_back();
            assert!(
                before.is_none_or(|(&from, mapped)| from + mapped.size <= at),
                "something is mapped there"
            );
            self.mapped.insert(at, piece);
            at = end;
        }
        Ok(())
    }

    fn unmap(&mut self, address: Address, piece: Piece) -> Result<(), Refused> {
        self.grant()?;
        let (start, end) = (address.0, address.0 + piece.size);
        assert!(!overlaps(&self.live, start, end), "a block lies there");
        let ghost = self.ghosts.iter().find(|ghost| ghost.start < end && ghost.end > start);
        assert!(ghost.is_none(), "the GPU may still use it: {ghost:?}");
        assert_eq!(self.mapped.remove(&start), Some(piece), "not mapped there");
        Ok(())
    }

    fn fence(&mut self, stream: StreamId) -> Result<Fence, Refused> {
        self.grant()?;
        self.next_mark += 1;
        let fence = Fence(self.next_mark);
        let timeline = self.streams.entry(stream).or_default();
        timeline.fences.push((fence, timeline.submitted));
        Ok(fence)
    }

    fn passed(&mut self, stream: StreamId) -> Fence {
        let timeline = self.streams.entry(stream).or_default();
        let passed = timeline.fences.iter().rev().find(|&&(_, position)| position <= timeline.reached);
        passed.map_or(Fence::BEGINNING, |&(fence, _)| fence)
    }

    fn wait(&mut self, stream: StreamId, fence: Fence, timeout: Timeout) -> Result<(), Refused> {
        self.grant()?;
        self.waited.push((stream, timeout));
        if self.stuck.contains(&stream) {
            return Err(Refused);
        }
        let timeline = self.streams.entry(stream).or_default();
        let (_, position) =
            *timeline.fences.iter().find(|&&(made, _)| made == fence).expect("a fence that was made");
        timeline.reached = timeline.reached.max(position);
        self.lay_ghosts();
        Ok(())
    }
}
