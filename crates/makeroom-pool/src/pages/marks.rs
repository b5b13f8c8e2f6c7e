//! Marks: the progress of a whole device, tracked with events that cover every stream of its primary context.
//!
//! A report of a freed block does not name the streams that used the block, so only an event of the context proves that
//! the GPU is done with it. Events are batched: a mark is a number, and an event covers all marks before it. Recording
//! an event while a stream of the context is captured would invalidate the capture, so none is recorded then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use makeroom_cuda::{CaptureModeGuard, Context, Driver, Event, EventKind, Result};
use makeroom_place::paged::{Mark, Pause};
use makeroom_place::pool::Timeout;

use crate::backing::Watcher;

/// Events are recorded at most this often, unless a wait needs one.
const INTERVAL: Duration = Duration::from_millis(25);
/// The same while no memory has moved for a while: most programs stop needing moves after their first steps.
const QUIET_INTERVAL: Duration = Duration::from_millis(100);
/// How long "a while" is.
const QUIET: Duration = Duration::from_secs(1);
/// Events in flight. A GPU that stopped must not use up memory; later marks are covered by a later event.
const MOST_EVENTS: usize = 64;

/// The events in flight, oldest first.
///
/// `passed < waiting[0] < waiting[1] < … = covered ≤ last`, or `passed = covered` if there are none
#[derive(Debug)]
#[repr(C)]
pub(super) struct Marks {
    last: Mark,
    covered: Mark,
    passed: Mark,
    driver: &'static Driver,
    context: Arc<Context>,
    watcher: Option<Arc<dyn Watcher>>,
    waiting: VecDeque<(Mark, Event)>,
    spare: Vec<Event>,
    /// A wait that timed out. The GPU may have stopped, so the same is not waited for again until it passes another mark.
    stuck: Option<Pause>,
    /// When an event was last recorded, or could not be.
    tried: Option<Instant>,
    /// When the progress was last needed.
    needed: Option<Instant>,
    /// The context is gone: nothing passes anymore.
    is_over: bool,
}

impl Marks {
    pub(super) fn new(
        driver: &'static Driver,
        context: Arc<Context>,
        watcher: Option<Arc<dyn Watcher>>,
    ) -> Self {
        Self {
            driver,
            context,
            watcher,
            waiting: VecDeque::new(),
            spare: Vec::new(),
            last: Mark(0),
            covered: Mark(0),
            passed: Mark(0),
            stuck: None,
            tried: None,
            needed: None,
            is_over: false,
        }
    }

    /// A mark after all work submitted so far.
    pub(super) fn mark(&mut self) -> Mark {
        self.last = Mark(self.last.0 + 1);
        self.last
    }

    /// The latest mark that the GPU has passed.
    pub(super) fn passed(&mut self) -> Mark {
        // If the driver fails, the events stay, and nothing more counts as passed.
        let _ = self.has_passed(self.last);
        self.passed
    }

    /// Whether the GPU has passed a mark. If the driver fails, waiting for the mark is of no use.
    pub(super) fn has_passed(&mut self, mark: Mark) -> Result<bool> {
        self.needed = Some(Instant::now());
        self.record_if_due();
        if !self.waiting.is_empty() {
            self.poll()?;
        }
        Ok(self.passed >= mark)
    }

    /// Whether a wait that was at least as long, for this mark or an earlier one, timed out, and no mark has passed since.
    pub(super) fn is_stuck(&self, pause: Pause) -> bool {
        let is_covered = |stuck: Pause| stuck.timeout == Timeout::Wait || pause.timeout != Timeout::Wait;
        self.stuck.is_some_and(|stuck| pause.mark >= stuck.mark && is_covered(stuck))
    }

    /// A wait timed out.
    pub(super) fn time_out(&mut self, pause: Pause) {
        // A short wait for an earlier mark says less than a long one.
        if pause.timeout == Timeout::Wait || self.stuck.is_none_or(|stuck| stuck.timeout != Timeout::Wait) {
            self.stuck = Some(pause);
        }
    }

    /// Makes sure that an event covers a mark, so that waiting for the mark ends. Returns whether one does; none is recorded
    /// during a capture, and nothing may wait then.
    pub(super) fn cover(&mut self, mark: Mark) -> bool {
        !self.is_capturing() && (self.covered >= mark || (self.last >= mark && self.record()))
    }

    /// The context ends, and its events with it.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        let waiting = self.waiting.drain(..).map(|(_, event)| event);
        // The driver destroys them with the context.
        waiting.chain(self.spare.drain(..)).for_each(std::mem::forget);
    }

    fn is_capturing(&self) -> bool {
        let mut is_capturing = self.watcher.is_some();
        if let Some(watcher) = &self.watcher {
            watcher.unless_capturing(&mut || is_capturing = false);
        }
        is_capturing
    }

    /// Whether the progress has not been needed for a while.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.needed.is_none_or(|needed| now.duration_since(needed) > QUIET)
    }

    /// Records an event if marks have been without one for long enough.
    pub(super) fn record_if_due(&mut self) {
        if self.covered >= self.last || self.waiting.len() >= MOST_EVENTS {
            return;
        }
        let now = Instant::now();
        let interval = if self.is_quiet(now) { QUIET_INTERVAL } else { INTERVAL };
        if self.tried.is_none_or(|tried| now.duration_since(tried) >= interval) {
            self.record();
        }
    }

    /// Records an event that covers all marks so far. Returns whether it did.
    fn record(&mut self) -> bool {
        self.tried = Some(Instant::now());
        if self.is_over {
            return false;
        }
        let Ok(event) = self.recorded() else { return false };
        let Some(event) = event else { return false };
        self.waiting.push_back((self.last, event));
        self.covered = self.last;
        true
    }

    fn recorded(&mut self) -> Result<Option<Event>> {
        let _entered = self.context.enter()?;
        let _relaxed = CaptureModeGuard::relaxed(self.driver)?;
        let event = match self.spare.pop() {
            Some(event) => event,
            None => Event::create(self.driver, EventKind::NoTiming)?,
        };
        let mut is_recorded = false;
        let mut record = || is_recorded = event.record_context(&self.context).is_ok();
        match &self.watcher {
            Some(watcher) => watcher.unless_capturing(&mut record),
            None => record(),
        }
        if is_recorded {
            return Ok(Some(event));
        }
        self.spare.push(event);
        Ok(None)
    }

    /// Takes note of the events that the GPU has passed.
    fn poll(&mut self) -> Result<()> {
        let context = Arc::clone(&self.context);
        let _entered = context.enter()?;
        let _relaxed = CaptureModeGuard::relaxed(self.driver)?;
        while let Some((_, event)) = self.waiting.front() {
            if !event.is_done()? {
                break;
            }
            self.pass_oldest();
        }
        Ok(())
    }

    fn pass_oldest(&mut self) {
        if let Some((mark, event)) = self.waiting.pop_front() {
            self.passed = mark;
            self.stuck = None;
            self.spare.push(event);
        }
    }
}
