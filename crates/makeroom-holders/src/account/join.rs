//! Joins the driver's survey with `/proc` and recordings.

use makeroom_core::{Bytes, SortCompact as _};
use makeroom_ordered::{OrderedMap, OrderedSet};

use super::{Device, Finding, Holder, IdleContexts, Label, Unlisted, causes, findings};
use crate::processes::{Process, Processes};
use crate::recording::Recordings;
use crate::survey::{Card, List, Listed, Survey};

/// Maximum size of a bare context: 527 MiB was measured on an H200, and older GPUs need less.
const LARGEST_CONTEXT: Bytes = Bytes::mib(700);

/// Data shared by the steps of the join.
pub(super) struct Joined<'read> {
    pub(super) processes: &'read Processes,
    recordings: &'read OrderedMap<u32, Recordings>,
    /// Processes that the driver lists on any GPU.
    listed: OrderedSet<u32>,
}

/// The account of every GPU. `recordings` holds those of listed processes that were read.
pub(crate) fn join(
    survey: &Survey,
    processes: &Processes,
    recordings: &OrderedMap<u32, Recordings>,
) -> Vec<Device> {
    let listed = survey.listed().map(|listed| listed.pid).collect();
    let joined = Joined { processes, recordings, listed };
    survey.cards.iter().map(|card| device(&joined, card, Label { card: card.index, part: None })).collect()
}

fn device(joined: &Joined<'_>, card: &Card, label: Label) -> Device {
    let mut device = Device::from_card(card, label);
    device.holders = holders(joined, card);
    device.idle = idle(&mut device.holders);
    // MIG instances have accounts of their own; the lists of the whole GPU include them.
    device.parts = card
        .parts
        .iter()
        .map(|part| self::device(joined, part, Label { card: label.card, part: Some(part.index) }))
        .collect();
    if let Some(memory) = device.memory {
        device.unlisted.bytes = memory.used.difference(device.held());
    }
    let is_absurd = device.memory.is_some_and(|memory| device.held() > memory.total);
    if device.unlisted.matters() || is_absurd {
        device.unlisted = Unlisted { causes: causes::find(joined, card, &device), ..device.unlisted };
    }
    device
}

/// The listed processes, one entry each, largest first.
fn holders(joined: &Joined<'_>, card: &Card) -> Vec<Holder> {
    let mut by_pid: OrderedMap<u32, Vec<Listed>> = OrderedMap::new();
    for listed in card.listed.iter().copied().chain(of_parts_alone(card)) {
        by_pid.entry(listed.pid).or_default().push(listed);
    }
    let mut holders: Vec<Holder> =
        by_pid.into_iter().map(|(pid, listed)| holder(joined, &card.uuid, pid, &listed)).collect();
    holders.sort_compact_by_key(|holder| std::cmp::Reverse(holder.bytes));
    holders
}

/// Processes listed only on MIG instances, with their memory summed over all of them. The driver lists them on the
/// whole GPU only for root.
fn of_parts_alone(card: &Card) -> impl Iterator<Item = Listed> {
    let mut sums: OrderedMap<(u32, List), Listed> = OrderedMap::new();
    let is_listed = |one: &Listed| card.listed.iter().any(|whole| whole.pid == one.pid);
    for one in card.parts.iter().flat_map(|part| &part.listed).filter(|one| !is_listed(one)) {
        let sum = sums.entry((one.pid, one.list)).or_insert(Listed { bytes: None, peak: None, ..*one });
        sum.bytes = [sum.bytes, one.bytes].into_iter().flatten().reduce(u64::saturating_add);
    }
    sums.into_values()
}

fn holder(joined: &Joined<'_>, uuid: &str, pid: u32, listed: &[Listed]) -> Holder {
    // A process that computes and renders is in two lists with the same figure.
    let bytes = listed.iter().filter_map(|listed| listed.bytes).max().map(Bytes::new);
    let mut lists: Vec<List> = listed.iter().map(|listed| listed.list).collect();
    lists.sort_compact_by(Ord::cmp);
    let process = joined.process(pid);
    let mut found = findings::of_lists(&lists, bytes.is_some());
    match process {
        Some(process) => found.extend(findings::of_process(process, joined.processes)),
        None => found.push(Finding::Unseen),
    }
    Holder {
        pid,
        bytes,
        peak: listed.iter().filter_map(|listed| listed.peak).max().map(Bytes::new),
        lists,
        process: process.cloned(),
        findings: found,
        recording: joined.recording(pid, uuid),
    }
}

impl Joined<'_> {
    /// The process that the driver means by a PID. In a nested PID namespace, the same number may belong to another
    /// process here; that one does not have the driver's files open.
    fn process(&self, pid: u32) -> Option<&Process> {
        let process = self.processes.known.get(&pid)?;
        let is_surely_it = self.processes.view.is_whole_machine != Some(false) || process.files.has_driver();
        is_surely_it.then_some(process)
    }

    fn recording(&self, pid: u32, uuid: &str) -> Option<crate::Recording> {
        let recordings = self.recordings.get(&pid)?;
        let of_device = recordings.get(uuid).or_else(|| recordings.get(""));
        // Recorded, and it allocated nothing on this device.
        of_device.cloned().or_else(|| {
            let other = recordings.values().next()?;
            let none = Bytes::ZERO;
            Some(crate::Recording {
                live: Some(none),
                managed: none,
                imported: 0,
                refused: 0,
                ..other.clone()
            })
        })
    }

    /// Processes that use the driver and are in none of its lists.
    pub(super) fn not_listed(&self) -> impl Iterator<Item = &Process> {
        self.processes.known.values().filter(|process| !self.listed.contains(&process.stat.pid))
    }
}

/// Marks bare contexts whose parent also holds memory, or has several such children.
fn idle(holders: &mut [Holder]) -> Vec<IdleContexts> {
    let holding: OrderedSet<u32> = holders.iter().map(|holder| holder.pid).collect();
    let mut families: OrderedMap<u32, Vec<usize>> = OrderedMap::new();
    for (position, holder) in holders.iter().enumerate() {
        let is_small = holder.bytes.is_some_and(|bytes| !bytes.is_zero() && bytes <= LARGEST_CONTEXT);
        if let Some(process) = holder.process.as_ref().filter(|_| is_small && holder.lists == [List::Compute])
        {
            families.entry(process.stat.parent).or_default().push(position);
        }
    }
    families.retain(|&parent, members| parent > 1 && (holding.contains(&parent) || members.len() > 1));
    let mut groups = Vec::new();
    for (parent, members) in families {
        for &position in &members {
            holders[position].findings.push(Finding::IdleContext);
        }
        let pids = members.iter().map(|&position| holders[position].pid).collect();
        let bytes = members.iter().filter_map(|&position| holders[position].bytes).sum();
        groups.push(IdleContexts { parent, pids, bytes });
    }
    groups
}
