//! `makeroom demo`: run out of memory in each of the known ways, and explain each failure.
//!
//! ```text
//! gpu.rs       chooses the GPU                       program.rs   one situation, inside the recorded process
//! recorded.rs  runs one situation and explains it    text.rs      the output as text
//! ```

mod gpu;
pub(crate) mod program;
mod recorded;
mod text;

use std::path::PathBuf;

use makeroom_demo::{SITUATIONS, Situation};
use makeroom_report::explanation_json;
use serde_json::{Value, json};

use self::gpu::Machine;
use self::recorded::{Recorded, Shown};
use crate::cli::Demo;
use crate::commands::run::library;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Runs `makeroom demo`.
pub(crate) fn run(arguments: &Demo) -> Result<(), Failure> {
    if arguments.list {
        return if arguments.json {
            output::json(&SITUATIONS.iter().map(described).collect())
        } else {
            output::result(&text::list())
        };
    }
    let wanted: Vec<&Situation> = match &arguments.name {
        Some(name) => {
            let found = makeroom_demo::find(name);
            vec![found.ok_or_else(|| Failure::NoSuchSituation { name: name.clone() })?]
        }
        None => SITUATIONS.iter().collect(),
    };
    let machine = Machine::choose(arguments.gpu)?;
    let folder = Folder::new(arguments.output.clone())?;
    let progress = Progress::new(wanted.len() as u64);
    let mut shown = Vec::new();
    for situation in wanted {
        progress.step(situation.name);
        shown.push(recorded::run(situation, &machine, &folder.path)?);
    }
    progress.finish();
    if arguments.json {
        let situations: Vec<Value> = shown.iter().map(|shown| answer(shown, folder.is_kept)).collect();
        return output::json(&json!({ "gpu": machine.name(), "situations": situations }));
    }
    let kept = folder.is_kept.then_some(folder.path.as_path());
    let written = match (&arguments.name, shown.as_slice()) {
        (Some(_), [only]) => text::whole(only, &machine, kept),
        _ => text::all(&shown, &machine, kept),
    };
    output::result(&written)
}

fn described(situation: &Situation) -> Value {
    json!({ "name": situation.name, "title": situation.title, "about": situation.about })
}

fn answer(shown: &Shown, is_kept: bool) -> Value {
    let mut value = described(shown.situation);
    match &shown.recorded {
        Ok(Recorded { said, file, explanation, .. }) => {
            value["said"] = json!(said.lines().collect::<Vec<_>>());
            value["recording"] = json!(is_kept.then(|| file.display().to_string()));
            value["explanation"] = explanation_json(explanation);
        }
        Err(reason) => value["not_run"] = json!(reason),
    }
    value
}

/// The directory of the recordings, removed on drop unless the user chose it.
struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    fn new(asked: Option<PathBuf>) -> Result<Self, Failure> {
        let is_kept = asked.is_some();
        let path = match asked {
            Some(path) => std::path::absolute(path)?,
            None => library::folder().map_err(Failure::Library)?.join(format!("demo-{}", std::process::id())),
        };
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::Write { name: path.display().to_string(), error })?;
        Ok(Self { path, is_kept })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            // A leftover is in the user's private temporary directory.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
