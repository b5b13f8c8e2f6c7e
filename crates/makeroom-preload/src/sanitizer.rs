//! Detects sanitizer runtimes: the recorder does nothing in a process that has one.
//!
//! A sanitizer runtime replaces C library functions and checks every caller. Code that it did not instrument, such as
//! this library, makes it report false races and uninitialized reads. `run` starts such programs without this
//! library, but their child processes inherit it through the environment and have to detect the runtime here.
//!
//! The report to `run` uses raw system calls: the runtime would check the arguments of C library functions.

use std::ffi::CStr;

#[cfg(not(test))]
use makeroom_trace::protocol::Message;

use crate::lookup;
#[cfg(not(test))]
use crate::socket::socket_address;

/// Initialization function and name of each runtime.
const RUNTIMES: [(&CStr, &str); 4] = [
    (c"__asan_init", "AddressSanitizer"),
    (c"__hwasan_init", "HWAddressSanitizer"),
    (c"__tsan_init", "ThreadSanitizer"),
    (c"__msan_init", "MemorySanitizer"),
];

/// The sanitizer runtime in this process, if any. A statically linked one may be visible only by the C library
/// functions it replaces and by the callbacks it offers. (`LeakSanitizer` and `UBSan` are harmless, and replace no
/// `memcpy`.)
pub(crate) fn present() -> Option<&'static str> {
    let runtime = RUNTIMES.iter().find(|(initializer, _)| lookup::is_defined_at_start(initializer));
    let is_linked_in = || lookup::program_has(c"memcpy", c"__sanitizer_symbolize_code");
    runtime.map(|&(_, name)| name).or_else(|| is_linked_in().then_some("a sanitizer"))
}

/// Reports to `run` that this process is not recorded.
#[cfg(not(test))]
pub(crate) fn report(name: &str, socket: Option<&[u8]>) {
    let Some(address) = socket.and_then(socket_address) else { return };
    let message = Message::Sanitized(name.to_owned()).encode(std::process::id());
    // SAFETY: the message and the address are valid for their lengths; only this thread has the socket.
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
