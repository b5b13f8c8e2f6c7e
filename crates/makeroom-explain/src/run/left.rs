//! Memory that was still allocated when the process ended, by the code that allocated it.
//!
//! Libraries allocate workspaces that they keep until exit: cuBLAS and cuDNN for their handles, NCCL for its
//! communicators, PyTorch for its pinned memory. Their users cannot free these. They are therefore counted separately,
//! and only memory allocated by the program itself, or by unknown code, is reported as never freed.

use makeroom_core::{Bytes, Library, SortCompact as _, StackId};
use makeroom_ordered::OrderedMap;

use super::{LeftKind, LeftSite, Leftover, LibraryHold};
use crate::trace::Places;

/// A site, its caller, and its callee.
type SiteKey = (Option<String>, Option<String>, Option<String>);

/// Bytes and number of allocations.
type BytesAndCount = (Bytes, u64);

/// Leftover memory, by the code that allocated it.
#[derive(Debug)]
pub(super) struct Left {
    /// Allocated by libraries for themselves, largest first.
    pub(super) by_libraries: Vec<LibraryHold>,
    /// Allocated by all other code.
    pub(super) by_others: Option<Leftover>,
}

impl Left {
    /// Sums up blocks.
    pub(super) fn new(
        kind: LeftKind,
        blocks: impl Iterator<Item = (StackId, Bytes)>,
        places: Places<'_>,
    ) -> Self {
        let mut stacks: OrderedMap<StackId, BytesAndCount> = OrderedMap::new();
        for (stack, size) in blocks {
            add(stacks.entry(stack).or_default(), (size, 1));
        }
        let mut libraries: OrderedMap<Library, BytesAndCount> = OrderedMap::new();
        let mut sites: OrderedMap<SiteKey, BytesAndCount> = OrderedMap::new();
        for (stack, held) in stacks {
            if let Some(library) = places.library(stack).filter(|library| !library.allocates_for_callers()) {
                add(libraries.entry(library).or_default(), held);
            } else {
                let place = (places.site_of(stack), places.caller(stack), places.through(stack));
                add(sites.entry(place).or_default(), held);
            }
        }
        let hold = |(by, (bytes, allocations))| LibraryHold { by, kind, bytes, allocations };
        let mut by_libraries: Vec<LibraryHold> = libraries.into_iter().map(hold).collect();
        by_libraries.sort_compact_by_key(|hold| std::cmp::Reverse(hold.bytes));
        Self { by_libraries, by_others: leftover(kind, sites) }
    }
}

fn add(sum: &mut BytesAndCount, held: BytesAndCount) {
    *sum = (sum.0 + held.0, sum.1 + held.1);
}

fn leftover(kind: LeftKind, sites: OrderedMap<SiteKey, BytesAndCount>) -> Option<Leftover> {
    let site = |((place, caller, through), (bytes, allocations))| LeftSite {
        place,
        caller,
        through,
        bytes,
        allocations,
    };
    let mut sites: Vec<LeftSite> = sites.into_iter().map(site).collect();
    sites.sort_compact_by_key(|site| std::cmp::Reverse(site.bytes));
    (!sites.is_empty()).then(|| Leftover {
        kind,
        bytes: sites.iter().map(|site| site.bytes).sum(),
        allocations: sites.iter().map(|site| site.allocations).sum(),
        sites,
    })
}
