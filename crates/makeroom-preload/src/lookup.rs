//! `dlsym` and `dlopen`, as programs call them.
//!
//! Both behave according to who calls: `dlsym(RTLD_NEXT)` searches behind the caller's library, `dlopen` searches the
//! paths of the caller's library. So the exported functions are a few instructions that look at the arguments and then
//! jump to the real function with the caller's return address in place; the real one sees the true caller.
//!
//! `dlsym` answers with a hook only for an exact name of the table, and only when the program would have got the
//! driver's function. Where there is no driver there is no answer, as without this library. No lock is taken.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::real as driver;
use crate::hooks::table::Function;
use crate::notices::{Notice, raise};
use crate::state;

static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The versions under which glibc has `dlsym`: x86-64, aarch64, and since it moved into `libc.so.6`.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.2.5", c"GLIBC_2.17", c"GLIBC_2.34"];

/// To the shim: go on to the real function.
const GO_ON: usize = 0;
/// To the shim: answer null.
const ANSWER_NULL: usize = 1;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The real `dlsym`, which may be another preloaded library's.
fn real_dlsym() -> Option<Dlsym> {
    let mut address = REAL_DLSYM.load(Ordering::Acquire);
    if address.is_null() {
        address = VERSIONS
            .iter()
            // SAFETY: both names end in zero bytes; `dlvsym` itself is not interposed.
            .map(|version| unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) })
            .find(|found| !found.is_null())?;
        REAL_DLSYM.store(address, Ordering::Release);
    }
    // SAFETY: the address is that of a `dlsym`.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlsym>(address) })
}

/// What the real `dlsym` answers this library.
pub(crate) fn real(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in a zero byte; the handle is the program's, or one of the special ones.
    real_dlsym().map_or(std::ptr::null_mut(), |dlsym| unsafe { dlsym(handle, name.as_ptr()) })
}

/// A library that is loaded already, held from now on so that its functions stay where they are.
pub(crate) fn loaded(name: &CStr) -> Option<*mut c_void> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name ends in a zero byte; nothing is loaded and no foreign code runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}

/// What the exported `dlsym` does: [`GO_ON`], [`ANSWER_NULL`], or the address to answer.
extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> usize {
    if real_dlsym().is_none() {
        return ANSWER_NULL;
    }
    if name.is_null() || state::is_disabled() || handle == libc::RTLD_NEXT {
        return GO_ON;
    }
    // SAFETY: the program passes a name that ends in a zero byte, as `dlsym` demands.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(function) = Function::named(name) else { return GO_ON };
    if handle == libc::RTLD_DEFAULT {
        // The search would end at this library's own export, driver or not: search behind it.
        let found = real(libc::RTLD_NEXT, name);
        return if found.is_null() { ANSWER_NULL } else { answer(function, found, libc::RTLD_NEXT) };
    }
    let found = real(handle, name);
    if found.is_null() { GO_ON } else { answer(function, found, handle) }
}

fn answer(function: Function, found: *mut c_void, library: *mut c_void) -> usize {
    if Function::of_hook(found).is_some() || !driver::adopt(function, found, library) {
        return found as usize;
    }
    // A successful call, so that an error of the lookups above is not the program's to see.
    real(library, function.name());
    function.hook() as usize
}

/// What the exported `dlopen` does before the real one.
extern "C" fn look_at_dlopen(_path: *const c_char, flags: i32) -> usize {
    if flags & libc::RTLD_DEEPBIND != 0 {
        raise(Notice::DeepBind);
    }
    if REAL_DLOPEN.load(Ordering::Acquire).is_null() {
        REAL_DLOPEN.store(real(libc::RTLD_NEXT, c"dlopen"), Ordering::Release);
    }
    if REAL_DLOPEN.load(Ordering::Acquire).is_null() { ANSWER_NULL } else { GO_ON }
}

/// The shims. Each keeps its two arguments, asks a function above, and jumps, or answers.
#[cfg(all(target_arch = "x86_64", not(test)))]
mod shims {
    use std::arch::naked_asm;
    use std::ffi::{c_char, c_void};

    macro_rules! shim {
        ($name:ident($($argument:ident: $type:ty),*) asks $ask:path, jumps $real:path) => {
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name($($argument: $type),*) -> *mut c_void {
                naked_asm!(
                    "endbr64",
                    // Two arguments and eight bytes more keep the stack aligned to sixteen.
                    "push rdi",
                    "push rsi",
                    "sub rsp, 8",
                    "call {ask}",
                    "add rsp, 8",
                    "pop rsi",
                    "pop rdi",
                    "cmp rax, 1",
                    "ja 3f",
                    "je 2f",
                    "mov rax, qword ptr [rip + {real}]",
                    "jmp rax",
                    "2: xor eax, eax",
                    "3: ret",
                    ask = sym $ask,
                    real = sym $real,
                )
            }
        };
    }

    shim!(dlsym(handle: *mut c_void, name: *const c_char) asks super::choose, jumps super::REAL_DLSYM);
    shim!(dlopen(path: *const c_char, flags: i32) asks super::look_at_dlopen, jumps super::REAL_DLOPEN);
}
