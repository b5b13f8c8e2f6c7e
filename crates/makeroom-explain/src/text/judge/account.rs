//! The figures of one text, put in order for the rules: who has how much, as far as the text says.

use makeroom_core::Bytes;

use crate::text::facts::{Facts, ListedProcess};

/// What a PyTorch process takes beside its tensors: the driver's context, code, cuBLAS and cuDNN handles.
pub(crate) const CONTEXT_TYPICAL: Bytes = Bytes::mib(600);
/// With NCCL, workspaces and a desktop it can come to this much; more than that belongs to somebody else.
pub(crate) const CONTEXT_CEILING: Bytes = Bytes::mib(1434);
/// From this share of unused memory on, pieces are the reason and not the end of the memory.
pub(crate) const FRAGMENTATION_SLACK: f64 = 0.05;

/// Who has how much. `total = free + own + Σ others + unlisted`, where all are known.
#[derive(Debug)]
pub(crate) struct Account<'facts> {
    pub(crate) facts: &'facts Facts,
    /// What the framework took from the driver.
    pub(crate) reserved: Option<Bytes>,
    /// What of that nobody uses.
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

    /// What the process holds beside the framework's memory.
    pub(crate) fn overhead(&self) -> Option<Bytes> {
        Some(self.own? - self.reserved?)
    }

    /// How much more memory the request needs than is free or unused, however the unused part lies.
    pub(crate) fn short_of(&self) -> Option<Bytes> {
        let request = self.facts.request?;
        let short = request - self.facts.free? - self.cached.unwrap_or(Bytes::ZERO);
        Some(if short.is_zero() { self.missing()? } else { short })
    }

    /// Whether the request would fit if all that is free or unused were one piece; `None` where the text does not say.
    pub(crate) fn would_fit_in_one_piece(&self) -> Option<bool> {
        Some(self.facts.free? + self.cached? >= self.facts.request?)
    }

    /// How much more would have had to be free. A card that is all but full fails requests that seem to fit,
    /// because the driver rounds and keeps pages of its own.
    pub(crate) fn missing(&self) -> Option<Bytes> {
        let request = self.facts.request?;
        let free = self.facts.free?;
        Some(if free < request { request - free } else { request })
    }

    /// The driver had room, by a wide margin, and refused all the same: the figures do not explain the failure.
    pub(crate) fn is_contradictory(&self) -> bool {
        let (Some(request), Some(free)) = (self.facts.request, self.facts.free) else { return false };
        let is_roomy = self.facts.total.is_none_or(|total| free.share_of(total) >= 0.02);
        let is_impossible = self.facts.total.is_some_and(|total| free > total.scaled(1.01));
        is_impossible || (free >= request && is_roomy && !request.is_zero())
    }

    /// The unused share of what the framework reserved.
    pub(crate) fn slack(&self) -> Option<f64> {
        Some(self.cached?.share_of(self.reserved?))
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
