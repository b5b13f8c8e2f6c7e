//! Writes the embedded libraries to files that the dynamic linker can load.
//!
//! File names contain a hash of the content, so several versions can coexist and an existing file is reused. The
//! directory is private to the user (`folders`).
//!
//! The recorder is loaded through a link whose name ends in `libasan.so`. A program that is built with
//! `AddressSanitizer` and inherits the recorder from its parent would otherwise not start: the sanitizer's shared runtime
//! ends a process whose first library does not have this in its name. (Its option that turns the check off is lost when
//! a script sets `ASAN_OPTIONS`.) The file behind the link has another name: a runtime that is linked statically
//! searches the mapped files for the shared one, and ends a process that has both.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use super::embedded::{self, Library};
use super::folders;
use crate::commands::new_file;

/// The ending of the link's name.
const PASSES_CHECK: &str = "-before-libasan.so";

/// The path of the recorder: the link.
pub(crate) fn place() -> io::Result<PathBuf> {
    if embedded::is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the recorder works only on Linux"));
    }
    folders::first(place_in)
}

/// A private directory for the files of one command.
pub(crate) fn folder() -> io::Result<PathBuf> {
    folders::first(|folder| Ok(folder.to_owned()))
}

/// The directory of the software GPU: its two libraries, under the names by which programs load a driver.
pub(crate) fn place_software_gpu() -> io::Result<PathBuf> {
    if embedded::is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the software GPU works only on Linux"));
    }
    let [driver, management] = makeroom_simcard::install::NAMES;
    let name =
        format!("software-gpu-{:016x}", Library::Driver.hash() ^ Library::Management.hash().rotate_left(1));
    folders::first(|folder| {
        executable(folder)?;
        let place = folder.join(&name);
        fs::create_dir_all(&place)?;
        Library::Driver.place(&place.join(driver))?;
        Library::Management.place(&place.join(management))?;
        Ok(place)
    })
}

/// Places the recorder in a directory, and returns the path of the link.
pub(crate) fn place_in(folder: &Path) -> io::Result<PathBuf> {
    executable(folder)?;
    let name = format!("libmakeroom_preload-{:016x}", Library::Recorder.hash());
    let file = format!("{name}.so");
    Library::Recorder.place(&folder.join(&file))?;
    let link = folder.join(name + PASSES_CHECK);
    place_link(&link, OsStr::new(&file))?;
    Ok(link)
}

impl Library {
    /// Writes the library to a file, unless the file has this content. The hash decides, because decompressing takes longer
    /// than everything else that `run` does before the program starts.
    fn place(self, path: &Path) -> io::Result<()> {
        if fs::read(path).is_ok_and(|content| embedded::hash(&content) == self.hash()) {
            return Ok(());
        }
        let content = self.content()?;
        // Readable for all: `makeroom env` places it for jobs that may run as another user. Elsewhere, the directory is
        // private. Write and rename, so that no process sees a partial file.
        let (draft, mut file) = new_file::draft(path, 0o755)?;
        let written = file.write_all(&content).and_then(|()| fs::rename(&draft, path));
        if written.is_err() {
            // A leftover file is in the user's private temporary directory.
            let _ = fs::remove_file(&draft);
        }
        written
    }
}

fn place_link(path: &Path, target: &OsStr) -> io::Result<()> {
    let is_there = || fs::read_link(path).is_ok_and(|found| found == Path::new(target));
    match symlink(target, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ if is_there() => Ok(()),
        _ => Err(io::Error::other(format!("{} is not a link to the recorder", path.display()))),
    }
}

/// Returns an error for a directory from which no library can be loaded.
fn executable(folder: &Path) -> io::Result<()> {
    folders::loadable(folder)?;
    if rustix::fs::statvfs(folder)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("the directory is mounted noexec"));
    }
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_placed_library_has_its_hash_and_is_repaired() {
        let folder = std::env::temp_dir().join(format!("libraries-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for library in [Library::Recorder, Library::Driver, Library::Management] {
            let path = folder.join("library.so");
            for damage in ["", "not a library"] {
                fs::write(&path, damage).unwrap();
                library.place(&path).unwrap();
                let content = fs::read(&path).unwrap();
                assert!(content.starts_with(b"\x7fELF"));
                assert_eq!(embedded::hash(&content), library.hash());
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
