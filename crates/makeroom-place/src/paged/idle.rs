//! Idle pages, oldest first.
//!
//! Nearly every report of a block makes pages idle or takes them back, and hardly any needs a page of another block. So
//! reports only change the pages' states, and a request for an idle page looks through all pages and remembers what it
//! found. A page that was used since then has another mark, and every page that became idle since then is younger than
//! those still known, so the order stays right until all of them are used up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::backing::Mark;
use super::table::{PageId, Pages};

/// The idle pages of one size, in device memory or in host memory, as they were found.
#[derive(Clone, Debug)]
struct Class {
    size: u64,
    is_on_host: bool,
    found: BinaryHeap<Reverse<(Mark, PageId)>>,
}

/// The idle pages that are known. There are at most twice as many classes as page sizes, which are few.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Idle {
    /// Whether a page became idle since the pages were last looked through.
    is_outdated: bool,
    classes: Vec<Class>,
}

impl Idle {
    /// A page became idle.
    #[inline]
    pub(super) fn became_idle(&mut self) {
        self.is_outdated = true;
    }

    /// The oldest idle page of a size, in device memory or in host memory.
    pub(super) fn oldest_of(&mut self, pages: &Pages, size: u64, is_on_host: bool) -> Option<PageId> {
        self.oldest(pages, |class| class.size == size && class.is_on_host == is_on_host)
    }

    /// The oldest idle page of any size in device memory.
    pub(super) fn oldest_on_device(&mut self, pages: &Pages) -> Option<PageId> {
        self.oldest(pages, |class| !class.is_on_host)
    }

    fn oldest(&mut self, pages: &Pages, is_wanted: impl Fn(&Class) -> bool) -> Option<PageId> {
        let known = self.oldest_known(pages, &is_wanted);
        if known.is_some() || !self.is_outdated {
            return known;
        }
        self.look(pages);
        self.oldest_known(pages, &is_wanted)
    }

    fn oldest_known(&mut self, pages: &Pages, is_wanted: impl Fn(&Class) -> bool) -> Option<PageId> {
        let wanted = self.classes.iter_mut().filter(|class| is_wanted(class));
        wanted.filter_map(|class| class.oldest(pages)).min().map(|(_, id)| id)
    }

    fn look(&mut self, pages: &Pages) {
        self.is_outdated = false;
        let mut found: Vec<Vec<Reverse<(Mark, PageId)>>> =
            self.classes.iter_mut().map(|class| std::mem::take(&mut class.found).into_vec()).collect();
        found.iter_mut().for_each(Vec::clear);
        for id in pages.idle() {
            let (size, state) = (pages.get(id).size, pages.state(id));
            let is_its = |class: &Class| class.size == size && class.is_on_host == state.is_on_host();
            let position = self.classes.iter().position(is_its).unwrap_or_else(|| {
                let (is_on_host, none) = (state.is_on_host(), BinaryHeap::new());
                self.classes.push(Class { size, is_on_host, found: none });
                found.push(Vec::new());
                self.classes.len() - 1
            });
            found[position].push(Reverse((state.freed, id)));
        }
        for (class, found) in self.classes.iter_mut().zip(found) {
            class.found = BinaryHeap::from(found);
        }
    }
}

impl Class {
    /// Its oldest page that is still idle. Forgets those that are not.
    fn oldest(&mut self, pages: &Pages) -> Option<(Mark, PageId)> {
        loop {
            let &Reverse((mark, id)) = self.found.peek()?;
            let (page, state) = (pages.get(id), pages.state(id));
            let is_same =
                state.freed == mark && page.size == self.size && state.is_on_host() == self.is_on_host;
            if state.is_idle() && is_same {
                return Some((mark, id));
            }
            self.found.pop();
        }
    }
}
