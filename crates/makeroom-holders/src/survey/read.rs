//! Queries NVML. Runs in the child process and replies with one line of JSON to each line it receives.
//!
//! The library is loaded at run time; if it is missing, that is an ordinary reply. All queries run on every GPU, and
//! one that fails on one GPU does not affect the others.

use std::io::{BufRead, Write};

use makeroom_nvml::{Code, Device, Error, Library, Process};
use serde::{Deserialize, Serialize};

use super::{Card, ComputeMode, List, Listed, Memory, Problem, ProblemKind, Survey};

/// Where the library may be: on the loader's path, or where WSL and NixOS put it.
const LIBRARIES: [&str; 3] =
    ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1"];

/// A reply over the pipe.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Survey(Survey),
    /// The library could not be loaded.
    NoLibrary(String),
    /// The driver is not loaded.
    NoDriver,
    /// The library and the loaded driver have different versions.
    Mismatch,
    /// Any other error from NVML's initialization.
    Refused(String),
}

/// Replies to every line of `questions` with one line in `answers`, until the end of input.
pub fn answer(questions: impl BufRead, mut answers: impl Write) -> std::io::Result<()> {
    let mut started = None;
    for question in questions.lines() {
        question?;
        let answer = match started.take() {
            Some(library) => Ok(library),
            None => start(),
        }
        .map_or_else(
            |failure| failure,
            |library| {
                let survey = survey(&library);
                started = Some(library);
                survey.map_or_else(|error| Answer::Refused(error.to_string()), Answer::Survey)
            },
        );
        serde_json::to_writer(&mut answers, &answer)?;
        answers.write_all(b"\n")?;
        answers.flush()?;
    }
    Ok(())
}

fn start() -> Result<Library, Answer> {
    let mut missing = String::new();
    for path in LIBRARIES {
        let error = match Library::open(path) {
            Ok(library) => return Ok(library),
            Err(error) => error,
        };
        match error {
            Error::NotLoaded { reason } if missing.is_empty() => missing = reason,
            Error::NotLoaded { .. } => {}
            error => {
                return Err(match error.code() {
                    Some(Code::DRIVER_NOT_LOADED) => Answer::NoDriver,
                    Some(Code::LIBRARY_MISMATCH) => Answer::Mismatch,
                    _ => Answer::Refused(error.to_string()),
                });
            }
        }
    }
    Err(Answer::NoLibrary(missing))
}

fn survey(library: &Library) -> Result<Survey, Error> {
    let count = library.device_count()?;
    Ok(Survey {
        driver: library.driver_version().unwrap_or_default(),
        cuda: library.cuda_version().ok(),
        cards: (0..count).map(|index| card_at(library, index)).collect(),
    })
}

fn card_at(library: &Library, index: u32) -> Card {
    match library.device(index) {
        Ok(device) => card(device, index, false),
        Err(error) => Card { index, problems: vec![problem("GPU", &error)], ..Card::default() },
    }
}

fn card(device: Device<'_>, index: u32, is_part: bool) -> Card {
    let mut card = Card { index, name: device.name().unwrap_or_default(), ..Card::default() };
    match device.uuid() {
        Ok(uuid) => card.uuid = uuid,
        Err(error) => card.problems.push(problem("UUID", &error)),
    }
    match device.memory() {
        Ok(makeroom_nvml::Memory { total, reserved, used, free }) => {
            card.memory = Some(Memory { total, reserved, used, free });
        }
        Err(error) => card.problems.push(problem("memory", &error)),
    }
    if !is_part {
        whole(&mut card, device);
    }
    lists(&mut card, device);
    card
}

/// Reads properties that MIG instances do not have.
fn whole(card: &mut Card, device: Device<'_>) {
    card.bus_id = device.bus_id().unwrap_or_default();
    card.minor = device.minor_number().ok();
    card.drives_display = device.is_display_active().ok();
    card.is_persistent = device.is_persistent().ok();
    card.keeps_account = device.is_accounting().ok();
    card.compute_mode = device.compute_mode().ok().map(|mode| match mode {
        makeroom_nvml::ComputeMode::Default => ComputeMode::Shared,
        makeroom_nvml::ComputeMode::Prohibited => ComputeMode::Prohibited,
        makeroom_nvml::ComputeMode::ExclusiveThread | makeroom_nvml::ComputeMode::ExclusiveProcess => {
            ComputeMode::Exclusive
        }
    });
    match device.is_mig_enabled() {
        Ok(is_divided) => card.is_divided = is_divided,
        Err(error) if error.is_unsupported() => {}
        Err(error) => card.problems.push(problem("MIG mode", &error)),
    }
    if card.is_divided {
        parts(card, device);
    }
}

/// Reads the lists of processes.
fn lists(card: &mut Card, device: Device<'_>) {
    let lists = [
        (List::Compute, makeroom_nvml::List::Compute, "compute processes"),
        (List::Graphics, makeroom_nvml::List::Graphics, "graphics processes"),
        (List::Mps, makeroom_nvml::List::Mps, "MPS clients"),
    ];
    for (list, of_device, what) in lists {
        match device.processes(of_device) {
            Ok(processes) => card.listed.extend(processes.iter().map(|process| listed(process, list))),
            Err(error) if error.is_unsupported() => {}
            Err(error) => card.problems.push(problem(what, &error)),
        }
    }
    if card.keeps_account == Some(true) {
        for process in &mut card.listed {
            process.peak = device.peak_memory(process.pid).ok().flatten();
        }
    }
}

/// Reads the MIG instances. Their indices have gaps where instances were removed.
fn parts(card: &mut Card, device: Device<'_>) {
    for index in 0..device.mig_device_count().unwrap_or(0) {
        match device.mig_device(index) {
            Ok(part) => card.parts.push(Card { minor: card.minor, ..self::card(part, index, true) }),
            Err(error) if error.code() == Some(Code::NOT_FOUND) => {}
            Err(error) => card.problems.push(problem(&format!("MIG instance {index}"), &error)),
        }
    }
}

fn listed(process: &Process, list: List) -> Listed {
    // A listed process has a context. Inside a container, the driver lists it without its size.
    let bytes = process.used_memory.filter(|bytes| *bytes > 0);
    Listed { pid: process.pid, list, bytes, peak: None }
}

fn problem(what: &str, error: &Error) -> Problem {
    let kind = match error.code() {
        Some(Code::NO_PERMISSION) => ProblemKind::NoPermission,
        Some(Code::GPU_IS_LOST) => ProblemKind::Lost,
        Some(Code::RESET_REQUIRED) => ProblemKind::NeedsReset,
        _ => ProblemKind::Other,
    };
    Problem { what: what.to_owned(), answer: error.to_string(), kind }
}
