//! A stand-in for PyTorch's expandable segments on [`Pages`]: it reserves, maps slot by slot, places blocks first fit,
//! and checks the contents of every block and that no memory is unmapped while the GPU may use it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use makeroom_core::{Address, Bytes};
use makeroom_cuda::{Access, AddressRange, AllocationProperties, Code, Location, Stream, StreamKind};
use makeroom_pool::{Pages, PagesOptions, Piece, Watcher};

use super::Gpu;

pub(crate) const MIB: u64 = 1 << 20;
const PAGE: u64 = 2 * MIB;
/// Slots of a segment: more than the device has memory for.
pub(crate) const SLOTS: u64 = 80;
/// Bytes written at the start of each page of a block, and at its end.
const WRITTEN: u64 = 64;

type Now = unsafe extern "C" fn() -> u64;

/// Observes the pages: when the GPU may use each, and whether one was unmapped too early.
#[derive(Debug)]
pub(crate) struct Safety {
    now: Now,
    /// The time until which the GPU may use each page of 2 MiB.
    in_use: Mutex<BTreeMap<u64, u64>>,
    pub(crate) early: AtomicU64,
    pub(crate) is_capturing: AtomicBool,
    /// Bytes in handles.
    pub(crate) held: AtomicU64,
    pub(crate) available: AtomicU64,
}

impl Watcher for Safety {
    fn available(&self) -> u64 {
        self.available.load(Ordering::Relaxed)
    }

    fn unless_capturing(&self, work: &mut dyn FnMut()) {
        if !self.is_capturing.load(Ordering::Relaxed) {
            work();
        }
    }

    fn took(&self, piece: Piece) {
        self.held.fetch_add(piece.size, Ordering::Relaxed);
    }

    fn gave_back(&self, piece: Piece) {
        self.held.fetch_sub(piece.size, Ordering::Relaxed);
    }

    fn unmapped(&self, address: Address, piece: Piece) {
        // SAFETY: the software GPU's function, which takes nothing.
        let now = unsafe { (self.now)() };
        let mut in_use = self.in_use.lock().unwrap();
        for page in (address.0..address.0 + piece.size).step_by(PAGE as usize) {
            if in_use.remove(&page).is_some_and(|until| until > now) {
                self.early.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A block, its contents, and whether all of it has memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) size: u64,
    tag: u8,
    pub(crate) is_backed: bool,
}

pub(crate) struct Torch<'gpu> {
    pub(crate) gpu: &'gpu Gpu,
    pub(crate) pages: Pages,
    pub(crate) safety: Arc<Safety>,
    pub(crate) range: AddressRange,
    slot: u64,
    tokens: Vec<Option<u64>>,
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// Each stream, and the time until which it is busy.
    pub(crate) streams: Vec<(Stream, u64)>,
    last_tag: u8,
    pub(crate) peak_live: u64,
}

/// Properties with a file descriptor as the type of handle, as PyTorch has them.
pub(crate) fn properties(handle_type: i32) -> AllocationProperties {
    let mut bytes = [0_u8; 32];
    for (index, word) in [1, handle_type, 1, 0].into_iter().enumerate() {
        bytes[index * 4..index * 4 + 4].copy_from_slice(&i32::to_ne_bytes(word));
    }
    AllocationProperties::from_bytes(&bytes)
}

pub(crate) fn safety(gpu: &Gpu) -> Arc<Safety> {
    Arc::new(Safety {
        // SAFETY: the type matches the function.
        now: unsafe { gpu.function::<Now>(c"makeroom_simgpu_now") },
        in_use: Mutex::default(),
        early: AtomicU64::new(0),
        is_capturing: AtomicBool::new(false),
        held: AtomicU64::new(0),
        available: AtomicU64::new(u64::MAX),
    })
}

impl<'gpu> Torch<'gpu> {
    pub(crate) fn new(gpu: &'gpu Gpu, slot: u64, options: PagesOptions) -> makeroom_pool::Result<Self> {
        let safety = safety(gpu);
        let options = PagesOptions { watcher: Some(safety.clone()), ..options };
        let pages = Pages::new(gpu.driver, 0, options)?;
        let range = AddressRange::reserve(gpu.driver, Bytes::new(SLOTS * slot), Bytes::ZERO)?;
        let stream = || Ok((Stream::create(gpu.driver, StreamKind::NonBlocking)?, 0));
        let streams = (0..3).map(|_| stream()).collect::<makeroom_pool::Result<_>>()?;
        let tokens = vec![None; SLOTS as usize];
        let blocks = BTreeMap::new();
        Ok(Self { gpu, pages, safety, range, slot, tokens, blocks, streams, last_tag: 0, peak_live: 0 })
    }

    fn start(&self) -> u64 {
        self.range.address().0
    }

    fn address(&self, index: u64) -> u64 {
        self.start() + index * self.slot
    }

    /// Maps `count` more slots, or none. Fails with the error of `cuMemCreate`.
    pub(crate) fn grow(&mut self, count: usize) -> Result<(), Code> {
        let unmapped: Vec<usize> =
            (0..self.tokens.len()).filter(|&index| self.tokens[index].is_none()).collect();
        let mut created = Vec::new();
        for &index in unmapped.iter().take(count) {
            match self.pages.create(self.slot, &properties(1)).unwrap() {
                Ok(token) => created.push((index, token)),
                Err(code) => {
                    for (_, token) in created {
                        self.pages.release(token).unwrap().unwrap();
                    }
                    return Err(code);
                }
            }
        }
        for (index, token) in created {
            let (address, range) = (self.address(index as u64), (self.start(), self.range.bytes().get()));
            let taken = self.pages.map(token, address, self.slot, range).unwrap().unwrap();
            assert_eq!(taken.unbacked, 0);
            self.tokens[index] = Some(token);
            let own = [(Location::device(0), Access::ReadWrite)];
            self.pages.set_access(address, self.slot, &own).unwrap().unwrap();
        }
        Ok(())
    }

    /// Unmaps all slots without a block, as PyTorch does to release its cache.
    pub(crate) fn trim(&mut self) {
        for index in 0..SLOTS {
            let address = self.address(index);
            if self.is_free(address, self.slot)
                && let Some(token) = self.tokens[index as usize].take()
            {
                self.pages.unmap(address, self.slot).unwrap().unwrap();
                self.pages.release(token).unwrap().unwrap();
            }
        }
    }

    fn is_free(&self, address: u64, size: u64) -> bool {
        let before = self.blocks.range(..address + size).next_back();
        before.is_none_or(|(&start, block)| start + block.size <= address)
    }

    fn is_mapped(&self, address: u64, size: u64) -> bool {
        let first = (address - self.start()) / self.slot;
        let last = (address + size - 1 - self.start()) / self.slot;
        last < SLOTS && (first..=last).all(|index| self.tokens[index as usize].is_some())
    }

    fn place(&self, size: u64) -> Option<u64> {
        let slots = (0..SLOTS).map(|index| self.address(index));
        let starts = slots.chain(self.blocks.iter().map(|(&start, block)| start + block.size));
        starts.filter(|&at| self.is_mapped(at, size) && self.is_free(at, size)).min()
    }

    /// A block: in a free space, or in new slots, if necessary after a trim.
    pub(crate) fn allocate(&mut self, size: u64) -> Option<u64> {
        let count = size.div_ceil(self.slot) as usize;
        let address = self.place(size).or_else(|| {
            if self.grow(count).is_err() {
                self.trim();
                self.grow(count).ok()?;
            }
            self.place(size)
        })?;
        let live = self.live() + size;
        self.peak_live = self.peak_live.max(live);
        let taken = self.pages.take(address, size, live).unwrap();
        self.last_tag = self.last_tag.wrapping_add(1);
        let block = Block { size, tag: self.last_tag, is_backed: taken.unbacked == 0 };
        self.blocks.insert(address, block);
        if block.is_backed {
            self.each_written(address, |this, offset| {
                let place = this.range.region().part(offset, Bytes::new(WRITTEN)).unwrap();
                place.write(&[block.tag; WRITTEN as usize]).unwrap();
            });
        }
        Some(address)
    }

    /// Calls `work` with the offset of each part of a block that is written.
    fn each_written(&self, address: u64, work: impl Fn(&Self, Bytes)) {
        let end = address + self.blocks[&address].size;
        let pages = (address / PAGE + 1..=(end - 1) / PAGE).map(|page| page * PAGE);
        for at in std::iter::once(address).chain(pages).chain([end - WRITTEN]) {
            work(self, Bytes::new(at.min(end - WRITTEN) - self.start()));
        }
    }

    /// Bytes in blocks.
    pub(crate) fn live(&self) -> u64 {
        self.blocks.values().map(|block| block.size).sum()
    }

    /// The contents are as they were written.
    pub(crate) fn verify(&self, address: u64) {
        let block = self.blocks[&address];
        if block.is_backed {
            self.each_written(address, |this, offset| {
                let mut found = [0; WRITTEN as usize];
                this.range.region().part(offset, Bytes::new(WRITTEN)).unwrap().read(&mut found).unwrap();
                assert_eq!(found, [block.tag; WRITTEN as usize], "the contents of {address:#x} changed");
            });
        }
    }

    /// Frees a block while the streams may still use it.
    pub(crate) fn free(&mut self, address: u64) {
        self.verify(address);
        let block = self.blocks.remove(&address).unwrap();
        let until = self.streams.iter().map(|(_, until)| *until).max().unwrap();
        let mut in_use = self.safety.in_use.lock().unwrap();
        for page in (address / PAGE..=(address + block.size - 1) / PAGE).map(|page| page * PAGE) {
            let known = in_use.entry(page).or_default();
            *known = until.max(*known);
        }
        drop(in_use);
        self.pages.give(address, block.size);
    }

    /// Keeps a stream busy.
    pub(crate) fn work(&mut self, number: usize, nanoseconds: u64) {
        let (stream, until) = &mut self.streams[number];
        self.gpu.keep_busy(stream.handle(), nanoseconds);
        *until = self.gpu.now().max(*until) + nanoseconds;
    }

    /// The figures agree with the blocks, and with the device.
    pub(crate) fn check(&self) {
        let stats = self.pages.stats().pages;
        assert_eq!(stats.peak_live, self.peak_live);
        assert_eq!(stats.physical, self.safety.held.load(Ordering::Relaxed), "{stats:?}");
        let mapped = self.tokens.iter().flatten().count() as u64;
        assert_eq!(stats.mapped, mapped * self.slot);
        assert_eq!(self.safety.early.load(Ordering::Relaxed), 0, "unmapped while the GPU may use it");
    }

    /// Frees everything, and returns the figures.
    pub(crate) fn end(mut self) -> makeroom_pool::PagesStats {
        for address in self.blocks.keys().copied().collect::<Vec<_>>() {
            self.free(address);
        }
        self.trim();
        self.check();
        let stats = self.pages.stats();
        self.pages.free_range(self.start());
        stats
    }
}
