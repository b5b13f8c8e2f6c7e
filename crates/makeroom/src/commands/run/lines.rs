//! Lines of compiled programs, kept in their recordings: whoever reads one on another machine has no such program.
//!
//! The recording is written to a new file of the same mode, which takes its place only when it is whole. Its process must
//! have ended: one that still runs goes on writing into the old file.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use makeroom_trace::room::add_lines;

use crate::commands::new_file;

/// Larger recordings are left as they are: they are held in memory while they are written.
const LARGEST: u64 = 256 << 20;
/// Until it has the mode of the recording.
const PRIVATE: u32 = 0o600;

/// Writes lines into the recording of a process that has ended.
pub(crate) fn keep(path: &Path) -> io::Result<()> {
    let file = new_file::open_plain(path)?;
    let metadata = file.metadata()?;
    if metadata.len() > LARGEST {
        return Ok(());
    }
    let mut content = Vec::new();
    file.take(LARGEST).read_to_end(&mut content)?;
    let Ok(Some(recording)) = add_lines(&content) else { return Ok(()) };
    let (draft, mut file) = new_file::beside(path, PRIVATE)?;
    let mode = fs::Permissions::from_mode(metadata.permissions().mode() & 0o777);
    let written = file
        .write_all(&recording)
        .and_then(|()| file.set_permissions(mode))
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The recording is as good as before, here at least.
        let _ = fs::remove_file(&draft);
    }
    written
}
