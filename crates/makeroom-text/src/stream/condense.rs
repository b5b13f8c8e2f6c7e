//! Decides which blocks of a long log to keep.
//!
//! The last blocks are always at hand. A block with an anchor waits until the lines behind it have arrived and is then
//! read; if it holds a failure, the blocks around it are kept. Other blocks are dropped when they are old enough.

use std::collections::VecDeque;
use std::ops::Range;

use makeroom_explain::Explanation;
use makeroom_search::{AnchorScanner, Frequencies, without_controls};
use memchr::memmem;

use super::Limits;
use super::block::{Block, Cutter, count_lines};
use super::probe::Probe;
use crate::answer::explain_condensed;
use crate::context::LINES_BELOW_TITLE;
use crate::find::SAME_FAILURE_LINES;
use crate::log::Log;
use crate::searched::Searched;
use crate::settings::{EXPANDABLE, Settings};

/// Lines kept before the first failure, where memory that grows shows.
const LINES_BEFORE_FIRST: usize = 20_000;
/// Lines kept before a failure: its traceback.
const LINES_BEFORE: usize = 512;
/// Lines kept after it, not counting lists of memory blocks.
const LINES_AFTER: usize = 512;
/// Lines kept after it in any case.
const MOST_LINES_AFTER: usize = 20_000;
/// This many failures keep all of these lines.
const FULL_WINDOWS: usize = 16;
/// Lines kept before and after each later one.
const LINES_NEAR: usize = 96;
/// Bytes kept on one side of a failure at most.
const MOST_BYTES: usize = 24 << 20;
/// Every line that configures PyTorch's allocator contains this.
const ALLOCATOR_VARIABLE: &[u8] = b"ALLOC_CONF";

// A title's log is read from the lines after the failure.
const _: () = assert!(LINES_BELOW_TITLE <= LINES_AFTER);

/// Keeps the parts of a log that decide.
#[derive(Debug)]
pub(super) struct Condenser {
    cutter: Cutter,
    sorter: Sorter,
}

impl Condenser {
    /// Condenses a log that begins like this.
    pub(super) fn new(limits: Limits, sample: &[u8]) -> Self {
        Self { cutter: Cutter::new(), sorter: Sorter::new(limits, sample) }
    }

    /// Appends to the log.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.cutter.push(bytes, |block| self.sorter.add(block));
    }

    /// Explains the log.
    pub(super) fn finish(self) -> Explanation {
        let Self { cutter, mut sorter } = self;
        if let Some(block) = cutter.finish() {
            sorter.add(block);
        }
        sorter.finish()
    }
}

/// Sorts blocks into kept and dropped ones.
#[derive(Debug)]
struct Sorter {
    limits: Limits,
    frequencies: Frequencies,
    scanner: AnchorScanner,
    probe: Probe,
    exhausted: usize,
    /// The last blocks, without gaps.
    recent: VecDeque<Recent>,
    /// How many blocks came before `recent`.
    gone: usize,
    /// Blocks with an anchor that were not read yet, by their number.
    waiting: VecDeque<usize>,
    kept: Vec<Block>,
    kept_bytes: usize,
    windows: usize,
    /// Whether a line that turns expandable segments on was found. It counts wherever it is, so the first one is kept.
    is_expandable: bool,
    /// The end of the text behind the first failure that is searched for settings.
    searched_until: usize,
    seen: Seen,
    /// How many failures the dropped blocks hold, and the line of the last one.
    left_out: usize,
    last_left_out: Option<usize>,
}

/// What was read. The first failure decides, the first warning where nothing failed, and the first table where there
/// is nothing else.
#[derive(Debug, Default)]
struct Seen {
    failure: bool,
    warning: bool,
    observation: bool,
}

impl Seen {
    fn any(&self) -> bool {
        self.failure || self.warning || self.observation
    }

    /// Adds something; returns whether it may decide.
    fn gain(&mut self, new: &Self) -> bool {
        let is_first = !self.failure
            && (new.failure
                || new.warning && !self.warning
                || new.observation && !self.warning && !self.observation);
        self.failure |= new.failure;
        self.warning |= new.warning;
        self.observation |= new.observation;
        is_first
    }
}

/// A block that may still be needed.
#[derive(Debug)]
struct Recent {
    block: Block,
    is_kept: bool,
    /// How many lines are not part of a list of memory blocks.
    prose: usize,
    anchors: Anchors,
}

#[derive(Debug)]
enum Anchors {
    None,
    /// Not read: the block waits, or enough failures were read.
    Unread,
    /// The lines with a failure, counted from the start of the block.
    Read(Vec<usize>),
}

impl Sorter {
    fn new(limits: Limits, sample: &[u8]) -> Self {
        let (frequencies, probe) = (Frequencies::count(sample), Probe::new());
        Self {
            limits,
            scanner: AnchorScanner::new(&probe.anchors(), &frequencies),
            frequencies,
            exhausted: probe.exhausted(),
            probe,
            recent: VecDeque::new(),
            gone: 0,
            waiting: VecDeque::new(),
            kept: Vec::new(),
            kept_bytes: 0,
            windows: 0,
            is_expandable: false,
            searched_until: 0,
            seen: Seen::default(),
            left_out: 0,
            last_left_out: None,
        }
    }

    fn add(&mut self, block: Block) {
        let number = self.gone + self.recent.len();
        let has_anchor = self.scanner.find(&without_controls(&block.bytes), 0).is_some();
        let is_head = block.offset < self.limits.head;
        let prose = if self.waiting.is_empty() { block.lines } else { prose_lines(&block) };
        let is_searched = block.offset < self.searched_until;
        let may_configure = !self.is_expandable && memmem::find(&block.bytes, ALLOCATOR_VARIABLE).is_some();
        let anchors = if has_anchor { Anchors::Unread } else { Anchors::None };
        self.recent.push_back(Recent { block, is_kept: is_head || is_searched, prose, anchors });
        if may_configure {
            self.keep_setting();
        }
        if has_anchor && !self.probe.is_done() {
            self.waiting.push_back(number);
        }
        while let Some(&first) = self.waiting.front()
            && self.lines_after(first - self.gone, LINES_AFTER).is_some()
        {
            self.waiting.pop_front();
            self.read(first - self.gone);
        }
        self.drop_old();
    }

    fn finish(mut self) -> Explanation {
        while let Some(first) = self.waiting.pop_front() {
            self.read(first - self.gone);
        }
        let lines = self.recent.back().map_or(0, |last| last.block.first_line + last.block.lines);
        let end = self.recent.back().map_or(0, |last| last.block.offset + last.block.bytes.len());
        while let Some(front) = self.recent.front_mut() {
            front.is_kept |= front.block.offset + front.block.bytes.len() + self.limits.tail > end;
            self.drop_front();
        }
        let mut log = Log::new("");
        for block in std::mem::take(&mut self.kept) {
            log.add(&block.text(), block.first_number);
        }
        explain_condensed(&log, lines, self.left_out)
    }

    /// Keeps the last block if it turns expandable segments on, and the block before it: the line above tells a setting
    /// from the advice to use it.
    fn keep_setting(&mut self) {
        let blocks = self.recent.len().saturating_sub(2)..self.recent.len();
        let text: String = self.recent.range(blocks.clone()).map(|recent| recent.block.text()).collect();
        if Settings::new(Searched::from(&text[..])).configures_allocator(EXPANDABLE) {
            self.is_expandable = true;
            self.keep(blocks);
        }
    }

    /// Reads a block with an anchor and keeps the lines around a failure.
    fn read(&mut self, at: usize) {
        if self.probe.is_done() {
            return;
        }
        let before = self.lines_before(at, LINES_NEAR);
        let after = self.lines_after(at, LINES_AFTER).unwrap_or(self.recent.len());
        let mut log = Log::new("");
        let mut lines = 0..0;
        for (index, recent) in self.recent.range(before..after).enumerate() {
            if before + index == at {
                lines.start = log.len();
            }
            log.add(&recent.block.text(), recent.block.first_number);
            if before + index == at {
                lines.end = log.len();
            }
        }
        let reading = self.probe.read(&log, lines);
        let has = Seen {
            failure: !reading.failures.is_empty(),
            warning: reading.has_warning,
            observation: reading.has_observation,
        };
        self.recent[at].anchors = Anchors::Read(reading.failures);
        if self.seen.gain(&has) {
            self.keep(self.lines_before(at, LINES_BEFORE_FIRST)..after);
            self.keep_searched(at);
        } else if has.any() {
            if self.windows < FULL_WINDOWS {
                self.keep(self.lines_before(at, LINES_BEFORE)..after);
            } else if self.kept_bytes < self.limits.windows {
                let near = self.lines_after(at, LINES_NEAR).unwrap_or(self.recent.len());
                self.keep(before..near);
            }
            self.windows += 1;
        }
        let exhausted = self.probe.exhausted();
        if exhausted > self.exhausted {
            self.exhausted = exhausted;
            self.scanner = AnchorScanner::new(&self.probe.anchors(), &self.frequencies);
        }
    }

    /// Keeps the text around a failure that is searched for settings.
    fn keep_searched(&mut self, at: usize) {
        let block = &self.recent[at].block;
        let from = block.offset.saturating_sub(self.limits.before);
        let until = block.offset + block.bytes.len() + self.limits.behind;
        let is_outside = |recent: &Recent| recent.block.offset + recent.block.bytes.len() <= from;
        let first = self.recent.iter().take_while(|recent| is_outside(recent)).count();
        let end = self.recent.iter().take_while(|recent| recent.block.offset < until).count();
        self.keep(first..end);
        self.searched_until = until;
    }

    fn keep(&mut self, blocks: Range<usize>) {
        for recent in self.recent.range_mut(blocks) {
            if !recent.is_kept {
                recent.is_kept = true;
                self.kept_bytes += recent.block.bytes.len();
            }
        }
    }

    /// The first of the blocks that together hold this many lines before a block.
    fn lines_before(&self, at: usize, lines: usize) -> usize {
        let place = |index: usize| (self.recent[index].block.first_line, self.recent[index].block.offset);
        let (line, offset) = place(at);
        let is_near = |index: &usize| {
            let next = place(index + 1);
            line - next.0 < lines && offset - next.1 < MOST_BYTES
        };
        (0..at).rev().take_while(is_near).last().unwrap_or(at)
    }

    /// The end of the blocks that together hold this many lines after a block; `None` where they have not arrived.
    fn lines_after(&self, at: usize, lines: usize) -> Option<usize> {
        let end = |index: usize| {
            let block = &self.recent[index].block;
            (block.first_line + block.lines, block.offset + block.bytes.len())
        };
        let (line, offset) = end(at);
        let mut prose = 0;
        (at + 1..self.recent.len()).find_map(|index| {
            prose += self.recent[index].prose;
            let last = end(index);
            let is_enough =
                prose >= lines || last.0 - line >= MOST_LINES_AFTER || last.1 - offset >= MOST_BYTES;
            is_enough.then_some(index + 1)
        })
    }

    /// Drops the blocks that neither a waiting block nor a later one needs.
    fn drop_old(&mut self) {
        let lines = if self.seen.failure { LINES_BEFORE } else { LINES_BEFORE_FIRST };
        while self.recent.len() > 1 && self.waiting.front() != Some(&self.gone) {
            let next = &self.recent[1].block;
            let until = self.waiting.front().map_or(self.recent.len() - 1, |first| first - self.gone);
            let (until, last) = (&self.recent[until].block, &self.recent[self.recent.len() - 1].block);
            let is_old = until.first_line - next.first_line >= lines
                && until.offset - next.offset >= self.limits.before
                && last.offset - next.offset >= self.limits.tail;
            if !is_old && until.offset - next.offset < MOST_BYTES {
                return;
            }
            self.drop_front();
        }
    }

    fn drop_front(&mut self) {
        let Some(Recent { block, is_kept, anchors, .. }) = self.recent.pop_front() else { return };
        self.gone += 1;
        if is_kept {
            self.kept.push(block);
            return;
        }
        match anchors {
            Anchors::None => {}
            Anchors::Read(failures) => {
                for line in failures {
                    self.leave_out(block.first_line + line);
                }
            }
            Anchors::Unread => self.leave_out_unread(&block),
        }
    }

    /// Counts the failures in a block that was not read: an anchor is taken for a failure, as `find` does.
    fn leave_out_unread(&mut self, block: &Block) {
        let text = without_controls(&block.bytes);
        let (mut from, mut line) = (0, block.first_line);
        while let Some(end) = self.scanner.find(&text, from) {
            line += count_lines(&text[from..end]) - 1;
            self.leave_out(line);
            let Some(length) = memchr::memchr2(b'\n', b'\r', &text[end..]) else { return };
            from = end + length + 1;
            line += 1;
        }
    }

    /// Counts a failure unless it is the same as the last one.
    fn leave_out(&mut self, line: usize) {
        if self.last_left_out.is_none_or(|last| line - last > SAME_FAILURE_LINES) {
            self.left_out += 1;
            self.last_left_out = Some(line);
        }
    }
}

/// How many lines of a block are not part of a list of memory blocks, as TensorFlow prints it.
fn prose_lines(block: &Block) -> usize {
    let listed: usize = [&b"] InUse at "[..], b"] Chunk at ", b"] Free "]
        .iter()
        .map(|mark| memmem::find_iter(&block.bytes, mark).count())
        .sum();
    block.lines.saturating_sub(listed)
}
