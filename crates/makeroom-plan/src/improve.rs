//! Improves the first plan as far as the budget allows, by alternating greedy plans and exact search.
//!
//! Greedy plans come from several orders of priority. After each plan, the buffers that exceed the goal get a higher priority in that order for the next round, and all priorities
//! are perturbed slightly (squeaky wheel optimization). This alone usually solves large problems. Tight ones need the
//! search, which gets most of the effort if the problem is small enough for it.
//!
//! The goal is the capacity or, without one, the lower bound. Without a capacity, the search first tries the lower
//! bound itself, then bisects between the largest height it could not reach and the best plan.

use crate::greedy::Greedy;
use crate::instance::Instance;
use crate::meter::{Meter, Phase};
use crate::random::Random;
use crate::search::{Search, Verdict, is_suitable};

/// Greedy rounds before the search begins.
const FIRST_ROUNDS: usize = 4;
/// Steps in the first turn of the search; later turns are longer.
const FIRST_TURN: u64 = 20_000_000;
/// The search takes this many steps for each step of greedy placement.
const SEARCH_SHARE: u64 = 4;
/// Priority increase of a buffer that exceeds the goal.
const GREASE: f64 = 1.5;
/// How much priorities are perturbed.
const SHAKE: f64 = 0.3;

/// The result, in units.
pub(crate) enum Improved {
    /// The best plan, and a lower bound for all plans.
    Found { offsets: Vec<u64>, lower_bound: u64 },
    /// These buffers of the instance cannot be placed within the capacity.
    Refuted { buffers: Vec<usize> },
}

/// Searches for a plan within `capacity` or, without one, for the lowest plan.
pub(crate) fn improve(instance: &Instance, capacity: Option<u64>, seed: u64, meter: &mut Meter) -> Improved {
    let mut wheel = Wheel::new(instance, capacity.unwrap_or(instance.lower_bound), seed);
    for _ in 0..FIRST_ROUNDS {
        wheel.turn(meter);
        if wheel.is_done() || !meter.goes_on() {
            return wheel.found();
        }
    }
    let searchable = is_suitable(instance);
    let mut search = (searchable && capacity.is_some()).then(|| Search::new(instance, wheel.goal, seed));
    let mut turn = FIRST_TURN;
    while meter.goes_on() && !wheel.is_done() {
        if searchable {
            meter.enter(Phase::Search);
            let refuted = match &mut search {
                Some(search) => wheel.take(search.run(u64::MAX, turn, meter)),
                None => bisect(&mut wheel, turn, seed, meter),
            };
            if let Some(buffers) = refuted {
                return Improved::Refuted { buffers };
            }
        }
        meter.enter(Phase::Greedy);
        let last = meter.spent().saturating_add(turn / SEARCH_SHARE);
        while !wheel.is_done() && meter.goes_on() && meter.spent() < last {
            wheel.turn(meter);
        }
        turn = turn.saturating_mul(2);
    }
    wheel.found()
}

/// Searches for lower and lower plans, and raises the lower bound when it proves that there are none. Never refutes the
/// problem itself, which then has no capacity.
fn bisect(wheel: &mut Wheel, turn: u64, seed: u64, meter: &mut Meter) -> Option<Vec<usize>> {
    let instance = wheel.greedy.instance();
    // Heights from `open` on are worth trying; lower ones are refuted or currently too hard.
    let mut open = wheel.lower_bound;
    let mut target = open;
    while open < wheel.height && meter.goes_on() {
        let mut search = Search::new(instance, target, seed);
        match search.run(u64::MAX, turn / 4, meter) {
            Verdict::Refuted { .. } => {
                open = target + 1;
                wheel.lower_bound = open;
                wheel.goal = open;
            }
            Verdict::Undecided => open = target + 1,
            solved @ Verdict::Solved { .. } => {
                wheel.take(solved);
            }
        }
        target = open + wheel.height.saturating_sub(open + 1) / 2;
        meter.note(Some(wheel.height), wheel.lower_bound);
    }
    None
}

/// The criteria for a buffer's priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Area,
    Lifetime,
    SizeAndLifetime,
}

const SPOKES: [Wish; 3] = [Wish::Area, Wish::Lifetime, Wish::SizeAndLifetime];

/// Cycles through the greedy orders, with the learned priorities of each, and keeps the best plan.
struct Wheel<'a> {
    greedy: Greedy<'a>,
    random: Random,
    /// The priority increase of each buffer in each order; empty before the first round.
    grease: Vec<Vec<f64>>,
    round: usize,
    keys: Vec<(f64, u32)>,
    goal: u64,
    /// Lower bound for all plans.
    lower_bound: u64,
    height: u64,
    offsets: Vec<u64>,
}

impl<'a> Wheel<'a> {
    fn new(instance: &'a Instance, goal: u64, seed: u64) -> Self {
        Self {
            greedy: Greedy::new(instance),
            random: Random::new(seed),
            grease: vec![Vec::new(); SPOKES.len()],
            round: 0,
            keys: Vec::new(),
            goal,
            lower_bound: instance.lower_bound,
            height: u64::MAX,
            offsets: Vec::new(),
        }
    }

    fn is_done(&self) -> bool {
        self.height <= self.goal
    }

    fn found(self) -> Improved {
        Improved::Found { offsets: self.offsets, lower_bound: self.lower_bound }
    }

    /// Makes one greedy plan and adjusts priorities.
    fn turn(&mut self, meter: &mut Meter) {
        let instance = self.greedy.instance();
        let spoke = self.round % SPOKES.len();
        let shake = if self.round < SPOKES.len() { 0.0 } else { SHAKE };
        let wish = SPOKES[spoke];
        self.round += 1;
        self.grease[spoke].resize(instance.len(), 1.0);
        self.keys.clear();
        for buffer in 0..instance.len() {
            let (lifetime, size) = (instance.lifetime[buffer] as f64, instance.size[buffer] as f64);
            let wanted = match wish {
                Wish::Lifetime => lifetime,
                Wish::Area => lifetime * size,
                Wish::SizeAndLifetime => size * lifetime.sqrt(),
            };
            let factor = 1.0 + shake * (2.0 * self.random.fraction() - 1.0);
            self.keys.push((wanted * self.grease[spoke][buffer] * factor, buffer as u32));
        }
        self.keys.sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        let by_rank = self.keys.iter().map(|key| key.1).collect();
        let height = self.greedy.place_all(by_rank);
        for buffer in 0..instance.len() {
            if self.greedy.offsets[buffer] + instance.size[buffer] > self.goal {
                self.grease[spoke][buffer] *= GREASE;
            }
        }
        if height < self.height {
            self.height = height;
            self.offsets.clone_from(&self.greedy.offsets);
        }
        meter.note(Some(self.height), self.lower_bound);
        meter.spend(self.greedy.take_work() + instance.len() as u64 * 8);
    }

    /// Adopts a plan of the search if it is lower. Returns the buffers that it proved not to fit.
    fn take(&mut self, verdict: Verdict) -> Option<Vec<usize>> {
        match verdict {
            Verdict::Solved { offsets } => {
                let sizes = &self.greedy.instance().size;
                let height = offsets.iter().zip(sizes).map(|(offset, size)| offset + size).max().unwrap_or(0);
                if height < self.height {
                    (self.height, self.offsets) = (height, offsets);
                }
                None
            }
            Verdict::Refuted { buffers } => Some(buffers),
            Verdict::Undecided => None,
        }
    }
}
