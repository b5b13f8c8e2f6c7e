//! Streams, and the GPU's progress on each.
//!
//! A free tile remembers the last fence of its stream before the free. The GPU has finished using the tile once it has
//! passed a later fence; if there is none yet, one is created on the first check. A program that uses one stream and
//! does not move memory therefore never creates a fence.

use std::collections::VecDeque;

use makeroom_core::{FastMap, StreamId};

use super::backing::{Backing, Fence, Refused, Timeout};

/// The index of a stream in the table.
pub(crate) type StreamIndex = u32;

/// The owner of memory that the GPU has finished using on every stream.
pub(crate) const EVERYBODY: StreamIndex = 0;

/// No particular stream. Memory allocated for it may be used on every stream at once, so it must not be memory that the
/// GPU may still be using.
pub const EVERY_STREAM: StreamId = StreamId(u64::MAX);

/// A stream that has allocated or freed memory.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// It was destroyed; another stream may have its ID.
    is_retired: bool,
    /// Nothing refers to it; another stream may get its slot.
    is_vacant: bool,
    /// The first fence created. An ID can be reused by another stream, whose fences must not be taken for this stream's:
    /// fences before this one belong to the other stream.
    first: Option<Fence>,
    /// The last fence created.
    last: Fence,
    /// The last fence known to have passed.
    passed: Fence,
    /// Fences created but not known to have passed, oldest first.
    waiting: VecDeque<Fence>,
    /// A fence for which a wait timed out, and its timeout: until the fence has passed, no wait is as long again.
    late: Option<(Fence, Timeout)>,
}

/// All streams.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    table: Vec<Stream>,
    /// The indices of streams that are not retired.
    places: FastMap<u64, StreamIndex>,
    /// Slots of retired streams that nothing refers to.
    vacant: Vec<StreamIndex>,
    /// The number of streams that are retired but not vacant.
    retired: usize,
    recent: StreamIndex,
    pub(crate) fences: u64,
    pub(crate) waits: u64,
}

impl Default for Streams {
    fn default() -> Self {
        let everybody = Stream { is_retired: true, passed: Fence(u64::MAX), ..Stream::new(StreamId(0)) };
        Self {
            table: vec![everybody],
            places: FastMap::default(),
            vacant: Vec::new(),
            retired: 0,
            recent: EVERYBODY,
            fences: 0,
            waits: 0,
        }
    }
}

impl Streams {
    /// The index of a stream, if known. Most programs use one stream, but programs with many threads can use many.
    pub(crate) fn find(&mut self, id: StreamId) -> Option<StreamIndex> {
        let recent = &self.table[self.recent as usize];
        if recent.id == id && !recent.is_retired {
            return Some(self.recent);
        }
        if id == EVERY_STREAM {
            return Some(EVERYBODY);
        }
        self.recent = *self.places.get(&id.0)?;
        Some(self.recent)
    }

    /// Adds an unknown stream.
    pub(crate) fn add(&mut self, id: StreamId) -> StreamIndex {
        self.recent = if let Some(place) = self.vacant.pop() {
            self.table[place as usize] = Stream::new(id);
            place
        } else {
            self.table.push(Stream::new(id));
            self.table.len() as StreamIndex - 1
        };
        self.places.insert(id.0, self.recent);
        self.recent
    }

    /// The number of slots, including [`EVERYBODY`].
    pub(crate) fn count(&self) -> StreamIndex {
        self.table.len() as StreamIndex
    }

    /// The stream at an index; `None` for [`EVERYBODY`].
    pub(crate) fn id(&self, index: StreamIndex) -> Option<StreamId> {
        (index != EVERYBODY).then(|| self.table[index as usize].id)
    }

    /// The fence to store in memory freed on a stream now. A retired stream gets no further fences, so for it, passing
    /// the last fence is sufficient.
    pub(crate) fn last(&self, index: StreamIndex) -> Fence {
        let stream = &self.table[index as usize];
        if stream.is_retired { Fence(stream.last.0.saturating_sub(1)) } else { stream.last }
    }

    /// Creates a fence on a stream.
    pub(crate) fn fence(&mut self, backing: &mut impl Backing, index: StreamIndex) -> Result<Fence, Refused> {
        let stream = &mut self.table[index as usize];
        if stream.is_retired {
            return Err(Refused);
        }
        let fence = backing.fence(stream.id)?;
        self.fences += 1;
        stream.first.get_or_insert(fence);
        stream.last = fence;
        stream.waiting.push_back(fence);
        Ok(fence)
    }

    /// Whether the GPU has finished using memory freed on a stream after a fence, without waiting. If there is no later
    /// fence, one is created, so that a later check can succeed.
    pub(crate) fn is_done(&mut self, backing: &mut impl Backing, index: StreamIndex, after: Fence) -> bool {
        if self.table[index as usize].passed > after {
            return true;
        }
        if self.table[index as usize].last <= after {
            let _ = self.fence(backing, index);
        }
        let stream = &mut self.table[index as usize];
        if stream.last > after {
            stream.pass(backing.passed(stream.id));
        }
        stream.passed > after
    }

    /// Whether the GPU is known to have finished using memory freed on a stream after a fence.
    pub(crate) fn has_passed(&self, index: StreamIndex, after: Fence) -> bool {
        self.table[index as usize].passed > after
    }

    /// Waits, with a timeout, until the GPU has finished using memory freed on a stream after a fence.
    pub(crate) fn wait(
        &mut self,
        backing: &mut impl Backing,
        index: StreamIndex,
        after: Fence,
        timeout: Timeout,
    ) -> Result<(), Refused> {
        if self.is_done(backing, index, after) {
            return Ok(());
        }
        let stream = &mut self.table[index as usize];
        if timeout == Timeout::DoNotWait || stream.late.is_some_and(|(_, waited)| waited >= timeout) {
            return Err(Refused);
        }
        let fence = *stream.waiting.iter().find(|&&fence| fence > after).ok_or(Refused)?;
        self.waits += 1;
        if backing.wait(stream.id, fence, timeout).is_err() {
            stream.late = Some((fence, timeout));
            return Err(Refused);
        }
        stream.pass(fence);
        Ok(())
    }

    /// Retires a stream that is about to be destroyed. If a fence can be created, it remains possible to wait for memory
    /// freed on it.
    pub(crate) fn retire(&mut self, backing: &mut impl Backing, index: StreamIndex) {
        let _ = self.fence(backing, index);
        let stream = &mut self.table[index as usize];
        stream.is_retired = true;
        self.places.remove(&stream.id.0);
        self.retired += 1;
    }

    /// The number of retired streams that still have a slot.
    pub(crate) fn retired(&self) -> usize {
        self.retired
    }

    /// The slots of retired streams.
    pub(crate) fn retired_places(&self) -> Vec<StreamIndex> {
        let is_there = |stream: &Stream| stream.is_retired && !stream.is_vacant;
        (EVERYBODY + 1..self.count()).filter(|&place| is_there(&self.table[place as usize])).collect()
    }

    /// Frees a slot to which nothing refers, for another stream.
    pub(crate) fn vacate(&mut self, place: StreamIndex) {
        self.table[place as usize].is_vacant = true;
        self.vacant.push(place);
        self.retired -= 1;
    }
}

impl Stream {
    fn new(id: StreamId) -> Self {
        let (last, passed) = (Fence::BEGINNING, Fence::BEGINNING);
        let (is_retired, is_vacant) = (false, false);
        Self { id, is_retired, is_vacant, first: None, last, passed, waiting: VecDeque::new(), late: None }
    }

    fn pass(&mut self, fence: Fence) {
        if self.first.is_none_or(|first| fence < first) {
            return;
        }
        // A fence that was not created here proves nothing about frees before the next fence.
        self.passed = self.passed.max(fence.min(self.last));
        while self.waiting.front().is_some_and(|&waiting| waiting <= self.passed) {
            self.waiting.pop_front();
        }
        self.late = self.late.filter(|&(late, _)| late > self.passed);
    }
}
