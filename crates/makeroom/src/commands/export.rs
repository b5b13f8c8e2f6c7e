//! `makeroom export`: a recording as a file for other programs.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _};
use std::path::{Path, PathBuf};

use makeroom_core::Trace;
use makeroom_export::{ExportError, Form, TableKind, export};

use crate::cli::{Export, ExportForm, ExportTable};
use crate::commands::recording;
use crate::failure::Failure;
use crate::output;

/// Runs `makeroom export`.
pub(crate) fn run(arguments: &Export) -> Result<(), Failure> {
    let form = form(arguments);
    let trace = recording::read_trace(&arguments.input)?;
    let path = arguments.output.as_deref().filter(|path| *path != Path::new("-"));
    let left_out = match path {
        Some(path) => write_file(&trace, form, path)?,
        None if is_binary(form) && io::stdout().is_terminal() => return Err(Failure::BinaryToTerminal),
        None => export(&trace, form, BufWriter::new(io::stdout()))
            .map_err(|error| failed("standard output", error))?,
    };
    if let Some(left_out) = left_out {
        output::remark(&format!("makeroom: {left_out}\n"));
    }
    Ok(())
}

/// Writes beside the file and puts it into place when it is whole: whoever reads the old one is not disturbed, and a
/// failure leaves nothing half done.
fn write_file(trace: &Trace, form: Form, path: &Path) -> Result<Option<String>, Failure> {
    let name = path.display().to_string();
    let draft = PathBuf::from(format!("{name}.{}.part", std::process::id()));
    let written = File::create(&draft)
        .map_err(ExportError::from)
        .and_then(|file| export(trace, form, BufWriter::new(file)))
        .and_then(|left_out| Ok(fs::rename(&draft, path).map(|()| left_out)?));
    if written.is_err() {
        // What was not made cannot be taken away, and that is no second failure.
        let _ = fs::remove_file(&draft);
    }
    written.map_err(|error| failed(&name, error))
}

fn failed(name: &str, error: ExportError) -> Failure {
    if error.is_broken_pipe() {
        return Failure::Output(io::ErrorKind::BrokenPipe.into());
    }
    Failure::Export { name: name.to_owned(), error }
}

fn form(arguments: &Export) -> Form {
    let table = match arguments.table {
        ExportTable::Allocations => TableKind::Allocations,
        ExportTable::Events => TableKind::Events,
    };
    match arguments.to {
        ExportForm::Perfetto => Form::Perfetto,
        ExportForm::Speedscope => Form::Speedscope,
        ExportForm::Snapshot => Form::Snapshot,
        ExportForm::Parquet => Form::Parquet(table),
        ExportForm::Csv => Form::Csv(table),
    }
}

fn is_binary(form: Form) -> bool {
    matches!(form, Form::Snapshot | Form::Parquet(_))
}
