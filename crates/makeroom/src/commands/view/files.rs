//! The inputs of a view: read once, watched for changes, and read again when the page requests it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use makeroom_core::{Bytes, DeviceIndex};
use makeroom_explain::TraceQuestion;
use makeroom_trace::Input;
use makeroom_view::{Change, Host, Layers, Opened, OpenedInput, Refusal, Viewer};

use crate::cli::View;
use crate::commands::recording;
use crate::failure::Failure;
use crate::progress::Spinner;

/// Files of this size together take long enough to show progress.
const LARGE: u64 = 8 << 20;

/// The inputs.
#[derive(Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    question: TraceQuestion,
    layers: Layers,
    read: RwLock<Read>,
    /// Serializes reading.
    reading: Mutex<()>,
}

/// The content, and the files' stamps from before they were read.
#[derive(Clone, Debug)]
struct Read {
    viewer: Arc<Viewer>,
    stamps: Vec<Option<Stamp>>,
}

/// Detects changes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn read(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self { bytes: metadata.len(), modified: metadata.modified().ok() })
    }
}

impl Files {
    /// Reads all inputs.
    pub(super) fn open(arguments: &View) -> Result<Self, Failure> {
        let room = recording::room(arguments.memory, arguments.card);
        let question = TraceQuestion { room, device: arguments.device.map(DeviceIndex) };
        let layers = arguments.by;
        let read = read(&arguments.inputs, question, layers)?;
        Ok(Self {
            paths: arguments.inputs.clone(),
            question,
            layers,
            read: RwLock::new(read),
            reading: Mutex::new(()),
        })
    }

    fn last(&self) -> Read {
        // Poisoning is harmless: the value is only ever replaced as a whole.
        self.read.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(paths: &[PathBuf], question: TraceQuestion, layers: Layers) -> Result<Read, Failure> {
    // Taken before reading, so that a write during the read counts as a change.
    let stamps: Vec<Option<Stamp>> = paths.iter().map(|path| Stamp::read(path)).collect();
    let mut opened = Vec::new();
    let progress = Reading::new(&stamps);
    for (path, stamp) in paths.iter().zip(&stamps) {
        progress.say(path, *stamp);
        let input = match recording::read(path)? {
            Input::Trace(trace) => {
                if let Some(DeviceIndex(asked)) = question.device {
                    recording::device(&trace, path, Some(asked))?;
                }
                OpenedInput::Trace(Box::new(trace))
            }
            Input::Text(text) => OpenedInput::Text(String::from_utf8_lossy(&text).into_owned()),
        };
        let name = path.file_name().map_or_else(|| recording::name(path), |name| name.display().to_string());
        let name = if is_stream(path) { recording::name(path) } else { name };
        opened.push(Opened { name, bytes: stamp.map(|stamp| stamp.bytes), input, question });
    }
    progress.say_indexing();
    Ok(Read { viewer: Arc::new(Viewer::new(opened).with_layers(layers)), stamps })
}

/// Progress in the terminal while large files are read; small ones are read before anyone could read a line about it.
struct Reading(Option<Spinner>);

impl Reading {
    fn new(stamps: &[Option<Stamp>]) -> Self {
        let bytes: u64 = stamps.iter().flatten().map(|stamp| stamp.bytes).sum();
        Self((bytes >= LARGE).then(Spinner::new))
    }

    fn say(&self, path: &Path, stamp: Option<Stamp>) {
        if let Some(spinner) = &self.0 {
            let size = stamp.map_or(String::new(), |stamp| format!(" ({})", Bytes::new(stamp.bytes)));
            spinner.say(&format!("reading {}{size}", recording::name(path)));
        }
    }

    fn say_indexing(&self) {
        if let Some(spinner) = &self.0 {
            spinner.say("explaining it and building the timeline");
        }
    }
}

fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

impl Host for Files {
    fn viewer(&self) -> Arc<Viewer> {
        self.last().viewer
    }

    fn changes(&self) -> Vec<Change> {
        let stamps = self.last().stamps;
        let change = |(path, before): (&PathBuf, &Option<Stamp>)| match Stamp::read(path) {
            _ if is_stream(path) => Change::Same,
            None => Change::Vanished,
            now if now == *before => Change::Same,
            Some(_) => Change::Changed,
        };
        self.paths.iter().zip(&stamps).map(change).collect()
    }

    fn can_reload(&self) -> bool {
        !self.paths.iter().any(|path| is_stream(path))
    }

    fn reload(&self) -> Result<(), Refusal> {
        if !self.can_reload() {
            let hint = "write the input to a file first";
            return Err(Refusal::new(409, "standard input cannot be read again", hint));
        }
        let _alone = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let read = read(&self.paths, self.question, self.layers).map_err(|failure| {
            let hint =
                failure.hint().unwrap_or_else(|| "the page still shows the previous contents".to_owned());
            Refusal::new(409, failure.to_string(), hint)
        })?;
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}
