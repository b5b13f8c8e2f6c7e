//! `makeroom export`: converts a recording for other programs.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::Path;

use makeroom_explain::By;
use makeroom_export::{ExportError, Form, TableKind, export};

use crate::cli::{Export, ExportForm, ExportTable};
use crate::commands::{Kind, place, recording};
use crate::failure::Failure;
use crate::{output, signals};

/// Runs `makeroom export`.
pub(crate) fn run(arguments: &Export) -> Result<(), Failure> {
    if arguments.by.is_some() && !matches!(arguments.to, ExportForm::Perfetto | ExportForm::Speedscope) {
        return Err(Failure::NoGroups);
    }
    let form = form(arguments);
    let path = arguments.output.as_deref().filter(|path| *path != Path::new("-"));
    if let Some(path) = path {
        signals::outlive_file_limit();
        place::check(path, Kind::Export, std::slice::from_ref(&arguments.input))?;
    }
    let trace = recording::read_trace(&arguments.input)?;
    let left_out = match path {
        Some(path) => {
            let failed = |error| failed(&path.display().to_string(), error);
            place::write(path, Kind::Export, |file| export(&trace, form, file).map_err(failed))?
        }
        None if is_binary(form) && io::stdout().is_terminal() => return Err(Failure::BinaryToTerminal),
        None => {
            let to: Box<dyn Write> = if io::stdout().is_terminal() {
                Box::new(output::ToTerminal::new())
            } else {
                Box::new(BufWriter::new(io::stdout()))
            };
            export(&trace, form, to).map_err(|error| failed("standard output", error))?
        }
    };
    if let Some(left_out) = left_out {
        output::remark(&format!("makeroom: {left_out}\n"));
    }
    Ok(())
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
    let by = arguments.by.map(By::from);
    match arguments.to {
        ExportForm::Perfetto => Form::Perfetto(by),
        ExportForm::Speedscope => Form::Speedscope(by),
        ExportForm::Snapshot => Form::Snapshot,
        ExportForm::Parquet => Form::Parquet(table),
        ExportForm::Csv => Form::Csv(table),
    }
}

fn is_binary(form: Form) -> bool {
    matches!(form, Form::Snapshot | Form::Parquet(_))
}
