//! The table of pages.

use super::backing::Mark;
use crate::pool::Handle;

/// The index of a page in the table.
pub(super) type PageId = u32;

/// A part of a slot that has its own physical memory, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) address: u64,
    pub(super) size: u64,
    handle: Option<Handle>,
}

/// What the reports of blocks read and change of a page. Apart from the rest, so that a report touches few cache lines.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageState {
    /// When a block in it was last freed; while the page is idle, this is when it became idle.
    pub(super) freed: Mark,
    /// Blocks that overlap it.
    pub(super) blocks: u32,
    has_memory: bool,
    is_on_host: bool,
    /// Its memory never moves.
    pub(super) is_pinned: bool,
}

impl PageState {
    /// Whether it has physical memory.
    pub(super) fn has_memory(&self) -> bool {
        self.has_memory
    }

    /// Whether its memory is the host's.
    pub(super) fn is_on_host(&self) -> bool {
        self.is_on_host
    }

    /// Whether its memory may move as soon as the GPU is done with it.
    pub(super) fn is_idle(&self) -> bool {
        self.blocks == 0 && self.has_memory && !self.is_pinned
    }
}

/// All pages. Those of a slot are next to each other.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Pages {
    states: Vec<PageState>,
    table: Vec<Page>,
    /// Runs of unused entries, by length.
    vacant: Vec<(u32, Vec<PageId>)>,
}

impl Pages {
    pub(super) fn get(&self, id: PageId) -> &Page {
        &self.table[id as usize]
    }

    pub(super) fn state(&self, id: PageId) -> &PageState {
        &self.states[id as usize]
    }

    pub(super) fn state_mut(&mut self, id: PageId) -> &mut PageState {
        &mut self.states[id as usize]
    }

    /// The states of pages next to each other.
    #[inline]
    pub(super) fn states_mut(&mut self, first: PageId, last: PageId) -> &mut [PageState] {
        self.states.get_mut(first as usize..=last as usize).unwrap_or_default()
    }

    /// The handle of its memory.
    pub(super) fn handle(&self, id: PageId) -> Option<Handle> {
        self.table[id as usize].handle
    }

    /// Gives it memory, in the place of any that it had.
    pub(super) fn set_memory(&mut self, id: PageId, handle: Handle, is_on_host: bool) {
        self.table[id as usize].handle = Some(handle);
        let state = self.state_mut(id);
        (state.has_memory, state.is_on_host) = (true, is_on_host);
    }

    /// Takes its memory away.
    pub(super) fn take_memory(&mut self, id: PageId) -> Option<Handle> {
        self.state_mut(id).has_memory = false;
        self.table[id as usize].handle.take()
    }

    /// The idle pages.
    pub(super) fn idle(&self) -> impl Iterator<Item = PageId> {
        (0..).zip(&self.states).filter(|(_, state)| state.is_idle()).map(|(id, _)| id)
    }

    pub(super) fn add(&mut self, address: u64, size: u64, count: u32) -> PageId {
        let vacant = self.vacant.iter_mut().find(|(length, _)| *length == count);
        let first = vacant.and_then(|(_, runs)| runs.pop()).unwrap_or_else(|| {
            let first = self.table.len() as PageId;
            let length = self.table.len() + count as usize;
            self.table.resize(length, Page { address: 0, size, handle: None });
            self.states.resize(length, PageState::default());
            first
        });
        for (id, number) in (first..).zip(0..u64::from(count)) {
            self.table[id as usize] = Page { address: address + number * size, size, handle: None };
            *self.state_mut(id) = PageState::default();
        }
        first
    }

    pub(super) fn remove(&mut self, first: PageId, count: u32) {
        match self.vacant.iter_mut().find(|(length, _)| *length == count) {
            Some((_, runs)) => runs.push(first),
            None => self.vacant.push((count, vec![first])),
        }
    }
}
