//! The GPUs of a job: which ranks share one, which are idle, and whose memory fills the one that ran out.
//!
//! A GPU is known by its UUID. Without one, two ranks may both see their own GPU as number 0, so recordings without
//! UUIDs share a GPU only if the messages of ranks that ran out list the other processes on it: see `sharing.rs`.

use super::select::Process;
use super::sharing::{self, Sharing};
use crate::report::{Account, AccountLine, CardUse};
use crate::tables::{DeviceRow, FailureKind, FailureRow};
use makeroom_core::SortCompact as _;
use makeroom_ordered::{OrderedMap, OrderedSet};

/// An account that leaves this share of the GPU open is tried with the ranks' peaks.
const OPEN_SHARE: f64 = 0.05;
/// Ranks that have a line of their own in an account.
const MOST_LINES: usize = 8;

/// A GPU and the processes that used it.
#[derive(Debug)]
pub(super) struct Card<'rows> {
    pub(super) device: &'rows DeviceRow,
    pub(super) host: Option<&'rows str>,
    /// Indices of processes, ascending, each with its index of the device.
    pub(super) users: Vec<(usize, u32)>,
    /// Number of ranks among them; a rank can have several processes.
    ranks: usize,
    /// Whether only error messages show who uses it: they do not show other GPUs.
    is_from_logs: bool,
}

impl Card<'_> {
    pub(super) fn name(&self, has_hosts: bool) -> String {
        match self.host.filter(|_| has_hosts) {
            Some(host) => format!("GPU {} of {host}", self.device.device),
            None => format!("GPU {}", self.device.device),
        }
    }
}

/// The GPUs of a job.
#[derive(Debug)]
pub(super) struct Cards<'rows> {
    pub(super) used: Vec<Card<'rows>>,
    /// GPUs that ranks see and none uses, on hosts where several ranks share one.
    pub(super) idle: Vec<Card<'rows>>,
    pub(super) has_hosts: bool,
    sharing: Sharing,
}

impl<'rows> Cards<'rows> {
    pub(super) fn new(processes: &[Process<'rows>]) -> Self {
        let hosts: OrderedSet<Option<&str>> =
            processes.iter().map(|process| process.row.host.as_deref()).collect();
        let sharing = sharing::find(processes);
        let mut used: OrderedMap<String, Card<'rows>> = OrderedMap::new();
        let mut seen: OrderedMap<String, Card<'rows>> = OrderedMap::new();
        for (index, process) in processes.iter().enumerate() {
            let row = process.row;
            for device in &row.devices {
                let of_log = sharing.group(index).filter(|_| device.uuid.is_none());
                let owner = of_log.unwrap_or(index);
                let key = device.uuid.clone().unwrap_or_else(|| format!("{owner}:{}", device.device));
                let host = row.host.as_deref();
                let is_from_logs = of_log.is_some();
                let cards = if device.is_used { &mut used } else { &mut seen };
                let card = cards.entry(key).or_insert(Card {
                    device,
                    host,
                    users: Vec::new(),
                    ranks: 0,
                    is_from_logs,
                });
                if device.is_used {
                    card.users.push((index, device.device));
                    card.ranks += usize::from(!process.is_helper);
                }
            }
        }
        // A rank with a context on a GPU but without memory, as PyTorch creates on GPU 0 by mistake, is not a user.
        let shared_hosts: OrderedSet<Option<&str>> =
            used.values().filter(|card| card.ranks > 1).map(|card| card.host).collect();
        seen.retain(|key, card| !used.contains_key(key) && shared_hosts.contains(&card.host));
        let order =
            |card: &Card<'_>| (card.host.map(str::to_owned), card.device.device, card.device.uuid.clone());
        let sorted = |cards: OrderedMap<String, Card<'rows>>| {
            let mut cards: Vec<Card<'rows>> = cards.into_values().collect();
            cards.sort_by_cached_key(order);
            cards
        };
        Self { used: sorted(used), idle: sorted(seen), has_hosts: hosts.len() > 1, sharing }
    }

    /// The GPU that a process uses under an index.
    pub(super) fn of(&self, process: usize, device: u32) -> Option<&Card<'rows>> {
        self.used.iter().find(|card| card.users.contains(&(process, device)))
    }

    /// Whether it is known from recordings or PIDs which ranks share a GPU, and not only from sizes.
    pub(super) fn is_certain(&self) -> bool {
        self.mistaken().any(|card| !card.is_from_logs) || self.sharing.is_certain
    }

    /// The GPUs that several ranks use although others on their host are idle, or, where only messages are known, that
    /// several ranks use.
    pub(super) fn mistaken(&self) -> impl Iterator<Item = &Card<'rows>> {
        let has_idle =
            |card: &&Card<'_>| card.is_from_logs || self.idle.iter().any(|idle| idle.host == card.host);
        self.used.iter().filter(|card| card.ranks > 1).filter(has_idle)
    }

    pub(super) fn report(&self, processes: &[Process<'_>]) -> Vec<CardUse> {
        let card_use = |card: &Card<'_>| CardUse {
            name: card.name(self.has_hosts),
            host: card.host.map(str::to_owned),
            uuid: card.device.uuid.clone(),
            total_bytes: card.device.total_bytes,
            ranks: card.users.iter().map(|&(process, _)| processes[process].label.clone()).collect(),
            peak_bytes: card
                .users
                .iter()
                .map(|&user| device(processes, user).map_or(0, |row| row.peak_bytes))
                .fold(0, u64::saturating_add),
        };
        self.used.iter().map(card_use).collect()
    }

    /// Whose memory filled a GPU when a request of `process` failed. The recordings of the ranks on it close each
    /// other's account: what one of them cannot explain, the others hold.
    pub(super) fn account(
        &self,
        processes: &[Process<'_>],
        process: usize,
        failure: &FailureRow,
    ) -> Option<Account> {
        let card = self.of(process, failure.device?)?;
        if let Some(limit) = failure.limit_bytes {
            let name = format!("{} with --limit, {}", card.name(self.has_hosts), processes[process].label);
            let overhead = device(processes, (process, failure.device?)).map_or(0, |row| row.overhead_bytes);
            return Some(limited(name, limit, failure, overhead));
        }
        let total = card.device.total_bytes?;
        let now: Vec<u64> = card
            .users
            .iter()
            .map(|&user| {
                if user.0 == process {
                    failure.held_bytes.unwrap_or(0)
                } else {
                    held(processes, user, failure)
                }
            })
            .collect();
        // A log alone does not say what the ranks hold.
        if now.iter().all(|&bytes| bytes == 0) {
            return None;
        }
        let peaks: Vec<u64> = card
            .users
            .iter()
            .zip(&now)
            .map(|(&user, &now)| {
                if user.0 == process {
                    now
                } else {
                    device(processes, user).map_or(now, |row| row.peak_bytes)
                }
            })
            .collect();
        let contexts: u64 = card
            .users
            .iter()
            .filter_map(|&user| device(processes, user))
            .map(|row| row.overhead_bytes)
            .fold(0, u64::saturating_add);
        let free = failure.free_bytes.unwrap_or(0);
        let open = |held: &[u64]| {
            i128::from(total)
                - held.iter().chain([&contexts, &free]).map(|&bytes| i128::from(bytes)).sum::<i128>()
        };
        // Clocks of processes can differ. Held memory rarely shrinks before a failure, so the peaks may fit better.
        let is_open = open(&now).unsigned_abs() as f64 > total as f64 * OPEN_SHARE;
        let held =
            if is_open && open(&peaks).unsigned_abs() < open(&now).unsigned_abs() { peaks } else { now };
        // On a shared GPU a context is told from the others' memory by its usual size: it is at most what is left.
        let known: u64 = held.iter().copied().chain([free]).fold(0, u64::saturating_add);
        let contexts = contexts.min(total.saturating_sub(known));
        let mut lines: Vec<AccountLine> = card
            .users
            .iter()
            .zip(&held)
            .map(|(&(user, _), &bytes)| AccountLine {
                what: processes[user].label.clone(),
                is_rank: true,
                bytes,
                remark: if user == process { "failed here".to_owned() } else { String::new() },
            })
            .collect();
        // Stable: equal ones stay in the order of ranks.
        lines.sort_compact_by_key(|line| std::cmp::Reverse(line.bytes));
        if lines.len() > MOST_LINES {
            let failed = lines.iter().position(|line| !line.remark.is_empty());
            let rest = lines.split_off(MOST_LINES - 1);
            let (kept, rest): (Vec<AccountLine>, Vec<AccountLine>) =
                rest.into_iter().partition(|line| failed >= Some(MOST_LINES - 1) && !line.remark.is_empty());
            lines.extend(kept);
            lines.push(AccountLine {
                what: format!("{} more ranks", rest.len()),
                is_rank: true,
                bytes: rest.iter().map(|line| line.bytes).fold(0, u64::saturating_add),
                remark: String::new(),
            });
        }
        let count = card.users.len();
        let what =
            if count == 1 { "CUDA context".to_owned() } else { format!("CUDA contexts of {count} ranks") };
        let other = |what, bytes| AccountLine { what, is_rank: false, bytes, remark: String::new() };
        lines.push(other(what, contexts));
        lines.push(other("free".to_owned(), free));
        lines.retain(|line| line.bytes > 0);
        let listed: u64 = lines.iter().map(|line| line.bytes).fold(0, u64::saturating_add);
        let unaccounted_bytes = i64::try_from(i128::from(total) - i128::from(listed)).unwrap_or(i64::MAX);
        Some(Account { name: card.name(self.has_hosts), total_bytes: total, lines, unaccounted_bytes })
    }
}

/// The account of a process that exceeded its own limit. The memory of other processes does not count against it.
fn limited(name: String, limit: u64, failure: &FailureRow, overhead: u64) -> Account {
    let held = failure.held_bytes.unwrap_or(0);
    let line = |what: &str, bytes: u64, remark: &str| AccountLine {
        what: what.to_owned(),
        is_rank: !remark.is_empty(),
        bytes,
        remark: remark.to_owned(),
    };
    let overhead = overhead.min(limit.saturating_sub(held));
    let free = limit.saturating_sub(held).saturating_sub(overhead);
    let mut lines = vec![
        line("live memory", held, "failed here"),
        line("CUDA context", overhead, ""),
        line("free", free, ""),
    ];
    lines.retain(|line| line.bytes > 0);
    let listed: u64 = lines.iter().map(|line| line.bytes).fold(0, u64::saturating_add);
    let unaccounted_bytes = i64::try_from(i128::from(limit) - i128::from(listed)).unwrap_or(i64::MAX);
    Account { name, total_bytes: limit, lines, unaccounted_bytes }
}

fn device<'rows>(processes: &[Process<'rows>], (process, device): (usize, u32)) -> Option<&'rows DeviceRow> {
    processes[process].row.devices.iter().find(|row| row.device == device)
}

/// Whether a request is larger than the whole GPU, or than the limit of the process.
pub(super) fn exceeds_device(process: &Process<'_>, failure: &FailureRow) -> bool {
    let total = failure.limit_bytes.or_else(|| process.total_bytes(failure.device));
    failure.kind == FailureKind::DeviceMemory
        && failure.requested_bytes.zip(total).is_some_and(|(requested, total)| requested > total)
}

/// What a process held on a device when the request of another one failed. They share a GPU, so they share a clock.
pub(super) fn held(processes: &[Process<'_>], (index, device): (usize, u32), failure: &FailureRow) -> u64 {
    let process = &processes[index];
    let series = process.series.iter().find(|series| series.device == device);
    match (series, process.elapsed(failure.time_us)) {
        (Some(series), Some(elapsed)) => series.held_at(elapsed),
        _ => self::device(processes, (index, device)).map_or(0, |row| row.last_bytes),
    }
}
