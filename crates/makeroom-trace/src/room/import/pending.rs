//! Stream-ordered frees that are not known to be complete.
//!
//! Memory that is freed on a stream returns to the driver's pool once the stream reaches the free. A recording shows
//! this in three ways: by a record of the completion, by a synchronization with the stream, or by reuse of the
//! memory. The remaining frees are pending or in the pool. Either way they are not leaks, but an allocation outside
//! the pools cannot use them before the stream is synchronized.
//!
//! A synchronization covers frees from before it began. The handles of default streams refer to a different stream in
//! each context, and the per-thread default stream also in each thread. For other streams, the context is not
//! recorded, so a synchronization of a whole context covers them only if the process has a single context.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use makeroom_core::{AskedMeanwhile, Bytes, DeviceIndex, FastMap, PendingFrees, StreamFrees};

use super::collect::{MemoryEventRow, Role};
use crate::room::EventKind;

/// The explicit handle of the stream that handle 0 means.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// A stream, distinguished from others that have the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stream {
    /// The default stream of a context.
    Default { context: u64 },
    /// The per-thread default stream.
    OfThread { context: u64, thread: u32 },
    /// A stream created by the program.
    Made { handle: u64 },
}

impl Stream {
    fn of_row(row: &MemoryEventRow) -> Self {
        match row.stream {
            0 | LEGACY => Self::Default { context: row.context },
            PER_THREAD => Self::OfThread { context: row.context, thread: row.thread },
            handle => Self::Made { handle },
        }
    }

    fn context(self) -> Option<u64> {
        match self {
            Self::Default { context } | Self::OfThread { context, .. } => {
                Some(context).filter(|&known| known != 0)
            }
            Self::Made { .. } => None,
        }
    }
}

/// A pending free.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    size: u64,
    handle: u64,
    since_ns: i64,
}

/// A free in a stream's queue: time, device and address.
type Queued = (i64, DeviceIndex, u64);

/// The pending frees of all devices, by stream.
///
/// A synchronization must not examine streams that it does not cover, or frees that it does not complete: a recording
/// can have as many streams and synchronizations as events. Therefore, the streams covered by a synchronization of a
/// context are ordered by their first free.
#[derive(Debug)]
pub(super) struct Queues {
    /// In order of time. Frees of memory that has been reused stay until they reach the front.
    streams: FastMap<Stream, VecDeque<Queued>>,
    /// Frees on destroyed streams.
    gone: BinaryHeap<Reverse<Queued>>,
    /// The streams with pending frees by the time of their first one, for each context that can be synchronized.
    first: FastMap<u64, BTreeSet<(i64, Stream)>>,
    /// The process has a single context, so every stream belongs to it.
    has_one_context: bool,
}

impl Queues {
    pub(super) fn new(has_one_context: bool) -> Self {
        let (streams, gone, first) = (FastMap::default(), BinaryHeap::new(), FastMap::default());
        Self { streams, gone, first, has_one_context }
    }

    /// The context whose synchronization covers a stream.
    fn context_of(&self, stream: Stream) -> Option<u64> {
        if self.has_one_context { Some(0) } else { stream.context() }
    }

    fn push(&mut self, stream: Stream, queued: Queued) {
        let queue = self.streams.entry(stream).or_default();
        // The memory is freed again without having been reused: only the last free counts.
        if queue.len() > 1
            && let Some(last) = queue.back_mut().filter(|last| (last.1, last.2) == (queued.1, queued.2))
        {
            *last = queued;
            return;
        }
        queue.push_back(queued);
        if queue.len() == 1
            && let Some(context) = self.context_of(stream)
        {
            self.first.entry(context).or_default().insert((queued.0, stream));
        }
    }

    /// Removes a stream's queue, or the part of it before a moment.
    fn take(&mut self, stream: Stream, before_ns: Option<i64>) -> Vec<Queued> {
        let Some(queue) = self.streams.get_mut(&stream) else { return Vec::new() };
        let old_first = queue.front().map(|queued| queued.0);
        let count = before_ns.map_or(queue.len(), |before_ns| {
            queue.iter().take_while(|(since_ns, ..)| *since_ns < before_ns).count()
        });
        let taken: Vec<Queued> = queue.drain(..count).collect();
        let new_first = queue.front().map(|queued| queued.0);
        if queue.is_empty() {
            self.streams.remove(&stream);
        }
        if old_first != new_first
            && let Some(context) = self.context_of(stream)
        {
            let streams = self.first.entry(context).or_default();
            streams.extend(new_first.map(|since_ns| (since_ns, stream)));
            if let Some(since_ns) = old_first {
                streams.remove(&(since_ns, stream));
            }
        }
        taken
    }

    /// The frees that are complete after a synchronization of a stream or a context, or the destruction of a stream.
    pub(super) fn wait(&mut self, row: &MemoryEventRow) -> Vec<Queued> {
        if row.role == Role::EndStream {
            let queue = self.take(Stream::of_row(row), None);
            self.gone.extend(queue.into_iter().map(Reverse));
            return Vec::new();
        }
        let began_ns = row.since_ns.saturating_sub_unsigned(row.extra);
        if row.kind != EventKind::ContextWait {
            return self.take(Stream::of_row(row), Some(began_ns));
        }
        let mut complete = Vec::new();
        let context = if self.has_one_context { 0 } else { row.context };
        let is_known = self.has_one_context || context != 0;
        let covered = |queues: &Self| {
            let first = queues.first.get(&context).filter(|_| is_known)?.first();
            first.filter(|(since_ns, _)| *since_ns < began_ns).map(|&(_, stream)| stream)
        };
        while let Some(stream) = covered(self) {
            complete.extend(self.take(stream, Some(began_ns)));
        }
        // A destroyed stream has no context.
        while self.has_one_context
            && let Some(&Reverse(queued)) = self.gone.peek()
            && queued.0 < began_ns
        {
            self.gone.pop();
            complete.push(queued);
        }
        complete
    }
}

/// The pending frees of one device.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// By address.
    waiting: BTreeMap<u64, Waiting>,
    /// Σ of their sizes.
    bytes: u128,
    /// The number of pending frees on each stream, by handle.
    handles: FastMap<u64, u64>,
    at_refusal: Option<PendingFrees>,
    asked: Option<AskedMeanwhile>,
}

impl Pending {
    /// Processes an event before it is applied. `size` is the size of the memory at its address.
    pub(super) fn see(&mut self, row: &MemoryEventRow, size: Option<u64>, queues: &mut Queues) {
        match (row.role, row.kind) {
            (Role::Give, EventKind::StreamFree) => {
                let since_ns = row.since_ns;
                self.remove(row.address);
                let waiting = Waiting { size: size.unwrap_or(row.size), handle: row.stream, since_ns };
                self.bytes += u128::from(waiting.size);
                *self.handles.entry(waiting.handle).or_default() += 1;
                self.waiting.insert(row.address, waiting);
                queues.push(Stream::of_row(row), (since_ns, row.device, row.address));
            }
            (Role::Complete, _) => self.remove(row.address),
            (Role::Take, EventKind::TensorAlloc) => {}
            (Role::Take, EventKind::StreamAlloc) => self.hand_out(row.address, row.size),
            (Role::Take, _) => {
                self.ask(row);
                self.hand_out(row.address, row.size);
            }
            _ => {}
        }
    }

    /// Completes the free made at this time, if it is still the last one at its address.
    pub(super) fn complete(&mut self, address: u64, since_ns: i64) {
        if self.waiting.get(&address).is_some_and(|free| free.since_ns == since_ns) {
            self.remove(address);
        }
    }

    fn remove(&mut self, address: u64) {
        let Some(waiting) = self.waiting.remove(&address) else { return };
        self.bytes -= u128::from(waiting.size);
        if let Some(count) = self.handles.get_mut(&waiting.handle) {
            *count -= 1;
            if *count == 0 {
                self.handles.remove(&waiting.handle);
            }
        }
    }

    /// Records that a request finally failed.
    pub(super) fn refused(&mut self) {
        if self.at_refusal.is_none() {
            self.at_refusal = Some(self.now());
        }
    }

    /// The result for the device, if there is any.
    pub(super) fn finish(self, device: DeviceIndex) -> Option<StreamFrees> {
        let at_end = self.now();
        let at_refusal = self.at_refusal.filter(|pending| pending.frees > 0);
        let is_known = at_end.frees > 0 || at_refusal.is_some() || self.asked.is_some();
        is_known.then_some(StreamFrees { device, at_end, at_refusal, asked: self.asked })
    }

    fn ask(&mut self, row: &MemoryEventRow) {
        let is_largest = self.asked.is_none_or(|asked| row.size > asked.size.get());
        if !self.waiting.is_empty() && is_largest {
            let pending = self.now();
            self.asked = Some(AskedMeanwhile { size: Bytes::new(row.size), stack: row.stack, pending });
        }
    }

    /// Reused memory must have been complete.
    fn hand_out(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size.max(1));
        while let Some((&start, waiting)) = self.waiting.range(..end).next_back() {
            if start.saturating_add(waiting.size.max(1)) <= address {
                return;
            }
            self.remove(start);
        }
    }

    fn now(&self) -> PendingFrees {
        PendingFrees {
            bytes: Bytes::new(u64::try_from(self.bytes).unwrap_or(u64::MAX)),
            frees: self.waiting.len() as u64,
            streams: self.handles.len() as u64,
        }
    }
}
