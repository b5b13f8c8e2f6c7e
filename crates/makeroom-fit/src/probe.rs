//! One run of the program: what it asked for, who asked, and what the device held beside it.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher as _};

use makeroom_core::{Bytes, DeviceTrace, FastHasher, FastMap, StackId, Start, Trace};
use makeroom_explain::{Beside, held_beside, place_of};
use makeroom_sim::{Inside, Program, Step};

use crate::cycles::Cycles;
use crate::sizes::Sizes;

/// What was seen of a run with one batch.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The batch.
    pub batch: u64,
    /// What the program did.
    pub program: Program,
    /// Its steps.
    pub cycles: Cycles,
    /// What the device held beside what the program asked for, where that was measured.
    pub beside: Option<Beside>,
    /// What libraries took of the driver by themselves, beside that too.
    pub libraries: Bytes,
    /// Whether an optimizer was seen at work: until then what it keeps is not there.
    pub is_optimized: bool,
    /// How many requests were refused although the run went on: a library took another way, or somebody tried again.
    pub refusals: usize,
    /// How many cycles came after the last of them, if there was one.
    pub cycles_since_refusal: usize,
    /// What the program's sizes are.
    pub sizes: Sizes,
    /// Who asked, for each allocation; the same in every run of the program.
    pub(crate) keys: Vec<u64>,
    /// Those of them that convolve, or may: their workspaces are no need.
    pub(crate) convolutions: HashSet<u64, FastHasher>,
    /// What to call them.
    pub(crate) names: FastMap<u64, String>,
}

impl Probe {
    /// Reads a run's recording of one device.
    pub fn new(batch: u64, trace: &Trace, device: &DeviceTrace) -> Self {
        let beside = held_beside(trace, device);
        let inside = Inside::new(device);
        let libraries = Bytes::new(inside.as_ref().map_or(0, |inside| inside.outside));
        let device = inside.as_ref().map_or(device, |inside| &inside.device);
        let program = Program::new(device, &trace.stacks, &Start::new(device));
        let sees_tensors = trace.process.as_ref().is_some_and(|process| process.sees_tensors);
        let mut places = Places::new(trace);
        let keys = program.allocations.iter().map(|allocation| places.key(allocation.stack)).collect();
        Self {
            beside,
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
        let cycles = Cycles::of(&program);
        let last_refusal = program.steps.iter().rposition(|step| matches!(step, Step::AllocateRefused(_)));
        let cycles_since_refusal = last_refusal.map_or(cycles.peaks.len(), |position| cycles.after(position));
        Self {
            batch,
            refusals: program.refused(),
            cycles_since_refusal,
            program,
            cycles,
            beside: None,
            libraries: Bytes::ZERO,
            is_optimized: false,
            sizes: Sizes::Requested,
            keys,
            convolutions: HashSet::default(),
            names: FastMap::default(),
        }
    }

    /// What to call whoever asked for an allocation.
    pub(crate) fn name(&self, key: u64) -> &str {
        self.names.get(&key).map_or("", String::as_str)
    }
}

/// Who asked, as a number that is the same in every run: stacks are numbered anew in each.
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

    /// The places that convolve, by the names of functions; a backward pass has none, so in a program that convolves it
    /// may. `convert` is no such name.
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

    /// Whether a stack goes through a framework's optimizer.
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

/// Whether a function is a convolution by its name: PyTorch's `conv2d` and `Conv2d`, `_conv_forward`, `ConvTranspose`,
/// others' `convolution`.
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
