//! Writes a result file: checked first, then written atomically, to a draft next to it that is renamed when it is
//! complete. Readers of the old file are not affected, and a failure leaves no partial file.
//!
//! A mistyped name must not cost a user their program, script or data. So an existing file is replaced only if makeroom
//! wrote it for the same purpose (`kind`), or if it is empty. Recordings, which the recorder writes, pass the same check
//! (`run/destination.rs`). Devices, pipes and descriptors (`/dev/stdout`) are written to directly, because a rename would
//! replace them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::kind::Kind;
use super::new_file;
use crate::failure::Failure;

/// Returns an error if a result would overwrite an input, or a file of another kind. To be called before the work
/// that leads to the result.
pub(super) fn check(path: &Path, kind: Kind, inputs: &[PathBuf]) -> Result<(), Failure> {
    beside(path, inputs)?;
    kind.check(path)
}

/// Returns an error if the result would overwrite an input.
pub(super) fn beside(path: &Path, inputs: &[PathBuf]) -> Result<(), Failure> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let Some(place) = real(path).filter(|place| place.is_file()) else { return Ok(()) };
    match inputs.iter().find(|input| real(input).as_ref() == Some(&place)) {
        Some(input) => Err(Failure::OverInput { name: input.display().to_string() }),
        None => Ok(()),
    }
}

/// Whether the path names an open descriptor, such as `/dev/stdout` or `/proc/self/fd/1`. It may lead to a file, but
/// the link itself must stay.
fn is_descriptor(path: &Path) -> bool {
    let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
    parent.is_some_and(|parent| parent.starts_with("/dev") || parent.starts_with("/proc"))
}

/// Writes a file with `fill`.
pub(super) fn write<T>(
    path: &Path,
    kind: Kind,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |error: io::Error| Failure::Write { name: path.display().to_string(), error };
    let filled = |file: File| {
        let mut writer = BufWriter::new(file);
        let told = fill(&mut writer)?;
        writer.flush().map_err(failed)?;
        Ok(told)
    };
    let found = fs::metadata(path).ok().filter(|found| !found.is_dir());
    if found.is_some_and(|found| !found.is_file() || is_descriptor(path)) {
        return filled(File::options().append(true).open(path).map_err(failed)?);
    }
    let (draft, begun) = new_file::draft(path, kind.mode()).map_err(failed)?;
    let written = filled(begun).and_then(|told| {
        // Check again: the program that `run` started may have created the file.
        kind.check(path)?;
        fs::rename(&draft, path).map_err(failed)?;
        Ok(told)
    });
    if written.is_err() {
        // The error that matters is the one from above.
        let _ = fs::remove_file(&draft);
    }
    written
}
