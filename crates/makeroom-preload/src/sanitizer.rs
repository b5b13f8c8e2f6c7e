//! Processes with a sanitizer's runtime: the recorder does nothing in them.
//!
//! These runtimes replace the C library's functions and judge every caller. Code that they did not compile, such as this
//! library's, makes them report races and uninitialized memory that are none. `run` starts such programs without this
//! library; their children have it in their environment, and learn here that they must not use it.
//!
//! `run` is told by bare system calls: a runtime would check the arguments of the C library's functions.

use std::ffi::CStr;

use crate::{config, lookup};

/// The functions that initialize a runtime, and its name.
const RUNTIMES: [(&CStr, &str); 4] = [
    (c"__asan_init", "AddressSanitizer"),
    (c"__hwasan_init", "HWAddressSanitizer"),
    (c"__tsan_init", "ThreadSanitizer"),
    (c"__msan_init", "MemorySanitizer"),
];

/// The runtime in this process, if there is one. One that is linked into the program statically may show no more than the C
/// library's functions that it replaces, and the hooks that it offers. (Those of leaks and of undefined behavior, which do no
/// harm, replace no `memcpy`.)
pub(crate) fn present() -> Option<&'static str> {
    let runtime = RUNTIMES.iter().find(|(initializer, _)| lookup::is_defined_at_start(initializer));
    let is_linked_in = || lookup::program_has(c"memcpy", c"__sanitizer_symbolize_code");
    runtime.map(|&(_, name)| name).or_else(|| is_linked_in().then_some("a sanitizer"))
}

/// Tells `run` that this process is not recorded.
#[cfg(not(test))]
pub(crate) fn report(name: &str) {
    let Some(path) = &config::config().socket else { return };
    // SAFETY: all zeros are a valid address without a name.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if path.len() >= address.sun_path.len() {
        return;
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(path) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    let message = format!("sanitized {} {name}", std::process::id());
    // SAFETY: the message and the address are valid for their lengths; the socket is closed by the thread that made it.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0);
        if socket >= 0 {
            libc::syscall(
                libc::SYS_sendto,
                socket,
                message.as_ptr(),
                message.len(),
                libc::MSG_NOSIGNAL,
                &raw const address,
                size_of::<libc::sockaddr_un>(),
            );
            libc::syscall(libc::SYS_close, socket);
        }
    }
}
