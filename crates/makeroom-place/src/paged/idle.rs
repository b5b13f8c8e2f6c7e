//! Idle pages by size and place, oldest first: doubly linked lists through the table of pages.

use super::slots::{NO_PAGE, Page, PageId, Pages};

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
    fn position(&mut self, page: &Page) -> usize {
        let &Page { size, is_on_host, .. } = page;
        let is_its = |list: &List| list.size == size && list.is_on_host == is_on_host;
        self.lists.iter().position(is_its).unwrap_or_else(|| {
            self.lists.push(List { size, is_on_host, oldest: NO_PAGE, newest: NO_PAGE });
            self.lists.len() - 1
        })
    }

    /// Adds a page that became idle after all others.
    pub(super) fn push(&mut self, pages: &mut Pages, id: PageId) {
        let position = self.position(pages.get(id));
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
        let position = self.position(&page);
        match page.older {
            NO_PAGE => self.lists[position].oldest = page.newer,
            older => pages.get_mut(older).newer = page.newer,
        }
        match page.newer {
            NO_PAGE => self.lists[position].newest = page.older,
            newer => pages.get_mut(newer).older = page.older,
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
