//! Writes line numbers of compiled programs into their recordings, because other machines do not have the program's
//! file.
//!
//! The recording is copied to a new file with the same mode, which replaces the old one when it is complete. The
//! process must have ended: otherwise it would keep writing to the old file.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use makeroom_trace::room::add_lines;

use crate::commands::new_file;

/// Larger recordings are left unchanged, because they are held in memory while they are written.
const LARGEST: u64 = 256 << 20;
/// The mode of the new file until it gets that of the recording.
const PRIVATE: u32 = 0o600;

/// Adds line numbers to the recording of a process that has ended.
pub(crate) fn keep(path: &Path) -> io::Result<()> {
    let file = makeroom_gather::open_plain(path)?;
    let metadata = file.metadata()?;
    if metadata.len() > LARGEST {
        return Ok(());
    }
    let mut content = Vec::new();
    file.take(LARGEST).read_to_end(&mut content)?;
    let Ok(Some(recording)) = add_lines(&content) else { return Ok(()) };
    let (draft, mut file) = new_file::draft(path, PRIVATE)?;
    let mode = fs::Permissions::from_mode(metadata.permissions().mode() & 0o777);
    let written = file
        .write_all(&recording)
        .and_then(|()| file.set_permissions(mode))
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The recording is unchanged, and complete on this machine.
        let _ = fs::remove_file(&draft);
    }
    written
}
