//! PyTorch's reports of its blocks: the only part of paging that runs all the time.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use makeroom_place::paged::Standing;

use super::queue::Report;
use super::{Inner, Pages, PagesStats};

/// One of this many reports is measured. Reading the clock costs as much as most reports.
const MEASURED: u64 = 64;

/// Reports are applied about this long after the previous batch; until then, freed memory cannot move.
const LONGEST: Duration = Duration::from_millis(20);
/// The same while no memory has moved for a while. A larger batch takes less time per report.
const QUIET_LONGEST: Duration = Duration::from_millis(100);

/// The result of backing a block. All figures are 0 if all of the block's pages had memory already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a block without memory is an illegal access when it is used"]
pub struct Taken {
    /// Bytes in pages without memory.
    pub unbacked: u64,
    /// Bytes in host memory, of all blocks.
    pub on_host: u64,
    /// Those beyond the quota, because another process took the device's.
    pub debt: u64,
}

impl Inner {
    /// Adds a report to the queue.
    #[inline]
    fn enqueue(&mut self, report: Report, begun: Option<Instant>) {
        let is_full = self.queue.push(report);
        self.end_report(begun);
        if is_full {
            self.apply_reports();
        }
    }

    /// Ends a report. Those that are measured also apply the queue, if its reports may be old.
    #[inline]
    fn end_report(&mut self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.add_measured(begun, begun.elapsed());
        }
    }

    fn add_measured(&mut self, begun: Instant, time: Duration) {
        self.quick += time.saturating_sub(self.clock) * MEASURED as u32;
        let longest = if self.memory.is_quiet(begun) { QUIET_LONGEST } else { LONGEST };
        if begun.duration_since(self.applied_at) >= longest {
            self.apply_reports();
        }
    }

    /// Brings the policy up to date. Everything but a report does that first.
    pub(super) fn apply_reports(&mut self) {
        if self.is_applying {
            // A panic interrupted this function: some reports are lost, so a page that looks idle may be in use.
            self.memory.end_time();
        }
        if self.queue.is_empty() {
            return;
        }
        let begun = Instant::now();
        self.is_applying = true;
        let Self { queue, policy, memory, .. } = self;
        queue.drain(|report| {
            if report.is_freed() {
                policy.remove_block(memory, report.address, report.size());
            } else {
                // Its pages have memory: otherwise it would not be in the queue.
                policy.add_block(report.address, report.size());
            }
        });
        self.is_applying = false;
        self.applied_at = begun;
        self.quick += begun.elapsed().saturating_sub(self.clock);
        self.memory.look();
    }
}

impl Pages {
    /// A block was placed, and `live` bytes are in blocks now. `None` if it is not in a range of PyTorch's segments.
    pub fn take(&self, address: u64, bytes: u64, live: u64) -> Option<Taken> {
        let begun = self.begin_report();
        let live = live.saturating_sub(self.outside.load(Ordering::Relaxed));
        let is_peak = live > self.peak_live.load(Ordering::Relaxed);
        if !is_peak && self.kept.contain(address) {
            self.end_kept(address, bytes, begun);
            return Some(Taken::default());
        }
        let mut inner = self.inner.lock().ok()?;
        let standing = inner.policy.standing(address, bytes);
        if standing == Standing::Outside {
            self.outside.fetch_add(bytes, Ordering::Relaxed);
            return None;
        }
        if is_peak {
            inner.policy.set_peak_live(live);
            self.peak_live.store(live, Ordering::Relaxed);
        }
        if standing == Standing::Missing {
            let unbacked = self.back_block(inner, address, bytes)?;
            // A small slot whose memory was missing may have been the last of its range.
            self.update_kept();
            return self.taken(unbacked);
        }
        if standing == Standing::Backed {
            inner.enqueue(Report::placed(address, bytes), begun);
        } else {
            inner.end_report(begun);
        }
        Some(Taken::default())
    }

    #[cold]
    fn back_block(&self, mut inner: MutexGuard<'_, Inner>, address: u64, bytes: u64) -> Option<u64> {
        inner.apply_reports();
        inner.policy.add_block(address, bytes)?;
        self.back(inner, address, bytes)
    }

    /// The figures after memory was needed.
    pub(super) fn taken(&self, unbacked: u64) -> Option<Taken> {
        let on_host = self.lock()?.policy.stats().on_host;
        Some(Taken { unbacked, on_host, debt: on_host.saturating_sub(self.host_quota) })
    }

    /// A block was freed.
    pub fn give(&self, address: u64, bytes: u64) {
        let begun = self.begin_report();
        if self.kept.contain(address) {
            return self.end_kept(address, bytes, begun);
        }
        let Ok(mut inner) = self.inner.lock() else { return };
        let outside = self.outside.load(Ordering::Relaxed);
        if outside > 0 && !inner.policy.contains(address) {
            // Of a block that came before the pages, nothing was added.
            self.outside.store(outside.saturating_sub(bytes), Ordering::Relaxed);
            return;
        }
        // The policy ignores blocks outside its ranges and in exempt ones, so finding the range can otherwise wait until the
        // report is applied.
        inner.enqueue(Report::freed(address, bytes), begun);
    }

    /// Ends a report that did not need the lock. Those that are measured take it.
    #[inline]
    fn end_kept(&self, address: u64, bytes: u64, begun: Option<Instant>) {
        let is_kept = |inner: MutexGuard<'_, Inner>| inner.policy.standing(address, bytes) == Standing::Kept;
        debug_assert!(self.inner.try_lock().ok().flatten().is_none_or(is_kept));
        if let Some(begun) = begun {
            self.measure(begun);
        }
    }

    #[cold]
    fn measure(&self, begun: Instant) {
        let time = begun.elapsed();
        if let Ok(mut inner) = self.inner.lock() {
            inner.add_measured(begun, time);
        }
    }

    /// Publishes the ranges whose reports need no lock.
    pub(super) fn update_kept(&self) {
        if let Ok(inner) = self.inner.lock() {
            self.kept.set(inner.policy.kept_ranges());
        }
    }

    /// The figures. Reports are counted when they come, so those in the queue are in them.
    pub(super) fn figures(&self, inner: &Inner) -> PagesStats {
        PagesStats {
            pages: inner.policy.stats(),
            spent: inner.memory.spent() + inner.quick,
            in_reports: inner.quick,
            reports: self.reports.load(Ordering::Relaxed),
        }
    }

    /// The time at which a report begins, if it is one of those that are measured.
    #[inline]
    fn begin_report(&self) -> Option<Instant> {
        // PyTorch reports under a lock of its own; without it, a report might not be counted, and nothing else depends on that.
        let number = self.reports.load(Ordering::Relaxed).wrapping_add(1);
        self.reports.store(number, Ordering::Relaxed);
        number.is_multiple_of(MEASURED).then(Instant::now)
    }
}

/// The least time between two readings of the clock.
pub(super) fn clock_cost() -> Duration {
    (0..16).map(|_| Instant::now().elapsed()).min().unwrap_or_default()
}
