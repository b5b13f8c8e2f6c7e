//! The groups of a device's allocations (`--by`): the group of each allocation, and the live bytes of each group over
//! time. Groups beyond the largest are one, because a profile or a chart with thousands of them cannot be read.

use makeroom_core::{Action, Event, FastMap, Trace};
use makeroom_explain::{By, GroupNames};
use makeroom_kind::Kinds;

use crate::history::History;

/// Groups with a name of their own, per device.
const MOST_GROUPS: usize = 24;
const OTHERS: &str = "other groups";

/// The groups of a device's allocations.
pub(crate) struct Groups {
    /// The names, the group with the highest peak first.
    pub(crate) names: Vec<String>,
    /// By number of an allocation: its group.
    of: Vec<u32>,
}

impl Groups {
    pub(crate) fn new(trace: &Trace, history: &History<'_>, by: By) -> Self {
        let kinds = Kinds::new(trace, history.device);
        let mut group_names = GroupNames::new(trace, history.device, by);
        let mut numbers: FastMap<String, u32> = FastMap::default();
        let mut groups = Self { names: Vec::new(), of: Vec::with_capacity(kinds.allocations().len()) };
        for allocation in kinds.allocations() {
            let name = group_names.name(allocation);
            let next = groups.names.len() as u32;
            let number = *numbers.entry(name).or_insert_with_key(|name| {
                groups.names.push(name.clone());
                next
            });
            groups.of.push(number);
        }
        groups.keep_largest(history);
        groups
    }

    /// The group of an allocation.
    pub(crate) fn of(&self, allocation: u32) -> usize {
        self.of.get(allocation as usize).map_or(0, |&group| group as usize)
    }

    /// Sorts groups by their peaks, and joins those beyond the largest.
    fn keep_largest(&mut self, history: &History<'_>) {
        let mut live = Live::new(self, history);
        let mut peaks = live.bytes.clone();
        for (index, event, _) in history.events() {
            if let Some(group) = live.follow(self, history, index, &event) {
                peaks[group] = peaks[group].max(live.bytes[group]);
            }
        }
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by_key(|&group| std::cmp::Reverse(peaks[group]));
        let mut place = vec![0_u32; order.len()];
        for (rank, &group) in order.iter().enumerate() {
            place[group] = rank.min(MOST_GROUPS) as u32;
        }
        for group in &mut self.of {
            *group = place[*group as usize];
        }
        let mut names: Vec<String> =
            order.iter().take(MOST_GROUPS).map(|&group| std::mem::take(&mut self.names[group])).collect();
        if order.len() > MOST_GROUPS {
            names.push(OTHERS.to_owned());
        }
        self.names = names;
    }
}

/// The live bytes of each group.
pub(crate) struct Live {
    pub(crate) bytes: Vec<u64>,
}

impl Live {
    /// Before the first event.
    pub(crate) fn new(groups: &Groups, history: &History<'_>) -> Self {
        let mut live = Self { bytes: vec![0; groups.names.len()] };
        for number in 0..history.allocations.older as u32 {
            live.add(groups, history, number);
        }
        live
    }

    /// After this event. Returns the group that grew.
    pub(crate) fn follow(
        &mut self,
        groups: &Groups,
        history: &History<'_>,
        index: usize,
        event: &Event,
    ) -> Option<usize> {
        match event.action {
            Action::Alloc => {
                if let Some(lost) = history.allocations.replaced_by(index) {
                    self.remove(groups, history, lost);
                }
                self.add(groups, history, history.allocations.of_event(index)?)
            }
            Action::FreeCompleted => {
                self.remove(groups, history, history.allocations.of_event(index)?);
                None
            }
            _ => None,
        }
    }

    fn add(&mut self, groups: &Groups, history: &History<'_>, number: u32) -> Option<usize> {
        let group = groups.of(number);
        let bytes = self.bytes.get_mut(group)?;
        *bytes = bytes.saturating_add(history.get(number)?.requested);
        Some(group)
    }

    fn remove(&mut self, groups: &Groups, history: &History<'_>, number: u32) {
        if let (Some(bytes), Some(allocation)) = (self.bytes.get_mut(groups.of(number)), history.get(number))
        {
            *bytes = bytes.saturating_sub(allocation.requested);
        }
    }
}
