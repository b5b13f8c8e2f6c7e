//! Assigns the recordings of a job to its ranks: which of several recordings of a rank counts, and which add to it.

use super::select::Process;
use super::witness;
use crate::report::{LogConflict, Used};
use crate::tables::{RecordingKind, RecordingRow, Rows};
use makeroom_core::SortCompact as _;
use makeroom_ordered::{OrderedMap, OrderedSet};

/// A process of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place<'rows> {
    Rank(u32),
    /// A host, the number of its node, and a local rank.
    Local(Option<&'rows str>, Option<u32>, u32),
    /// A pod of Kubernetes: kubectl describes it, and its log has its name.
    Pod(&'rows str),
}

/// The processes of a job.
pub(super) struct Assigned<'rows> {
    pub(super) processes: Vec<Process<'rows>>,
    /// Processes that the kernel killed, and that are not known: PID and file.
    pub(super) killed: OrderedSet<(u32, &'rows str)>,
    /// The files that the processes and their failures come from.
    pub(super) files: OrderedSet<&'rows str>,
}

impl<'rows> Place<'rows> {
    /// The place of a log that has only a local rank: torchrun writes two files for each.
    fn of_log(row: &'rows RecordingRow) -> Option<Self> {
        let local = row.local_rank.filter(|_| row.kind == RecordingKind::Log)?;
        Some(Self::Local(row.host.as_deref(), row.node_rank, local))
    }
}

/// Assigns recordings to ranks. Logs add their failures to the recording of the rank.
pub(super) fn processes<'rows>(
    rows: &'rows Rows,
    members: &[&'rows RecordingRow],
    used: &mut Used,
) -> Assigned<'rows> {
    let mut by_place: OrderedMap<Place<'_>, Vec<&RecordingRow>> = OrderedMap::new();
    let mut others = Vec::new();
    let mut by_local: OrderedMap<u32, Vec<&RecordingRow>> = OrderedMap::new();
    for &row in members {
        if let Some(local) = row.local_rank {
            by_local.entry(local).or_default().push(row);
        }
    }
    let ranks: OrderedMap<u32, u32> =
        by_local.iter().filter_map(|(&local, rows)| Some((local, rank_of_local(rows)?))).collect();
    let pods = pods(members);
    for &row in members {
        let of_local = || ranks.get(&row.local_rank?).copied();
        let of_pod = || pods.get(pod_of(row)?).copied();
        let rank = row.rank.or_else(of_local).map(Place::Rank);
        match rank.or_else(|| Place::of_log(row)).or_else(of_pod) {
            Some(place) => by_place.entry(place).or_default().push(row),
            None => others.push(row),
        }
    }
    let mut owners: OrderedMap<&str, usize> = OrderedMap::new();
    let mut processes: Vec<Process<'rows>> = Vec::new();
    let mut push = |processes: &mut Vec<Process<'rows>>, row: &'rows RecordingRow, label: String| {
        owners.insert(&row.recording, processes.len());
        processes.push(Process {
            row,
            shown: row,
            rank: row.rank,
            pid: row.pid,
            host: row.host.as_deref(),
            is_first_failure: row.is_first_failure,
            failures: Vec::new(),
            sites: Vec::new(),
            series: Vec::new(),
            end: row.end,
            ended_at: row.ended_at(),
            has_log: row.kind == RecordingKind::Log,
            error: row.error.as_deref(),
            label,
            is_helper: false,
        });
    };
    let mut evidence: Vec<(&RecordingRow, usize)> = Vec::new();
    for (place, mut rows) in by_place {
        // The recording with most to tell, and of several the newest.
        rows.sort_compact_by(|one, two| {
            // Of logs, the one that shows the failure, and the rank's own before those of several processes.
            let is_log = |row: &RecordingRow| row.kind == RecordingKind::Log;
            let is_own = |row: &RecordingRow| row.process.is_none();
            let log =
                |row: &RecordingRow| is_log(row).then(|| (row.explains(), row.error.is_some(), is_own(row)));
            let weight =
                |row: &RecordingRow| (row.kind, std::cmp::Reverse((row.began_us, row.events, log(row))));
            weight(one).cmp(&weight(two)).then_with(|| one.recording.cmp(&two.recording))
        });
        let Some((&main, rest)) = rows.split_first() else { continue };
        let position = processes.len();
        let name = match place {
            Place::Rank(rank) => format!("rank {rank}"),
            Place::Local(..) | Place::Pod(_) => label(main),
        };
        push(&mut processes, main, name.clone());
        if let Place::Rank(rank) = place {
            processes[position].rank = Some(rank);
        }
        for &row in rest {
            if let Some(failure) = conflict(main, row) {
                used.conflicts.push(LogConflict {
                    label: name.clone(),
                    used: main.recording.clone(),
                    other: row.recording.clone(),
                    failure: failure.to_owned(),
                });
            } else if row.kind != main.kind || row.kind == RecordingKind::Log {
                evidence.push((row, position));
            } else if is_helper(main, row) {
                let pid = row.pid.map_or(String::new(), |pid| format!(" {pid}"));
                push(&mut processes, row, format!("{name}, process{pid}"));
                if let Some(helper) = processes.last_mut() {
                    helper.is_helper = true;
                }
            } else {
                used.duplicates.push(row.recording.clone());
            }
        }
    }
    for row in others {
        push(&mut processes, row, label(row));
    }
    for (row, position) in evidence {
        owners.insert(&row.recording, position);
        if let Some(process) = processes.get_mut(position) {
            process.merge(row);
        }
    }
    let killed = attach(rows, &owners, &mut processes);
    let files = files(members, &owners, &processes, &killed);
    witness::attach_kills(&mut processes);
    let torn = processes.iter().filter(|process| process.row.torn_bytes > 0 || process.row.is_incomplete);
    used.torn = torn.map(|process| process.row.recording.clone()).collect();
    Assigned { processes, killed, files }
}

/// The files that processes and their failures come from.
fn files<'rows>(
    members: &[&'rows RecordingRow],
    owners: &OrderedMap<&str, usize>,
    processes: &[Process<'rows>],
    killed: &OrderedSet<(u32, &'rows str)>,
) -> OrderedSet<&'rows str> {
    let by_name: OrderedMap<&str, &str> =
        members.iter().map(|row| (row.recording.as_str(), row.file())).collect();
    let mut files: OrderedSet<&str> = owners.keys().filter_map(|name| by_name.get(name).copied()).collect();
    let failures = processes.iter().flat_map(|process| &process.failures);
    let reports = failures.map(|failure| failure.recording.as_str());
    files.extend(reports.map(|name| by_name.get(name).copied().unwrap_or(name)));
    files.extend(killed.iter().map(|(_, file)| *file));
    files
}

/// The pod of a log: its lines name it, or its file does.
fn pod_of(row: &RecordingRow) -> Option<&str> {
    let is_named = row.process.as_deref().is_none_or(|process| process.starts_with("pod "));
    let file = row.file().rsplit('/').next().unwrap_or_default();
    let stem = file.split(['.', '_']).next().filter(|_| row.process.is_none());
    row.pod.as_deref().or(stem).filter(|_| is_named && row.kind == RecordingKind::Log)
}

/// The place of each pod that a log names: its rank, if the name of a file gives it one.
fn pods<'rows>(members: &[&'rows RecordingRow]) -> OrderedMap<&'rows str, Place<'rows>> {
    let mut pods: OrderedMap<&str, Place<'_>> = OrderedMap::new();
    for row in members {
        if let Some(pod) = row.pod.as_deref().filter(|_| row.rank.is_none() && row.local_rank.is_none()) {
            pods.entry(pod).or_insert(Place::Pod(pod));
        }
    }
    for row in members {
        if let Some((place, rank)) = pod_of(row).and_then(|pod| pods.get_mut(pod)).zip(row.rank) {
            *place = Place::Rank(rank);
        }
    }
    pods
}

/// The rank of the processes of which only this local rank is known, if they are on one node, a launcher's report has both
/// ranks, and no other process can be meant.
fn rank_of_local(same_local: &[&RecordingRow]) -> Option<u32> {
    let unranked = same_local.iter().filter(|row| row.rank.is_none());
    let nodes: OrderedSet<_> = unranked.map(|row| (row.host.as_deref(), row.node_rank)).collect();
    let &(host, _) = nodes.first().filter(|_| nodes.len() == 1)?;
    let is_on_host = |row: &&&RecordingRow| host.zip(row.host.as_deref()).is_none_or(|(one, two)| one == two);
    let ranks: OrderedSet<u32> = same_local.iter().filter(is_on_host).filter_map(|row| row.rank).collect();
    ranks.first().copied().filter(|_| ranks.len() == 1)
}

/// The name of a process without a rank.
fn label(row: &RecordingRow) -> String {
    let of = row.host.as_ref().map_or(String::new(), |host| format!(" of {host}"));
    let on = row.host.as_ref().map_or(String::new(), |host| format!(" on {host}"));
    let file = row.file().rsplit('/').next().unwrap_or(&row.recording);
    match (row.local_rank, row.pid) {
        (Some(local), _) => format!("local rank {local}{of}"),
        (None, Some(pid)) if row.process.is_some() => format!("process {pid}{on}"),
        (None, None) if row.process.is_some() => row.process.clone().unwrap_or_default(),
        (None, _) if row.kind == RecordingKind::Log => format!("a process in {file}"),
        (None, _) => file.to_owned(),
    }
}

/// The failure in a log of a rank, if another log of it, which is used, shows a different one. The report of a launcher,
/// the output of all ranks, or a second file without a failure of its own add to the log of a rank.
fn conflict<'rows>(main: &'rows RecordingRow, other: &'rows RecordingRow) -> Option<&'rows str> {
    let failure = |row: &'rows RecordingRow| {
        let is_own = row.kind == RecordingKind::Log && row.process.is_none();
        let explained = Some(row.summary.as_str()).filter(|_| row.explains());
        row.error.as_deref().or(explained).filter(|_| is_own)
    };
    failure(other).filter(|other| failure(main).is_some_and(|main| main != *other))
}

/// Whether two recordings of a rank are two processes of it, which ran at the same time, and not the rank recorded
/// twice.
fn is_helper(main: &RecordingRow, other: &RecordingRow) -> bool {
    let spans = [main, other].map(|row| row.began_us.zip(row.ended_us));
    let [Some((main_from, main_to)), Some((from, to))] = spans else { return false };
    let is_child = other.parent_pid == main.pid && main.pid.is_some() || main.parent_pid == other.pid;
    main.host == other.host && main.pid != other.pid && is_child && from <= main_to && main_from <= to
}

/// Adds the rows of the other tables to their processes. Returns the killed processes that are not known.
fn attach<'rows>(
    rows: &'rows Rows,
    owners: &OrderedMap<&str, usize>,
    processes: &mut [Process<'rows>],
) -> OrderedSet<(u32, &'rows str)> {
    let mut repeated = Vec::new();
    for failure in rows.failures.iter().filter(|failure| failure.pid.is_none()) {
        let Some(&owner) = owners.get(failure.recording.as_str()) else { continue };
        if processes[owner].row.recording == failure.recording {
            processes[owner].failures.push(failure);
        } else {
            repeated.push((owner, failure));
        }
    }
    let recorded: Vec<bool> = processes.iter().map(Process::has_failed_allocations).collect();
    for (owner, failure) in repeated {
        // A log repeats the failed allocation that the recording shows exactly.
        if !(recorded[owner] && failure.kind.is_memory()) {
            processes[owner].failures.push(failure);
        }
    }
    let killed = witness::add_reported(rows, processes);
    for site in &rows.sites {
        if let Some(&owner) = owners.get(site.recording.as_str()) {
            processes[owner].sites.push(site);
        }
    }
    for series in &rows.series {
        if let Some(&owner) = owners.get(series.recording.as_str()) {
            processes[owner].series.push(series);
        }
    }
    for process in processes {
        // Rows of a table have no order. A failure without a time comes from a log, after all others.
        process.failures.sort_compact_by_key(|failure| {
            (failure.time_us.unwrap_or(u64::MAX), failure.kind, failure.device)
        });
        process.sites.sort_compact_by(|one, two| (one.device, &one.place).cmp(&(two.device, &two.place)));
        process.series.sort_compact_by_key(|series| series.device);
    }
    killed
}
