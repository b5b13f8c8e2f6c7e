//! Improves the first plan as far as the budget allows, by alternating greedy plans and exact search.
//!
//! Greedy plans come from several orders of priority (squeaky wheel optimization): after each plan, the buffers that
//! exceed the goal get a higher priority in that order for its next round, and all priorities are perturbed slightly.
//! This alone usually solves large problems. Tight ones need the search, which gets most of the effort if the problem is
//! small enough for it.
//!
//! The goal is the capacity or, without one, the lower bound. Without a capacity, the search first tries the lower
//! bound itself, then bisects between the largest peak it could not reach and the best plan.

use crate::budget::{Meter, Phase};
use crate::instance::Instance;
use crate::random::Random;
use crate::search::{Search, Verdict, is_searchable};
use crate::skyline::Skyline;

/// Greedy rounds before the search begins.
const FIRST_ROUNDS: usize = 12;
/// Steps in the first turn of the search; later turns are longer.
const FIRST_TURN: u64 = 20_000_000;
/// The search takes this many steps for each step of greedy placement.
const SEARCH_SHARE: u64 = 4;
/// Priority increase of a buffer that exceeds the goal.
const WEIGHT_INCREASE: f64 = 1.5;
/// How much priorities are perturbed.
const PERTURBATION: f64 = 0.3;

/// The result, in units.
pub(crate) enum Improved {
    /// The best plan, and a lower bound for all plans.
    Found { offsets: Vec<u64>, lower_bound: u64 },
    /// These buffers of the instance cannot be placed within the capacity.
    Refuted { buffers: Vec<usize> },
}

/// Searches for a plan within `capacity` or, without one, for the lowest plan.
pub(crate) fn improve(instance: &Instance, capacity: Option<u64>, seed: u64, meter: &mut Meter) -> Improved {
    let mut wheel = SqueakyWheel::new(instance, capacity.unwrap_or(instance.lower_bound), seed);
    for _ in 0..FIRST_ROUNDS {
        wheel.next_plan(meter);
        if wheel.is_done() || !meter.has_budget() {
            return wheel.into_result();
        }
    }
    let searchable = is_searchable(instance);
    let mut search = (searchable && capacity.is_some()).then(|| Search::new(instance, wheel.goal, seed));
    let mut turn = FIRST_TURN;
    while meter.has_budget() && !wheel.is_done() {
        if searchable {
            meter.enter(Phase::Search);
            match &mut search {
                Some(search) => match search.run(turn, meter) {
                    Verdict::Solved { offsets } => wheel.accept(offsets),
                    Verdict::Refuted { buffers } => return Improved::Refuted { buffers },
                    Verdict::Undecided => {}
                },
                None => bisect(&mut wheel, turn, seed, meter),
            }
        }
        meter.enter(Phase::Greedy);
        let last = meter.spent().saturating_add(turn / SEARCH_SHARE);
        while !wheel.is_done() && meter.has_budget() && meter.spent() < last {
            wheel.next_plan(meter);
        }
        turn = turn.saturating_mul(2);
    }
    wheel.into_result()
}

/// Searches for lower and lower plans, and raises the lower bound when it proves that there are none.
fn bisect(wheel: &mut SqueakyWheel, turn: u64, seed: u64, meter: &mut Meter) {
    let instance = wheel.skyline.instance();
    // Peaks from `open` on are worth trying; lower ones are refuted or currently too hard.
    let mut open = wheel.lower_bound;
    let mut target = open;
    while open < wheel.peak && meter.has_budget() {
        let mut search = Search::new(instance, target, seed);
        match search.run(turn / 4, meter) {
            Verdict::Refuted { .. } => {
                open = target + 1;
                wheel.lower_bound = open;
                wheel.goal = open;
            }
            Verdict::Undecided => open = target + 1,
            Verdict::Solved { offsets } => wheel.accept(offsets),
        }
        target = open + wheel.peak.saturating_sub(open + 1) / 2;
        meter.report(Some(wheel.peak), wheel.lower_bound);
    }
}

/// The criteria for a buffer's priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Priority {
    Area,
    Lifetime,
    SizeAndLifetime,
}

const PRIORITIES: [Priority; 3] = [Priority::Area, Priority::Lifetime, Priority::SizeAndLifetime];

/// Cycles through the greedy orders, with the learned priorities of each, and keeps the best plan.
struct SqueakyWheel<'a> {
    skyline: Skyline<'a>,
    random: Random,
    /// The factor on the priority of each buffer in each order; empty before the first round.
    weights: Vec<Vec<f64>>,
    round: usize,
    keys: Vec<(f64, u32)>,
    goal: u64,
    /// Lower bound for all plans.
    lower_bound: u64,
    peak: u64,
    offsets: Vec<u64>,
}

impl<'a> SqueakyWheel<'a> {
    fn new(instance: &'a Instance, goal: u64, seed: u64) -> Self {
        Self {
            skyline: Skyline::new(instance),
            random: Random::new(seed),
            weights: vec![Vec::new(); PRIORITIES.len()],
            round: 0,
            keys: Vec::new(),
            goal,
            lower_bound: instance.lower_bound,
            peak: u64::MAX,
            offsets: Vec::new(),
        }
    }

    fn is_done(&self) -> bool {
        self.peak <= self.goal
    }

    fn into_result(self) -> Improved {
        Improved::Found { offsets: self.offsets, lower_bound: self.lower_bound }
    }

    /// Makes one greedy plan and adjusts priorities.
    fn next_plan(&mut self, meter: &mut Meter) {
        let instance = self.skyline.instance();
        let order = self.round % PRIORITIES.len();
        let perturbation = if self.round < PRIORITIES.len() { 0.0 } else { PERTURBATION };
        let priority = PRIORITIES[order];
        self.round += 1;
        self.weights[order].resize(instance.len(), 1.0);
        self.keys.clear();
        for buffer in 0..instance.len() {
            let (lifetime, size) = (instance.lifetime[buffer] as f64, instance.size[buffer] as f64);
            let key = match priority {
                Priority::Lifetime => lifetime,
                Priority::Area => lifetime * size,
                Priority::SizeAndLifetime => size * lifetime.sqrt(),
            };
            let factor = 1.0 + perturbation * (2.0 * self.random.fraction() - 1.0);
            self.keys.push((key * self.weights[order][buffer] * factor, buffer as u32));
        }
        self.keys.sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        let by_rank = self.keys.iter().map(|key| key.1).collect();
        let peak = self.skyline.place_all(by_rank);
        for buffer in 0..instance.len() {
            if self.skyline.offsets[buffer] + instance.size[buffer] > self.goal {
                self.weights[order][buffer] *= WEIGHT_INCREASE;
            }
        }
        if peak < self.peak {
            self.peak = peak;
            self.offsets.clone_from(&self.skyline.offsets);
        }
        meter.report(Some(self.peak), self.lower_bound);
        meter.spend(self.skyline.take_work() + instance.len() as u64 * 8);
    }

    /// Keeps a plan of the search if it is lower.
    fn accept(&mut self, offsets: Vec<u64>) {
        let sizes = &self.skyline.instance().size;
        let peak = offsets.iter().zip(sizes).map(|(offset, size)| offset + size).max().unwrap_or(0);
        if peak < self.peak {
            (self.peak, self.offsets) = (peak, offsets);
        }
    }
}
