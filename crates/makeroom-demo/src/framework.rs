//! A framework with a caching allocator: PyTorch's own, exact to the byte, on top of the real driver.
//!
//! `makeroom-sim` implements the allocator, which requests segments from a driver; here that is CUDA. Like PyTorch, the
//! framework reports each block to a function that a profiler can define. Without a profiler, the reports are dropped.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};

use libloading::os::unix::Library;
use makeroom_core::{Bytes, PoolId};
use makeroom_cuda::DeviceMemory;
use makeroom_sim::{Driver, Pytorch, Refused, Request, Settings};

use crate::card::Card;

const MEMORY: &CStr = c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
const REFUSAL: &CStr = c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";

type ReportMemory = unsafe extern "C-unwind" fn(*mut c_void, i64, usize, usize, u16);
type ReportRefusal = unsafe extern "C-unwind" fn(i64, usize, usize, u16);

/// `c10::Device`: the type CUDA, the index 0.
const FIRST_CARD: u16 = 1;

/// A framework that caches memory.
pub(crate) struct Framework<'card> {
    segments: Segments<'card>,
    allocator: Pytorch,
    tensors: u32,
    live: u64,
    listener: Listener,
}

/// A block of the framework.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    number: u32,
    address: u64,
    bytes: u64,
}

/// The allocation failed: PyTorch raises `OutOfMemoryError` for this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutOfMemory {
    pub(crate) requested: Bytes,
    pub(crate) reserved: Bytes,
    pub(crate) live: Bytes,
}

impl<'card> Framework<'card> {
    pub(crate) fn new(card: &'card Card) -> Self {
        Self {
            segments: Segments { card, taken: HashMap::new() },
            allocator: Pytorch::new(Settings::default(), None),
            tensors: 0,
            live: 0,
            listener: Listener::find(),
        }
    }

    /// Allocates a tensor.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller")]
    pub(crate) fn tensor(&mut self, bytes: Bytes) -> Result<Tensor, OutOfMemory> {
        let number = self.tensors;
        let request = Request { size: bytes.get(), stream: 0, pool: PoolId::DEFAULT };
        let Ok(address) = self.allocator.allocate_block(&mut self.segments, number, request) else {
            self.listener.refused(bytes, self.live, self.allocator.reserved());
            let reserved = Bytes::new(self.allocator.reserved());
            return Err(OutOfMemory { requested: bytes, reserved, live: Bytes::new(self.live) });
        };
        self.tensors += 1;
        self.live += bytes.get();
        self.listener.memory(address, bytes.get().cast_signed(), self.live, self.allocator.reserved());
        Ok(Tensor { number, address, bytes: bytes.get() })
    }

    /// Frees a tensor: returns it to the cache.
    pub(crate) fn delete(&mut self, tensor: Tensor) {
        self.allocator.free(tensor.number);
        self.live -= tensor.bytes;
        let size = -tensor.bytes.cast_signed();
        self.listener.memory(tensor.address, size, self.live, self.allocator.reserved());
    }

    /// Memory reserved from the driver.
    pub(crate) fn reserved(&self) -> Bytes {
        Bytes::new(self.allocator.reserved())
    }
}

/// The framework's segments.
struct Segments<'card> {
    card: &'card Card,
    taken: HashMap<u64, DeviceMemory>,
}

impl Driver for Segments<'_> {
    fn allocate_segment(&mut self, size: u64, _stream: u64) -> Result<u64, Refused> {
        let memory = segment_of_the_framework(self.card, Bytes::new(size)).map_err(|_| Refused)?;
        let address = memory.address().0;
        self.taken.insert(address, memory);
        Ok(address)
    }

    fn release(&mut self, address: u64, _size: u64) {
        self.taken.remove(&address);
    }

    /// Expandable segments are not turned on here, so the three functions below are not called.
    fn reserve(&mut self, _stream: u64, _is_small: bool) -> u64 {
        0
    }

    fn map(&mut self, _address: u64, _size: u64, _page: u64) -> Result<(), Refused> {
        Err(Refused)
    }

    fn unmap(&mut self, _address: u64, _size: u64, _page: u64) {}

    fn synchronize(&mut self) -> Vec<u32> {
        // If the device cannot be synchronized, the next request fails; no free waits for a stream here.
        let _ = self.card.driver.synchronize();
        Vec::new()
    }
}

#[inline(never)]
#[unsafe(export_name = "framework::segment")]
fn segment_of_the_framework(card: &Card, bytes: Bytes) -> makeroom_cuda::Result<DeviceMemory> {
    card.allocate(bytes)
}

/// The profiler's functions for the framework's blocks, if there is one.
struct Listener {
    memory: Option<ReportMemory>,
    refusal: Option<ReportRefusal>,
}

impl Listener {
    fn find() -> Self {
        let program = Library::this();
        // SAFETY: the mangled names encode these signatures; a library that defines them was loaded at the start.
        unsafe {
            Self {
                memory: program.get::<ReportMemory>(MEMORY).ok().map(|found| *found),
                refusal: program.get::<ReportRefusal>(REFUSAL).ok().map(|found| *found),
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the function that requested the tensor")]
    fn memory(&self, address: u64, size: i64, live: u64, reserved: u64) {
        if let Some(report) = self.memory {
            // SAFETY: the function receives numbers and reads no memory.
            unsafe { report(address as *mut c_void, size, live as usize, reserved as usize, FIRST_CARD) };
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as above")]
    fn refused(&self, requested: Bytes, live: u64, reserved: u64) {
        if let Some(report) = self.refusal {
            // SAFETY: as above.
            unsafe { report(requested.get().cast_signed(), live as usize, reserved as usize, FIRST_CARD) };
        }
    }
}
