//! Errors as Python exceptions: `OSError` with errno and filename if a file cannot be opened, else a `ValueError` with a
//! hint.

use std::io;
use std::path::Path;

use makeroom_trace::Error;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::{PyErr, create_exception};

create_exception!(makeroom, InputError, PyValueError, "A file is not a recording, or it is damaged.");
create_exception!(makeroom, UsageError, PyValueError, "An argument is invalid.");

/// The exception for an input that cannot be read.
pub(crate) fn input(name: &str, error: Error) -> PyErr {
    let hint = error.hint();
    match error {
        Error::Open { ref path, ref cause } => match cause.raw_os_error() {
            Some(number) => system(number, path, None),
            None => io::Error::new(cause.kind(), error.to_string()).into(),
        },
        Error::Directory { ref path } => {
            let hint = format!(
                "pass a file in it, or the files of one job: makeroom.job({:?})",
                path.display().to_string()
            );
            system(IS_A_DIRECTORY, path, Some(&hint))
        }
        error => InputError::new_err(with_hint(format!("{name}: {error}"), hint)),
    }
}

/// `EISDIR`, which has this number on every Linux.
const IS_A_DIRECTORY: i32 = 21;

/// The exception of Python's own `open`: Python chooses the class by the number. The hint is a note of the exception, where
/// there are notes (3.11 and later).
fn system(number: i32, path: &Path, hint: Option<&str>) -> PyErr {
    Python::attach(|py| {
        let text = io::Error::from_raw_os_error(number).to_string();
        // Rust appends the number, which Python puts in front.
        let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
        let error = PyOSError::new_err((number, text, path.display().to_string()));
        if let Some(hint) = hint {
            // Before Python 3.11 there is no such method.
            let _ = error.value(py).call_method1("add_note", (format!("hint: {hint}"),));
        }
        error
    })
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
