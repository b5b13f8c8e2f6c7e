//! `makeroom._impl._native`: bindings of the crates that read, explain and replay recordings. Results are JSON and text, tables
//! are Arrow C streams.
//!
//! This crate only converts: the logic is in the other crates, and the public interface is in `python/src/makeroom`. The
//! GIL is released while a recording is read or replayed.
#![forbid(unsafe_code)]
#![allow(clippy::needless_pass_by_value, reason = "pyo3 passes converted arguments by value")]

mod answer;
mod buffers;
mod columns;
mod failure;
mod groups;
mod index;
mod recording;
mod table;
mod values;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use makeroom_core::identity::JobIdentity;
use makeroom_core::{Bytes, Trace};
use makeroom_explain::{Cause, Certainty};
use makeroom_gather::Watcher;
use makeroom_text::{explain_text, explain_text_with};
use makeroom_trace::Input;
use makeroom_view::{Viewer, report};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use answer::Answer;
use failure::{InputError, UsageError};
use recording::{Question, Recording};
use table::Table;

/// The content of a file: a recording, or text such as a log.
#[derive(IntoPyObject)]
enum Opened {
    Recording(Recording),
    Text(String),
}

/// Reads a recording or a text file.
#[pyfunction]
fn read(py: Python<'_>, path: PathBuf) -> PyResult<Opened> {
    let name = path.display().to_string();
    let input = py.detach(|| makeroom_trace::open(&path));
    Ok(match input.map_err(|error| failure::input(&name, error))? {
        Input::Trace(trace) => {
            let bytes = std::fs::metadata(&path).ok().map(|file| file.len());
            Opened::Recording(Recording::new(name, bytes, trace))
        }
        Input::Text(bytes) => Opened::Text(String::from_utf8_lossy(&bytes).into_owned()),
    })
}

/// Files are read as they are: whether a program still runs is the command's to find out.
struct Quiet;

impl Watcher for Quiet {
    fn is_running(&self, _trace: &Trace, _path: &Path) -> bool {
        false
    }

    fn on_file(&self, _path: &Path) {}
}

/// Explains a job from its directories, files, patterns and archives.
#[pyfunction]
fn job(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Answer> {
    let name = paths.first().map_or_else(String::new, |path| path.display().to_string());
    let rows = py.detach(|| makeroom_gather::find(&paths).map(|found| makeroom_gather::read(&found, &Quiet)));
    let rows = rows.map_err(|error| failure::input(&name, error))?;
    if rows.recordings.is_empty() {
        let first = rows
            .unread
            .first()
            .map_or_else(String::new, |unread| format!("; {}: {}", unread.file, unread.reason));
        return Err(InputError::new_err(format!(
            "{name}: no recording, snapshot or log could be read{first}"
        )));
    }
    Ok(py.detach(|| Answer::job(makeroom_job::answer(&rows))))
}

/// The place of a process in a job, from its environment: the fields that are known, as text.
#[pyfunction]
fn job_identity(variables: HashMap<String, String>) -> BTreeMap<&'static str, String> {
    let identity = JobIdentity::from_environment(|name| variables.get(name).cloned());
    identity.fields().map(|(field, value)| (field.name(), value)).collect()
}

/// Reads a recording from memory.
#[pyfunction]
fn read_bytes(py: Python<'_>, name: &str, content: &[u8]) -> PyResult<Recording> {
    match py.detach(|| makeroom_trace::read(content)).map_err(|error| failure::input(name, error))? {
        Input::Trace(trace) => Ok(Recording::new(name.to_owned(), Some(content.len() as u64), trace)),
        Input::Text(_) => Err(InputError::new_err(format!("{name}: text, not a recording"))),
    }
}

/// Explains an error text, with the lines of the memory that was live then.
#[pyfunction]
#[pyo3(signature = (text, live = None))]
fn explain(py: Python<'_>, text: &str, live: Option<PyRef<'_, Recording>>) -> Answer {
    let live = live.map(|recording| recording.clone());
    py.detach(|| {
        Answer::explanation(match live {
            Some(live) => explain_text_with(text, live.trace()),
            None => explain_text(text),
        })
    })
}

/// The page of `makeroom view` as one file, and a sentence about what it leaves out.
#[pyfunction]
#[pyo3(signature = (recordings, memory = None, card = None, what_if = false))]
fn page(
    py: Python<'_>,
    recordings: Vec<PyRef<'_, Recording>>,
    memory: Option<u64>,
    card: Option<u64>,
    what_if: bool,
) -> PyResult<(String, Option<String>)> {
    let question = Question::new(memory, card, None)?.asked();
    let recordings: Vec<Recording> = recordings.iter().map(|recording| (*recording).clone()).collect();
    let made = py.detach(|| {
        let opened = recordings.iter().map(|recording| recording.opened(question)).collect();
        report(&Viewer::new(opened), what_if)
    });
    match made {
        Ok(report) => Ok((report.html, report.reduced)),
        Err(refusal) => {
            Err(PyRuntimeError::new_err(format!("{}\n\nhint: {}", refusal.message, refusal.hint)))
        }
    }
}

/// Names of all causes and certainties, for the types of the public module.
#[pyfunction]
fn names() -> (Vec<&'static str>, Vec<&'static str>) {
    (
        Cause::ALL.iter().map(|cause| cause.name()).collect(),
        Certainty::ALL.iter().map(|one| one.name()).collect(),
    )
}

/// Parses a size such as `24GiB` into bytes.
#[pyfunction]
fn parse_size(text: &str) -> PyResult<u64> {
    text.parse::<Bytes>().map(Bytes::get).map_err(|error| UsageError::new_err(error.to_string()))
}

/// Formats a size as makeroom prints it.
#[pyfunction]
fn format_size(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

#[pymodule(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<Answer>()?;
    module.add_class::<Recording>()?;
    module.add_class::<Table>()?;
    module.add("InputError", py.get_type::<InputError>())?;
    module.add("UsageError", py.get_type::<UsageError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(read_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(page, module)?)?;
    module.add_function(wrap_pyfunction!(names, module)?)?;
    module.add_function(wrap_pyfunction!(job, module)?)?;
    module.add_function(wrap_pyfunction!(job_identity, module)?)?;
    module.add_function(wrap_pyfunction!(index::is_recording_name, module)?)?;
    module.add_function(wrap_pyfunction!(index::index_name, module)?)?;
    module.add_function(wrap_pyfunction!(index::index_object, module)?)?;
    module.add_function(wrap_pyfunction!(parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(format_size, module)?)
}
