//! `makeroom._native`: what the Python module cannot do in Python. It reads recordings, asks the crates that explain
//! and replay, and hands back answers as JSON and text and tables as Arrow's C streams.
//!
//! Conversions only: every decision is made in the crates below, and every word for people there or in
//! `python/makeroom`. The interpreter is released while a recording is read or replayed.
#![forbid(unsafe_code)]
#![allow(clippy::needless_pass_by_value, reason = "what Python passes is converted, and comes by value")]

mod answer;
mod columns;
mod failure;
mod recording;
mod table;

use std::path::PathBuf;

use makeroom_core::Bytes;
use makeroom_explain::explain_text;
use makeroom_trace::Input;
use pyo3::prelude::*;

use answer::Answer;
use failure::{InputError, UsageError};
use recording::Recording;
use table::Table;

/// What a file is: a recording, or text that most likely has an error message in it.
#[derive(IntoPyObject)]
enum Opened {
    Recording(Recording),
    Text(String),
}

/// Reads a file, whatever it is.
#[pyfunction]
fn read(py: Python<'_>, path: PathBuf) -> PyResult<Opened> {
    let name = path.display().to_string();
    let input = py.detach(|| makeroom_trace::open(&path));
    Ok(match input.map_err(|error| failure::input(&name, error))? {
        Input::Trace(trace) => Opened::Recording(Recording::new(name, trace)),
        Input::Text(bytes) => Opened::Text(String::from_utf8_lossy(&bytes).into_owned()),
    })
}

/// Explains an error text.
#[pyfunction]
fn explain(py: Python<'_>, text: &str) -> Answer {
    py.detach(|| Answer::explanation(explain_text(text)))
}

/// A size as people type it, in bytes.
#[pyfunction]
fn parse_size(text: &str) -> PyResult<u64> {
    text.parse::<Bytes>().map(Bytes::get).map_err(|error| UsageError::new_err(error.to_string()))
}

/// A size as makeroom prints it.
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
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(format_size, module)?)
}
