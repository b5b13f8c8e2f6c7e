//! Files, opened out of a program's way.
//!
//! A program may close all descriptors it does not know (daemons do), and the number may then be another file's. So
//! descriptors have high numbers, are read only at given offsets, which takes nothing out of a pipe that got the
//! number, and are closed only if they are still the same file.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;

/// Descriptors below are the program's to number.
const LOWEST: RawFd = 512;
/// How much is read at once: the kernel's own files come in pages.
const PIECE: usize = 64 << 10;

/// A file, or a socket, that is closed only if it is still there.
#[derive(Debug)]
pub(crate) struct Guarded {
    file: ManuallyDrop<File>,
    identity: Option<Identity>,
}

/// Which file a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

impl Guarded {
    /// Opens a file.
    pub(crate) fn open(path: &CString, flags: i32) -> io::Result<Self> {
        // SAFETY: the path ends in a zero byte.
        let descriptor = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o644) };
        if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(Self::new(descriptor)) }
    }

    /// Takes a descriptor that was just made and moves it out of the way.
    pub(crate) fn new(descriptor: RawFd) -> Self {
        // SAFETY: the descriptor was just made.
        let moved = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, LOWEST) };
        let number = if moved < 0 { descriptor } else { moved };
        if moved >= 0 {
            // SAFETY: the first descriptor was just made and is not used any more.
            unsafe { libc::close(descriptor) };
        }
        // SAFETY: the descriptor is nobody else's; it is not closed by the file, which is never dropped.
        let file = unsafe { File::from_raw_fd(number) };
        Self { file: ManuallyDrop::new(file), identity: identity(number) }
    }

    /// Whether the descriptor is still this file.
    pub(crate) fn is_there(&self) -> bool {
        self.identity.is_some() && identity(self.file.as_raw_fd()) == self.identity
    }

    /// Whether it is the same file as another.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity.is_some() && self.identity == other.identity
    }
}

impl Deref for Guarded {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.is_there() {
            // SAFETY: the descriptor is this file's and nobody else's.
            unsafe { libc::close(self.file.as_raw_fd()) };
        }
    }
}

/// Opens a file to read it.
pub(crate) fn open(path: &[u8]) -> io::Result<Guarded> {
    let path = CString::new(path).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Guarded::open(&path, libc::O_RDONLY)
}

/// All of a file.
pub(crate) fn read(path: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
    let file = open(path.as_ref().as_bytes())?;
    let mut content = Vec::new();
    loop {
        let start = content.len();
        content.resize(start + PIECE, 0);
        let read = file.read_at(content.get_mut(start..).unwrap_or_default(), start as u64);
        content.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Ok(content),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

/// All of a file, as text.
pub(crate) fn read_text(path: impl AsRef<OsStr>) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sends a message to a datagram socket. Nobody listening is no error, and a listener that is busy is not waited for.
pub(crate) fn send(path: &[u8], message: &[u8]) {
    // SAFETY: all zeros are a valid address without a name.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if path.len() >= address.sun_path.len() {
        return;
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(path) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    // SAFETY: making a socket has no conditions.
    let socket = unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    };
    if socket < 0 {
        return;
    }
    let socket = Guarded::new(socket);
    // SAFETY: the message and the address are valid for their lengths.
    unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            libc::MSG_NOSIGNAL,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_un>() as libc::socklen_t,
        );
    }
}

fn identity(descriptor: RawFd) -> Option<Identity> {
    // SAFETY: all zeros are a valid `stat`, and it is a valid place for the answer.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &raw mut status) == 0).then_some(Identity(status.st_dev, status.st_ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_number_was_taken_is_left_alone() {
        let own = open(b"/proc/self/exe").unwrap();
        let number = own.as_raw_fd();
        assert!(number >= LOWEST);
        let other = File::open("/proc/self/maps").unwrap();
        // SAFETY: what a program does that closes all descriptors: both numbers are this test's.
        unsafe { libc::dup2(other.as_raw_fd(), number) };
        assert!(!own.is_there());
        drop(own);
        // SAFETY: the number is this test's.
        assert_eq!(unsafe { libc::close(number) }, 0, "it was still open");
    }

    #[test]
    fn files_of_any_length_are_read_whole() {
        assert_eq!(read("/proc/self/exe").unwrap(), std::fs::read("/proc/self/exe").unwrap());
        assert!(read_text("/proc/self/maps").unwrap().contains("[stack]"));
        assert!(read("/no/such/file").is_err());
    }
}
