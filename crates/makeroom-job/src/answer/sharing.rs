//! Ranks that share a GPU, from their logs alone.
//!
//! PyTorch's message lists the other processes on the GPU: `Process 4711 has 19.70 GiB memory in use.` Two ranks that ran
//! out on a GPU of the same number share it if
//!
//! ```text
//! both list the same other process, or one lists the other's PID      certain
//! each lists a process of the other's size, or they have the same
//! host and different local ranks                                      likely
//! ```
//!
//! PIDs in different containers or on different hosts can be the same, so ranks of different hosts are never compared, and
//! PIDs are only likely to show it if no host is known or several ranks have the same one.

use makeroom_ordered::{OrderedMap, OrderedSet};

use super::select::Process;
use crate::tables::{FailureKind, FailureRow, RecordingKind};

/// Ranks of one GPU number that are compared one by one by size.
const MOST_COMPARED: usize = 64;
/// Sizes are the same within this share: they were read at different times.
const SAME: f64 = 0.05;

/// The result.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// The first process on the same GPU, by process.
    groups: OrderedMap<usize, usize>,
    /// Whether PIDs show it for all of them.
    pub(super) is_certain: bool,
}

impl Sharing {
    /// The first of the processes that share the GPU of this one.
    pub(super) fn group(&self, process: usize) -> Option<usize> {
        self.groups.get(&process).copied()
    }
}

/// A rank that ran out, and lists other processes.
struct Listing<'rows> {
    process: usize,
    failure: &'rows FailureRow,
    /// What the rank itself uses.
    own: u64,
}

/// Finds ranks that share a GPU.
pub(super) fn find(processes: &[Process<'_>]) -> Sharing {
    let mut cards: OrderedMap<(Option<&str>, u32), Vec<Listing<'_>>> = OrderedMap::new();
    for (index, process) in processes.iter().enumerate() {
        let listing = process.decisive().filter(|failure| failure.kind == FailureKind::DeviceMemory);
        let listing =
            listing.filter(|failure| process.row.kind == RecordingKind::Log && !failure.others.is_empty());
        let Some((failure, device)) = listing.and_then(|failure| Some((failure, failure.device?))) else {
            continue;
        };
        let others: u64 = failure.others.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        let total = process.total_bytes(failure.device).unwrap_or(0);
        let own = total.saturating_sub(failure.free_bytes.unwrap_or(0)).saturating_sub(others);
        cards.entry((process.host, device)).or_default().push(Listing { process: index, failure, own });
    }
    let mut sharing = Sharing { groups: OrderedMap::new(), is_certain: true };
    for ((host, _), listings) in cards.iter().filter(|(_, listings)| listings.len() > 1) {
        let by_pid = by_pid(processes, listings);
        let is_shared = by_pid.iter().any(|(process, group)| process != group);
        sharing.is_certain &= is_shared && host.is_some() && repeated(processes, listings).is_empty();
        let groups = if is_shared { by_pid } else { by_size(processes, listings) };
        sharing.groups.extend(groups);
    }
    sharing
}

/// Groups of ranks that list the same PID, or one another: a union-find over the ranks. Two ranks with the same PID are in
/// different containers, where equal PIDs mean nothing, so they are never united.
fn by_pid(processes: &[Process<'_>], listings: &[Listing<'_>]) -> OrderedMap<usize, usize> {
    let own = |listing: &Listing<'_>| processes[listing.process].pid;
    let mut parents: Vec<usize> = (0..listings.len()).collect();
    let mut pids: Vec<OrderedSet<u32>> =
        listings.iter().map(|listing| own(listing).into_iter().collect()).collect();
    let mut first: OrderedMap<u32, usize> = OrderedMap::new();
    let mut unite = |one: usize, two: usize| {
        let (one, two) = (root(&mut parents, one), root(&mut parents, two));
        let (least, other) = (one.min(two), one.max(two));
        if least != other && pids[least].is_disjoint(&pids[other]) {
            let moved = std::mem::take(&mut pids[other]);
            pids[least].extend(moved);
            parents[other] = least;
        }
    };
    for (position, listing) in listings.iter().enumerate() {
        for (pid, _) in &listing.failure.others {
            unite(position, *first.entry(*pid).or_insert(position));
        }
    }
    let duplicates = repeated(processes, listings);
    for (position, listing) in listings.iter().enumerate() {
        let lister = own(listing).filter(|pid| !duplicates.contains(pid)).and_then(|pid| first.get(&pid));
        if let Some(&lister) = lister {
            unite(position, lister);
        }
    }
    let group = |position: usize| listings[root(&mut parents, position)].process;
    let groups: Vec<usize> = (0..listings.len()).map(group).collect();
    listings.iter().map(|listing| listing.process).zip(groups).collect()
}

/// The PIDs that several ranks have.
fn repeated(processes: &[Process<'_>], listings: &[Listing<'_>]) -> OrderedSet<u32> {
    let mut seen = OrderedSet::new();
    let pids = listings.iter().filter_map(|listing| processes[listing.process].pid);
    pids.filter(|&pid| !seen.insert(pid)).collect()
}

/// The first rank of a group. Halves the path to it.
fn root(parents: &mut [usize], mut position: usize) -> usize {
    while parents[position] != position {
        parents[position] = parents[parents[position]];
        position = parents[position];
    }
    position
}

/// Groups of ranks that list each other's sizes, or that a host tells apart.
fn by_size(processes: &[Process<'_>], listings: &[Listing<'_>]) -> OrderedMap<usize, usize> {
    let lists = |one: &Listing<'_>, bytes: u64| {
        let is_same = |(_, other): &(u32, u64)| other.abs_diff(bytes) as f64 <= bytes as f64 * SAME;
        bytes > 0 && one.failure.others.iter().any(is_same)
    };
    let is_local = |one: &Listing<'_>, two: &Listing<'_>| {
        let (one, two) = (&processes[one.process], &processes[two.process]);
        one.host.is_some() && one.row.local_rank.zip(two.row.local_rank).is_some_and(|(one, two)| one != two)
    };
    let mut groups = OrderedMap::new();
    let compared = &listings[..listings.len().min(MOST_COMPARED)];
    for (position, listing) in compared.iter().enumerate() {
        let shares = |other: &&Listing<'_>| {
            lists(listing, other.own) && lists(other, listing.own) || is_local(listing, other)
        };
        let earlier = compared[..position].iter().find(shares);
        let group = earlier.and_then(|other| groups.get(&other.process).copied()).unwrap_or(listing.process);
        groups.insert(listing.process, group);
    }
    groups
}
