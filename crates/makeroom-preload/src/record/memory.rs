//! Memory for the recorder's own tables, straight from the kernel: the program's allocator may be anything.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Zeroed pages that are never given back. They cost physical memory only once they are touched.
pub(crate) fn zeroed_pages(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no memory of anybody.
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

/// A `T` in zeroed pages, made at first use by whichever thread comes first.
///
/// `T` must be valid as all zeros, which the maker promises.
pub(crate) struct Lazy<T> {
    place: AtomicPtr<T>,
}

impl<T: Sync> Lazy<T> {
    /// Nothing yet.
    ///
    /// # Safety
    ///
    /// All zeros must be a valid `T`.
    pub(crate) const unsafe fn new() -> Self {
        Self { place: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The value, if there was memory for it.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        let place = self.place.load(Ordering::Acquire);
        // SAFETY: a place that is not null is a whole `T` in pages that are never given back.
        unsafe { place.as_ref() }.or_else(|| self.make())
    }

    /// The value, if somebody made it.
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
                // SAFETY: these pages were made above and nobody knows them.
                unsafe { libc::munmap(pages.cast(), size_of::<T>()) };
                others
            }
        };
        // SAFETY: zeroed pages of the right size, aligned to a page, and `T` is valid as all zeros (see `new`).
        unsafe { place.as_ref() }
    }
}
