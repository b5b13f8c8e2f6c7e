//! The figures of one text, put in order for the rules: who has how much, as far as the text says.

use makeroom_core::Bytes;
use makeroom_explain::thresholds::{CONTEXT_CEILING, Shortage};

use crate::facts::{Facts, ListedProcess};

/// A context takes at most this share of a card that is made for computing.
const CONTEXT_SHARE: f64 = 0.1;
/// Sibling ranks that only hold a context on this device have the same size, up to this factor.
const SIBLING_SPREAD: f64 = 1.1;
/// A launcher starts its ranks one right after the other, up to this many numbers apart.
const RANK_DISTANCE: u64 = 4;
/// This many processes of one size are ranks, whatever their numbers.
const LEAST_EQUAL: usize = 3;
/// A figure of three digits is this exact.
const ROUNDING: f64 = 0.995;
/// Beyond rounding, more than the device has.
const OVER_DEVICE: f64 = 1.02;
/// This many processes in a row were started together.
const LAUNCHED: usize = 3;
/// Fewer equal processes may be equal by chance.
const LEAST_SIBLINGS: usize = 2;

/// Who has how much. `total = free + own + Σ others + unlisted`, where all are known.
#[derive(Debug)]
pub(crate) struct Account<'facts> {
    pub(crate) facts: &'facts Facts,
    /// What the framework took from the driver.
    pub(crate) reserved: Option<Bytes>,
    /// The part of it that is cached.
    pub(crate) cached: Option<Bytes>,
    /// All that this process holds, context included; only where the text says so.
    pub(crate) own: Option<Bytes>,
    /// Other processes, as the text lists them.
    pub(crate) others: Vec<&'facts ListedProcess>,
    /// A process is listed that may be this one or another.
    pub(crate) is_own_process_unclear: bool,
}

impl<'facts> Account<'facts> {
    pub(crate) fn new(facts: &'facts Facts) -> Self {
        let reserved = facts.reserved_bytes();
        let mut others: Vec<&ListedProcess> = facts.processes.iter().collect();
        let mut own = facts.this_process;
        let mut is_own_process_unclear = false;
        if own.is_none() && !others.is_empty() {
            // In a container the process does not know its own number and lists itself like a stranger.
            if let Some(position) = reserved.and_then(|reserved| own_position(facts, reserved, &others)) {
                own = Some(others.remove(position).bytes);
            } else {
                is_own_process_unclear = reserved.is_none_or(Bytes::is_zero);
            }
        }
        Self { facts, reserved, cached: facts.cached_bytes(), own, others, is_own_process_unclear }
    }

    /// What all other listed processes hold.
    pub(crate) fn others_bytes(&self) -> Bytes {
        self.others.iter().map(|process| process.bytes).sum()
    }

    /// What is used on the device beyond what the text attributes: the context of this process where the text
    /// does not count it, and whoever else is there.
    pub(crate) fn unlisted(&self) -> Option<Bytes> {
        let own = self.own.or(self.reserved).or(self.facts.live)?;
        Some(self.facts.total? - self.facts.free? - own - self.others_bytes())
    }

    /// Memory that the process holds outside the framework.
    pub(crate) fn overhead(&self) -> Option<Bytes> {
        Some(self.own? - self.reserved?)
    }

    /// The figures that decide, in the form that recordings have them in too.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        let context = self.overhead().or_else(|| self.unlisted()).unwrap_or(Bytes::ZERO);
        // On a small card a desktop takes as much as a context, and could go.
        let is_context = context <= CONTEXT_CEILING
            && self.facts.total.is_some_and(|total| context.share_of(total) <= CONTEXT_SHARE);
        Some(Shortage {
            request: self.facts.request?,
            total: self.facts.total,
            free: self.facts.free,
            live: self.facts.live,
            cached: self.cached,
            context: if is_context { context } else { Bytes::ZERO },
        })
    }

    /// The program holds more than the device has, and its live data alone would not fit: Windows and managed memory
    /// place the rest in system memory.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        let is_more =
            |total: Bytes| self.reserved.is_some_and(|reserved| reserved > total.scaled(OVER_DEVICE));
        self.facts.total.is_some_and(is_more)
            && self.shortage().is_some_and(|shortage| shortage.live_exceeds_device())
    }

    /// Bytes that had to be free in addition.
    pub(crate) fn missing(&self) -> Option<Bytes> {
        self.shortage()?.missing()
    }

    /// Processes that hold a context and little else, of nearly equal size: ranks of the same job that opened this
    /// device in addition to their own.
    pub(crate) fn sibling_contexts(&self) -> Vec<&'facts ListedProcess> {
        let small = |process: &&&ListedProcess| (Bytes::mib(200)..=CONTEXT_CEILING).contains(&process.bytes);
        let contexts: Vec<&ListedProcess> = self.others.iter().filter(small).copied().collect();
        let (least, most) = (
            contexts.iter().map(|process| process.bytes).min().unwrap_or(Bytes::ZERO),
            contexts.iter().map(|process| process.bytes).max().unwrap_or(Bytes::ZERO),
        );
        let are_equal = contexts.len() >= LEAST_SIBLINGS && most <= least.scaled(SIBLING_SPREAD);
        if are_equal { contexts } else { Vec::new() }
    }

    /// Whether the other processes look like ranks of the same job: most of them have consecutive numbers, or all
    /// hold the same.
    pub(crate) fn are_ranks(&self) -> bool {
        let count = self.others.len();
        let mut pids: Vec<u64> = self.others.iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        let rows = pids.chunk_by(|one, next| next - one <= RANK_DISTANCE).map(<[u64]>::len);
        let longest = rows.max().unwrap_or(0);
        let sizes = || self.others.iter().map(|process| process.bytes);
        let (least, most) = (sizes().min().unwrap_or(Bytes::ZERO), sizes().max().unwrap_or(Bytes::ZERO));
        let are_equal = count >= LEAST_EQUAL && most <= least.scaled(SIBLING_SPREAD);
        (longest >= LEAST_SIBLINGS && longest * 2 > count) || are_equal
    }

    /// Whether the other processes come from one launcher, whatever each holds: at least three, all but one with
    /// numbers right after each other, two of them of equal size. Stopping one ends the job.
    pub(crate) fn share_a_launcher(&self) -> bool {
        let mut pids: Vec<u64> = self.others.iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        let together = pids.windows(2).filter(|pair| pair[1] - pair[0] <= RANK_DISTANCE).count() + 1;
        let has_equals = self.others.iter().enumerate().any(|(place, process)| {
            self.others[place + 1..].iter().any(|other| {
                let (less, more) = (process.bytes.min(other.bytes), process.bytes.max(other.bytes));
                more <= less.scaled(SIBLING_SPREAD)
            })
        });
        together >= LAUNCHED && together + 1 >= pids.len() && has_equals
    }

    /// The driver had room, by a wide margin, and refused all the same: the figures do not explain the failure.
    pub(crate) fn is_contradictory(&self) -> bool {
        let (Some(request), Some(free)) = (self.facts.request, self.facts.free) else { return false };
        let is_roomy = self.facts.total.is_none_or(|total| free.share_of(total) >= 0.02);
        // Texts round: a request that equals the free memory did not fit.
        let free_at_least = free.scaled(ROUNDING);
        let is_impossible = self.facts.total.is_some_and(|total| free > total.scaled(1.01));
        is_impossible || (free_at_least >= request && is_roomy && !request.is_zero())
    }
}

/// Which of the listed processes is this one: the smallest that can hold what the framework reserved, if it holds
/// little more, or if otherwise more would be used than the device has.
fn own_position(facts: &Facts, reserved: Bytes, listed: &[&ListedProcess]) -> Option<usize> {
    if reserved.is_zero() {
        return None;
    }
    let can_be_own = |process: &&ListedProcess| process.bytes.scaled(1.01) >= reserved;
    let (position, smallest) = listed
        .iter()
        .enumerate()
        .filter(|(_, process)| can_be_own(process))
        .min_by_key(|(_, process)| process.bytes)?;
    let is_snug = smallest.bytes - reserved <= CONTEXT_CEILING;
    let all: Bytes = listed.iter().map(|process| process.bytes).sum();
    let used = reserved + all + facts.free.unwrap_or(Bytes::ZERO);
    let is_too_much = facts.total.is_some_and(|total| used > total.scaled(1.01));
    (is_snug || is_too_much).then_some(position)
}
