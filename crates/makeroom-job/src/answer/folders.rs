//! Runs of one job in several directories: a script that starts a job again, or copies its files, leaves the ranks twice,
//! and nothing in the files says which of them belong together. Ranks of different runs must not be mixed.
//!
//! Directories that contain recordings of the same two ranks are different runs. One rank can be recorded twice for
//! other reasons, and directories per node or per rank have no rank in common. The output of all ranks, or a launcher's
//! report, in one directory and logs of single ranks in another are one run.

use makeroom_ordered::{OrderedMap, OrderedSet};

use crate::tables::{RecordingKind, RecordingRow};

/// Ranks that two directories have in common if they belong to different runs.
const LEAST_COMMON: usize = 2;
/// Directories that are compared with each other.
const MOST_FOLDERS: usize = 256;

/// The directory of a recording.
pub(super) fn of(row: &RecordingRow) -> &str {
    row.file().rsplit_once('/').map_or(".", |(folder, _)| folder)
}

/// The directories that contain runs of their own.
pub(super) fn runs<'rows>(rows: &[&'rows RecordingRow]) -> OrderedSet<&'rows str> {
    type Kinds = OrderedSet<(RecordingKind, bool, u32)>;
    let mut ranks: OrderedMap<&str, Kinds> = OrderedMap::new();
    for row in rows {
        let of_folder = ranks.entry(of(row)).or_default();
        let is_own = row.process.is_none();
        of_folder.extend(row.rank.map(|rank| (row.kind, is_own, rank)));
    }
    let folders: Vec<(&str, Kinds)> =
        ranks.into_iter().filter(|(_, ranks)| ranks.len() >= LEAST_COMMON).take(MOST_FOLDERS).collect();
    let mut runs = OrderedSet::new();
    for (index, (one, one_ranks)) in folders.iter().enumerate() {
        for (two, two_ranks) in &folders[index + 1..] {
            if one_ranks.intersection(two_ranks).take(LEAST_COMMON).count() == LEAST_COMMON {
                runs.extend([*one, *two]);
            }
        }
    }
    runs
}
