//! One run of the program: what it asked for, who asked, and what the device held beside it.

use std::hash::{BuildHasher as _, Hasher as _};

use makeroom_core::{DeviceTrace, FastHasher, FastMap, StackId, Start, Trace};
use makeroom_explain::{Beside, held_beside, place_of};
use makeroom_sim::Program;

use crate::cycles::Cycles;

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
    /// Whether an optimizer was seen at work: until then what it keeps is not there.
    pub is_optimized: bool,
    /// Who asked, for each allocation; the same in every run of the program.
    pub(crate) keys: Vec<u64>,
    /// What to call them.
    pub(crate) names: FastMap<u64, String>,
}

impl Probe {
    /// Reads a run's recording of one device.
    pub fn new(batch: u64, trace: &Trace, device: &DeviceTrace) -> Self {
        let program = Program::new(device, &trace.stacks, &Start::new(device));
        let mut places = Places::new(trace);
        let keys = program.allocations.iter().map(|allocation| places.key(allocation.stack)).collect();
        Self {
            beside: held_beside(trace, device),
            is_optimized: places.names_optimizer(),
            names: places.names,
            ..Self::of_program(batch, program, keys)
        }
    }

    /// A run of which only the program is known.
    pub(crate) fn of_program(batch: u64, program: Program, keys: Vec<u64>) -> Self {
        let cycles = Cycles::of(&program);
        Self { batch, program, cycles, beside: None, is_optimized: false, keys, names: FastMap::default() }
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
