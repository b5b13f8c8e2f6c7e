//! Lazily mapped pages, published with a compare-and-swap: memory for the recorder's own tables, directly from the
//! kernel, because the program may have replaced the allocator.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Maps zeroed pages, which are never unmapped. They take physical memory only once touched.
pub(crate) fn zeroed_pages(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: an anonymous private mapping at an address that the kernel chooses overlaps no existing memory.
    let pages = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if pages == libc::MAP_FAILED { None } else { NonNull::new(pages.cast()) }
}

/// A `T` in zeroed pages, created at first use by the first thread.
///
/// `T` must be valid as all zeros, which the caller of `new` guarantees.
pub(crate) struct Lazy<T> {
    place: AtomicPtr<T>,
}

impl<T: Sync> Lazy<T> {
    /// An empty cell.
    ///
    /// # Safety
    ///
    /// All zeros must be a valid `T`.
    pub(crate) const unsafe fn new() -> Self {
        Self { place: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The value, created if need be; `None` if out of memory.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        let place = self.place.load(Ordering::Acquire);
        // SAFETY: a non-null pointer is a whole `T` in pages that are never unmapped.
        unsafe { place.as_ref() }.or_else(|| self.make())
    }

    /// The value, if it was created.
    pub(crate) fn if_made(&self) -> Option<&'static T> {
        // SAFETY: as in `get`.
        unsafe { self.place.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make(&self) -> Option<&'static T> {
        let pages = zeroed_pages(size_of::<T>())?.cast::<T>().as_ptr();
        let place = match self.place.compare_exchange(
            std::ptr::null_mut(),
            pages,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => pages,
            Err(others) => {
                // SAFETY: these pages were mapped above, and no other thread has their address.
                unsafe { libc::munmap(pages.cast(), size_of::<T>()) };
                others
            }
        };
        // SAFETY: zeroed, page-aligned pages of the right size, and `T` is valid as all zeros (see `new`).
        unsafe { place.as_ref() }
    }
}
