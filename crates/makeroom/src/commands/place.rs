//! Writes a result file atomically: to a draft next to it, which is renamed when it is complete. Readers of the old
//! file are not affected, and a failure leaves no partial file.
//!
//! Devices and pipes are written to directly, because a rename would replace them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::new_file;
use crate::failure::Failure;

/// Returns an error if the result would overwrite an input.
pub(super) fn beside(path: &Path, inputs: &[PathBuf]) -> Result<(), Failure> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let Some(place) = real(path).filter(|place| place.is_file()) else { return Ok(()) };
    match inputs.iter().find(|input| real(input).as_ref() == Some(&place)) {
        Some(input) => Err(Failure::OverInput { name: input.display().to_string() }),
        None => Ok(()),
    }
}

/// Writes a file with `fill`.
pub(super) fn write<T, E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    let filled = |file: File| {
        let mut writer = BufWriter::new(file);
        let told = fill(&mut writer)?;
        writer.flush()?;
        Ok(told)
    };
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return filled(File::options().write(true).open(path)?);
    }
    let (draft, begun) = new_file::beside(path, 0o666)?;
    let written = filled(begun).and_then(|told| {
        fs::rename(&draft, path)?;
        Ok(told)
    });
    if written.is_err() {
        // The error that matters is the one from above.
        let _ = fs::remove_file(&draft);
    }
    written
}
