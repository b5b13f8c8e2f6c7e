//! Reports out of memory to PyTorch by its own exception.
//!
//! PyTorch does not check the result of a pluggable allocator. A null pointer becomes a tensor, and the first kernel
//! that uses it destroys the process's context. A C++ allocator would throw; so do we, through the function that
//! PyTorch's own checks use (`c10::detail::torchCheckFail`), which every `libc10.so` since 1.9 exports. Python sees a
//! `RuntimeError` with the whole account. The frames that the exception unwinds hold no live Rust values.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::failure;

type Fail = unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char);

/// `c10::detail::torchCheckFail(char const*, char const*, unsigned int, char const*)`
const NAME: &std::ffi::CStr = c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_";

/// Throws the last failure's text as PyTorch's exception; returns if PyTorch is not loaded.
pub(super) fn last_failure() {
    static FAIL: OnceLock<Option<Fail>> = OnceLock::new();
    if let Some(fail) = *FAIL.get_or_init(find) {
        // SAFETY: all texts are NUL-terminated, and the last outlives the call: the exception copies it.
        unsafe { fail(c"makeroom_torch_alloc".as_ptr(), c"libmakeroom_pool".as_ptr(), 0, failure::text()) };
    }
}

/// PyTorch's libraries are not in the global scope, so `libc10.so` is opened by name, if it is already loaded.
fn find() -> Option<Fail> {
    let flags: c_int = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the name is NUL-terminated; nothing new is loaded.
    let library = unsafe { libc::dlopen(c"libc10.so".as_ptr(), flags) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library was found, and the name is NUL-terminated. It is never closed, so it stays loaded.
    let found: *mut c_void = unsafe { libc::dlsym(library, NAME.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the mangled name encodes exactly this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, Fail>(found) })
}
