//! The exported `dlsym`, `dlvsym` and `dlopen`.
//!
//! All depend on their caller: `dlsym(RTLD_NEXT)` searches after the caller's library, `dlopen` uses the search paths
//! of the caller's library. So each export is a few instructions that inspect the arguments and then jump to the real
//! function with the caller's return address in place.
//!
//! `dlsym` returns a hook only for an exact name in the table, and only if the program would have got the driver's
//! function. Without a driver the lookup fails, as it would without this library. No lock is taken.
//!
//! Another preloaded library may hook `dlsym` too. If it comes first, it calls `dlvsym` for the next `dlsym` with the
//! C library's version, which would skip this library, whose exports have no version. In that case `dlvsym` returns
//! this library's `dlsym`.

mod initial;
mod objects;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(test)))]
mod shims;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::real as driver;
use crate::hooks::table::Function;
use crate::limit::management;
use crate::notices::{Notice, raise};
use crate::state;

static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The symbol versions of `dlsym` in glibc: x86-64, aarch64, and since it moved into `libc.so.6`.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.2.5", c"GLIBC_2.17", c"GLIBC_2.34"];

/// Result for the shim: continue to the real function.
const GO_ON: usize = 0;
/// Result for the shim: return null.
const ANSWER_NULL: usize = 1;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The C library's `dlvsym`.
fn real_dlvsym() -> Option<Dlvsym> {
    let mut address = REAL_DLVSYM.load(Ordering::Acquire);
    if address.is_null() {
        address = objects::of_c_library(c"dlvsym")?;
        REAL_DLVSYM.store(address, Ordering::Release);
    }
    // SAFETY: the address is a `dlvsym`.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlvsym>(address) })
}

/// The real `dlsym`.
fn real_dlsym() -> Option<Dlsym> {
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

/// A library that is already loaded. It is never unloaded from now on, so its functions stay valid.
pub(crate) fn loaded(name: &CStr) -> Option<*mut c_void> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is NUL-terminated; nothing is loaded, and no foreign code runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}

/// Decides for the exported `dlsym`: [`GO_ON`], [`ANSWER_NULL`], or the address to return.
extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> usize {
    if real_dlsym().is_none() {
        return ANSWER_NULL;
    }
    if name.is_null() || state::steps_aside() || handle == libc::RTLD_NEXT {
        return GO_ON;
    }
    // SAFETY: the program passes a NUL-terminated name, as `dlsym` requires.
    let name = unsafe { CStr::from_ptr(name) };
    if management::is_answered(name) {
        return choose_management(handle, name);
    }
    let Some(function) = Function::named(name) else { return GO_ON };
    if handle == libc::RTLD_DEFAULT {
        // The search would find this library's own export, driver or not: search after it.
        let found = real(libc::RTLD_NEXT, name);
        return if found.is_null() { ANSWER_NULL } else { answer(function, found, libc::RTLD_NEXT) };
    }
    let found = real(handle, name);
    if found.is_null() { GO_ON } else { answer(function, found, handle) }
}

/// [`choose`] for the NVML functions that are replaced under a limit.
fn choose_management(handle: *mut c_void, name: &CStr) -> usize {
    let behind = if handle == libc::RTLD_DEFAULT { libc::RTLD_NEXT } else { handle };
    let found = real(behind, name);
    if found.is_null() {
        return if handle == libc::RTLD_DEFAULT { ANSWER_NULL } else { GO_ON };
    }
    management::answer(name, found).unwrap_or(found) as usize
}

fn answer(function: Function, found: *mut c_void, library: *mut c_void) -> usize {
    if Function::of_hook(found).is_some() || !driver::remember(function, found, library) {
        return found as usize;
    }
    // End with a successful call, so that the program's `dlerror` does not return an error from a lookup above.
    real(library, function.name());
    function.hook() as usize
}

/// Decides for the exported `dlvsym`: a hooking library that comes before this one gets this one's `dlsym`.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(test)))]
extern "C" fn choose_version(
    handle: *mut c_void,
    name: *const c_char,
    _version: *const c_char,
    caller: usize,
) -> usize {
    if real_dlvsym().is_none() {
        return ANSWER_NULL;
    }
    if handle != libc::RTLD_NEXT || name.is_null() || state::steps_aside() {
        return GO_ON;
    }
    // SAFETY: the program passes a NUL-terminated name, as `dlvsym` requires.
    let is_dlsym = unsafe { CStr::from_ptr(name) } == c"dlsym";
    let own = shims::own_dlsym as *const () as usize;
    if is_dlsym && objects::is_before(caller, own) { own } else { GO_ON }
}

/// Runs before the real `dlopen`.
extern "C" fn look_at_dlopen(_path: *const c_char, flags: i32) -> usize {
    if flags & libc::RTLD_DEEPBIND != 0 {
        raise(Notice::DeepBind);
    }
    if REAL_DLOPEN.load(Ordering::Acquire).is_null() {
        REAL_DLOPEN.store(real(libc::RTLD_NEXT, c"dlopen"), Ordering::Release);
    }
    if REAL_DLOPEN.load(Ordering::Acquire).is_null() { ANSWER_NULL } else { GO_ON }
}
