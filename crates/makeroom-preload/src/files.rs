//! Files and sockets that survive whatever the program does to its descriptors.
//!
//! A program may close all descriptors it did not open (daemons do), reuse any number, and hit its descriptor limit.
//! The writer therefore has its own descriptor table (`own_table`), which the program cannot reach. If the kernel
//! does not grant one, descriptors get high numbers, and the writer checks before each write that the number is still
//! the same file. Reads are positioned, so they consume nothing from a pipe that took over the number, and a
//! descriptor is closed only if it is still the same file.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;

use crate::own_table;

/// Lower numbers are left to the program.
const LOWEST: RawFd = 512;
/// Bytes per read: the kernel's own files come in pages.
const PIECE: usize = 64 << 10;
/// Attempts to create a descriptor before giving up, when the program keeps taking its number over.
const ATTEMPTS: u32 = 16;

/// A file or socket that is closed only if its descriptor is still the same file.
#[derive(Debug)]
pub(crate) struct Guarded {
    file: ManuallyDrop<File>,
    identity: Identity,
}

/// Identifies the file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    kind: u32,
}

/// The result of `fstat`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) identity: Identity,
    /// Hard links.
    pub(crate) links: u64,
    /// Size in bytes.
    pub(crate) length: u64,
}

impl Guarded {
    /// Opens a file. Without a private table the program may take the number over right away, so the path must lead
    /// to the same file as the descriptor.
    pub(crate) fn open(path: &CString, flags: i32) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            // SAFETY: the path is NUL-terminated.
            let descriptor = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            let is_same = |_: RawFd, found: &Status| {
                own_table::is_here()
                    || status_of_name(path).is_some_and(|named| named.identity == found.identity)
            };
            if let Some(file) = Self::take(descriptor, is_same) {
                return Ok(file);
            }
        }
        Err(io::Error::other("the program keeps closing descriptors"))
    }

    /// A datagram socket for messages to another process. Without a private table the program may take the number over
    /// right away, so it must be a socket as it was created: unnamed, not connected, and with these flags.
    pub(crate) fn socket() -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        for _ in 0..ATTEMPTS {
            // SAFETY: `socket` has no preconditions.
            let descriptor = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            let is_new = |number: RawFd, found: &Status| {
                found.identity.kind == libc::S_IFSOCK
                    && (own_table::is_here() || is_new_datagram_socket(number))
            };
            if let Some(socket) = Self::take(descriptor, is_new) {
                return Ok(socket);
            }
        }
        Err(io::Error::other("the program keeps closing descriptors"))
    }

    /// Takes over a descriptor that was just created, if it is still the expected file, and moves it to a high number
    /// if the table is shared.
    fn take(descriptor: RawFd, is_expected: impl Fn(RawFd, &Status) -> bool) -> Option<Self> {
        let created = status_of(descriptor).filter(|found| is_expected(descriptor, found))?;
        let number = if own_table::is_here() { descriptor } else { move_up(descriptor, created.identity)? };
        let found = status_of(number).filter(|found| is_expected(number, found))?;
        if found.identity != created.identity {
            return None;
        }
        // SAFETY: the descriptor was just created and is the file that was opened; `ManuallyDrop` keeps `File` from
        // closing it.
        let file = unsafe { File::from_raw_fd(number) };
        Some(Self { file: ManuallyDrop::new(file), identity: found.identity })
    }

    /// The descriptor's current status, if it is still this file.
    pub(crate) fn status(&self) -> Option<Status> {
        status_of(self.file.as_raw_fd()).filter(|found| found.identity == self.identity)
    }

    /// Whether the descriptor is still this file.
    pub(crate) fn is_there(&self) -> bool {
        self.status().is_some()
    }

    /// Whether two descriptors are the same file.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    /// Replaces this descriptor, which is gone, with another of the same file. It is not closed: its number may be
    /// the new one.
    pub(crate) fn replace_gone(&mut self, again: Self) {
        std::mem::forget(std::mem::replace(self, again));
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
            // SAFETY: `is_there` has just checked that the descriptor is this file.
            unsafe { libc::close(self.file.as_raw_fd()) };
        }
    }
}

/// Whether a descriptor is a UNIX datagram socket that was created for messages and not used yet.
fn is_new_datagram_socket(descriptor: RawFd) -> bool {
    let option = |name| {
        let (mut value, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: both places are valid and of this length; the call fails on anything but a socket.
        let result = unsafe {
            libc::getsockopt(descriptor, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length)
        };
        (result == 0).then_some(value)
    };
    // SAFETY: all zeros are a valid address; the kernel writes at most `length` bytes.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let place: *mut libc::sockaddr = (&raw mut address).cast();
    let mut length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: as above.
    let is_unnamed = unsafe { libc::getsockname(descriptor, place, &raw mut length) } == 0
        && length as usize == size_of::<libc::sa_family_t>();
    let mut length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: as above.
    let is_connected = unsafe { libc::getpeername(descriptor, place, &raw mut length) } == 0;
    // SAFETY: `fcntl` fails on a number that is not open; these commands only read.
    let flags = unsafe { (libc::fcntl(descriptor, libc::F_GETFL), libc::fcntl(descriptor, libc::F_GETFD)) };
    option(libc::SO_DOMAIN) == Some(libc::AF_UNIX)
        && option(libc::SO_TYPE) == Some(libc::SOCK_DGRAM)
        && is_unnamed
        && !is_connected
        && flags.0 & libc::O_NONBLOCK != 0
        && flags.1 & libc::FD_CLOEXEC != 0
}

/// Moves the descriptor of a file to a high number and closes the low one; returns the low one if no high number is free.
/// `None` if the program took the low one over.
fn move_up(descriptor: RawFd, file: Identity) -> Option<RawFd> {
    // SAFETY: `fcntl` fails on a number that is not open, and `F_DUPFD` changes no existing descriptor.
    let moved = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, LOWEST) };
    if moved < 0 {
        return Some(descriptor);
    }
    let is_ours = identity(moved) == Some(file);
    // Of a file that the program opened, the duplicate is closed; of ours, the low number, if it is still ours.
    let superfluous = if is_ours { descriptor } else { moved };
    if !is_ours || identity(descriptor) == Some(file) {
        // SAFETY: the number was created here, and was checked just now.
        unsafe { libc::close(superfluous) };
    }
    is_ours.then_some(moved)
}

/// Opens a file for reading.
pub(crate) fn open(path: &[u8]) -> io::Result<Guarded> {
    let path = CString::new(path).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Guarded::open(&path, libc::O_RDONLY)
}

/// Reads a whole file.
pub(crate) fn read(path: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
    let file = open(path.as_ref().as_bytes())?;
    let (mut content, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        match file.read_at(&mut piece, content.len() as u64) {
            Ok(0) => return Ok(content),
            Ok(read) => content.extend_from_slice(piece.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads a whole file as text.
pub(crate) fn read_text(path: impl AsRef<OsStr>) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether the process has a file open whose name satisfies a condition.
pub(crate) fn has_open(mut is_wanted: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    /// Of a `linux_dirent64`: where its length and its name are.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let directory = Guarded::open(&CString::from(c"/proc/self/fd"), libc::O_RDONLY | libc::O_DIRECTORY)?;
    let (mut entries, mut name) = (vec![0_u8; PIECE], [0_u8; 256]);
    loop {
        // SAFETY: the buffer is valid for its length.
        let read = unsafe {
            libc::syscall(libc::SYS_getdents64, directory.as_raw_fd(), entries.as_mut_ptr(), entries.len())
        };
        let Ok(read) = usize::try_from(read) else { return Err(io::Error::last_os_error()) };
        let mut rest = entries.get(..read).filter(|read| !read.is_empty());
        if rest.is_none() {
            return Ok(false);
        }
        while let Some(entry) = rest.filter(|rest| rest.len() > NAME) {
            let length = entry.get(LENGTH..LENGTH + 2).and_then(|bytes| bytes.try_into().ok());
            let length = usize::from(u16::from_ne_bytes(length.unwrap_or_default()));
            if let Some(number) = entry.get(NAME..length)
                && number.contains(&0)
            {
                // SAFETY: the number ends with a NUL, and the buffer is valid for its length.
                let link = unsafe {
                    libc::readlinkat(
                        directory.as_raw_fd(),
                        number.as_ptr().cast(),
                        name.as_mut_ptr().cast(),
                        name.len(),
                    )
                };
                // Those that were closed in the meantime have no name.
                if usize::try_from(link).is_ok_and(|link| name.get(..link).is_some_and(&mut is_wanted)) {
                    return Ok(true);
                }
            }
            rest = entry.get(length.max(NAME)..);
        }
    }
}

/// Deletes a file that was just created, if the path still leads to it.
pub(crate) fn remove(path: &CString, file: &Guarded) {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    if status_by(|place| {
        // SAFETY: the path is NUL-terminated, and `place` is valid.
        unsafe { libc::fstatat(libc::AT_FDCWD, path.as_ptr(), place, flags) }
    })
    .is_some_and(|named| named.identity == file.identity)
    {
        // SAFETY: the path is NUL-terminated.
        unsafe { libc::unlink(path.as_ptr()) };
    }
}

/// The identity of any descriptor's file, not only of a [`Guarded`] one.
pub(crate) fn identity(descriptor: RawFd) -> Option<Identity> {
    status_of(descriptor).map(|found| found.identity)
}

fn status_of(descriptor: RawFd) -> Option<Status> {
    // SAFETY: `place` is valid; `fstat` fails on a number that is not open.
    status_by(|place| unsafe { libc::fstat(descriptor, place) })
}

fn status_of_name(path: &CString) -> Option<Status> {
    // SAFETY: the path is NUL-terminated, and `place` is valid.
    status_by(|place| unsafe { libc::stat(path.as_ptr(), place) })
}

fn status_by(ask: impl FnOnce(*mut libc::stat) -> i32) -> Option<Status> {
    // SAFETY: all zeros are a valid `stat`.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    (ask(&raw mut status) == 0).then(|| Status {
        identity: Identity {
            device: status.st_dev,
            inode: status.st_ino,
            kind: status.st_mode & libc::S_IFMT,
        },
        #[allow(clippy::useless_conversion, reason = "its width differs on aarch64")]
        links: u64::from(status.st_nlink),
        length: u64::try_from(status.st_size).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test in a private descriptor table, where other tests take no numbers. The code under test does not
    /// know about it.
    fn apart(test: fn()) {
        let run = move || {
            // SAFETY: `unshare` copies the table, which has no preconditions.
            if unsafe { libc::unshare(libc::CLONE_FILES) } == 0 {
                test();
            } else {
                eprintln!("skipped: this system gives no thread a table of its own");
            }
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn a_file_whose_number_was_taken_is_left_alone() {
        apart(|| {
            let own = open(b"/proc/self/exe").unwrap();
            let number = own.as_raw_fd();
            assert!(number >= LOWEST);
            let other = File::open("/proc/self/maps").unwrap();
            // SAFETY: both numbers belong to this test. This is what a program that closes all descriptors may do.
            unsafe { libc::dup2(other.as_raw_fd(), number) };
            assert!(!own.is_there());
            drop(own);
            // SAFETY: the number belongs to this test.
            assert_eq!(unsafe { libc::close(number) }, 0, "it was still open");
        });
    }

    /// A file that is reopened gets the number that was closed.
    #[test]
    fn a_file_that_is_opened_again_stays_open() {
        apart(|| {
            let path = CString::new("/proc/self/exe").unwrap();
            let mut own = Guarded::open(&path, libc::O_RDONLY).unwrap();
            let number = own.as_raw_fd();
            // SAFETY: the number belongs to this test. This is what a program that closes all descriptors does.
            unsafe { libc::close(number) };
            let again = Guarded::open(&path, libc::O_RDONLY).unwrap();
            assert_eq!(again.as_raw_fd(), number);
            assert!(again.is_same(&own));
            own.replace_gone(again);
            assert!(own.is_there());
        });
    }

    #[test]
    fn a_descriptor_that_is_another_file_is_not_taken() {
        apart(|| {
            let other = File::open("/proc/self/maps").unwrap();
            let number = other.as_raw_fd();
            assert!(Guarded::take(number, |_, found| found.identity.kind == libc::S_IFSOCK).is_none());
            assert!(identity(number).is_some(), "it is not closed");
        });
    }

    #[test]
    fn a_socket_of_the_program_is_not_taken() {
        apart(|| {
            use std::os::unix::net::{UnixDatagram, UnixStream};
            let own = Guarded::socket().unwrap();
            assert!(is_new_datagram_socket(own.as_raw_fd()));
            let (connected, _peer) = UnixDatagram::pair().unwrap();
            let name = format!("/tmp/makeroom-files-{}", std::process::id());
            let bound = UnixDatagram::bind(&name).unwrap();
            std::fs::remove_file(&name).unwrap();
            let blocking = UnixDatagram::unbound().unwrap();
            let (stream, _other) = UnixStream::pair().unwrap();
            let internet = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            connected.set_nonblocking(true).unwrap();
            bound.set_nonblocking(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            internet.set_nonblocking(true).unwrap();
            let sockets = [
                connected.as_raw_fd(),
                bound.as_raw_fd(),
                blocking.as_raw_fd(),
                stream.as_raw_fd(),
                internet.as_raw_fd(),
            ];
            for (index, number) in sockets.into_iter().enumerate() {
                assert!(!is_new_datagram_socket(number), "socket {index}");
            }
            blocking.set_nonblocking(true).unwrap();
            assert!(is_new_datagram_socket(blocking.as_raw_fd()), "it differs in nothing else");
        });
    }

    #[test]
    fn a_number_that_is_taken_over_while_it_moves_is_not_taken() {
        apart(|| {
            let (one, other) =
                (File::open("/proc/self/maps").unwrap(), File::open("/proc/self/exe").unwrap());
            let number = one.as_raw_fd();
            // The program opens its own file under the number after the first check.
            let take_over = |checked: RawFd, _: &Status| {
                if checked == number {
                    // SAFETY: both numbers belong to this test.
                    unsafe { libc::dup2(other.as_raw_fd(), number) };
                }
                true
            };
            assert!(Guarded::take(number, take_over).is_none());
            assert_eq!(identity(number), identity(other.as_raw_fd()), "the program's file stays open");
        });
    }

    #[test]
    fn files_of_any_length_are_read_whole() {
        assert_eq!(read("/proc/self/exe").unwrap(), std::fs::read("/proc/self/exe").unwrap());
        assert!(read_text("/proc/self/maps").unwrap().contains("[stack]"));
        assert!(read("/no/such/file").is_err());
    }
}
