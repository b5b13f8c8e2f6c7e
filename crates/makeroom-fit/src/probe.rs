//! One run of the program: its allocations, their sites, and memory outside the allocator.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher as _};

use makeroom_core::{Bytes, DeviceTrace, FastHasher, FastMap, StackId, Start, Trace};
use makeroom_explain::{DeviceOverhead, device_overhead, place_of};
use makeroom_sim::{Inside, Program, Step};

use crate::cycles::Cycles;
use crate::sizes::Sizes;

/// The observations of a run with one batch.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The batch.
    pub batch: u64,
    /// The allocations and frees of the program.
    pub program: Program,
    /// Its steps.
    pub cycles: Cycles,
    /// Device memory outside the program's allocations, if measured.
    pub overhead: Option<DeviceOverhead>,
    /// Driver memory that libraries allocated themselves, which is also outside.
    pub libraries: Bytes,
    /// Whether an optimizer was seen. Before that, its memory is not allocated.
    pub is_optimized: bool,
    /// Failed requests after which the run continued: a library used another algorithm, or the request was retried.
    pub refusals: usize,
    /// Number of cycles after the last failed request, or all if none failed.
    pub cycles_since_refusal: usize,
    /// What the recorded sizes mean.
    pub sizes: Sizes,
    /// The site of each allocation; the same in every run of the program.
    pub(crate) keys: Vec<u64>,
    /// Sites that perform convolutions, or may: their workspaces are optional.
    pub(crate) convolutions: HashSet<u64, FastHasher>,
    /// The names of sites.
    pub(crate) names: FastMap<u64, String>,
}

impl Probe {
    /// Reads a run from its recording of one device.
    pub fn new(batch: u64, trace: &Trace, device: &DeviceTrace) -> Self {
        let overhead = device_overhead(trace, device);
        let inside = Inside::new(device);
        let libraries = Bytes::new(inside.as_ref().map_or(0, |inside| inside.outside));
        let device = inside.as_ref().map_or(device, |inside| &inside.device);
        let program = Program::new(device, &trace.stacks, &Start::new(device));
        let sees_tensors = trace.process.as_ref().is_some_and(|process| process.sees_tensors);
        let mut places = Places::new(trace);
        let keys = program.allocations.iter().map(|allocation| places.key(allocation.stack)).collect();
        Self {
            overhead,
            libraries,
            sizes: if sees_tensors { Sizes::Blocks } else { Sizes::Requested },
            is_optimized: places.names_optimizer(),
            convolutions: if sees_tensors { places.convolutions() } else { HashSet::default() },
            names: places.names,
            ..Self::of_program(batch, program, keys)
        }
    }

    /// A run of which only the program is known.
    pub(crate) fn of_program(batch: u64, program: Program, keys: Vec<u64>) -> Self {
        let cycles = Cycles::find(&program);
        let last_refusal = program.steps.iter().rposition(|step| matches!(step, Step::AllocateRefused(_)));
        let cycles_since_refusal = last_refusal.map_or(cycles.peaks.len(), |position| cycles.after(position));
        Self {
            batch,
            refusals: program.refused(),
            cycles_since_refusal,
            program,
            cycles,
            overhead: None,
            libraries: Bytes::ZERO,
            is_optimized: false,
            sizes: Sizes::Requested,
            keys,
            convolutions: HashSet::default(),
            names: FastMap::default(),
        }
    }

    /// The name of a site.
    pub(crate) fn name(&self, key: u64) -> &str {
        self.names.get(&key).map_or("", String::as_str)
    }
}

/// IDs of sites that are the same in every run; stack IDs differ from run to run.
struct Places<'trace> {
    trace: &'trace Trace,
    keys: FastMap<StackId, u64>,
    names: FastMap<u64, String>,
}

impl<'trace> Places<'trace> {
    fn new(trace: &'trace Trace) -> Self {
        Self { trace, keys: FastMap::default(), names: FastMap::default() }
    }

    fn key(&mut self, stack: StackId) -> u64 {
        if let Some(&key) = self.keys.get(&stack) {
            return key;
        }
        let mut hasher = FastHasher::default().build_hasher();
        let stacks = &self.trace.stacks;
        for &frame in stacks.frames_of(stack) {
            let frame = stacks.frame_at(frame);
            hasher.write(stacks.name_text(frame.function).as_bytes());
            hasher.write(stacks.name_text(frame.file).as_bytes());
            hasher.write_u32(frame.line);
        }
        let key = hasher.finish();
        self.keys.insert(stack, key);
        self.names.insert(key, place_of(self.trace, stack).unwrap_or_default());
        key
    }

    /// The sites of convolutions, by function name. Stacks of the backward pass have no such names, so in a program
    /// with convolutions, all of them may be. `convert` does not match.
    fn convolutions(&self) -> HashSet<u64, FastHasher> {
        let names = |stack: StackId, is_one: fn(&str) -> bool| {
            let stacks = &self.trace.stacks;
            let mut frames = stacks.frames_of(stack).iter().map(|&frame| stacks.frame_at(frame));
            frames.any(|frame| is_one(stacks.name_text(frame.function)))
        };
        let with = |is_one: fn(&str) -> bool| {
            self.keys.iter().filter(move |(stack, _)| names(**stack, is_one)).map(|(_, &key)| key)
        };
        let mut found: HashSet<u64, FastHasher> = with(convolves).collect();
        if !found.is_empty() {
            found.extend(with(|function| function.contains("pt_autograd")));
        }
        found
    }

    /// Whether a stack contains a framework's optimizer.
    fn names_optimizer(&self) -> bool {
        let stacks = &self.trace.stacks;
        self.keys.keys().any(|&stack| {
            stacks.frames_of(stack).iter().any(|&frame| {
                let frame = stacks.frame_at(frame);
                let (file, function) = (stacks.name_text(frame.file), stacks.name_text(frame.function));
                file.contains("optim") && function.contains("step") || function == "apply_updates"
            })
        })
    }
}

/// Whether a function name is that of a convolution: PyTorch's `conv2d` and `Conv2d`, `_conv_forward`,
/// `ConvTranspose`, or `convolution` elsewhere.
fn convolves(function: &str) -> bool {
    let function = function.to_ascii_lowercase();
    let follows = |rest: &str| {
        let is_dimension =
            rest.starts_with(|letter: char| ('1'..='3').contains(&letter)) && rest[1..].starts_with('d');
        is_dimension || ["_", "transpose", "olution"].iter().any(|end| rest.starts_with(end))
    };
    function.match_indices("conv").any(|(at, found)| follows(&function[at + found.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_convert_do_not_convolve() {
        for name in [
            "Conv2d._conv_forward",
            "conv1d",
            "conv_transpose2d",
            "ConvTranspose3d.forward",
            "convolution_backward",
        ] {
            assert!(convolves(name), "{name}");
        }
        for name in ["Module.to.<locals>.convert", "convert_element_type", "convoy", "conv", "conv4d", ""] {
            assert!(!convolves(name), "{name}");
        }
    }
}
