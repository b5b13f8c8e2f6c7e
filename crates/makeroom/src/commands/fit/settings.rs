//! The allocator to fit the batch for: the environment that selects it in the runs, and the model that predicts it.

use std::ffi::OsString;

use makeroom_core::Trace;
use makeroom_sim::AllocatorSpec;

use crate::cli::PoolKind;
use crate::commands::run::pool::{self, TORCH, TORCH_NEW};
use crate::failure::Failure;

/// Environment variables for the runs, and notes for the user.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) variables: Vec<(&'static str, OsString)>,
    pub(crate) notes: Vec<String>,
}

/// The environment that makes programs use an allocator; `None` keeps their own.
pub(crate) fn for_allocator(
    allocator: Option<&AllocatorSpec>,
    command: &[OsString],
) -> Result<Settings, Failure> {
    let mut settings = Settings::default();
    let Some(allocator) = allocator else {
        // By default JAX preallocates three quarters of the GPU whatever the batch size. With `platform`, it
        // allocates each array from the driver, so the recording shows what it needs.
        if std::env::var_os("XLA_PYTHON_CLIENT_ALLOCATOR").is_none() {
            settings.variables.push(("XLA_PYTHON_CLIENT_ALLOCATOR", "platform".into()));
        }
        return Ok(settings);
    };
    let (name, options) = allocator.name().split_once(':').unwrap_or((allocator.name(), ""));
    match name {
        "pytorch" | "pytorch-2.9" => {
            settings.variables.extend([TORCH, TORCH_NEW].map(|variable| (variable, OsString::from(options))));
        }
        "cuda-async" => {
            let backend = OsString::from("backend:cudaMallocAsync");
            settings.variables.extend([TORCH, TORCH_NEW].map(|variable| (variable, backend.clone())));
        }
        "makeroom" => {
            let switches =
                pool::switches(command, PoolKind::Expandable, None, |name| std::env::var(name).ok());
            settings.variables = switches.variables;
            settings.notes = switches.notes;
        }
        _ => return Err(Failure::NoRunUnder { allocator: allocator.name().to_owned() }),
    }
    Ok(settings)
}

/// The model of the allocator that a run used. `variables` is the environment that the run got.
pub(crate) fn allocator_of(trace: &Trace, variables: &[(&'static str, OsString)]) -> AllocatorSpec {
    let sees_tensors = trace.process.as_ref().is_some_and(|process| process.sees_tensors);
    if !sees_tensors {
        // The recording contains the requests to the driver, without an allocator in between.
        return if uses(trace, "xla") { named("bfc") } else { named("ideal") };
    }
    torch_allocator(&torch_settings(variables))
}

/// The model for a requested allocator. With `makeroom`, PyTorch uses its own allocator with expandable segments, and
/// only other programs use makeroom's pool.
pub(crate) fn predicted_by(
    allocator: &AllocatorSpec,
    trace: &Trace,
    variables: &[(&'static str, OsString)],
) -> AllocatorSpec {
    let sees_tensors = trace.process.as_ref().is_some_and(|process| process.sees_tensors);
    if allocator.name() == "makeroom" && sees_tensors {
        return torch_allocator(&torch_settings(variables));
    }
    allocator.clone()
}

/// PyTorch's settings in a run: from `variables`, else from this process's environment.
fn torch_settings(variables: &[(&'static str, OsString)]) -> String {
    [TORCH, TORCH_NEW]
        .into_iter()
        .find_map(|name| {
            let given = variables.iter().find(|(known, _)| *known == name);
            given.map(|(_, value)| value.to_string_lossy().into_owned()).or_else(|| std::env::var(name).ok())
        })
        .unwrap_or_default()
}

fn torch_allocator(settings: &str) -> AllocatorSpec {
    if settings.contains("cudaMallocAsync") {
        return named("cuda-async");
    }
    named(&if settings.is_empty() { "pytorch".to_owned() } else { format!("pytorch:{settings}") })
}

/// An allocator by name; PyTorch's default if the simulator does not support the settings in the name.
fn named(name: &str) -> AllocatorSpec {
    makeroom_sim::parse(name).unwrap_or_default()
}

/// Whether any of the first 10,000 events of a device was caused by a library with this in its name.
fn uses(trace: &Trace, library: &str) -> bool {
    trace.devices.iter().any(|device| {
        device.events.iter().take(10_000).any(|event| {
            trace
                .stacks
                .frames_of(event.stack)
                .iter()
                .any(|&frame| trace.stacks.name_text(trace.stacks.frame_at(frame).library).contains(library))
        })
    })
}

#[cfg(test)]
mod tests {
    use makeroom_core::{ProcessRecord, TraceKind};

    use super::*;

    #[test]
    fn pytorch_under_makeroom_is_predicted_with_expandable_segments() {
        let trace = |sees_tensors| Trace {
            process: Some(ProcessRecord { sees_tensors, ..ProcessRecord::default() }),
            ..Trace::new(TraceKind::Room)
        };
        let variables = [(TORCH_NEW, OsString::from("max_split_size_mb:64,expandable_segments:True"))];
        let predicted = predicted_by(&named("makeroom"), &trace(true), &variables);
        assert_eq!(predicted.name(), "pytorch:max_split_size_mb:64,expandable_segments:True");
        assert_eq!(predicted_by(&named("makeroom"), &trace(false), &variables).name(), "makeroom");
        assert_eq!(predicted_by(&named("cuda-async"), &trace(true), &variables).name(), "cuda-async");
    }
}
