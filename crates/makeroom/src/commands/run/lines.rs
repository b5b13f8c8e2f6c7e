//! Lines of compiled programs, kept in their recordings: whoever reads one on another machine has no such program.
//!
//! The recording is written anew beside itself and takes its own place only when it is whole. Its process must have ended:
//! one that still runs goes on writing into the old file.

use std::fs;
use std::io;
use std::path::Path;

use makeroom_trace::room::add_lines;

/// Larger recordings are left as they are: they are held in memory while they are written.
const LARGEST: u64 = 256 << 20;

/// Writes lines into the recording of a process that has ended.
pub(crate) fn keep(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Ok(());
    }
    let Ok(Some(recording)) = add_lines(&fs::read(path)?) else { return Ok(()) };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lines");
    let written = fs::write(&beside, recording)
        .and_then(|()| fs::set_permissions(&beside, metadata.permissions()))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}
