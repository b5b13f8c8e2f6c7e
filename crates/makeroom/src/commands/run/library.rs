//! Puts the embedded libraries where the dynamic linker can load them.
//!
//! Names hold a hash of the content, so versions lie side by side and a file that is there is used again.
//! The folder belongs to the user alone: nobody else may decide what gets loaded.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

static CONTENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmakeroom_preload.so"));
static DRIVER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmakeroom_simgpu.so"));
static MANAGEMENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmakeroom_simnvml.so"));

/// The path of the recorder.
pub(crate) fn place() -> io::Result<PathBuf> {
    if CONTENT.is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the recorder works on Linux only"));
    }
    let mut problem = io::Error::other("there is no folder to put it into");
    for folder in folders() {
        match place_in(&folder) {
            Ok(path) => return Ok(path),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// A folder of the user's own for sockets and libraries of this run.
pub(crate) fn folder() -> io::Result<PathBuf> {
    let mut problem = io::Error::other("there is no folder for temporary files");
    for folder in folders() {
        match own(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

fn folders() -> Vec<PathBuf> {
    let user = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("makeroom"));
    let of_user = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .map(|folder| folder.join("makeroom"));
    let temporary = std::env::temp_dir().join(format!("makeroom-{user}"));
    [of_session, Some(temporary), of_user].into_iter().flatten().collect()
}

/// The folder of the software GPU: its two libraries under the names by which programs load a driver.
pub(crate) fn place_software_gpu() -> io::Result<PathBuf> {
    if DRIVER.is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the software GPU works on Linux only"));
    }
    let name = format!("software-gpu-{:016x}", hash(DRIVER) ^ hash(MANAGEMENT).rotate_left(1));
    let mut problem = io::Error::other("there is no folder to put it into");
    for folder in folders() {
        match executable(&folder) {
            Ok(()) => {
                let place = folder.join(name);
                makeroom_simcard::install::write(&place, DRIVER, MANAGEMENT)?;
                return Ok(place);
            }
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

fn place_in(folder: &Path) -> io::Result<PathBuf> {
    executable(folder)?;
    let path = folder.join(format!("libmakeroom_preload-{:016x}.so", hash(CONTENT)));
    if fs::read(&path).is_ok_and(|content| content == CONTENT) {
        return Ok(path);
    }
    // Written under another name and renamed: whoever finds the file finds all of it.
    let partial = folder.join(format!("partial-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&partial)?;
    file.write_all(CONTENT)?;
    drop(file);
    fs::rename(&partial, &path)?;
    Ok(path)
}

/// Makes a folder of the user's own in which libraries can lie.
fn executable(folder: &Path) -> io::Result<()> {
    own(folder)?;
    if rustix::fs::statvfs(folder)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("nothing there may be executed"));
    }
    Ok(())
}

/// Makes a folder for the user alone, or checks that it is one.
fn own(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    let user = fs::metadata("/proc/self")?.uid();
    if !found.is_dir() || found.uid() != user || found.permissions().mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} belongs to somebody else", folder.display())));
    }
    Ok(())
}

/// FNV-1a.
fn hash(content: &[u8]) -> u64 {
    content
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
