//! Errors as Python exceptions: `OSError` if a file cannot be opened, else a `ValueError` with a hint.

use std::io;

use makeroom_trace::Error;
use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;

create_exception!(makeroom, InputError, PyValueError, "A file is not a recording, or it is damaged.");
create_exception!(makeroom, UsageError, PyValueError, "An argument is invalid.");

/// The exception for an input that cannot be read.
pub(crate) fn input(name: &str, error: Error) -> PyErr {
    let hint = error.hint();
    match error {
        Error::Open { ref cause, .. } => {
            io::Error::new(cause.kind(), with_hint(error.to_string(), hint)).into()
        }
        Error::Directory { .. } => {
            io::Error::new(io::ErrorKind::IsADirectory, with_hint(error.to_string(), hint)).into()
        }
        error => InputError::new_err(with_hint(format!("{name}: {error}"), hint)),
    }
}

/// The exception for an invalid argument.
pub(crate) fn usage(message: String, hint: Option<&str>) -> PyErr {
    UsageError::new_err(with_hint(message, hint.map(str::to_owned)))
}

fn with_hint(message: String, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{message}\n\nhint: {hint}"),
        None => message,
    }
}
