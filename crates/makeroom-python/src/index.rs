//! Index files of single objects, for the workers of Spark and Ray.

use std::path::PathBuf;

use makeroom_index::{IndexError, Object, decode, index_bytes, index_file};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure;

/// Whether an object of this name is a recording, a snapshot, a log or an archive.
#[pyfunction]
pub(crate) fn is_recording_name(name: &str) -> bool {
    makeroom_index::is_recording_name(name)
}

/// The name of an object's file in an index.
#[pyfunction]
pub(crate) fn index_name(source: String, size: u64, etag: String) -> String {
    Object { source, size, etag, modified_us: None }.file_name()
}

/// The name and the content of an object's file in an index, and the reason if the object is not a recording. The object's
/// own content is in memory or in a file.
#[pyfunction]
#[pyo3(signature = (source, size, etag, modified_us, *, data = None, path = None))]
pub(crate) fn index_object<'py>(
    py: Python<'py>,
    source: String,
    size: u64,
    etag: String,
    modified_us: Option<u64>,
    data: Option<&[u8]>,
    path: Option<PathBuf>,
) -> PyResult<(String, Bound<'py, PyBytes>, Option<String>)> {
    let object = Object { source, size, etag, modified_us };
    let name = object.file_name();
    let made = py.detach(|| {
        let content = match (data, &path) {
            (Some(data), None) => index_bytes(object, data)?,
            (None, Some(path)) => index_file(object, path)?,
            _ => return Ok(None),
        };
        let reason = unreadable(&content)?;
        Ok(Some((content, reason)))
    });
    match made {
        Ok(Some((content, reason))) => Ok((name, PyBytes::new(py, &content), reason)),
        Ok(None) => Err(failure::usage("pass either the data or the path of an object".to_owned(), None)),
        Err(IndexError::Io(error)) => Err(error.into()),
        Err(error) => Err(PyRuntimeError::new_err(error.to_string())),
    }
}

/// Why an object has no rows.
fn unreadable(content: &[u8]) -> Result<Option<String>, IndexError> {
    let entries = decode(content.to_vec())?;
    let empty = entries.iter().filter(|entry| entry.rows.recordings.is_empty());
    Ok(empty.flat_map(|entry| &entry.rows.unread).map(|unread| unread.reason.clone()).next())
}
