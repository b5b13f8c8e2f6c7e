//! Streams, and how far the GPU has come on each.
//!
//! Free memory remembers the last mark that its stream had when it was freed. The GPU is done with it as soon as a
//! later mark has passed; where there is none yet, one is made when somebody asks. So a program that stays on one
//! stream and whose memory stays where it is never makes a mark.

use std::collections::VecDeque;

use makeroom_core::{FastMap, StreamId};

use super::backing::{Backing, Mark, Patience, Refused};

/// A stream's place in the table.
pub(crate) type StreamIndex = u32;

/// The owner of memory that the GPU is done with on every stream.
pub(crate) const EVERYBODY: StreamIndex = 0;

/// No stream in particular. Memory that is allocated for it may be used on every stream at once, so nothing that the
/// GPU may still use is handed out.
pub const EVERY_STREAM: StreamId = StreamId(u64::MAX);

/// A stream that freed or allocated something.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// It was destroyed: another one may have its name.
    is_retired: bool,
    /// Nothing names it any more: another one may have its place.
    is_vacant: bool,
    /// The first mark that was made. A handle can come back as another stream, and what that one's marks answer must
    /// not be taken for this one's: earlier marks are somebody else's.
    first: Option<Mark>,
    /// The last mark that was made.
    last: Mark,
    /// The last that is known to have passed.
    passed: Mark,
    /// Those that were made and are not known to have passed, oldest first.
    waiting: VecDeque<Mark>,
    /// A mark that was waited for in vain, and how long: until it has passed nobody waits as long again.
    late: Option<(Mark, Patience)>,
}

/// All streams.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    table: Vec<Stream>,
    /// The places of those that are not retired.
    places: FastMap<u64, StreamIndex>,
    /// Places of retired streams that nothing names any more.
    vacant: Vec<StreamIndex>,
    /// How many are retired and not vacant.
    retired: usize,
    recent: StreamIndex,
    pub(crate) marks: u64,
    pub(crate) waits: u64,
}

impl Default for Streams {
    fn default() -> Self {
        let everybody = Stream { is_retired: true, passed: Mark(u64::MAX), ..Stream::new(StreamId(0)) };
        Self {
            table: vec![everybody],
            places: FastMap::default(),
            vacant: Vec::new(),
            retired: 0,
            recent: EVERYBODY,
            marks: 0,
            waits: 0,
        }
    }
}

impl Streams {
    /// A stream's place, if it is known. Most programs stay on one, but those of many threads have many.
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

    /// Adds a stream that is not known.
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

    /// How many places there are, [`EVERYBODY`] included.
    pub(crate) fn count(&self) -> StreamIndex {
        self.table.len() as StreamIndex
    }

    /// The stream at a place; `None` for everybody.
    pub(crate) fn id(&self, index: StreamIndex) -> Option<StreamId> {
        (index != EVERYBODY).then(|| self.table[index as usize].id)
    }

    /// What memory has to remember that is freed on a stream now. Nothing follows the last mark of a stream that is
    /// gone, so that mark itself is enough.
    pub(crate) fn last(&self, index: StreamIndex) -> Mark {
        let stream = &self.table[index as usize];
        if stream.is_retired { Mark(stream.last.0.saturating_sub(1)) } else { stream.last }
    }

    /// Makes a mark on a stream.
    pub(crate) fn mark(&mut self, backing: &mut impl Backing, index: StreamIndex) -> Result<Mark, Refused> {
        let stream = &mut self.table[index as usize];
        if stream.is_retired {
            return Err(Refused);
        }
        let mark = backing.mark(stream.id)?;
        self.marks += 1;
        stream.first.get_or_insert(mark);
        stream.last = mark;
        stream.waiting.push_back(mark);
        Ok(mark)
    }

    /// Whether the GPU is done with what was freed on a stream after a mark, without waiting. Where no later mark was
    /// made, one is made, so that a later question may have a better answer.
    pub(crate) fn is_done(&mut self, backing: &mut impl Backing, index: StreamIndex, after: Mark) -> bool {
        if self.table[index as usize].passed > after {
            return true;
        }
        if self.table[index as usize].last <= after {
            let _ = self.mark(backing, index);
        }
        let stream = &mut self.table[index as usize];
        if stream.last > after {
            stream.pass(backing.passed(stream.id));
        }
        stream.passed > after
    }

    /// Whether it is known that the GPU is done with what was freed on a stream after a mark.
    pub(crate) fn has_passed(&self, index: StreamIndex, after: Mark) -> bool {
        self.table[index as usize].passed > after
    }

    /// Waits until the GPU is done with what was freed on a stream after a mark, as long as patience lasts.
    pub(crate) fn wait(
        &mut self,
        backing: &mut impl Backing,
        index: StreamIndex,
        after: Mark,
        patience: Patience,
    ) -> Result<(), Refused> {
        if self.is_done(backing, index, after) {
            return Ok(());
        }
        let stream = &mut self.table[index as usize];
        if patience == Patience::DoNotWait || stream.late.is_some_and(|(_, waited)| waited >= patience) {
            return Err(Refused);
        }
        let mark = *stream.waiting.iter().find(|&&mark| mark > after).ok_or(Refused)?;
        self.waits += 1;
        if backing.wait(stream.id, mark, patience).is_err() {
            stream.late = Some((mark, patience));
            return Err(Refused);
        }
        stream.pass(mark);
        Ok(())
    }

    /// A stream is about to be destroyed. What was freed on it can be waited for, if a mark could be made.
    pub(crate) fn retire(&mut self, backing: &mut impl Backing, index: StreamIndex) {
        let _ = self.mark(backing, index);
        let stream = &mut self.table[index as usize];
        stream.is_retired = true;
        self.places.remove(&stream.id.0);
        self.retired += 1;
    }

    /// How many streams are gone and still have a place.
    pub(crate) fn retired(&self) -> usize {
        self.retired
    }

    /// The places of streams that are gone.
    pub(crate) fn retired_places(&self) -> Vec<StreamIndex> {
        let is_there = |stream: &Stream| stream.is_retired && !stream.is_vacant;
        (EVERYBODY + 1..self.count()).filter(|&place| is_there(&self.table[place as usize])).collect()
    }

    /// Nothing names the stream at this place any more: another may have it.
    pub(crate) fn vacate(&mut self, place: StreamIndex) {
        self.table[place as usize].is_vacant = true;
        self.vacant.push(place);
        self.retired -= 1;
    }
}

impl Stream {
    fn new(id: StreamId) -> Self {
        let (last, passed) = (Mark::BEGINNING, Mark::BEGINNING);
        let (is_retired, is_vacant) = (false, false);
        Self { id, is_retired, is_vacant, first: None, last, passed, waiting: VecDeque::new(), late: None }
    }

    fn pass(&mut self, mark: Mark) {
        if self.first.is_none_or(|first| mark < first) {
            return;
        }
        // A mark that was never made here says nothing about what was freed before the next one.
        self.passed = self.passed.max(mark.min(self.last));
        while self.waiting.front().is_some_and(|&waiting| waiting <= self.passed) {
            self.waiting.pop_front();
        }
        self.late = self.late.filter(|&(late, _)| late > self.passed);
    }
}
