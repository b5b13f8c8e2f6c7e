//! The host memory behind page frames, and copies.
//!
//! Each GPU has one mapping of host memory, as large as the GPU and not backed at first: a frame costs host memory
//! from the first write until it is freed. Device addresses are a separate, inaccessible mapping. It ensures that no
//! host pointer is a device address, and that accessing device memory from the host faults, as with a real GPU. The
//! exception is host memory that is mapped for the host as well: its frames are in a memfd, which is also mapped at
//! these addresses.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;

use makeroom_simcard::PAGE;

use crate::driver::Driver;
use crate::machine::{ContextId, Copy, Fill, HostBlock, HostKind, Machine, Piece, Side};
use crate::status::{Result, Status};

/// Maximum size of the reserved device address range.
const SPAN: u64 = 8 << 40;

/// The mappings of host memory.
pub(crate) struct Backing {
    /// Those of the GPUs, then that of the host.
    starts: Vec<*mut u8>,
    /// The memfd behind the host's.
    host: OwnedFd,
}

// SAFETY: the pointers are to mappings that are never moved or unmapped; access is serialized by the driver's lock.
unsafe impl Send for Backing {}

fn map(bytes: u64, protection: i32) -> Option<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address chosen by the kernel does not affect existing memory.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address.cast())
}

/// A memfd of this size, filled with zeros.
fn memory_file(bytes: u64) -> Option<OwnedFd> {
    // SAFETY: the name is NUL-terminated.
    let file = unsafe { libc::memfd_create(c"makeroom-simgpu-host".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: the descriptor is new and has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: the call takes only numbers.
    (unsafe { libc::ftruncate(file.as_raw_fd(), bytes.cast_signed()) } == 0).then_some(file)
}

/// Maps a part of a file, at device addresses or at an address chosen by the kernel.
fn map_file(file: &OwnedFd, place: *mut u8, bytes: u64, offset: u64) -> Option<*mut u8> {
    let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE | fixed);
    // SAFETY: a fixed address is in the range of device addresses, which nothing else uses.
    let address = unsafe {
        libc::mmap(place.cast(), bytes as usize, protection, flags, file.as_raw_fd(), offset.cast_signed())
    };
    (address != libc::MAP_FAILED).then_some(address.cast())
}

/// Reserves device addresses: whole pages, and at least twice the memory of all GPUs.
pub(crate) fn reserve_addresses(memory: u64) -> Option<std::ops::Range<u64>> {
    let mut bytes = SPAN.max((memory * 4).next_power_of_two());
    while bytes >= memory * 2 {
        if let Some(start) = map(bytes, libc::PROT_NONE) {
            let start = start as u64;
            return Some(start.next_multiple_of(PAGE)..(start + bytes) / PAGE * PAGE);
        }
        bytes /= 2;
    }
    None
}

impl Backing {
    /// Mappings of these lengths; the host's is last. They are excluded from core dumps and not inherited by a forked
    /// child.
    pub(crate) fn new(lengths: impl Iterator<Item = u64>) -> Option<Self> {
        let lengths: Vec<u64> = lengths.map(|bytes| bytes.max(PAGE)).collect();
        let (host, cards) = lengths.split_last()?;
        let file = memory_file(*host)?;
        let mut starts = Vec::new();
        for bytes in cards {
            starts.push(map(*bytes, libc::PROT_READ | libc::PROT_WRITE)?);
        }
        starts.push(map_file(&file, ptr::null_mut(), *host, 0)?);
        for (start, bytes) in starts.iter().zip(&lengths) {
            for advice in [libc::MADV_DONTDUMP, libc::MADV_DONTFORK] {
                // SAFETY: the range was mapped above and has no other owner; neither advice changes its bytes.
                unsafe { libc::madvise(start.cast(), *bytes as usize, advice) };
            }
        }
        Some(Self { starts, host: file })
    }

    /// Maps frames of the host at device addresses.
    pub(crate) fn show(&self, address: u64, frames: &[u32]) -> Result<()> {
        for (page, frame) in (0..).zip(frames) {
            let (place, offset) = (address + page * PAGE, u64::from(*frame) * PAGE);
            map_file(&self.host, place as *mut u8, PAGE, offset).ok_or(Status::OPERATING_SYSTEM)?;
        }
        Ok(())
    }

    /// Unmaps frames from device addresses, which become inaccessible again.
    pub(crate) fn hide(address: u64, pages: u64) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let bytes = (pages * PAGE) as usize;
        // SAFETY: the addresses are in the range of device addresses, where `show` mapped a file.
        unsafe { libc::mmap(address as *mut _, bytes, libc::PROT_NONE, flags, -1, 0) };
    }

    fn frame(&self, owner: usize, frame: u32) -> *mut u8 {
        self.starts[owner].wrapping_add((u64::from(frame) * PAGE) as usize)
    }

    fn piece(&self, piece: &Piece) -> Stretch {
        let start = self.frame(piece.owner, piece.frame).wrapping_add(piece.offset as usize);
        Stretch { start, bytes: piece.bytes as usize }
    }

    /// Releases the host memory of free frames; they read as zeros when they are used again.
    pub(crate) fn discard(&self, frames: &[(usize, u32)]) {
        for (owner, frame) in frames {
            if owner + 1 == self.starts.len() {
                let (mode, offset) =
                    (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, u64::from(*frame) * PAGE);
                // SAFETY: numbers, and a file of this library; the machine has marked the frame as free.
                unsafe {
                    libc::fallocate(self.host.as_raw_fd(), mode, offset.cast_signed(), PAGE.cast_signed())
                };
                continue;
            }
            // SAFETY: the frame is in the mapping of its owner, and the machine has marked it as free, so no block
            // uses its bytes.
            unsafe { libc::madvise(self.frame(*owner, *frame).cast(), PAGE as usize, libc::MADV_DONTNEED) };
        }
    }
}

/// A range of host memory to read or write.
#[derive(Clone, Copy)]
struct Stretch {
    start: *mut u8,
    bytes: usize,
}

impl Driver {
    /// The host memory behind an address, as a list of ranges.
    fn stretches(
        &mut self,
        address: u64,
        bytes: u64,
        side: Side,
        device: usize,
        write: bool,
    ) -> Result<Vec<Stretch>> {
        if self.machine.is_device_address(address) {
            let pieces = self.machine.pieces(address, bytes, device, write)?;
            return Ok(pieces.iter().map(|piece| self.backing.piece(piece)).collect());
        }
        let known = self
            .machine
            .host_at(address)
            .is_some_and(|(start, block)| address + bytes <= start + block.bytes);
        if address == 0 || (side == Side::Device && !known) {
            return Err(Status::INVALID_VALUE);
        }
        Ok(vec![Stretch { start: address as *mut u8, bytes: bytes as usize }])
    }

    /// Copies bytes. All rows are checked before the first byte is copied.
    pub(crate) fn copy(&mut self, context: ContextId, copy: &Copy) -> Result<()> {
        if copy.is_empty() {
            return Ok(());
        }
        let device = self.machine.context_device(context)?;
        let mut rows = Vec::new();
        for (to, from) in copy.rows()? {
            let target = self.stretches(to, copy.width, copy.destination.side, device, true)?;
            let source = self.stretches(from, copy.width, copy.source.side, device, false)?;
            let mut pairs = pair(&target, &source);
            if to > from {
                // Copy backward if the destination overlaps the end of the source.
                pairs.reverse();
            }
            rows.extend(pairs);
        }
        for (to, from) in rows {
            // SAFETY: both ranges have the same length. A range on a GPU was checked by the machine and is in a
            // mapping that is never unmapped; a range on the host is known to the driver or guaranteed by the caller.
            // `ptr::copy` allows overlap.
            unsafe { ptr::copy(from.start, to.start, to.bytes) };
        }
        Ok(())
    }

    /// Fills memory with a value.
    pub(crate) fn fill(&mut self, context: ContextId, fill: &Fill) -> Result<()> {
        let bytes = fill.row_bytes()?;
        let device = self.machine.context_device(context)?;
        if bytes == 0 {
            return Ok(());
        }
        let mut rows = Vec::new();
        for row in 0..fill.height {
            let address = row.checked_mul(fill.pitch).and_then(|offset| fill.address.checked_add(offset));
            let address = address.ok_or(Status::INVALID_VALUE)?;
            rows.extend(self.stretches(address, bytes, Side::Device, device, true)?);
        }
        let pattern = fill.value.to_le_bytes();
        for stretch in rows {
            // SAFETY: the range was checked by the machine, or is host memory that the driver knows; there is no
            // other Rust reference to it.
            let target = unsafe { std::slice::from_raw_parts_mut(stretch.start, stretch.bytes) };
            match fill.element {
                1 => target.fill(pattern[0]),
                size => target
                    .chunks_mut(size as usize)
                    .for_each(|part| part.copy_from_slice(&pattern[..part.len()])),
            }
        }
        Ok(())
    }

    /// Allocates host memory and registers it with the machine. Zero bytes give a null address.
    pub(crate) fn allocate_host(&mut self, block: HostBlock) -> Result<u64> {
        if block.bytes == 0 {
            return Ok(0);
        }
        if block.kind == HostKind::Pinned && block.bytes > self.machine.host_room() {
            return Err(Status::OUT_OF_MEMORY);
        }
        let start = map(block.bytes, libc::PROT_READ | libc::PROT_WRITE).ok_or(Status::OUT_OF_MEMORY)?;
        let added = self.machine.add_host(start as u64, block);
        if added.is_err() {
            unmap(start as u64, block.bytes);
        }
        added.map(|()| start as u64)
    }

    /// Frees host memory of a kind at an address. Returns whether there was any.
    pub(crate) fn free_host(&mut self, address: u64, kind: HostKind) -> bool {
        let Some(block) = self.machine.remove_host(address, kind) else { return false };
        unmap(address, block.bytes);
        true
    }
}

fn unmap(address: u64, bytes: u64) {
    // SAFETY: the range was mapped by `allocate_host` and is no longer registered; any further use is a
    // use-after-free in the program.
    unsafe { libc::munmap(address as *mut _, bytes as usize) };
}

/// Splits two lists of ranges with the same total into pairs of the same length.
fn pair(to: &[Stretch], from: &[Stretch]) -> Vec<(Stretch, Stretch)> {
    let mut pairs = Vec::new();
    let (mut from, mut rest) = (from.iter().copied(), None);
    for stretch in to {
        let mut left = *stretch;
        while left.bytes > 0 {
            let Some(source) = rest.take().or_else(|| from.next()) else { return pairs };
            let bytes = left.bytes.min(source.bytes);
            pairs.push((Stretch { bytes, ..left }, Stretch { bytes, ..source }));
            let advance = |stretch: Stretch| Stretch {
                start: stretch.start.wrapping_add(bytes),
                bytes: stretch.bytes - bytes,
            };
            left = advance(left);
            rest = Some(advance(source)).filter(|source| source.bytes > 0);
        }
    }
    pairs
}

/// The lengths of the mappings that a machine needs.
pub(crate) fn lengths(machine: &Machine) -> impl Iterator<Item = u64> + use<> {
    let description = machine.description().clone();
    (0..=description.devices).map(move |owner| {
        if owner < description.devices { description.memory } else { description.host / PAGE * PAGE }
    })
}
