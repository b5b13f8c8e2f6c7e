//! Which recordings belong together: those of one job, one attempt of it and one directory. Files that do not say which
//! job they belong to belong to the only one there is.

use makeroom_ordered::{OrderedMap, OrderedSet};

use super::folders;
use crate::tables::{End, RecordingKind, RecordingRow};

/// A job and its attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<'rows> {
    pub(super) job: Option<&'rows str>,
    replica: Option<&'rows str>,
    run: Option<&'rows str>,
    pub(super) attempt: Option<u32>,
    /// The directory, if several contain the same ranks.
    folder: Option<&'rows str>,
}

/// Whether a recording shows that its process failed.
pub(super) fn has_failed(row: &RecordingRow) -> bool {
    match row.end {
        End::Exited(status) => status != 0,
        End::Signaled(_) | End::Killed => true,
        End::Running | End::Unknown => row.cause != "none" || row.error.is_some(),
    }
}

/// The name of a job for people.
pub(super) fn name(key: &Key<'_>) -> String {
    let job = match (key.job, key.run) {
        (Some(job), _) => Some(format!("job {job}")),
        (None, Some(run)) => Some(format!("run {}", run.get(..8).unwrap_or(run))),
        (None, None) => None,
    };
    let attempt = key.attempt.map(|attempt| format!("attempt {attempt}"));
    let folder = key.folder.filter(|_| attempt.is_none()).map(|folder| format!("directory {folder}"));
    let parts = [job, key.replica.map(str::to_owned), attempt, folder];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "recordings without a job ID".to_owned() } else { parts.join(", ") }
}

/// `1 recording`, `2 recordings`.
pub(super) fn recording_count(count: usize) -> String {
    format!("{count} recording{}", if count == 1 { "" } else { "s" })
}

/// The recordings by job. A recording that does not name a job, a run or an attempt belongs to the only one there is.
pub(super) fn jobs<'rows>(
    rows: impl Iterator<Item = &'rows RecordingRow>,
) -> OrderedMap<Key<'rows>, Vec<&'rows RecordingRow>> {
    let rows: Vec<&RecordingRow> = rows.collect();
    let only =
        |values: OrderedSet<&'rows str>| if values.len() == 1 { values.first().copied() } else { None };
    let only_job = only(rows.iter().filter_map(|row| row.job.as_deref()).collect());
    let mut runs: OrderedMap<&str, usize> = OrderedMap::new();
    for run in rows.iter().filter(|row| row.job.is_none()).filter_map(|row| row.run.as_deref()) {
        *runs.entry(run).or_default() += 1;
    }
    // `makeroom run` gives all its processes one run; processes that were recorded one by one have one each.
    let shared: OrderedSet<&str> =
        runs.iter().filter(|(_, count)| **count > 1).map(|(run, _)| *run).collect();
    let only_run = only(shared.clone());
    let mut keyed: Vec<(Key<'rows>, &RecordingRow)> = Vec::new();
    for row in rows {
        let job = row.job.as_deref().or(only_job);
        let run = row.run.as_deref().filter(|run| shared.contains(run) && job.is_none());
        let is_text = row.kind != RecordingKind::Room;
        let run = run.or(only_run.filter(|_| job.is_none() && is_text));
        keyed.push((
            Key { job, replica: row.replica.as_deref(), run, attempt: row.attempt, folder: None },
            row,
        ));
    }
    let mut attempts: OrderedMap<(Option<&str>, Option<&str>), OrderedSet<u32>> = OrderedMap::new();
    for (key, _) in &keyed {
        attempts.entry((key.job, key.run)).or_default().extend(key.attempt);
    }
    let mut jobs: OrderedMap<Key<'rows>, Vec<&RecordingRow>> = OrderedMap::new();
    for (mut key, row) in keyed {
        let known = attempts.get(&(key.job, key.run)).filter(|known| known.len() == 1);
        key.attempt = key.attempt.or(known.and_then(|known| known.first().copied()));
        jobs.entry(key).or_default().push(row);
    }
    jobs.into_iter().flat_map(|(key, rows)| by_folder(key, rows)).collect()
}

/// Separates runs in different directories. Files elsewhere, such as a launcher's log, count for each of them.
fn by_folder<'rows>(
    key: Key<'rows>,
    rows: Vec<&'rows RecordingRow>,
) -> Vec<(Key<'rows>, Vec<&'rows RecordingRow>)> {
    let runs = folders::runs(&rows);
    if runs.is_empty() {
        return vec![(key, rows)];
    }
    let of_run = |folder: &&'rows str| {
        let is_member =
            |row: &&&RecordingRow| folders::of(row) == *folder || !runs.contains(folders::of(row));
        (Key { folder: Some(*folder), ..key.clone() }, rows.iter().filter(is_member).copied().collect())
    };
    runs.iter().map(of_run).collect()
}
