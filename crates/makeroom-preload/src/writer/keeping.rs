//! Removes recordings that nobody needs (`MAKEROOM_KEEP`).
//!
//! A folder may be shared by many running processes, whose recordings look like any other. A recorder writes at least
//! once a second, so a recording that has not changed for a minute is finished. Only such recordings are removed, and
//! only files that start like one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use makeroom_trace::room::MAGIC;

use crate::files;

/// A recording that has not changed for this long is finished.
const QUIET: Duration = Duration::from_secs(60);
/// Entries of a folder to look at.
const MOST_ENTRIES: usize = 100_000;

/// Removes the oldest finished recordings next to a new one, so that with it `count` are left.
pub(crate) fn keep_newest(path: &[u8], count: usize) {
    let path = Path::new(OsStr::from_bytes(path));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(before) = SystemTime::now().checked_sub(QUIET) else { return };
    let mut finished: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .take(MOST_ENTRIES)
        .filter(|entry| Path::new(&entry.file_name()).extension() == path.extension())
        .filter(|entry| entry.path().file_name() != path.file_name())
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .filter(|(changed, _)| *changed < before)
        .collect();
    finished.sort();
    let surplus = finished.len().saturating_sub(count.saturating_sub(1));
    for (_, path) in finished.into_iter().take(surplus) {
        if is_recording(&path) {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_recording(path: &Path) -> bool {
    use std::os::unix::fs::FileExt as _;
    let mut start = [0; MAGIC.len()];
    files::open(path.as_os_str().as_bytes())
        .is_ok_and(|file| file.read_exact_at(&mut start, 0).is_ok() && start == MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_finished_recordings_go_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("makeroom-keeping-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let make = |name: &str, content: &[u8], age: u64| {
            let path = folder.join(name);
            fs::write(&path, content).unwrap();
            let changed = SystemTime::now() - Duration::from_secs(age);
            fs::File::options().write(true).open(&path).unwrap().set_modified(changed).unwrap();
            path
        };
        let own = make("new.room", &MAGIC, 0);
        make("oldest.room", &MAGIC, 4000);
        make("older.room", &MAGIC, 3000);
        make("old.room", &MAGIC, 2000);
        make("running.room", &MAGIC, 5);
        make("text.room", b"not a recording", 5000);
        make("log.txt", &MAGIC, 5000);
        keep_newest(own.as_os_str().as_bytes(), 2);
        let mut left: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["log.txt", "new.room", "old.room", "running.room", "text.room"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
