//! Kernel images: their size, whether they import device-side `malloc`, and the names of kernels that fail to launch.
//!
//! An image is a fat binary (with or without `nvcc`'s wrapper), a cubin (an ELF file) or PTX text. Only its own
//! header gives its length. The search is for the name that the linker would look up: a NUL-delimited `malloc` among
//! a cubin's names, a call in PTX. Compressed images hide it, so its absence proves nothing.

use std::ffi::{CStr, c_void};

use makeroom_trace::room::EventKind;

use crate::driver::done::Done;
use crate::driver::real;
use crate::driver::types::{Handle, SUCCESS};
use crate::fields::field;
use crate::record::event::RawEvent;
use crate::record::intern::{intern, words_of};

/// Larger images belong to libraries (cuBLAS, cuDNN), which do not use the in-kernel heap.
const LARGEST_SEARCHED: usize = 8 << 20;
/// PTX is read up to this length.
const LONGEST_TEXT: usize = 4 << 20;

const WRAPPER: u32 = 0x4662_43b1;
const FAT_BINARY: u32 = 0xba55_ed50;
const ELF: u32 = 0x464c_457f;

/// Adds the image's size and imports to the event of loading it.
///
/// # Safety
///
/// `image` is the image passed to the driver in the call that returned `done`.
pub(crate) unsafe fn describe(event: RawEvent, image: *const c_void, done: Done) -> RawEvent {
    // SAFETY: the image is read only if the driver has loaded it.
    let image = unsafe { inspect(if done.is_ok() { image } else { std::ptr::null() }) };
    event.size(image.size).extra(u32::from(image.imports_malloc))
}

/// The event of a failed launch, with the kernel's name if the driver reports it.
pub(crate) fn launch(function: Handle, shared: u32, stream: Handle) -> RawEvent {
    let name = [real::function_name(), real::kernel_name()].into_iter().flatten().find_map(|ask| {
        let mut name = std::ptr::null();
        // SAFETY: the driver's own function with a valid out-parameter; it fails on a handle of another kind.
        let result = unsafe { ask(&raw mut name, function) };
        (result == SUCCESS && !name.is_null()).then_some(name)
    });
    let number = name.map_or(0, |name| {
        let mut words = Vec::new();
        // SAFETY: the driver returned a NUL-terminated name.
        words_of(unsafe { CStr::from_ptr(name) }.to_bytes(), &mut words);
        intern(&words)
    });
    RawEvent::new(EventKind::LaunchFailed).at(function).size(shared).on(stream).extra(number)
}

/// Properties of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Size in bytes, 0 if unknown.
    pub(crate) size: u64,
    /// Whether it visibly imports device-side `malloc`.
    pub(crate) imports_malloc: bool,
}

/// Reads an image's header and searches the image.
///
/// # Safety
///
/// `image` is null or was just loaded successfully by the driver.
pub(crate) unsafe fn inspect(image: *const c_void) -> Image {
    if image.is_null() {
        return Image::default();
    }
    // SAFETY: every kind of image that the driver accepts has at least four bytes, and a full header of the kind its
    // magic names.
    unsafe {
        match field::<u32>(image, 0) {
            // The wrapper: magic, version, then the address of the fat binary.
            WRAPPER => {
                let inner = field::<u64>(image, 8) as *const c_void;
                if field::<u32>(inner, 0) == FAT_BINARY { inspect(inner) } else { Image::default() }
            }
            // The fat binary: magic, version and header size (two bytes each), bytes after the header.
            FAT_BINARY => search(image, field::<u64>(image, 8).saturating_add(field::<u16>(image, 6).into())),
            // The cubin: its section headers (offset at 40, entry size at 58, count at 60) come last.
            ELF => {
                let sections = u64::from(field::<u16>(image, 58)) * u64::from(field::<u16>(image, 60));
                search(image, field::<u64>(image, 40).saturating_add(sections))
            }
            _ => search(image, libc::strnlen(image.cast(), LONGEST_TEXT) as u64),
        }
    }
}

/// # Safety
///
/// `size` bytes are readable at `image`.
unsafe fn search(image: *const c_void, size: u64) -> Image {
    if size as usize > LARGEST_SEARCHED {
        return Image { size, imports_malloc: false };
    }
    let finds = |name: &[u8]| {
        // SAFETY: both ranges are readable: one is guaranteed by the caller, the other is a slice.
        !unsafe { libc::memmem(image, size as usize, name.as_ptr().cast(), name.len()) }.is_null()
    };
    Image { size, imports_malloc: finds(b"\0malloc\0") || finds(b") malloc\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_that_calls_malloc_is_told() {
        let text = c".extern .func  (.param .b64 func_retval0) malloc\n(\n.param .b64 malloc_param_0\n);";
        // SAFETY: NUL-terminated text is an image.
        let image = unsafe { inspect(text.as_ptr().cast()) };
        assert_eq!(image, Image { size: text.count_bytes() as u64, imports_malloc: true });
        // SAFETY: the same, and null is allowed.
        unsafe {
            assert!(!inspect(c".visible .entry saxpy()".as_ptr().cast()).imports_malloc);
            assert_eq!(inspect(std::ptr::null()), Image::default());
        }
    }

    #[test]
    fn a_wrapped_fat_binary_is_measured() {
        let mut fat = [0_u64; 8];
        fat[0] = u64::from(FAT_BINARY) | 1 << 32 | 16 << 48;
        fat[1] = 48;
        fat[4..6].copy_from_slice(&[u64::from_le_bytes(*b"x\0malloc"), 0]);
        let wrapper = [u64::from(WRAPPER) | 1 << 32, fat.as_ptr() as u64, 0];
        // SAFETY: the wrapper points to a fat binary with the length in its header.
        assert_eq!(unsafe { inspect(wrapper.as_ptr().cast()) }, Image { size: 64, imports_malloc: true });
    }
}
