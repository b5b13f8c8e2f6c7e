//! Addresses of Unix sockets.

/// The address of a socket in the file system, unless the path is too long for one.
pub(crate) fn socket_address(path: &[u8]) -> Option<libc::sockaddr_un> {
    // SAFETY: all zeros are a valid `sockaddr_un`, with an empty path.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if path.len() >= address.sun_path.len() {
        return None;
    }
    for (to, &byte) in address.sun_path.iter_mut().zip(path) {
        *to = libc::c_char::from_ne_bytes([byte]);
    }
    Some(address)
}
