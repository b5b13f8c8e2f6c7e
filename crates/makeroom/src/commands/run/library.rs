//! Writes the embedded libraries to files that the dynamic linker can load.
//!
//! File names contain a hash of the content, so several versions can coexist and an existing file is reused. The
//! directory is private to the user (`folders`).

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use super::folders;
use crate::commands::new_file;

static CONTENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmakeroom_preload.so"));
static DRIVER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmakeroom_simgpu.so"));
static MANAGEMENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmakeroom_simnvml.so"));

/// The path of the recorder.
pub(crate) fn place() -> io::Result<PathBuf> {
    if CONTENT.is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the recorder works on Linux only"));
    }
    folders::first(place_in)
}

/// A private directory for the files of one command.
pub(crate) fn folder() -> io::Result<PathBuf> {
    folders::first(|folder| Ok(folder.to_owned()))
}

/// The directory of the software GPU: its two libraries, under the names by which programs load a driver.
pub(crate) fn place_software_gpu() -> io::Result<PathBuf> {
    if DRIVER.is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the software GPU works on Linux only"));
    }
    let name = format!("software-gpu-{:016x}", hash(DRIVER) ^ hash(MANAGEMENT).rotate_left(1));
    folders::first(|folder| {
        executable(folder)?;
        let place = folder.join(&name);
        makeroom_simcard::install::write(&place, DRIVER, MANAGEMENT)?;
        Ok(place)
    })
}

fn place_in(folder: &Path) -> io::Result<PathBuf> {
    executable(folder)?;
    let path = folder.join(format!("libmakeroom_preload-{:016x}.so", hash(CONTENT)));
    if fs::read(&path).is_ok_and(|content| content == CONTENT) {
        return Ok(path);
    }
    // Write and rename, so that no process sees a partial file.
    let (draft, mut file) = new_file::beside(&path, 0o700)?;
    let written = file.write_all(CONTENT).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        // A leftover file is in the user's private temporary directory.
        let _ = fs::remove_file(&draft);
    }
    written.map(|()| path)
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
