//! Which buffer to try first: the orders of priority that descents alternate between.
//!
//! The first cycle through the orders is exact, later ones are perturbed slightly. Multiplication by a random factor
//! gives the same result on every machine.

use super::state::State;
use crate::random::Random;

/// How much a key is perturbed, as a share of it.
const PERTURBATION: f64 = 0.6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Lifetime,
    LoadThenArea,
    LoadThenLifetime,
    Area,
    ConflictsThenLifetime,
    Size,
}

const ORDERS: [Order; 6] = [
    Order::Lifetime,
    Order::LoadThenArea,
    Order::LoadThenLifetime,
    Order::Area,
    Order::ConflictsThenLifetime,
    Order::Size,
];

/// Makes the orders.
pub(super) struct Orders {
    random: Random,
    keys: Vec<(f64, f64, u32)>,
}

impl Orders {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), keys: Vec::new() }
    }

    /// Fills `rank` with the positions of the buffers in the order of this turn.
    pub(super) fn arrange(&mut self, state: &State, turn: usize, rank: &mut [u32]) {
        let instance = state.instance;
        let order = ORDERS[turn % ORDERS.len()];
        let perturbation = if turn < ORDERS.len() { 0.0 } else { PERTURBATION };
        self.keys.clear();
        for buffer in 0..instance.len() {
            let lifetime = instance.lifetime[buffer] as f64;
            let size = instance.size[buffer] as f64;
            let load =
                || instance.span(buffer).map(|section| instance.load[section]).max().unwrap_or(0) as f64;
            let conflicts = || {
                f64::from(instance.span(buffer).map(|section| state.conflicts[section]).max().unwrap_or(0))
            };
            let (first, second) = match order {
                Order::Lifetime => (0.0, lifetime),
                Order::LoadThenArea => (load(), lifetime * size),
                Order::LoadThenLifetime => (load(), lifetime),
                Order::Area => (0.0, lifetime * size),
                Order::ConflictsThenLifetime => (conflicts(), lifetime),
                Order::Size => (0.0, size),
            };
            let factor = 1.0 + perturbation * (2.0 * self.random.fraction() - 1.0);
            self.keys.push((first, second * factor, buffer as u32));
        }
        self.keys.sort_unstable_by(|left, right| {
            right.0.total_cmp(&left.0).then(right.1.total_cmp(&left.1)).then(left.2.cmp(&right.2))
        });
        for (position, key) in self.keys.iter().enumerate() {
            rank[key.2 as usize] = position as u32;
        }
    }
}
