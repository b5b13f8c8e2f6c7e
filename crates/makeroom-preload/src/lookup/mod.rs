//! Finds functions in the libraries of the process: the real ones behind this library's exports.
//!
//! This library exports `dlsym` and `dlvsym` itself (`hooks::loader`), so it finds the real ones in the C library's own
//! tables.

mod initial;
mod objects;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The real `dlsym` and `dlvsym`, null until first needed. The exported ones jump there.
pub(crate) static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The symbol versions of `dlsym` in glibc: x86-64, aarch64, and since it moved into `libc.so.6`.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.2.5", c"GLIBC_2.17", c"GLIBC_2.34"];

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub(crate) type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The C library's `dlvsym`.
pub(crate) fn real_dlvsym() -> Option<Dlvsym> {
    let mut address = REAL_DLVSYM.load(Ordering::Acquire);
    if address.is_null() {
        address = objects::of_c_library(c"dlvsym")?;
        REAL_DLVSYM.store(address, Ordering::Release);
    }
    // SAFETY: the address is a `dlvsym`.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlvsym>(address) })
}

/// The real `dlsym`.
pub(crate) fn real_dlsym() -> Option<Dlsym> {
    let mut address = REAL_DLSYM.load(Ordering::Acquire);
    if address.is_null() {
        let dlvsym = real_dlvsym()?;
        address = VERSIONS
            .iter()
            // SAFETY: both names are NUL-terminated.
            .map(|version| unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) })
            .find(|found| !found.is_null())?;
        REAL_DLSYM.store(address, Ordering::Release);
    }
    // SAFETY: the address is a `dlsym`.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlsym>(address) })
}

/// Calls the real `dlsym`. Before glibc 2.34 that is in `libdl`, which many programs (shells, for example) do not
/// load. They still need the functions that this library interposes, so those are found in the objects' own tables.
pub(crate) fn real(handle: *mut c_void, name: &CStr) -> *mut c_void {
    match real_dlsym() {
        // SAFETY: the name is NUL-terminated; the handle is the program's or a special one.
        Some(dlsym) => unsafe { dlsym(handle, name.as_ptr()) },
        None => objects::of_others(name).unwrap_or(std::ptr::null_mut()),
    }
}

/// Whether the program, or a library that it started with, defines a function with this name.
pub(crate) fn is_defined_at_start(name: &CStr) -> bool {
    initial::search(name, |_| true).is_some()
}

/// Whether the program itself exports one function and has another name in its string table.
pub(crate) fn program_has(defined: &CStr, named: &CStr) -> bool {
    initial::program_has(defined, named)
}

/// The number of libraries loaded so far, to detect new ones.
pub(crate) fn loads() -> u64 {
    objects::loads()
}

/// Visits the address range of each loaded library whose file name starts with `prefix`.
pub(crate) fn each_named(prefix: &[u8], visit: impl FnMut(std::ops::Range<usize>)) {
    objects::each_named(prefix, visit);
}

/// Whether the library of one address was loaded before that of another.
pub(crate) fn is_before(first: usize, second: usize) -> bool {
    objects::is_before(first, second)
}

/// Whether an address lies in this library, so that a function there is one of its exports. Takes no lock of its own.
pub(crate) fn is_in_this_library(address: *mut c_void) -> bool {
    objects::is_in_own(address as usize)
}

/// A library that is already loaded. It is never unloaded from now on, so its functions stay valid.
pub(crate) fn loaded(name: &CStr) -> Option<*mut c_void> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is NUL-terminated; nothing is loaded, and no foreign code runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}
