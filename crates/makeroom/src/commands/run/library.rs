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
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use ruzstd::decoding::StreamingDecoder;

use super::folders;
use crate::commands::new_file;

/// The ending of the link's name.
const PASSES_CHECK: &str = "-before-libasan.so";

/// The libraries, in the order of the frame. The recorder is first: `run` needs no other, and stops decompressing after it.
#[derive(Clone, Copy)]
enum Library {
    Recorder,
    Driver,
    Management,
}

/// One zstd frame, and where each library ends in its content.
#[cfg(target_os = "linux")]
static EMBEDDED: (&[u8], [usize; 3]) =
    makeroom_embed::libraries!(makeroom_preload, makeroom_simgpu, makeroom_simnvml);

/// Without libraries, `run` and `demo` report that they work only on Linux.
#[cfg(not(target_os = "linux"))]
static EMBEDDED: (&[u8], [usize; 3]) = (&[], [0; 3]);

/// The path of the recorder: the link.
pub(crate) fn place() -> io::Result<PathBuf> {
    if EMBEDDED.0.is_empty() {
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
    if EMBEDDED.0.is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the software GPU works only on Linux"));
    }
    let name = format!("software-gpu-{:016x}", hash(EMBEDDED.0));
    let (driver, management) = (content(Library::Driver)?, content(Library::Management)?);
    folders::first(|folder| {
        executable(folder)?;
        let place = folder.join(&name);
        makeroom_simcard::install::write(&place, &driver, &management)?;
        Ok(place)
    })
}

/// Places the recorder in a directory, and returns the path of the link.
pub(crate) fn place_in(folder: &Path) -> io::Result<PathBuf> {
    executable(folder)?;
    let name = format!("libmakeroom_preload-{:016x}", hash(EMBEDDED.0));
    let file = format!("{name}.so");
    place_file(&folder.join(&file), &content(Library::Recorder)?)?;
    let link = folder.join(name + PASSES_CHECK);
    place_link(&link, OsStr::new(&file))?;
    Ok(link)
}

fn content(library: Library) -> io::Result<Vec<u8>> {
    let (frame, ends) = EMBEDDED;
    let start = (library as usize).checked_sub(1).map_or(0, |before| ends[before]);
    let mut content = vec![0; ends[library as usize] - start];
    let mut decoder = StreamingDecoder::new(frame).map_err(io::Error::other)?;
    io::copy(&mut decoder.by_ref().take(start as u64), &mut io::sink())?;
    decoder.read_exact(&mut content)?;
    Ok(content)
}

fn place_file(path: &Path, recorder: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|content| content == recorder) {
        return Ok(());
    }
    // Readable for all: `makeroom env` places it for jobs that may run as another user. Elsewhere, the directory is
    // private. Write and rename, so that no process sees a partial file.
    let (draft, mut file) = new_file::beside(path, 0o755)?;
    let written = file.write_all(recorder).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // A leftover file is in the user's private temporary directory.
        let _ = fs::remove_file(&draft);
    }
    written
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

/// FNV-1a.
fn hash(content: &[u8]) -> u64 {
    content
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
