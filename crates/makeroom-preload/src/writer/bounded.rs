//! Bounds the size of the recording (`MAKEROOM_RING`): log compaction with a checkpoint and a suffix.
//!
//! ```text
//! file   [ start ][ older events ][ newer events ]      at the checkpoint: the live set is encoded in memory
//! then   [ start'][ newer events ] …                     replaces it: start' = header, definitions, that live set
//! ```
//!
//! The live set is computed by the writer from the events it writes, so the program's threads pay nothing. The new file
//! is written under another name and renamed over the recording: at every moment, the recording is one complete file,
//! also after `kill -9`. A quarter of the bound is written between checkpoints, so that the old and the new file fit
//! into it together, unless the live set and the definitions are very large.
//!
//! If the file cannot be replaced, recording continues in the old one, and it is tried again a quarter later.

use makeroom_trace::room::{Compacted, Encoder, Header, LiveSet, ThreadNumber, beginning, seal};

use super::definitions::Definitions;
use super::output::Output;
use crate::clock;

/// How late events of other threads may arrive.
const LAG_NS: u64 = 200_000_000;
/// Events are applied to the live set this often: each time, all that have not been applied are sorted.
const SETTLE_NS: u64 = LAG_NS;
/// Parts of the bound: older events, newer events, their copy, and the starts of both files.
const PARTS: u64 = 4;

/// The bounded recording.
#[derive(Debug)]
pub(crate) struct Bounded {
    header: Header,
    /// Events to write between checkpoints, in bytes.
    part: u64,
    /// The events that still matter.
    pub(crate) set: LiveSet,
    /// Length of the file up to its first complete event.
    start: u64,
    checkpoint: Option<Checkpoint>,
    /// The time up to which events are applied.
    settled_ns: u64,
}

/// The state of the recording at a position in the file.
#[derive(Debug)]
struct Checkpoint {
    offset: u64,
    /// The live set, as frames.
    frames: Vec<u8>,
    compacted: Compacted,
}

impl Bounded {
    /// A recording of at most `bytes`, whose file has only its header.
    pub(crate) fn new(header: Header, bytes: u64, length: u64) -> Self {
        let part = (bytes / PARTS).max(1);
        Self { header, part, set: LiveSet::default(), start: length, checkpoint: None, settled_ns: 0 }
    }

    /// Takes a checkpoint or replaces the file, when it is time. `write_start` appends the records that every file
    /// starts with.
    pub(crate) fn keep_bounded(
        &mut self,
        output: &mut Output,
        definitions: &Definitions,
        write_start: impl FnOnce(&mut Vec<u8>),
    ) {
        let now_ns = clock::monotonic_ns().saturating_sub(LAG_NS);
        let length = output.length();
        let since = self.checkpoint.as_ref().map_or(self.start, |checkpoint| checkpoint.offset);
        // A large start needs a large rest, or the file would be replaced all the time.
        let is_time = length.saturating_sub(since) >= self.part.max(self.start);
        if is_time || now_ns >= self.settled_ns.saturating_add(SETTLE_NS) {
            self.set.settle(now_ns);
            self.settled_ns = now_ns;
        }
        if !is_time {
            return;
        }
        if let Some(checkpoint) = self.checkpoint.take() {
            let mut start = beginning(&self.header);
            write_start(&mut start);
            let mut encoder = Encoder::new(ThreadNumber(0), Vec::new());
            encoder.compacted(&checkpoint.compacted);
            seal(encoder.bytes(), &mut start);
            definitions.write_all(&mut start);
            start.extend_from_slice(&checkpoint.frames);
            if output.replace(&start, checkpoint.offset).is_ok() {
                self.start = start.len() as u64;
            }
        }
        let mut frames = Vec::new();
        self.set.write(&mut frames);
        let left_out = self.set.left_out();
        let compacted = Compacted { time_ns: now_ns, events: left_out.events, failures: left_out.failures };
        self.checkpoint = Some(Checkpoint { offset: output.length(), frames, compacted });
    }
}
