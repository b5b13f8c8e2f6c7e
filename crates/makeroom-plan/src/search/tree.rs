//! The depth-first search for a plan that fits a capacity.
//!
//! Each node considers one section and decides which unplaced buffer rests directly on its floor: one branch for each
//! buffer that can, and a last one for "none of them". Only plans in which no buffer can move down matter, so in that
//! last branch each of these buffers must rest on some other unplaced buffer; that gives it a higher earliest offset,
//! or refutes the branch.
//!
//! Three techniques keep the tree small. When placed buffers have divided the remaining ones into groups that share no
//! section (components), the groups are solved one after the other, and the first that fails refutes their common
//! parent immediately. Refuted states (nogoods) are remembered by fingerprint, even across restarts, because the
//! unplaced buffers and their earliest offsets determine everything. Equal buffers are placed in only one order
//! (symmetry breaking).
//!
//! The stack is explicit, so its depth is limited by memory and not by the thread's stack.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use super::select::{Heuristic, select};
use super::state::{CLOSED, State};
use crate::budget::Meter;

/// How one descent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descent {
    /// All buffers are placed; the offsets are in [`State::earliest`].
    Solved,
    /// The whole tree was searched: nothing fits. The sections are those of the component that cannot be solved.
    Exhausted { first: usize, end: usize },
    /// The node limit was reached.
    Limited,
}

const NONE: u32 = u32::MAX;

/// Above this number, the stored fingerprints are cleared.
const MAX_NOGOODS: usize = 1 << 21;

/// More candidates than this are not compared pairwise.
const MAX_PAIRWISE_CANDIDATES: usize = 32;

/// A group of unplaced buffers that shares no section with the others, unplaced to be solved.
#[derive(Debug, Clone, Copy)]
struct Component {
    first: u32,
    end: u32,
    /// The node whose decision created it.
    parent: u32,
    /// The component to solve after this one.
    next: u32,
    fingerprint: u128,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    component: u32,
    section: u32,
    floor: u64,
    /// This node's part of the stack of candidates.
    candidates: (u32, u32),
    tried: u32,
    mark: usize,
    components: u32,
}

/// Search memory that persists across restarts.
pub(super) struct Tree<'a> {
    pub(super) state: State<'a>,
    /// Position of each buffer in the order of preference.
    pub(super) rank: Vec<u32>,
    /// The previous buffer with the same span, size and alignment.
    twin: Vec<u32>,
    nogoods: HashSet<u128, BuildHasherDefault<Fingerprints>>,
    /// The section whose branches were exhausted last.
    last_conflict: usize,
    stack: Vec<Node>,
    components: Vec<Component>,
    candidates: Vec<u32>,
    raised: Vec<(u32, u64)>,
    parts: Vec<(u32, u32)>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(state: State<'a>) -> Self {
        let instance = state.instance;
        let mut twin = vec![NONE; instance.len()];
        let mut seen = std::collections::HashMap::new();
        for (buffer, slot) in twin.iter_mut().enumerate() {
            let (first, end) = (instance.first[buffer], instance.end[buffer]);
            let key = (first, end, instance.size[buffer], instance.alignment[buffer]);
            if let Some(previous) = seen.insert(key, buffer as u32) {
                *slot = previous;
            }
        }
        Self {
            rank: (0..instance.len() as u32).collect(),
            twin,
            nogoods: HashSet::default(),
            last_conflict: usize::MAX,
            stack: Vec::new(),
            components: Vec::new(),
            candidates: Vec::new(),
            raised: Vec::new(),
            parts: Vec::new(),
            state,
        }
    }

    /// Searches from the root until the problem is solved or exhausted, `limit` nodes were visited, or the meter stops
    /// it.
    pub(super) fn descend(&mut self, heuristic: Heuristic, limit: u64, meter: &mut Meter) -> Descent {
        self.reset();
        let mut nodes = 0;
        let sections = self.state.instance.sections();
        let mut next = self.split((0, sections as u32), 0..sections, NONE, NONE);
        while next != NONE {
            if nodes >= limit || !meter.spend(std::mem::take(&mut self.state.work)) {
                return Descent::Limited;
            }
            nodes += 1;
            let component = self.components[next as usize];
            self.state.fingerprint = component.fingerprint;
            let range = component.first as usize..component.end as usize;
            let Some(section) = select(&mut self.state, range, heuristic, self.last_conflict) else {
                next = component.next;
                continue;
            };
            let mut outcome = None;
            if !self.nogoods.contains(&component.fingerprint) {
                self.push_node(next, section);
                outcome = self.next_branch();
                if outcome.is_none() {
                    self.remember_nogood();
                }
            }
            next = match outcome {
                Some(component) => component,
                None => match self.backtrack(next) {
                    Ok(component) => component,
                    Err(root) => {
                        return Descent::Exhausted { first: root.first as usize, end: root.end as usize };
                    }
                },
            };
        }
        Descent::Solved
    }

    /// Discards the current descent, but not nogoods or conflict counts.
    fn reset(&mut self) {
        self.state.undo(0);
        let everything = 0..self.state.instance.sections();
        self.state.fingerprint = self.state.fingerprint_of(everything);
        self.stack.clear();
        self.components.clear();
        self.candidates.clear();
    }

    /// Returns to the node that created an unsolvable component, and continues with its next branch. Fails with the
    /// component if it is part of the problem itself.
    fn backtrack(&mut self, failed: u32) -> Result<u32, Component> {
        let mut failed = self.components[failed as usize];
        while failed.parent != NONE {
            self.stack.truncate(failed.parent as usize + 1);
            let Some(&node) = self.stack.last() else { break };
            self.candidates.truncate(node.candidates.1 as usize);
            self.restore(&node);
            if let Some(next) = self.next_branch() {
                return Ok(next);
            }
            self.remember_nogood();
            failed = self.components[node.component as usize];
        }
        Err(failed)
    }

    /// Undoes the decision of a node.
    fn restore(&mut self, node: &Node) {
        self.state.undo(node.mark);
        self.components.truncate(node.components as usize);
        self.state.fingerprint = self.components[node.component as usize].fingerprint;
    }

    /// Remembers that the component of the last node cannot be solved.
    fn remember_nogood(&mut self) {
        if let Some(node) = self.stack.last() {
            if self.nogoods.len() >= MAX_NOGOODS {
                self.nogoods.clear();
            }
            self.nogoods.insert(self.components[node.component as usize].fingerprint);
            self.last_conflict = node.section as usize;
        }
    }

    /// Starts a node: lists the buffers that can rest on the floor of a section, highest priority first.
    fn push_node(&mut self, component: u32, section: usize) {
        let floor = self.state.floor[section];
        let start = self.candidates.len();
        for &buffer in self.state.unplaced(section) {
            if self.state.earliest[buffer as usize] == floor {
                self.candidates.push(buffer);
            }
        }
        let rank = &self.rank;
        self.state.work += self.state.unplaced(section).len() as u64;
        self.candidates[start..].sort_unstable_by_key(|&buffer| rank[buffer as usize]);
        self.stack.push(Node {
            component,
            section: section as u32,
            floor,
            candidates: (start as u32, self.candidates.len() as u32),
            tried: 0,
            mark: self.state.mark(),
            components: self.components.len() as u32,
        });
    }

    /// Takes the next branch of the last node that is not nogoods immediately, and returns the component to consider
    /// next; `None` if no branch is left.
    fn next_branch(&mut self) -> Option<u32> {
        let index = self.stack.len() - 1;
        let mut node = self.stack[index];
        let component = self.components[node.component as usize];
        let count = node.candidates.1 - node.candidates.0;
        while node.tried < count {
            let buffer = self.candidates[(node.candidates.0 + node.tried) as usize] as usize;
            node.tried += 1;
            if self.has_unplaced_twin(buffer, node.floor) {
                continue;
            }
            if self.state.place(buffer) {
                self.stack[index] = node;
                let span = self.state.instance.span(buffer);
                let range = (component.first, component.end);
                return Some(self.split(range, span, index as u32, component.next));
            }
            self.restore(&node);
        }
        if node.tried == count {
            node.tried += 1;
            if self.state.slack(node.section as usize) > 0 && self.postpone_all(&node) {
                self.stack[index] = node;
                let parent = index as u32;
                self.components.push(Component { parent, fingerprint: self.state.fingerprint, ..component });
                return Some(self.components.len() as u32 - 1);
            }
            self.restore(&node);
        }
        self.stack[index] = node;
        None
    }

    /// Equal buffers are interchangeable: only the first unplaced one at the same level is tried.
    fn has_unplaced_twin(&self, buffer: usize, floor: u64) -> bool {
        let mut twin = self.twin[buffer];
        while twin != NONE {
            if !self.state.placed[twin as usize] && self.state.earliest[twin as usize] == floor {
                return true;
            }
            twin = self.twin[twin as usize];
        }
        false
    }

    /// The branch in which no candidate of a node rests on the floor. Each must then rest on an unplaced buffer that
    /// starts low enough to be below it.
    fn postpone_all(&mut self, node: &Node) -> bool {
        let state = &mut self.state;
        let instance = state.instance;
        let section = node.section as usize;
        let candidates = &self.candidates[node.candidates.0 as usize..node.candidates.1 as usize];
        self.raised.clear();
        for &candidate in candidates {
            let span = instance.span(candidate as usize);
            let limit = node.floor + instance.size[candidate as usize];
            let mut support = CLOSED;
            let mut consider = |other: usize| {
                let earliest = state.earliest[other];
                let is_candidate = earliest == node.floor && instance.span(other).contains(&section);
                if earliest < limit && !is_candidate && other != candidate as usize {
                    support = support.min(earliest + instance.size[other]);
                }
            };
            for &other in state.unplaced(span.start) {
                consider(other as usize);
            }
            for other in instance.starting_in(span.start + 1..span.end) {
                if !state.placed[other] {
                    consider(other);
                }
            }
            state.work += state.unplaced(span.start).len() as u64;
            state.work += instance.starting_in(span.start + 1..span.end).len() as u64;
            self.raised.push((candidate, support));
        }
        lower_by_mutual_support(&mut self.raised, node.floor, &instance.size);
        self.raised.iter().all(|&(_, support)| support != CLOSED) && state.postpone(&self.raised)
    }

    /// Inserts the components into which a decision on `span` has divided the sections `range` before `next`, and
    /// returns the first of them.
    fn split(&mut self, range: (u32, u32), span: std::ops::Range<usize>, parent: u32, next: u32) -> u32 {
        let state = &mut self.state;
        self.parts.clear();
        let mut first = range.0;
        for section in (span.start + 1..span.end).chain([range.1 as usize]) {
            if section == range.1 as usize || state.crossing[section] == 0 {
                let section = section as u32;
                if section > first && (section > first + 1 || state.floor[first as usize] != CLOSED) {
                    self.parts.push((first, section));
                }
                first = section;
            }
        }
        // The last component gets the rest of the fingerprint.
        let mut rest = state.fingerprint;
        let mut next = next;
        let base = self.components.len();
        for (index, &(first, end)) in self.parts.iter().enumerate() {
            let fingerprint = if index + 1 == self.parts.len() {
                rest
            } else {
                state.fingerprint_of(first as usize..end as usize)
            };
            rest = rest.wrapping_sub(fingerprint);
            self.components.push(Component { first, end, parent, next: NONE, fingerprint });
        }
        for index in (base..self.components.len()).rev() {
            self.components[index].next = next;
            next = index as u32;
        }
        next
    }
}

/// Lowers the earliest offset of raised candidates that can rest on another raised one.
fn lower_by_mutual_support(raised: &mut [(u32, u64)], floor: u64, size: &[u64]) {
    if raised.len() > MAX_PAIRWISE_CANDIDATES {
        // A weaker bound that is quick to find: the lowest one supports the others.
        let lowest = raised.iter().map(|&(_, earliest)| earliest).min().unwrap_or(CLOSED);
        let thinnest = raised.iter().map(|&(buffer, _)| size[buffer as usize]).min().unwrap_or(0);
        for (_, earliest) in raised.iter_mut() {
            *earliest = (*earliest).min(lowest.saturating_add(thinnest));
        }
        return;
    }
    let mut changed = true;
    while changed {
        changed = false;
        for upper in 0..raised.len() {
            let limit = floor + size[raised[upper].0 as usize];
            for lower in 0..raised.len() {
                let (other, earliest) = raised[lower];
                if lower != upper && earliest < limit {
                    let support = earliest + size[other as usize];
                    if support < raised[upper].1 {
                        raised[upper].1 = support;
                        changed = true;
                    }
                }
            }
        }
    }
}

/// Fingerprints are already random: their low half is their hash.
#[derive(Default)]
pub(super) struct Fingerprints(u64);

impl Hasher for Fingerprints {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}
