//! The recordings that are measured: given files, or the project's own.
#![expect(clippy::print_stderr, reason = "files that are not recordings are reported next to the table")]

use std::path::{Path, PathBuf};

use makeroom_core::{DeviceTrace, Start};
use makeroom_sim::Program;
use makeroom_trace::Input;

/// One device of a recording.
pub(crate) struct Recorded {
    /// The file name without its extensions.
    pub(crate) name: String,
    /// The recorded program.
    pub(crate) program: Program,
    /// Number of recorded events, including segment events and completions of frees.
    #[allow(dead_code, reason = "not every table counts them")]
    pub(crate) events: usize,
}

/// Reads the recordings one at a time; without files, those in `traces/`.
pub(crate) fn all(named: Vec<PathBuf>) -> impl Iterator<Item = Recorded> {
    let paths = if named.is_empty() { own() } else { named };
    paths.into_iter().flat_map(|path| read(&path))
}

fn own() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> Vec<Recorded> {
    let trace = match makeroom_trace::open(path) {
        Ok(Input::Trace(trace)) => trace,
        Ok(Input::Text(_)) => {
            eprintln!("{}: this is a text, not a recording", path.display());
            return Vec::new();
        }
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return Vec::new();
        }
    };
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let name = file.split('.').next().unwrap_or_default();
    let recorded = |device: &DeviceTrace| Recorded {
        name: name.to_owned(),
        program: Program::new(device, &trace.stacks, &Start::new(device)),
        events: device.events.len(),
    };
    trace.devices.iter().map(recorded).collect()
}
