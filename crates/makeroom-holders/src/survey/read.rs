//! Queries NVML. Runs in the child process and replies with one line of JSON to each line it receives.
//!
//! The library is loaded at run time; if it is missing, that is an ordinary reply. All queries run on every GPU, and
//! one that fails on one GPU does not affect the others.

use std::ffi::OsStr;
use std::io::{BufRead, Write};

use nvml_wrapper::enum_wrappers::device as nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
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

fn start() -> Result<Nvml, Answer> {
    let mut missing = String::new();
    for library in LIBRARIES {
        match Nvml::builder().lib_path(OsStr::new(library)).init() {
            Ok(library) => return Ok(library),
            Err(NvmlError::LibloadingError(error)) => {
                if missing.is_empty() {
                    missing = error.to_string();
                }
            }
            Err(NvmlError::DriverNotLoaded) => return Err(Answer::NoDriver),
            Err(NvmlError::LibRmVersionMismatch) => return Err(Answer::Mismatch),
            Err(error) => return Err(Answer::Refused(error.to_string())),
        }
    }
    Err(Answer::NoLibrary(missing))
}

fn survey(library: &Nvml) -> Result<Survey, NvmlError> {
    let count = library.device_count()?;
    Ok(Survey {
        driver: library.sys_driver_version().unwrap_or_default(),
        cuda: library.sys_cuda_driver_version().ok(),
        cards: (0..count).map(|index| card_at(library, index)).collect(),
    })
}

fn card_at(library: &Nvml, index: u32) -> Card {
    match library.device_by_index(index) {
        Ok(device) => card(&device, index, false),
        Err(error) => Card { index, problems: vec![problem("GPU", &error)], ..Card::default() },
    }
}

fn card(device: &Device<'_>, index: u32, is_part: bool) -> Card {
    let mut card = Card { index, name: device.name().unwrap_or_default(), ..Card::default() };
    match device.uuid() {
        Ok(uuid) => card.uuid = uuid,
        Err(error) => card.problems.push(problem("UUID", &error)),
    }
    match device.memory_info() {
        Ok(memory) => {
            let (total, reserved, used, free) = (memory.total, memory.reserved, memory.used, memory.free);
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
fn whole(card: &mut Card, device: &Device<'_>) {
    card.bus_id = device.pci_info().map(|place| place.bus_id).unwrap_or_default();
    card.minor = device.minor_number().ok();
    card.drives_display = device.is_display_active().ok();
    card.is_persistent = device.is_in_persistent_mode().ok();
    card.keeps_account = device.is_accounting_enabled().ok();
    card.compute_mode = device.compute_mode().ok().map(|mode| match mode {
        nvml::ComputeMode::Default => ComputeMode::Shared,
        nvml::ComputeMode::Prohibited => ComputeMode::Prohibited,
        nvml::ComputeMode::ExclusiveThread | nvml::ComputeMode::ExclusiveProcess => ComputeMode::Exclusive,
    });
    match device.mig_mode() {
        Ok(mode) => card.is_divided = mode.current == 1,
        Err(error) if is_lacking(&error) => {}
        Err(error) => card.problems.push(problem("MIG mode", &error)),
    }
    if card.is_divided {
        parts(card, device);
    }
}

/// Reads the lists of processes.
fn lists(card: &mut Card, device: &Device<'_>) {
    let compute = newest_or(device.running_compute_processes(), || device.running_compute_processes_v2());
    let graphics = newest_or(device.running_graphics_processes(), || device.running_graphics_processes_v2());
    let lists = [
        (List::Compute, "compute processes", compute),
        (List::Graphics, "graphics processes", graphics),
        (List::Mps, "MPS clients", device.mps_running_compute_processes()),
    ];
    for (list, what, processes) in lists {
        match processes {
            Ok(processes) => card.listed.extend(processes.iter().map(|process| listed(process, list))),
            Err(error) if is_lacking(&error) => {}
            Err(error) => card.problems.push(problem(what, &error)),
        }
    }
    if card.keeps_account == Some(true) {
        for process in &mut card.listed {
            let statistics = device.accounting_stats_for(process.pid);
            process.peak = statistics.ok().and_then(|known| known.max_memory_usage);
        }
    }
}

/// Reads the MIG instances. Their indices have gaps where instances were removed.
fn parts(card: &mut Card, device: &Device<'_>) {
    for index in 0..device.mig_device_count().unwrap_or(0) {
        match device.mig_device_by_index(index) {
            Ok(part) => card.parts.push(Card { minor: card.minor, ..self::card(&part, index, true) }),
            Err(NvmlError::NotFound) => {}
            Err(error) => card.problems.push(problem(&format!("MIG instance {index}"), &error)),
        }
    }
}

/// Whether a GPU or driver merely lacks a feature, which is not a problem.
fn is_lacking(error: &NvmlError) -> bool {
    matches!(error, NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_))
}

/// The older version of a list, if the driver does not support the newer one.
fn newest_or(
    newest: Result<Vec<ProcessInfo>, NvmlError>,
    older: impl FnOnce() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    match newest {
        Err(NvmlError::FailedToLoadSymbol(_)) => older(),
        answer => answer,
    }
}

fn listed(process: &ProcessInfo, list: List) -> Listed {
    let bytes = match process.used_gpu_memory {
        // A listed process has a context. Inside a container, the driver lists it without its size.
        UsedGpuMemory::Unavailable | UsedGpuMemory::Used(0) => None,
        UsedGpuMemory::Used(bytes) => Some(bytes),
    };
    Listed { pid: process.pid, list, bytes, peak: None }
}

fn problem(what: &str, error: &NvmlError) -> Problem {
    let kind = match error {
        NvmlError::NoPermission => ProblemKind::NoPermission,
        NvmlError::GpuLost => ProblemKind::Lost,
        NvmlError::ResetRequired => ProblemKind::NeedsReset,
        _ => ProblemKind::Other,
    };
    Problem { what: what.to_owned(), answer: error.to_string(), kind }
}
