//! Quarantine for freed memory, and the violations that it reveals.

use std::collections::VecDeque;
use std::fmt;

use makeroom_core::{Address, Bytes, FastMap, StreamId};

use crate::error::WrongAddress;
use crate::site::Site;

/// A memory error in the program.
#[derive(Debug)]
pub enum Violation {
    /// A free of an address that is not live.
    WrongFree(WrongAddress),
    /// A use-after-free write.
    WrittenAfterFree(WrittenAfterFree),
}

/// A use-after-free write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenAfterFree {
    /// Address of the block.
    pub address: Address,
    /// Its size.
    pub bytes: Bytes,
    /// Offset of the first changed byte.
    pub offset: Bytes,
    /// Where it was allocated.
    pub allocated: Site,
    /// Where it was freed.
    pub freed: Site,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongFree(wrong) => wrong.fmt(formatter),
            Self::WrittenAfterFree(WrittenAfterFree { address, bytes, offset, allocated, freed }) => write!(
                formatter,
                "memory at {address} ({bytes}) was written after it was freed, {} bytes from its start; allocated by {allocated}, freed by {freed}",
                offset.get()
            ),
        }
    }
}

/// A block in quarantine.
#[derive(Clone, Copy)]
pub(super) struct QuarantinedBlock {
    pub(super) address: Address,
    pub(super) bytes: u64,
    pub(super) stream: StreamId,
    pub(super) allocated: Site,
    pub(super) freed: Site,
}

/// `bytes = Σ order.bytes`, and `sites` has the addresses of `order`.
#[derive(Default)]
pub(super) struct Quarantine {
    order: VecDeque<QuarantinedBlock>,
    bytes: u64,
    sites: FastMap<u64, (Site, Site)>,
}

impl Quarantine {
    pub(super) fn push(&mut self, held: QuarantinedBlock) {
        self.bytes += held.bytes;
        self.sites.insert(held.address.0, (held.allocated, held.freed));
        self.order.push_back(held);
    }

    /// Removes the oldest until at most `most` bytes are left, and all that match `also`.
    pub(super) fn take(
        &mut self,
        most: u64,
        also: impl Fn(&QuarantinedBlock) -> bool,
    ) -> Vec<QuarantinedBlock> {
        let mut left = self.bytes;
        let (mut taken, mut kept) = (Vec::new(), VecDeque::new());
        for held in self.order.drain(..) {
            if left > most || also(&held) {
                left -= held.bytes;
                self.sites.remove(&held.address.0);
                taken.push(held);
            } else {
                kept.push_back(held);
            }
        }
        (self.order, self.bytes) = (kept, left);
        taken
    }

    /// Where a block in quarantine was allocated and freed.
    pub(super) fn sites(&self, address: Address) -> Option<(Site, Site)> {
        self.sites.get(&address.0).copied()
    }
}
