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

use std::collections::{BTreeMap, VecDeque};

use makeroom_core::{AskedMeanwhile, Bytes, DeviceIndex, FastMap, PendingFrees, StreamFrees};

use super::collect::{Role, Row};
use crate::room::EventKind;

/// The explicit handle of the stream that handle 0 means.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// A stream, distinguished from others with the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stream {
    /// The default stream of a context.
    Default { context: u64 },
    /// The per-thread default stream.
    OfThread { context: u64, thread: u32 },
    /// A stream that the program created.
    Made { handle: u64 },
    /// A destroyed stream.
    Gone,
}

impl Stream {
    fn of(row: &Row) -> Self {
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
            Self::Made { .. } | Self::Gone => None,
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

/// The pending frees of one device.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// By address.
    waiting: BTreeMap<u64, Waiting>,
    /// Time and address of each free, by stream, in order of time. Entries of reused memory stay until they are
    /// reached.
    queues: FastMap<Stream, VecDeque<(i64, u64)>>,
    at_refusal: Option<PendingFrees>,
    asked: Option<AskedMeanwhile>,
}

impl Pending {
    /// Processes an event before it takes effect. `size` is that of the memory at its address.
    pub(super) fn see(&mut self, row: &Row, size: Option<u64>) {
        match (row.role, row.kind) {
            (Role::Give, EventKind::StreamFree) => {
                let since_ns = row.since_ns;
                let waiting = Waiting { size: size.unwrap_or(row.size), handle: row.stream, since_ns };
                self.waiting.insert(row.address, waiting);
                self.queues.entry(Stream::of(row)).or_default().push_back((since_ns, row.address));
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

    /// The program synchronized with a stream or context, or destroyed a stream.
    pub(super) fn wait(&mut self, row: &Row, has_one_context: bool) {
        if row.role == Role::EndStream {
            if let Some(queue) = self.queues.remove(&Stream::of(row)) {
                let gone = self.queues.entry(Stream::Gone).or_default();
                gone.extend(queue);
                gone.make_contiguous().sort_unstable();
            }
            return;
        }
        let is_covered = |stream: &Stream| {
            if row.kind == EventKind::ContextWait {
                has_one_context || stream.context().is_some_and(|context| context == row.context)
            } else {
                *stream == Stream::of(row)
            }
        };
        let began_ns = row.since_ns.saturating_sub_unsigned(row.extra);
        for (_, queue) in self.queues.iter_mut().filter(|(stream, _)| is_covered(stream)) {
            while let Some(&(since_ns, address)) = queue.front().filter(|(since_ns, _)| *since_ns < began_ns)
            {
                queue.pop_front();
                if self.waiting.get(&address).is_some_and(|free| free.since_ns == since_ns) {
                    self.waiting.remove(&address);
                }
            }
        }
    }

    /// A request finally failed.
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

    fn ask(&mut self, row: &Row) {
        let is_largest = self.asked.is_none_or(|asked| row.size > asked.size.get());
        if !self.waiting.is_empty() && is_largest {
            let pending = self.now();
            self.asked = Some(AskedMeanwhile { size: Bytes::new(row.size), stack: row.stack, pending });
        }
    }

    /// Memory that is handed out again was complete.
    fn hand_out(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size.max(1));
        while let Some((&start, waiting)) = self.waiting.range(..end).next_back() {
            if start.saturating_add(waiting.size.max(1)) <= address {
                return;
            }
            self.waiting.remove(&start);
        }
    }

    fn now(&self) -> PendingFrees {
        let mut streams: Vec<u64> = self.waiting.values().map(|free| free.handle).collect();
        streams.sort_unstable();
        streams.dedup();
        PendingFrees {
            bytes: self.waiting.values().map(|free| Bytes::new(free.size)).sum(),
            frees: self.waiting.len() as u64,
            streams: streams.len() as u64,
        }
    }
}
