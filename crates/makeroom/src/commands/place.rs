//! A result as a file: written beside its place and moved there when it is whole, so that whoever reads the old one is not
//! disturbed and a failure leaves nothing half done.
//!
//! Only plain files are made that way. A device or a pipe is written to as it is: moving a file there would take it away.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::new_file;
use crate::failure::Failure;

/// Refuses to put a result where one of the inputs is.
pub(super) fn beside(path: &Path, inputs: &[PathBuf]) -> Result<(), Failure> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let Some(place) = real(path).filter(|place| place.is_file()) else { return Ok(()) };
    match inputs.iter().find(|input| real(input).as_ref() == Some(&place)) {
        Some(input) => Err(Failure::OverInput { name: input.display().to_string() }),
        None => Ok(()),
    }
}

/// Makes a file of what `fill` writes.
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
        // What was not made cannot be taken away, and that is no second failure.
        let _ = fs::remove_file(&draft);
    }
    written
}
