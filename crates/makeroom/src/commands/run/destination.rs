//! Chooses the file to record to: checked before the program starts, and kept separate from other runs.
//!
//! The recorder only creates new files, so an existing recording of the same name is removed first. No other file is
//! removed: it may be the program itself, or its script. Several runs may use the same name at once, as under `mpirun`:
//! the first to lock the name keeps it until it has printed its summary, and every other run adds the PID to its file
//! name and leaves the file alone. The lock is a file next to the recording, so that it also works between containers.
//! The system releases the lock however this command ends, and the next run removes stale lock files.
//!
//! Processes that know their rank record to a folder of their own (`ranks`), one file each.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use makeroom_core::identity::JobIdentity;
use makeroom_trace::room::Reader;
use rustix::fs::{Access, OFlags, access};

use super::ranks;
use crate::commands::Kind;
use crate::commands::new_file::flags;
use crate::failure::Failure;

/// Placeholder for the PID, which gives every process its own file.
const PROCESS: &str = "%p";
/// Placeholder for the rank, which gives every process of a job its own file.
const RANK: &str = "%r";
/// The default name of a recording.
const USUAL_NAME: &str = "makeroom.%p.room";
/// How often to recreate a lock file that another run removed.
const ATTEMPTS: u32 = 100;
/// Suffix of lock files: `.NAME.lock`.
const LOCK: &str = ".lock";
/// Suffix of lock files that may be removed if they are stale.
const LEFT_LOCK: &[u8] = b".room.lock";
/// How many directory entries to check for stale locks.
const MOST_ENTRIES: usize = 10_000;

/// Where to record.
#[derive(Debug)]
pub(crate) struct Destination {
    /// The file name pattern for the recorder: an absolute path, which does not depend on the program's working
    /// directory.
    pub(crate) pattern: PathBuf,
    /// The requested file, if another run is using it.
    pub(crate) taken: Option<PathBuf>,
    /// The pattern for processes that know their rank, if it is another one.
    pub(crate) ranks: Option<PathBuf>,
    /// Held until the recording has been read.
    _lock: Option<Lock>,
}

impl Destination {
    /// Chooses the files of a run. `job` is the place of `run` itself in a job.
    pub(crate) fn choose(asked: Option<&Path>, job: &JobIdentity) -> Result<Self, Failure> {
        let folder = asked.filter(|asked| asked.is_dir());
        let pattern = match (folder, asked) {
            (Some(folder), _) => folder.join(USUAL_NAME),
            (None, Some(asked)) => asked.to_owned(),
            (None, None) => PathBuf::from(USUAL_NAME),
        };
        let mut chosen = Self::take(&pattern)?;
        chosen.ranks = match (folder, asked) {
            (Some(folder), _) => Some(std::path::absolute(folder)?.join(ranks::NAME)),
            (None, Some(asked)) if !names_process(asked) => Some(ranks::beside(&chosen, job)),
            (None, Some(_)) => None,
            (None, None) => ranks::usual(&std::path::absolute(".")?, job),
        };
        Ok(chosen)
    }

    /// Locks the name and removes an old recording.
    fn take(asked: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(asked)?;
        let failure =
            |error| Failure::Write { name: path.display().to_string().replace(PROCESS, "PID"), error };
        let folder = path.parent().unwrap_or(Path::new("/"));
        // With the dot, this fails if the directory is a file.
        access(folder.join("."), Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| failure(error.into()))?;
        if names_process(&path) {
            return Ok(Self { pattern: path, taken: None, ranks: None, _lock: None });
        }
        Kind::Recording.check(&path)?;
        remove_left_locks(folder);
        let lock = Lock::take(&path);
        if matches!(lock, Taking::OfAnotherRun) || is_being_written(&path) {
            return Ok(Self { pattern: with_process(&path), taken: Some(path), ranks: None, _lock: None });
        }
        remove(&path).map_err(failure)?;
        let lock = if let Taking::Taken(lock) = lock { Some(lock) } else { None };
        Ok(Self { pattern: path, taken: None, ranks: None, _lock: lock })
    }
}

/// Removes a recording or an empty file, so that a new one can be created.
pub(crate) fn make_way(path: &Path) -> Result<(), Failure> {
    Kind::Recording.check(path)?;
    remove(path).map_err(|error| Failure::Write { name: path.display().to_string(), error })
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether the name differs for each process.
fn names_process(path: &Path) -> bool {
    let name = path.as_os_str().as_bytes();
    name.windows(PROCESS.len()).any(|window| window == PROCESS.as_bytes() || window == RANK.as_bytes())
}

/// The name with the PID before its extension.
fn with_process(path: &Path) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(".");
    name.push(PROCESS);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Whether a recorder has the file open: its run may be gone while the program continues.
fn is_being_written(path: &Path) -> bool {
    let Some(process) = File::open(path).ok().and_then(|file| Reader::new(file).ok()) else { return false };
    makeroom_holders::is_being_written(path, process.header().pid)
}

/// The result of an attempt to lock a name.
enum Taking {
    Taken(Lock),
    OfAnotherRun,
    /// The file system does not support locks, or the lock path is not a plain file. Then only the recorder, which
    /// never overwrites a file, keeps runs apart.
    Impossible,
}

/// A lock on a name, released on drop.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Locks a name.
    fn take(recording: &Path) -> Taking {
        let mut name = std::ffi::OsString::from(".");
        name.push(recording.file_name().unwrap_or_default());
        name.push(LOCK);
        let path = recording.with_file_name(name);
        for _ in 0..ATTEMPTS {
            let Some(file) = open_lock(&path, true) else { return Taking::Impossible };
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Taking::OfAnotherRun,
                Err(TryLockError::Error(_)) => return Taking::Impossible,
                Ok(()) => {}
            }
            let lock = Self { path: path.clone(), file };
            // Its previous owner may have removed the file after it was opened here.
            if lock.is_there() {
                return Taking::Taken(lock);
            }
        }
        Taking::OfAnotherRun
    }

    fn is_there(&self) -> bool {
        let same = |one: fs::Metadata, two: fs::Metadata| (one.dev(), one.ino()) == (two.dev(), two.ino());
        self.file.metadata().and_then(|own| Ok(same(own, fs::symlink_metadata(&self.path)?))).unwrap_or(false)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Remove it while it is locked: later runs then create a new file. The next run removes a stale one.
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a lock file, which is an empty plain file. Does not follow links, which could create a file elsewhere, or wait
/// for a pipe.
fn open_lock(path: &Path, makes_it: bool) -> Option<File> {
    let mut options = File::options();
    options
        .append(true)
        .create(makes_it)
        .mode(0o600)
        .custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK));
    let file = options.open(path).ok()?;
    file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0).then_some(file)
}

/// Removes stale lock files in a directory, whose runs were killed.
fn remove_left_locks(folder: &Path) {
    let user = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_ENTRIES);
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let is_own = || fs::symlink_metadata(&path).is_ok_and(|found| found.uid() == user);
        if name.starts_with(b".")
            && name.ends_with(LEFT_LOCK)
            && is_own()
            && let Some(file) = open_lock(&path, false)
            && file.try_lock().is_ok()
        {
            drop(Lock { path, file });
        }
    }
}

#[cfg(test)]
mod tests {
    use makeroom_trace::room::MAGIC;

    use super::*;

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("makeroom-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_name_has_one_run_at_a_time() {
        let folder = folder("destination");
        let path = folder.join("run.room");
        fs::write(&path, [&MAGIC[..], b"of an earlier run"].concat()).unwrap();
        let first = Destination::take(&path).unwrap();
        assert_eq!((&first.pattern, &first.taken), (&path, &None));
        assert!(!path.exists());
        fs::write(&path, [&MAGIC[..], b"of the first"].concat()).unwrap();
        let second = Destination::take(&path).unwrap();
        assert_eq!((&second.pattern, &second.taken), (&folder.join("run.%p.room"), &Some(path.clone())));
        assert!(fs::read(&path).unwrap().ends_with(b"of the first"));
        drop((first, second));
        assert_eq!(Destination::take(&path).unwrap().pattern, path);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "the lock goes with the run");
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn names_of_processes_need_no_lock() {
        let folder = folder("pattern");
        for _ in 0..2 {
            let destination = Destination::take(&folder.join("%p.room")).unwrap();
            assert!(destination.taken.is_none() && fs::read_dir(&folder).unwrap().count() == 0);
        }
        fs::remove_dir(&folder).unwrap();
        let refused = Destination::take(&folder.join("%p.room")).err().unwrap().to_string();
        assert!(refused.contains("PID.room"), "{refused}");
        assert_eq!(with_process(Path::new("/a.b/run")), Path::new("/a.b/run.%p"));
    }

    #[test]
    fn what_is_no_recording_stays() {
        let folder = folder("other");
        let path = folder.join("train.room");
        fs::write(&path, "import torch").unwrap();
        assert!(matches!(Destination::take(&path), Err(Failure::NotReplaced { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "import torch");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_file_stays() {
        assert!(matches!(Destination::take(Path::new("/dev/null")), Err(Failure::Write { .. })));
        assert!(Path::new("/dev/null").exists());
        assert!(matches!(Destination::take(Path::new("/dev/null/run.room")), Err(Failure::Write { .. })));
        assert!(matches!(Destination::take(Path::new("/no/such/run.room")), Err(Failure::Write { .. })));
    }
}
