//! A partial plan that can be extended and undone, with the constraints on every completion of it.
//!
//! For each unplaced buffer, the state stores `earliest`, its lowest possible offset. For each section it stores
//! `floor`, the lowest `earliest` of its unplaced buffers, and `unplaced_load`, the sum of their sizes. A section with
//! `floor + unplaced_load > capacity` refutes the partial plan.
//!
//! ```text
//! capacity ┌──────────────┐
//!          │   slack      │   slack = capacity - floor - unplaced_load
//!          │ unplaced_load │
//!    floor ├──────────────┤
//!          │ placed, gaps │
//!        0 └──────────────┘
//! ```
//!
//! Every change is written to a trail, so that `undo` costs as much as the change. The fingerprint of the state is a
//! multilinear hash: the sum over unplaced buffers of a random 128-bit factor times `earliest + 1`. Two different
//! states collide with a probability below `2^-64`, and a change of one buffer costs one multiplication.

use std::ops::Range;

use crate::instance::Instance;
use crate::random::Random;

/// The floor of a section without unplaced buffers.
pub(super) const CLOSED: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
enum Change {
    Placed { buffer: u32 },
    Raised { buffer: u32, earliest: u64 },
    Section { section: u32, choices: u32, floor: u64 },
}

pub(super) struct State<'a> {
    pub(super) instance: &'a Instance,
    pub(super) capacity: u64,
    /// Lowest possible offset of each unplaced buffer, offset of each placed one.
    pub(super) earliest: Vec<u64>,
    pub(super) placed: Vec<bool>,
    /// Lowest `earliest` of the unplaced buffers of each section, or [`CLOSED`].
    pub(super) floor: Vec<u64>,
    /// Number of unplaced buffers of each section with `earliest == floor`.
    pub(super) choices: Vec<u32>,
    pub(super) unplaced_load: Vec<u64>,
    /// Number of unplaced buffers that are live both in the previous section and in this one.
    pub(super) crossing: Vec<u32>,
    /// How often a section has nogoods a partial plan.
    pub(super) conflicts: Vec<u32>,
    /// The fingerprint of the component being solved.
    pub(super) fingerprint: u128,
    /// Buffers and sections examined so far, as a measure of time.
    pub(super) work: u64,
    factors: Vec<u128>,
    /// The buffers of each section, unplaced ones first.
    members: Vec<u32>,
    member_start: Vec<usize>,
    unplaced_count: Vec<u32>,
    /// The position of each buffer in `members`, for each of its sections.
    position: Vec<u32>,
    position_start: Vec<usize>,
    trail: Vec<Change>,
    /// The last decision that saved each section to the trail.
    saved_by: Vec<u64>,
    decision: u64,
    emptied: Vec<u32>,
}

impl<'a> State<'a> {
    pub(super) fn new(instance: &'a Instance, capacity: u64) -> Self {
        let (buffers, sections) = (instance.len(), instance.sections());
        let mut counts = vec![0_u32; sections];
        let mut crossing = vec![0; sections + 1];
        let mut position_start = Vec::with_capacity(buffers);
        let mut incidences = 0;
        for buffer in 0..buffers {
            position_start.push(incidences);
            incidences += instance.span(buffer).len();
            for section in instance.span(buffer) {
                counts[section] += 1;
                crossing[section] += 1;
            }
            crossing[instance.first[buffer] as usize] -= 1;
        }
        let mut member_start = Vec::with_capacity(sections);
        let mut start = 0;
        for &count in &counts {
            member_start.push(start);
            start += count as usize;
        }
        let mut members = vec![0; incidences];
        let mut position = vec![0; incidences];
        let mut filled = vec![0_u32; sections];
        for buffer in 0..buffers {
            for (nth, section) in instance.span(buffer).enumerate() {
                members[member_start[section] + filled[section] as usize] = buffer as u32;
                position[position_start[buffer] + nth] = filled[section];
                filled[section] += 1;
            }
        }
        let mut random = Random::new(0x5eed);
        let factors: Vec<u128> =
            (0..buffers).map(|_| (u128::from(random.next()) << 64 | u128::from(random.next())) | 1).collect();
        let fingerprint = factors.iter().fold(0, |sum: u128, &factor| sum.wrapping_add(factor));
        Self {
            instance,
            capacity,
            earliest: vec![0; buffers],
            placed: vec![false; buffers],
            floor: counts.iter().map(|&count| if count == 0 { CLOSED } else { 0 }).collect(),
            choices: counts.clone(),
            unplaced_load: instance.load.clone(),
            crossing,
            conflicts: vec![1; sections],
            fingerprint,
            work: 0,
            factors,
            members,
            member_start,
            unplaced_count: counts,
            position,
            position_start,
            trail: Vec::new(),
            saved_by: vec![0; sections],
            decision: 0,
            emptied: Vec::new(),
        }
    }

    /// The buffers of a section that are not placed yet.
    pub(super) fn unplaced(&self, section: usize) -> &[u32] {
        let start = self.member_start[section];
        &self.members[start..start + self.unplaced_count[section] as usize]
    }

    /// The memory that a section could still waste; only for sections that are not closed.
    pub(super) fn slack(&self, section: usize) -> u64 {
        self.capacity - self.floor[section] - self.unplaced_load[section]
    }

    /// A point to return to with [`State::undo`].
    pub(super) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Places a buffer at its earliest offset and propagates the consequences. `false`: some section can no longer hold
    /// its unplaced buffers, and the caller must undo.
    ///
    /// All sections of the buffer must have the same floor; otherwise something could still go below it.
    pub(super) fn place(&mut self, buffer: usize) -> bool {
        self.decision += 1;
        let instance = self.instance;
        let offset = self.earliest[buffer];
        let top = offset + instance.size[buffer];
        self.placed[buffer] = true;
        self.fingerprint = self.fingerprint.wrapping_sub(self.contribution(buffer, offset));
        self.trail.push(Change::Placed { buffer: buffer as u32 });
        let span = instance.span(buffer);
        self.work += 2 * span.len() as u64;
        for section in span.clone() {
            self.save(section);
            self.unplaced_load[section] -= instance.size[buffer];
            self.mark_placed(buffer, section);
            self.choices[section] -= 1;
            if self.choices[section] == 0 {
                self.emptied.push(section as u32);
            }
        }
        for section in span.start + 1..span.end {
            self.crossing[section] -= 1;
        }
        let start = self.member_start[span.start];
        for slot in start..start + self.unplaced_count[span.start] as usize {
            self.raise(self.members[slot] as usize, top);
        }
        for other in instance.starting_in(span.start + 1..span.end) {
            if !self.placed[other] {
                self.raise(other, top);
            }
        }
        self.work += u64::from(self.unplaced_count[span.start]);
        self.update_floors()
    }

    /// Records that each buffer of `raised` starts at the paired offset or above.
    pub(super) fn postpone(&mut self, raised: &[(u32, u64)]) -> bool {
        self.decision += 1;
        for &(buffer, earliest) in raised {
            self.raise(buffer as usize, earliest);
        }
        self.update_floors()
    }

    /// Undoes everything since `mark`. The caller restores the fingerprint, which it knows.
    pub(super) fn undo(&mut self, mark: usize) {
        let instance = self.instance;
        while self.trail.len() > mark {
            match self.trail.pop() {
                Some(Change::Raised { buffer, earliest }) => self.earliest[buffer as usize] = earliest,
                Some(Change::Section { section, choices, floor }) => {
                    self.floor[section as usize] = floor;
                    self.choices[section as usize] = choices;
                    self.saved_by[section as usize] = 0;
                }
                Some(Change::Placed { buffer }) => {
                    let buffer = buffer as usize;
                    self.placed[buffer] = false;
                    for section in instance.span(buffer) {
                        self.unplaced_load[section] += instance.size[buffer];
                        self.unplaced_count[section] += 1;
                        self.crossing[section] += 1;
                    }
                    self.crossing[instance.first[buffer] as usize] -= 1;
                }
                None => break,
            }
        }
    }

    /// The fingerprint of the unplaced buffers that start in `sections`.
    pub(super) fn fingerprint_of(&mut self, sections: Range<usize>) -> u128 {
        let buffers = self.instance.starting_in(sections);
        self.work += buffers.len() as u64;
        buffers
            .filter(|&buffer| !self.placed[buffer])
            .fold(0, |sum, buffer| sum.wrapping_add(self.contribution(buffer, self.earliest[buffer])))
    }

    fn contribution(&self, buffer: usize, earliest: u64) -> u128 {
        self.factors[buffer].wrapping_mul(u128::from(earliest) + 1)
    }

    /// Saves floor and choices of a section, once per decision.
    fn save(&mut self, section: usize) {
        if self.saved_by[section] != self.decision {
            self.saved_by[section] = self.decision;
            self.trail.push(Change::Section {
                section: section as u32,
                choices: self.choices[section],
                floor: self.floor[section],
            });
        }
    }

    /// Moves a buffer behind the unplaced ones of a section. Undo in reverse order needs no record, because the buffer
    /// is then directly after the last unplaced one.
    fn mark_placed(&mut self, buffer: usize, section: usize) {
        let instance = self.instance;
        let slot = |other: usize| section - instance.first[other] as usize;
        let from = self.position[self.position_start[buffer] + slot(buffer)];
        let to = self.unplaced_count[section] - 1;
        let start = self.member_start[section];
        let other = self.members[start + to as usize];
        self.members[start + from as usize] = other;
        self.members[start + to as usize] = buffer as u32;
        self.position[self.position_start[other as usize] + slot(other as usize)] = from;
        self.position[self.position_start[buffer] + slot(buffer)] = to;
        self.unplaced_count[section] = to;
    }

    fn raise(&mut self, buffer: usize, floor: u64) {
        let before = self.earliest[buffer];
        if before >= floor {
            return;
        }
        let after = self.instance.align(buffer, floor);
        self.trail.push(Change::Raised { buffer: buffer as u32, earliest: before });
        self.earliest[buffer] = after;
        self.fingerprint =
            self.fingerprint.wrapping_add(self.factors[buffer].wrapping_mul(u128::from(after - before)));
        let span = self.instance.span(buffer);
        self.work += span.len() as u64 / 4 + 1;
        for section in span {
            if self.floor[section] == before {
                self.save(section);
                self.choices[section] -= 1;
                if self.choices[section] == 0 {
                    self.emptied.push(section as u32);
                }
            }
        }
    }

    /// Finds the new floors of sections whose lowest buffers have all been placed or raised.
    fn update_floors(&mut self) -> bool {
        while let Some(section) = self.emptied.pop() {
            let section = section as usize;
            let (mut floor, mut choices) = (CLOSED, 0);
            for &buffer in self.unplaced(section) {
                let earliest = self.earliest[buffer as usize];
                if earliest < floor {
                    (floor, choices) = (earliest, 1);
                } else if earliest == floor {
                    choices += 1;
                }
            }
            self.work += u64::from(self.unplaced_count[section]);
            self.floor[section] = floor;
            self.choices[section] = choices;
            if floor != CLOSED && floor + self.unplaced_load[section] > self.capacity {
                self.conflicts[section] += 1;
                self.emptied.clear();
                return false;
            }
        }
        true
    }
}
