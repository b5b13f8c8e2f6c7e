//! Where a run is recorded: checked before the program starts, and kept apart from other runs.
//!
//! The recorder makes new files only, so a recording that the user names again has to go first. Nothing else is removed: a
//! file that is not a recording may be the program itself, or its script. Several runs may name the same file at once, as
//! under `mpirun`: the first to lock the name has it until its summary is said, and every other one puts the process id
//! into the name and leaves the file alone. The lock is a file beside the recording, so that runs in different containers
//! meet there too; the system gives it back whatever ends this command, and the next run removes what was left behind.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use makeroom_trace::room::{MAGIC, Reader};
use rustix::fs::{Access, OFlags, access};

use crate::commands::new_file::flags;
use crate::failure::Failure;

/// What every process has a file of its own by.
const PROCESS: &str = "%p";
/// How often a lock is made again that another run took away.
const ATTEMPTS: u32 = 100;
/// How locks are called: `.NAME.lock`.
const LOCK: &str = ".lock";
/// How those are called that may be removed for whoever left them.
const LEFT_LOCK: &[u8] = b".room.lock";
/// Entries of a folder that are looked at for locks that were left behind.
const MOST_ENTRIES: usize = 10_000;

/// Where to record.
#[derive(Debug)]
pub(crate) struct Destination {
    /// The name for the recorder, as a path that means the same wherever the program goes.
    pub(crate) pattern: PathBuf,
    /// The file that was asked for, if another run has it.
    pub(crate) taken: Option<PathBuf>,
    /// Held until the recording has been read.
    _lock: Option<Lock>,
}

impl Destination {
    /// Takes the name, and makes room for the file.
    pub(crate) fn take(asked: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(asked)?;
        let failure =
            |error| Failure::Write { name: path.display().to_string().replace(PROCESS, "PID"), error };
        let folder = path.parent().unwrap_or(Path::new("/"));
        // The dot makes it fail where the folder is a file.
        access(folder.join("."), Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| failure(error.into()))?;
        if names_process(&path) {
            return Ok(Self { pattern: path, taken: None, _lock: None });
        }
        check_replaceable(&path)?;
        remove_left_locks(folder);
        let lock = Lock::take(&path);
        if matches!(lock, Taking::OfAnotherRun) || is_being_written(&path) {
            return Ok(Self { pattern: with_process(&path), taken: Some(path), _lock: None });
        }
        remove(&path).map_err(failure)?;
        let lock = if let Taking::Taken(lock) = lock { Some(lock) } else { None };
        Ok(Self { pattern: path, taken: None, _lock: lock })
    }
}

/// Removes a recording, or an empty file, to make way for a new one.
pub(crate) fn make_way(path: &Path) -> Result<(), Failure> {
    check_replaceable(path)?;
    remove(path).map_err(|error| Failure::Write { name: path.display().to_string(), error })
}

fn check_replaceable(path: &Path) -> Result<(), Failure> {
    let name = || path.display().to_string();
    if is_replaceable(path).map_err(|error| Failure::Write { name: name(), error })? {
        return Ok(());
    }
    Err(Failure::NotReplaced { name: name() })
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether there is nothing yet, a recording, or an empty file. What is no file, such as a device, is an error: it is not
/// this command's to remove.
fn is_replaceable(path: &Path) -> io::Result<bool> {
    let file = match File::options().read(true).custom_flags(flags(OFlags::NONBLOCK)).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        // A file that may not be read is somebody's, and nothing is known of it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        opened => opened?,
    };
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("this is not a file that could be replaced"));
    }
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == MAGIC)
}

fn names_process(path: &Path) -> bool {
    path.as_os_str().as_bytes().windows(PROCESS.len()).any(|window| window == PROCESS.as_bytes())
}

/// The name with the process id before its extension.
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

/// Whether a recorder has the file open: its run may be gone while the program goes on.
fn is_being_written(path: &Path) -> bool {
    let Some(process) = File::open(path).ok().and_then(|file| Reader::new(file).ok()) else { return false };
    makeroom_holders::is_being_written(path, process.header().pid)
}

/// What came of an attempt to take a name.
enum Taking {
    Taken(Lock),
    OfAnotherRun,
    /// The file system has no locks, or something else is in the place of the lock: runs are apart as far as the
    /// recorder keeps them.
    Impossible,
}

/// The right to a name, until it is dropped.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Takes the right to a name.
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
            // Whoever had it before may have removed the file after it was opened here.
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
        // Removed while it is held: whoever opens the name from now on makes a new file. One that is left behind is
        // removed by the next run.
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a lock: an empty file, and neither a link, which would make a file elsewhere, nor a pipe, which would be waited
/// for.
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

/// Removes the locks of recordings in a folder whose runs were killed: nobody holds them.
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
