//! Allocators by the name that users type: `pytorch:expandable_segments:True`, `bfc:preallocate=false`, `ideal`.
//!
//! A name is parsed once into a spec, which builds as many fresh models as a search needs. The meaning of `memory` is
//! defined only here: for PyTorch's models it is the allocator's own limit (set by `set_per_process_memory_fraction`),
//! for all others the size of the device.

use makeroom_core::{Trace, TraceKind};

use crate::device::Device;
use crate::model::Model;
use crate::models::{
    Bfc, BfcOptions, CudaAsync, Cupy, Ideal, Makeroom, OptionError, PagedPytorch, Planned, RmmPool,
    RmmPoolOptions,
};
use crate::program::Program;
use crate::pytorch::{Pytorch, Settings, SettingsError, Version};
use crate::replay::{Outcome, replay_watched};

/// An allocator and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatorSpec {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Pytorch(Settings),
    CudaAsync,
    Bfc(BfcOptions),
    Cupy,
    RmmPool(RmmPoolOptions),
    Makeroom,
    /// PyTorch's settings, with expandable segments.
    Paged(Settings),
    Planned,
    Ideal,
}

/// Why a name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocatorError {
    /// There is no allocator of this name.
    #[error("`{name}` is not an allocator; choose from {KNOWN}")]
    Unknown {
        /// The name before the first colon.
        name: String,
    },
    /// The allocator has no options, but some were given.
    #[error("`{name}` takes no options, but got `{options}`")]
    NoOptions {
        /// The allocator.
        name: String,
        /// The given options.
        options: String,
    },
    /// Pages exist only under expandable segments.
    #[error("`makeroom-paged` always uses expandable segments; leave out `expandable_segments:False`")]
    NeedsExpandable,
    /// An option is invalid.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// A PyTorch setting is invalid.
    #[error(transparent)]
    Setting(#[from] SettingsError),
}

/// All names, for error messages.
const KNOWN: &str = "`pytorch[:SETTINGS]`, `pytorch-2.9[:SETTINGS]`, `cuda-async`, `bfc[:OPTIONS]`, `cupy`, \
                     `rmm-pool[:OPTIONS]`, `makeroom`, `makeroom-paged[:SETTINGS]`, `planned` and `ideal`";

/// The default allocators to compare a recording with.
const USUAL: [&str; 5] = ["pytorch:expandable_segments:True", "cuda-async", "makeroom", "planned", "ideal"];

/// The default allocators to compare a recording with. For an RMM log, they include RMM's pool.
pub fn usual_allocators(trace: &Trace) -> Vec<AllocatorSpec> {
    let own = (trace.kind == TraceKind::RmmLog).then_some("rmm-pool");
    own.iter().chain(&USUAL).filter_map(|name| parse(name).ok()).collect()
}

/// The recording does not contain PyTorch's allocator, so its settings have no effect and its model nothing to predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing to {purpose}: this recording {what}")]
pub struct NoPytorch {
    what: &'static str,
    purpose: &'static str,
}

/// Returns an error if a recording does not contain PyTorch's allocator. `purpose` is `tune` or `check`.
pub fn require_pytorch(trace: &Trace, purpose: &'static str) -> Result<(), NoPytorch> {
    let what = match trace.kind {
        TraceKind::TorchSnapshot => return Ok(()),
        TraceKind::Room if trace.process.as_ref().is_some_and(|process| process.sees_tensors) => {
            return Ok(());
        }
        TraceKind::Room => "contains only driver calls, not PyTorch's allocations",
        TraceKind::RmmLog => "is an RMM log and does not contain PyTorch's allocator",
        TraceKind::JaxProfile => "is a profile of live buffers and contains no allocations",
    };
    Err(NoPytorch { what, purpose })
}

/// The allocator that a recording was made with, if its rules are known.
pub fn recorded_allocator(trace: &Trace) -> Option<AllocatorSpec> {
    if trace.kind != TraceKind::TorchSnapshot {
        return None;
    }
    let settings = trace.settings.text.as_deref().filter(|text| !text.is_empty());
    let name = settings.map_or("pytorch".to_owned(), |settings| format!("pytorch:{settings}"));
    Some(AllocatorSpec::pytorch(&name, Settings::recorded(&trace.settings)))
}

/// Parses an allocator's name with its settings.
pub fn parse(name: &str) -> Result<AllocatorSpec, AllocatorError> {
    let (allocator, options) = name.split_once(':').unwrap_or((name, ""));
    let kind = match allocator.trim() {
        "pytorch" => Kind::Pytorch(Settings::parse_for(Version::V2_11, options)?),
        "pytorch-2.9" => Kind::Pytorch(Settings::parse_for(Version::V2_9, options)?),
        "cuda-async" => without_options(allocator, options, Kind::CudaAsync)?,
        "bfc" => Kind::Bfc(BfcOptions::parse(options)?),
        "cupy" => without_options(allocator, options, Kind::Cupy)?,
        "rmm-pool" => Kind::RmmPool(RmmPoolOptions::parse(options)?),
        "makeroom" => without_options(allocator, options, Kind::Makeroom)?,
        "makeroom-paged" => {
            let options = options.trim_matches(',');
            let separator = if options.is_empty() { "" } else { "," };
            let settings = Settings::parse_for(
                Version::V2_11,
                &format!("expandable_segments:True{separator}{options}"),
            )?;
            if !settings.expandable_segments {
                return Err(AllocatorError::NeedsExpandable);
            }
            Kind::Paged(settings)
        }
        "planned" => without_options(allocator, options, Kind::Planned)?,
        "ideal" => without_options(allocator, options, Kind::Ideal)?,
        unknown => return Err(AllocatorError::Unknown { name: unknown.to_owned() }),
    };
    Ok(AllocatorSpec { name: name.to_owned(), kind })
}

fn without_options(name: &str, options: &str, kind: Kind) -> Result<Kind, AllocatorError> {
    if options.trim().is_empty() {
        return Ok(kind);
    }
    Err(AllocatorError::NoOptions { name: name.to_owned(), options: options.to_owned() })
}

impl Default for AllocatorSpec {
    /// PyTorch's own allocator with its default settings.
    fn default() -> Self {
        Self::pytorch("pytorch", Settings::default())
    }
}

impl AllocatorSpec {
    /// PyTorch's allocator with these settings, under any name.
    pub fn pytorch(name: &str, settings: Settings) -> Self {
        Self { name: name.to_owned(), kind: Kind::Pytorch(settings) }
    }

    /// The name exactly as typed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// PyTorch's settings, for its models.
    pub fn settings(&self) -> Option<&Settings> {
        match &self.kind {
            Kind::Pytorch(settings) => Some(settings),
            _ => None,
        }
    }

    /// Whether it is the driver's stream-ordered allocator, which PyTorch can use in place of its own.
    pub fn is_cuda_async(&self) -> bool {
        matches!(self.kind, Kind::CudaAsync)
    }

    /// Whether addresses are planned with knowledge of the whole run.
    pub(crate) fn plans(&self) -> bool {
        matches!(self.kind, Kind::Planned)
    }

    /// Whether the model is an estimate of an allocator whose rules are not known. Output must label its figures as
    /// estimates.
    pub fn is_estimate(&self) -> bool {
        matches!(self.kind, Kind::CudaAsync)
    }

    /// Whether its memory use does not depend on the available memory: then one run also determines the smallest
    /// memory.
    pub(crate) fn needs_the_same_in_any_memory(&self) -> bool {
        matches!(self.kind, Kind::Planned | Kind::Ideal)
    }

    /// An empty model, for a run in this much memory; `None` is no limit.
    pub fn build(&self, program: &Program, memory: Option<u64>) -> Box<dyn Model> {
        match &self.kind {
            Kind::Pytorch(settings) => {
                let limit = memory.map(|memory| settings.limit_of(memory));
                Box::new(Pytorch::new(settings.clone(), limit))
            }
            Kind::CudaAsync => Box::new(CudaAsync::default()),
            Kind::Bfc(options) => Box::new(Bfc::new(*options, memory)),
            Kind::Cupy => Box::new(Cupy::default()),
            Kind::RmmPool(options) => Box::new(RmmPool::new(*options, memory)),
            Kind::Makeroom => Box::new(Makeroom::default()),
            Kind::Paged(settings) => Box::new(PagedPytorch::new(settings.clone())),
            Kind::Planned => Box::new(Planned::new(program)),
            Kind::Ideal => Box::new(Ideal::default()),
        }
    }

    /// The device for a run in this much memory. PyTorch's models enforce their limit themselves.
    pub fn device(&self, memory: Option<u64>) -> Device {
        Device::new(memory.filter(|_| !matches!(self.kind, Kind::Pytorch(_))))
    }

    /// Runs a program under a fresh model in this much memory, to its end or to the first failed allocation.
    pub fn run(&self, program: &Program, memory: Option<u64>) -> Outcome {
        self.run_watched(program, memory, |_, _| {})
    }

    /// The same; calls `watch` after each step with its recorded event and the memory reserved from the driver.
    pub fn run_watched(
        &self,
        program: &Program,
        memory: Option<u64>,
        watch: impl FnMut(u32, u64),
    ) -> Outcome {
        replay_watched(program, &mut *self.build(program, memory), &mut self.device(memory), watch)
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::ProcessRecord;

    use super::*;
    use crate::testing::Script;

    #[test]
    fn pytorch_is_in_its_snapshots_and_where_its_tensors_were_seen() {
        let recording = |kind, sees_tensors| Trace {
            process: Some(ProcessRecord { sees_tensors, ..ProcessRecord::default() }),
            ..Trace::new(kind)
        };
        assert_eq!(require_pytorch(&recording(TraceKind::Room, true), "tune"), Ok(()));
        assert_eq!(require_pytorch(&recording(TraceKind::TorchSnapshot, false), "tune"), Ok(()));
        for kind in [TraceKind::Room, TraceKind::RmmLog] {
            let refused = require_pytorch(&recording(kind, false), "tune").unwrap_err().to_string();
            assert!(refused.contains("nothing to tune"), "{refused}");
        }
    }

    #[test]
    fn a_log_of_rmm_is_tried_under_its_pool() {
        let names = |kind| -> Vec<String> {
            usual_allocators(&Trace::new(kind)).iter().map(|spec| spec.name().to_owned()).collect()
        };
        assert_eq!(names(TraceKind::TorchSnapshot), USUAL);
        assert_eq!(names(TraceKind::RmmLog)[0], "rmm-pool");
        assert_eq!(names(TraceKind::RmmLog)[1..], USUAL);
    }

    #[test]
    fn a_name_is_kept_as_it_was_typed() {
        let spec = parse("pytorch:expandable_segments:True").unwrap();
        assert_eq!(spec.name(), "pytorch:expandable_segments:True");
        assert!(spec.settings().is_some_and(|settings| settings.expandable_segments));
    }

    #[test]
    fn wrong_names_and_options_say_what_is_wrong() {
        for (name, message) in [
            ("tcmalloc", "`tcmalloc` is not an allocator; choose from"),
            ("pytorch:nonsense:1", "allocator setting `nonsense`: not a setting"),
            ("pytorch-2.9:large_segment_size_mb:32", "not supported by PyTorch 2.9"),
            ("bfc:fraction=2", "allocator option `fraction`: `2` is not a number above 0 and at most 1"),
            ("bfc:preallocate", "allocator option `preallocate`: missing value"),
            ("rmm-pool:initial=lots", "allocator option `initial`: `lots` is not a size"),
            ("makeroom-paged:expandable_segments:False", "always uses expandable segments"),
            ("ideal:fast", "`ideal` takes no options, but got `fast`"),
        ] {
            let error = parse(name).unwrap_err().to_string();
            assert!(error.contains(message), "{name}: {error}");
        }
    }

    #[test]
    fn memory_limits_pytorch_itself_and_everything_else_through_the_device() {
        let pytorch = parse("pytorch:per_process_memory_fraction:0.5").unwrap();
        let mut script = Script::default();
        script.allocate(1 << 20);
        script.allocate(6 << 20);
        let program = script.program();
        assert_eq!(pytorch.run(&program, Some(64 << 20)).refusal, None);
        assert!(pytorch.run(&program, Some(24 << 20)).refusal.is_some());
        let ideal = parse("ideal").unwrap();
        assert_eq!(ideal.run(&program, Some(7 << 20)).peak_reserved, 7 << 20);
        assert!(ideal.run(&program, Some((7 << 20) - 1)).refusal.is_some());
    }
}
