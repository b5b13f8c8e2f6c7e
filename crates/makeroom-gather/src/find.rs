//! Lists the files of a job. Folders are searched to a bounded depth, and what is obviously something else (source code,
//! checkpoints) is passed over; a file that is named itself is always read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use makeroom_core::identity::{JobIdentity, identities_of_set};
use makeroom_job::Unread;
use makeroom_trace::room::MAGIC;
use makeroom_trace::{Error, is_archive_name};
use rustix::fs::OFlags;

/// Files that are read. A job of 10,000 ranks with a recording and a log each has as many.
pub(crate) const MOST_FILES: usize = 20_000;
/// Entries of folders that are looked at.
const MOST_ENTRIES: usize = 1_000_000;
/// Folders below folders.
const DEEPEST: usize = 8;
/// Files in folders whose names end like this are recordings, snapshots or logs.
const ENDINGS: [&str; 17] = [
    ".room",
    ".room.gz",
    ".room.zst",
    ".pickle",
    ".pkl",
    ".log",
    ".txt",
    ".out",
    ".err",
    ".stdout",
    ".stderr",
    ".csv",
    ".json.gz",
    ".pickle.gz",
    ".pickle.zst",
    ".log.gz",
    ".log.zst",
];

/// A file to read.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) identity: JobIdentity,
    pub(crate) is_archive: bool,
    /// Whether the user named the file itself.
    pub(crate) is_named: bool,
}

/// The files to read, and those that are left out.
#[derive(Debug, Default)]
pub struct Files {
    pub(crate) files: Vec<Found>,
    pub(crate) left_out: Vec<Unread>,
}

impl Files {
    /// How many files will be read.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files that are not archives.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter(|found| !found.is_archive).map(|found| found.path.as_path())
    }
}

/// Finds the files of a job.
pub fn find(paths: &[PathBuf]) -> Result<Files, Error> {
    let mut search = Search::default();
    for path in paths {
        search.argument(path)?;
    }
    search.paths.sort();
    search.paths.dedup_by(|one, two| one.0 == two.0);
    let left = search.paths.len().saturating_sub(MOST_FILES);
    if left > 0 {
        // Sorting is stable: of equal files, the first by name are read.
        search.paths.sort_by_cached_key(|(path, is_named)| if *is_named { 0 } else { 1 + weight(path) });
        search.paths.truncate(MOST_FILES);
        search.paths.sort();
    }
    let mut left_out = search.unread;
    if left > 0 {
        left_out.push(Unread {
            file: format!("{left} more files"),
            reason: format!("makeroom job reads at most {MOST_FILES} files; pass part of the directory"),
        });
    }
    if search.is_cut {
        left_out.push(Unread {
            file: "more directory entries".to_owned(),
            reason: format!(
                "makeroom job reads at most {MOST_ENTRIES} entries; pass a pattern such as 'dir/*.room'"
            ),
        });
    }
    let names: Vec<String> =
        search.paths.iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect();
    let identities = identities_of_set(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let files = search.paths.into_iter().zip(identities).map(|((path, is_named), identity)| Found {
        is_archive: is_archive_name(&path.to_string_lossy()),
        path,
        identity,
        is_named,
    });
    Ok(Files { files: files.collect(), left_out })
}

#[derive(Default)]
struct Search {
    /// Paths, and whether the user named the file itself.
    paths: Vec<(PathBuf, bool)>,
    unread: Vec<Unread>,
    entries: usize,
    is_cut: bool,
}

impl Search {
    /// A file, a folder, or a pattern that the shell did not expand.
    fn argument(&mut self, path: &Path) -> Result<(), Error> {
        let text = path.to_string_lossy();
        let metadata = fs::metadata(path);
        if metadata.is_err() && text.contains(['*', '?', '[']) {
            let matches = glob::glob(&text).ok();
            let mut is_found = false;
            for matched in matches.into_iter().flatten().flatten().take(MOST_ENTRIES) {
                is_found = true;
                self.argument(&matched)?;
            }
            if is_found {
                return Ok(());
            }
        }
        match metadata {
            Ok(found) if found.is_dir() => self.folder(path, 0),
            Ok(_) => self.paths.push((path.to_owned(), true)),
            Err(cause) => {
                return Err(Error::Open { path: path.to_owned(), cause });
            }
        }
        Ok(())
    }

    fn folder(&mut self, folder: &Path, depth: usize) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                self.unread.push(Unread { file: folder.display().to_string(), reason: error.to_string() });
                return;
            }
        };
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                self.is_cut = true;
                return;
            }
            let path = entry.path();
            // Links are not followed: they lead in circles, or out of the folder.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEEPEST => self.folder(&path, depth + 1),
                Ok(kind) if kind.is_file() && is_wanted(&path) => self.paths.push((path, false)),
                _ => {}
            }
        }
    }
}

/// Whether a file in a folder is worth reading: by its name, or because it begins like a recording.
fn is_wanted(path: &Path) -> bool {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().to_ascii_lowercase());
    is_recording_name(&name) || is_recording(path)
}

/// Whether a file of this name, or at this path, can be a recording, a snapshot, a log or an archive of these.
pub fn is_recording_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
        || is_archive_name(&name)
        || matches!(name.as_str(), "stdout" | "stderr")
}

/// The files to read first if there are too many, from 0: recordings, files that name their rank, snapshots, others.
fn weight(path: &Path) -> u8 {
    let name = path.to_string_lossy();
    let is_snapshot = || name.contains(".pickle") || name.contains(".pkl") || is_archive_name(&name);
    if is_recording(path) {
        0
    } else if !JobIdentity::from_file_name(&name).is_alone() {
        1
    } else if is_snapshot() {
        2
    } else {
        3
    }
}

fn is_recording(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    open_plain(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok()) && head == MAGIC
}

/// Opens a regular file for reading. Does not follow links, and cannot block on a pipe or device.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let not_plain = || io::Error::other("this is not a regular file");
    // Also check before opening: opening a device can have side effects.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(not_plain());
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_plain()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_not_left_out_for_other_files() {
        let folder = std::env::temp_dir().join(format!("makeroom-many-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for number in 0..MOST_FILES + 10 {
            fs::write(folder.join(format!("a{number}.txt")), b"").unwrap();
        }
        fs::write(folder.join("z.room"), MAGIC).unwrap();
        fs::write(folder.join("rank7.log"), b"x").unwrap();
        let found = find(std::slice::from_ref(&folder)).unwrap();
        assert_eq!((found.files.len(), found.left_out.len()), (MOST_FILES, 1));
        assert!(found.files.iter().any(|file| file.path.ends_with("z.room")));
        assert!(found.files.iter().any(|file| file.path.ends_with("rank7.log")));
        assert!(found.left_out[0].file.starts_with("12 more files"), "{:?}", found.left_out);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn folders_are_searched_and_source_code_is_passed_over() {
        let folder = std::env::temp_dir().join(format!("makeroom-find-{}", std::process::id()));
        fs::create_dir_all(folder.join("node1/deeper")).unwrap();
        for (name, content) in [
            ("node1/rank3.log", &b"x"[..]),
            ("node1/deeper/rank4.pickle", b"x"),
            ("train.py", b"x"),
            ("model.pt", b"PK"),
            ("unnamed", &MAGIC),
        ] {
            fs::write(folder.join(name), content).unwrap();
        }
        std::os::unix::fs::symlink(&folder, folder.join("loop")).unwrap();
        let found = find(&[folder.clone(), folder.join("node1")]).unwrap();
        let names: Vec<String> = found
            .files
            .iter()
            .map(|file| file.path.strip_prefix(&folder).unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["node1/deeper/rank4.pickle", "node1/rank3.log", "unnamed"]);
        assert_eq!(found.files[1].identity.rank, Some(3));
        let pattern = find(&[folder.join("*/rank?.log")]).unwrap();
        assert_eq!(pattern.files.len(), 1);
        assert!(find(&[folder.join("nothing*")]).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
