//! Where a run is recorded: checked before the program starts, and kept apart from other runs.
//!
//! The recorder makes new files only, so a file that the user names again has to go first. Several runs may name the same
//! one at once, as under `mpirun`: the first to lock the name has it until its summary is said, and every other one puts
//! the process id into the name and leaves the file alone. The lock is a file beside the recording, so that runs in
//! different containers meet there too; the system gives it back whatever ends this command.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use makeroom_trace::room::Reader;
use rustix::fs::{Access, access};

use crate::failure::Failure;

/// What every process has a file of its own by.
const PROCESS: &str = "%p";
/// How often a lock is made anew that somebody else took away meanwhile.
const ATTEMPTS: u32 = 100;

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
        is_replaceable(&path).map_err(failure)?;
        let lock = Lock::take(&path).map_err(failure)?;
        if lock.is_none() || is_being_written(&path) {
            return Ok(Self { pattern: with_process(&path), taken: Some(path), _lock: None });
        }
        if path.exists() {
            fs::remove_file(&path).map_err(failure)?;
        }
        Ok(Self { pattern: path, taken: None, _lock: lock })
    }
}

/// Whether there is nothing yet, or a file. What is neither, such as a device, is not this command's to remove.
fn is_replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => Err(io::Error::other("this is no file that could be replaced")),
        _ => Ok(()),
    }
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
    let Ok(own) = fs::metadata(path) else { return false };
    let descriptors = fs::read_dir(format!("/proc/{}/fd", process.header().pid));
    descriptors.into_iter().flatten().flatten().any(|descriptor| {
        fs::metadata(descriptor.path()).is_ok_and(|open| (open.dev(), open.ino()) == (own.dev(), own.ino()))
    })
}

/// The right to a name, until it is dropped.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Takes the right to a name; `None` if another run has it.
    fn take(recording: &Path) -> io::Result<Option<Self>> {
        let mut name = std::ffi::OsString::from(".");
        name.push(recording.file_name().unwrap_or_default());
        name.push(".lock");
        let path = recording.with_file_name(name);
        for _ in 0..ATTEMPTS {
            let file = File::options().create(true).append(true).open(&path)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                // A file system without locks: runs are apart as far as the recorder keeps them.
                Err(TryLockError::Error(_)) | Ok(()) => {}
            }
            let lock = Self { path: path.clone(), file };
            // Whoever had it before may have removed the file after it was opened here.
            if lock.is_there() {
                return Ok(Some(lock));
            }
        }
        Ok(None)
    }

    fn is_there(&self) -> bool {
        let same = |one: fs::Metadata, two: fs::Metadata| (one.dev(), one.ino()) == (two.dev(), two.ino());
        self.file.metadata().and_then(|own| Ok(same(own, fs::metadata(&self.path)?))).unwrap_or(false)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is held: whoever opens the name from now on makes a new file. One that is left behind is
        // used by the next run.
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
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
        fs::write(&path, "of an earlier run").unwrap();
        let first = Destination::take(&path).unwrap();
        assert_eq!((&first.pattern, &first.taken), (&path, &None));
        assert!(!path.exists());
        fs::write(&path, "of the first").unwrap();
        let second = Destination::take(&path).unwrap();
        assert_eq!((&second.pattern, &second.taken), (&folder.join("run.%p.room"), &Some(path.clone())));
        assert_eq!(fs::read_to_string(&path).unwrap(), "of the first");
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
    fn what_is_no_file_stays() {
        assert!(matches!(Destination::take(Path::new("/dev/null")), Err(Failure::Write { .. })));
        assert!(Path::new("/dev/null").exists());
        assert!(matches!(Destination::take(Path::new("/dev/null/run.room")), Err(Failure::Write { .. })));
        assert!(matches!(Destination::take(Path::new("/no/such/run.room")), Err(Failure::Write { .. })));
    }
}
