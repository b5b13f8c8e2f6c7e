//! Idle pages by size and place, oldest first: doubly linked lists through the table of pages.

use super::slots::{NO_PAGE, PageId, Pages};

/// The idle pages of one size, in device memory or in host memory.
#[derive(Clone, Copy, Debug)]
struct List {
    size: u64,
    is_on_host: bool,
    oldest: PageId,
    newest: PageId,
}

/// All idle pages. There are at most twice as many lists as page sizes, which are few.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    lists: Vec<List>,
}

impl Idle {
    /// The list of the pages of a size and a place (whether on the host).
    fn list(&mut self, (size, is_on_host): (u64, bool)) -> &mut List {
        let is_its = |list: &List| list.size == size && list.is_on_host == is_on_host;
        let position = self.lists.iter().position(is_its).unwrap_or_else(|| {
            self.lists.push(List { size, is_on_host, oldest: NO_PAGE, newest: NO_PAGE });
            self.lists.len() - 1
        });
        &mut self.lists[position]
    }

    /// Adds a page that became idle after all others.
    pub(super) fn push(&mut self, pages: &mut Pages, id: PageId) {
        let page = pages.get(id);
        let list = self.list((page.size, page.is_on_host));
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
        let page = pages.get_mut(id);
        if !std::mem::take(&mut page.is_idle) {
            return;
        }
        // Only the ends of a list need it.
        let list = (page.size, page.is_on_host);
        let (older, newer) = (page.older, page.newer);
        match older {
            NO_PAGE => self.list(list).oldest = newer,
            older => pages.get_mut(older).newer = newer,
        }
        match newer {
            NO_PAGE => self.list(list).newest = older,
            newer => pages.get_mut(newer).older = older,
        }
    }

    /// The oldest idle page of a size, in device memory or in host memory.
    pub(super) fn oldest_of(&self, size: u64, is_on_host: bool) -> Option<PageId> {
        let list = self.lists.iter().find(|list| list.size == size && list.is_on_host == is_on_host)?;
        (list.oldest != NO_PAGE).then_some(list.oldest)
    }

    /// The oldest idle page of any size in device memory.
    pub(super) fn oldest_on_device(&self, pages: &Pages) -> Option<PageId> {
        let lists = self.lists.iter().filter(|list| !list.is_on_host);
        lists.map(|list| list.oldest).filter(|&id| id != NO_PAGE).min_by_key(|&id| pages.get(id).freed)
    }
}
