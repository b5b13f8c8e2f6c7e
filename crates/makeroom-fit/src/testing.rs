//! Training programs for tests, as PyTorch's allocator sees them.

use makeroom_core::StackId;
use makeroom_sim::{Allocation, Program, Step};

use crate::probe::Probe;

/// The shape of a program.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) layers: u64,
    pub(crate) width: u64,
    pub(crate) steps: u64,
    /// The length of each step's data, repeated cyclically.
    pub(crate) lengths: Vec<u64>,
    /// Whether every step has a matrix of batch × batch, as in contrastive losses.
    pub(crate) compares_all: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { layers: 6, width: 1 << 14, steps: 4, lengths: vec![64], compares_all: false }
    }
}

#[derive(Default)]
struct Writer {
    program: Program,
    keys: Vec<u64>,
}

impl Writer {
    fn allocate(&mut self, key: u64, size: u64) -> u32 {
        let number = self.program.allocations.len() as u32;
        self.program.allocations.push(Allocation {
            size,
            stream: 0,
            pool: 0,
            slot: number,
            stack: StackId::NONE,
        });
        self.keys.push(key);
        self.step(Step::Allocate(number));
        number
    }

    fn free(&mut self, number: u32) {
        self.step(Step::Free(number));
    }

    fn step(&mut self, step: Step) {
        self.program.events.push(self.program.steps.len() as u32);
        self.program.steps.push(step);
    }
}

/// A run with this batch.
pub(crate) fn training(shape: &Shape, batch: u64) -> Probe {
    let mut writer = Writer::default();
    let weights = |layer: u64| shape.width * (layer + 40);
    for layer in 0..shape.layers {
        writer.allocate(layer, weights(layer));
    }
    for number in 0..shape.steps {
        let length = shape.lengths[number as usize % shape.lengths.len()];
        let activation = |layer: u64| batch * length * (shape.width / 8 + 100 * layer) + 24;
        let input = writer.allocate(100, batch * length * 8);
        let mut kept = Vec::new();
        for layer in 0..shape.layers {
            let temporary = writer.allocate(200 + layer, 2 * activation(layer));
            kept.push(writer.allocate(300 + layer, activation(layer)));
            writer.free(temporary);
        }
        if shape.compares_all {
            let compared = writer.allocate(400, batch * batch * 4096);
            writer.free(compared);
        }
        let mut gradients = Vec::new();
        for layer in (0..shape.layers).rev() {
            let passed = writer.allocate(500 + layer, activation(layer));
            gradients.push(writer.allocate(600 + layer, weights(layer)));
            writer.free(kept.remove(layer as usize));
            writer.free(passed);
        }
        if number == 0 {
            for layer in 0..2 * shape.layers {
                writer.allocate(700 + layer, weights(layer % shape.layers));
            }
        }
        for gradient in gradients {
            writer.free(gradient);
        }
        writer.free(input);
    }
    Probe::of_program(batch, writer.program, writer.keys)
}

/// A run that keeps one more allocation of the same size for each unit of the batch.
pub(crate) fn keeping(batch: u64) -> Probe {
    let mut writer = Writer::default();
    for _ in 0..batch {
        let passing = writer.allocate(1, 8 << 20);
        writer.allocate(2, 32 << 20);
        writer.free(passing);
    }
    Probe::of_program(batch, writer.program, writer.keys)
}
