//! `run --pool`: what the environment must say so that frameworks ask for memory in ways that the pool can answer.
//!
//! PyTorch, JAX and TensorFlow each have an allocator of their own that takes memory in large pieces and hands it out
//! itself. All three can be told to leave that to the driver's stream-ordered calls, which the pool answers. The
//! user's own settings are merged, not replaced; what loses its meaning is named. Programs that use what PyTorch's
//! stream-ordered backend cannot do (`features`) run without the pool, and are told so before they start.

mod features;
mod settings;

use std::ffi::{OsStr, OsString};

use makeroom_core::Bytes;

/// Variables for the program, and what its user should know before it starts.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    /// Name and value.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// One line each.
    pub(crate) notes: Vec<String>,
}

/// The variable of PyTorch's settings that all versions know.
pub(crate) const TORCH: &str = "PYTORCH_CUDA_ALLOC_CONF";
/// What PyTorch 2.9 and later call it; the other one wins.
pub(crate) const TORCH_NEW: &str = "PYTORCH_ALLOC_CONF";

/// Decides how a program gets the pool, or why it does not.
pub(crate) fn switches(
    command: &[OsString],
    spill: Option<Bytes>,
    environment: impl Fn(&str) -> Option<String>,
) -> Switches {
    let mut switches = Switches::default();
    if let Some(feature) = features::unsupported(command) {
        switches.notes.push(format!(
            "recording without the pool: {}:{} uses {}, which PyTorch cannot do on stream-ordered memory",
            feature.file.display(),
            feature.line,
            feature.what
        ));
        return switches;
    }
    switches.set("MAKEROOM_POOL", "on");
    if let Some(spill) = spill {
        switches.set("MAKEROOM_SPILL", spill.get().to_string());
    }
    switches.tell_torch(&environment);
    switches.tell_jax(&environment);
    if environment("TF_GPU_ALLOCATOR").is_none() {
        switches.set("TF_GPU_ALLOCATOR", "cuda_malloc_async");
    }
    switches
}

impl Switches {
    fn set(&mut self, name: &'static str, value: impl AsRef<OsStr>) {
        self.variables.push((name, value.as_ref().to_owned()));
    }

    fn tell_torch(&mut self, environment: impl Fn(&str) -> Option<String>) {
        let theirs = environment(TORCH).or_else(|| environment(TORCH_NEW)).unwrap_or_default();
        let merged = settings::with_stream_ordered_backend(&theirs);
        if !merged.dropped.is_empty() {
            self.notes.push(format!(
                "with the pool these settings of PyTorch's allocator have no meaning: {}",
                merged.dropped.join(", ")
            ));
        }
        self.set(TORCH, &merged.value);
        if environment(TORCH_NEW).is_some() {
            self.set(TORCH_NEW, &merged.value);
        }
    }

    fn tell_jax(&mut self, environment: impl Fn(&str) -> Option<String>) {
        // "platform" asks the driver for every array, which the pool answers as well.
        match environment("XLA_PYTHON_CLIENT_ALLOCATOR").as_deref() {
            Some("platform" | "cuda_async") => {}
            other => {
                if let Some(other) = other {
                    self.notes.push(format!(
                        "with the pool XLA_PYTHON_CLIENT_ALLOCATOR={other} becomes cuda_async"
                    ));
                }
                self.set("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async");
            }
        }
        // What JAX takes in advance it would hold for itself.
        if environment("XLA_PYTHON_CLIENT_PREALLOCATE").is_none() {
            self.set("XLA_PYTHON_CLIENT_PREALLOCATE", "false");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(switches: &Switches, name: &str) -> Option<String> {
        let found = switches.variables.iter().find(|(known, _)| *known == name)?;
        found.1.to_str().map(str::to_owned)
    }

    #[test]
    fn every_framework_is_told() {
        let switches = switches(&["./solver".into()], Some(Bytes::gib(2)), |_| None);
        assert_eq!(value(&switches, "MAKEROOM_POOL").as_deref(), Some("on"));
        assert_eq!(value(&switches, "MAKEROOM_SPILL").as_deref(), Some("2147483648"));
        assert_eq!(value(&switches, TORCH).as_deref(), Some("backend:cudaMallocAsync"));
        assert_eq!(value(&switches, TORCH_NEW), None);
        assert_eq!(value(&switches, "XLA_PYTHON_CLIENT_ALLOCATOR").as_deref(), Some("cuda_async"));
        assert!(switches.notes.is_empty());
    }

    #[test]
    fn the_users_settings_are_merged_and_the_one_that_wins_is_set() {
        let theirs = |name: &str| match name {
            "PYTORCH_ALLOC_CONF" => Some("pinned_num_register_threads:4,max_split_size_mb:64".to_owned()),
            "XLA_PYTHON_CLIENT_PREALLOCATE" => Some("true".to_owned()),
            _ => None,
        };
        let switches = switches(&["./solver".into()], None, theirs);
        let merged = "backend:cudaMallocAsync,pinned_num_register_threads:4";
        assert_eq!(value(&switches, TORCH).as_deref(), Some(merged));
        assert_eq!(value(&switches, TORCH_NEW).as_deref(), Some(merged));
        assert_eq!(value(&switches, "XLA_PYTHON_CLIENT_PREALLOCATE"), None);
        assert_eq!(switches.notes.len(), 1);
        assert!(switches.notes[0].contains("max_split_size_mb:64"), "{:?}", switches.notes);
    }
}
