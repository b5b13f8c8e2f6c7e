//! Idle pages by size, oldest first: doubly linked lists through the table of pages.

use super::slots::{NO_PAGE, PageId, Pages};

/// The idle pages of one size.
#[derive(Clone, Copy, Debug)]
struct List {
    size: u64,
    oldest: PageId,
    newest: PageId,
}

/// All idle pages. There are as many lists as page sizes, which are few.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    lists: Vec<List>,
}

impl Idle {
    fn position(&mut self, size: u64) -> usize {
        self.lists.iter().position(|list| list.size == size).unwrap_or_else(|| {
            self.lists.push(List { size, oldest: NO_PAGE, newest: NO_PAGE });
            self.lists.len() - 1
        })
    }

    /// Adds a page that became idle after all others.
    pub(super) fn push(&mut self, pages: &mut Pages, id: PageId) {
        let position = self.position(pages.get(id).size);
        let list = &mut self.lists[position];
        let newest = std::mem::replace(&mut list.newest, id);
        if newest == NO_PAGE {
            list.oldest = id;
        } else {
            pages.get_mut(newest).newer = id;
        }
        let page = pages.get_mut(id);
        (page.older, page.newer) = (newest, NO_PAGE);
        page.is_idle = true;
    }

    /// Removes a page, if it is idle.
    pub(super) fn remove(&mut self, pages: &mut Pages, id: PageId) {
        let page = *pages.get(id);
        if !page.is_idle {
            return;
        }
        pages.get_mut(id).is_idle = false;
        let position = self.position(page.size);
        match page.older {
            NO_PAGE => self.lists[position].oldest = page.newer,
            older => pages.get_mut(older).newer = page.newer,
        }
        match page.newer {
            NO_PAGE => self.lists[position].newest = page.older,
            newer => pages.get_mut(newer).older = page.older,
        }
    }

    /// The oldest idle page of a size.
    pub(super) fn oldest_of(&self, size: u64) -> Option<PageId> {
        let list = self.lists.iter().find(|list| list.size == size)?;
        (list.oldest != NO_PAGE).then_some(list.oldest)
    }

    /// The oldest idle page of any size.
    pub(super) fn oldest(&self, pages: &Pages) -> Option<PageId> {
        let oldest = self.lists.iter().map(|list| list.oldest).filter(|&id| id != NO_PAGE);
        oldest.min_by_key(|&id| pages.get(id).freed)
    }
}
