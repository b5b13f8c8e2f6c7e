//! The file: made once, appended to in whole frames.
//!
//! A program may close all descriptors it does not know (daemons do), and the number may then be another file's. So
//! before each write the descriptor must still be this file; if not, the file is opened again by its name.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use makeroom_trace::room::{Header, beginning};

/// Descriptors below are the program's to number.
const LOWEST_DESCRIPTOR: i32 = 512;
/// Files of one process before it gives up: a process records again after each `exec`.
const MOST_NAMES: u32 = 1000;

/// The recording.
#[derive(Debug)]
pub(crate) struct Output {
    path: CString,
    descriptor: i32,
    identity: (u64, u64),
    /// The length up to the last whole frame.
    length: u64,
}

/// A file that could not be written.
#[derive(Debug)]
pub(crate) struct Failure {
    path: Vec<u8>,
    error: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", OsStr::from_bytes(&self.path).display(), self.error)
    }
}

impl Output {
    /// Makes a file that did not exist, named after the pattern, and writes its beginning.
    pub(crate) fn create(pattern: &[u8], header: &Header) -> Result<Self, Failure> {
        let mut attempt = 0;
        loop {
            let path = expand(pattern, header.pid, attempt);
            let failure = |error| Failure { path: path.clone(), error };
            let name = CString::new(path.clone()).map_err(|_| failure(io::ErrorKind::InvalidInput.into()))?;
            match open(&name, libc::O_CREAT | libc::O_EXCL) {
                Ok(descriptor) => {
                    let identity = identity(descriptor).unwrap_or_default();
                    let mut output = Self { path: name, descriptor, identity, length: 0 };
                    output.append(&beginning(header))?;
                    return Ok(output);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < MOST_NAMES => {
                    attempt += 1;
                }
                Err(error) => return Err(failure(error)),
            }
        }
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &[u8] {
        self.path.to_bytes()
    }

    /// Appends whole frames. After a failure the file ends with the frame before them.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.try_append(bytes).map_err(|error| Failure { path: self.path.to_bytes().to_vec(), error })?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if identity(self.descriptor) != Some(self.identity) {
            self.descriptor = open(&self.path, 0)?;
            if identity(self.descriptor) != Some(self.identity) {
                return Err(io::Error::other("the file was replaced"));
            }
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            // SAFETY: the buffer is valid for its length.
            let written = unsafe { libc::write(self.descriptor, rest.as_ptr().cast(), rest.len()) };
            if let Ok(written) = usize::try_from(written) {
                rest = rest.get(written..).unwrap_or_default();
                continue;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                // SAFETY: cutting a file that is ours; half a frame at its end would be skipped anyway.
                unsafe { libc::ftruncate(self.descriptor, self.length.cast_signed()) };
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if identity(self.descriptor) == Some(self.identity) {
            // SAFETY: the descriptor is this file's and nobody else's.
            unsafe { libc::close(self.descriptor) };
        }
    }
}

/// Opens a file for appending, with a descriptor out of the program's way.
fn open(path: &CString, flags: i32) -> io::Result<i32> {
    let flags = flags | libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: the path ends in a zero byte.
    let descriptor = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened here.
    let moved = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) };
    if moved < 0 {
        return Ok(descriptor);
    }
    // SAFETY: the first descriptor was opened here and is not used any more.
    unsafe { libc::close(descriptor) };
    Ok(moved)
}

/// Which file a descriptor is.
fn identity(descriptor: i32) -> Option<(u64, u64)> {
    // SAFETY: all zeros are a valid `stat`, and it is a valid place for the answer.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &raw mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}

/// The name of a file: `%p` becomes the process id. If that exists, the process id, unless it is in the name already,
/// and then a number go before the extension.
fn expand(pattern: &[u8], pid: u32, attempt: u32) -> Vec<u8> {
    let pid = pid.to_string();
    let mut parts = Vec::new();
    let mut rest = pattern;
    let mut has_pid = false;
    while let Some((&first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"%p") {
            parts.extend_from_slice(pid.as_bytes());
            has_pid = true;
            rest = after;
        } else {
            parts.push(first);
            rest = after;
        }
    }
    let number = if has_pid { attempt } else { attempt.saturating_sub(1) };
    let mut insert = String::new();
    if attempt > 0 && !has_pid {
        insert = format!(".{pid}");
    }
    if number > 0 {
        insert = format!("{insert}.{}", number + 1);
    }
    let name = parts.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = parts.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > name).unwrap_or(parts.len());
    parts.splice(dot..dot, insert.into_bytes());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_room_for_further_processes() {
        let names = |pattern: &str| {
            [0, 1, 2].map(|attempt| String::from_utf8(expand(pattern.as_bytes(), 42, attempt)).unwrap())
        };
        assert_eq!(
            names("/tmp/a.b/run.room"),
            ["/tmp/a.b/run.room", "/tmp/a.b/run.42.room", "/tmp/a.b/run.42.2.room"]
        );
        assert_eq!(names("x.%p.room"), ["x.42.room", "x.42.2.room", "x.42.3.room"]);
        assert_eq!(names("d.d/run"), ["d.d/run", "d.d/run.42", "d.d/run.42.2"]);
    }
}
