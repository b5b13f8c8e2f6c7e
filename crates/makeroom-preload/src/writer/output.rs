//! The recording file: created once, appended to in whole frames.
//!
//! Before each write the descriptor must still be this file, the file must still have a name, and it must not be
//! shorter than it was left. If the recording was deleted or truncated, it stops and reports that. If the writer
//! shares the program's descriptor table, a descriptor that the program closed is reopened by name.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use makeroom_core::identity::JobIdentity;
use makeroom_trace::room::{Header, beginning};

use crate::files::{self, Guarded};

const APPEND: i32 = libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW;
/// How many times, and how long apart, to reopen a file that the program closed or that seems to be another.
const PATIENCE: u32 = 100;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(1);
/// File names to try before giving up: a process records again after each `exec`.
const MOST_NAMES: u32 = 1000;

/// Ending of the file that replaces a bounded recording.
const NEXT: &[u8] = b".next";
/// Bytes to copy at once.
const COPIED: usize = 1 << 20;

/// The recording.
#[derive(Debug)]
pub(crate) struct Output {
    path: CString,
    file: Guarded,
    /// Length up to the last whole frame.
    length: u64,
    /// Whether this file system counts hard links.
    counts_names: bool,
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
    /// Creates a new file named after the pattern, and its folder if wanted, and writes its header.
    pub(crate) fn create(
        pattern: &[u8],
        makes_folder: bool,
        job: &JobIdentity,
        header: &Header,
    ) -> Result<Self, Failure> {
        make_folders(pattern, makes_folder, &expand(pattern, job, header, 0));
        let mut attempt = 0;
        loop {
            let path = expand(pattern, job, header, attempt);
            let failure = |error| Failure { path: path.clone(), error };
            let name = CString::new(path.clone()).map_err(|_| failure(io::ErrorKind::InvalidInput.into()))?;
            match Guarded::open(&name, APPEND | libc::O_CREAT | libc::O_EXCL) {
                Ok(file) => {
                    let counts_names = file.status().is_some_and(|status| status.links > 0);
                    let mut output = Self { path: name, file, length: 0, counts_names };
                    return match output.append(&beginning(header)) {
                        Ok(()) => Ok(output),
                        Err(failure) => {
                            files::remove(&output.path, &output.file);
                            Err(failure)
                        }
                    };
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < MOST_NAMES => {
                    attempt += 1;
                }
                Err(error) => return Err(failure(error)),
            }
        }
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &[u8] {
        self.path.to_bytes()
    }

    /// Appends whole frames. After a failure the file ends with the frame before them.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.try_append(bytes).map_err(|error| Failure { path: self.path.to_bytes().to_vec(), error })?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Length of the file.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Removes the file, if its path still leads to it.
    pub(crate) fn remove(&self) {
        files::remove(&self.path, &self.file);
    }

    /// Replaces the file with one that has another start and this one's content from an offset on. At every moment, the
    /// path leads to one of the two, complete.
    pub(crate) fn replace(&mut self, start: &[u8], from: u64) -> Result<(), Failure> {
        let failure = |error| Failure { path: self.path.to_bytes().to_vec(), error };
        let name = CString::new([self.path.to_bytes(), NEXT].concat())
            .map_err(|_| failure(io::ErrorKind::InvalidInput.into()))?;
        // A killed process may have left one under the same name.
        // SAFETY: the path is NUL-terminated; no other file has this name.
        unsafe { libc::unlink(name.as_ptr()) };
        let old = files::open(self.path.to_bytes()).map_err(failure)?;
        if !old.is_same(&self.file) {
            return Err(failure(io::Error::other("the file was replaced")));
        }
        let file = Guarded::open(&name, APPEND | libc::O_CREAT | libc::O_EXCL).map_err(failure)?;
        let mut next = Self { path: name, file, length: 0, counts_names: self.counts_names };
        let copied = next.append(start).and_then(|()| next.copy(&old, from, self.length));
        // SAFETY: both paths are NUL-terminated.
        let is_renamed =
            copied.is_ok() && unsafe { libc::rename(next.path.as_ptr(), self.path.as_ptr()) } == 0;
        if !is_renamed {
            let error = io::Error::last_os_error();
            next.remove();
            return copied.and(Err(failure(error)));
        }
        next.path.clone_from(&self.path);
        *self = next;
        Ok(())
    }

    /// Appends a part of another file.
    fn copy(&mut self, old: &Guarded, from: u64, to: u64) -> Result<(), Failure> {
        let mut buffer = vec![0; COPIED];
        let mut position = from;
        while position < to {
            let most = usize::try_from(to - position).map_or(COPIED, |rest| rest.min(COPIED));
            let piece = buffer.get_mut(..most).unwrap_or_default();
            let read = old.read_at(piece, position);
            match read {
                Ok(read) if read > 0 => {
                    self.append(piece.get(..read).unwrap_or_default())?;
                    position += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => {
                    let error = other.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                    return Err(Failure { path: self.path.to_bytes().to_vec(), error });
                }
            }
        }
        Ok(())
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let descriptor = self.descriptor()?;
            // SAFETY: the buffer is valid for its length.
            let written = unsafe { libc::write(descriptor, rest.as_ptr().cast(), rest.len()) };
            let error = match usize::try_from(written) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    continue;
                }
                Err(_) => io::Error::last_os_error(),
            };
            let is_closed = error.raw_os_error() == Some(libc::EBADF);
            if error.kind() != io::ErrorKind::Interrupted && !is_closed {
                // SAFETY: truncates a file of ours; readers skip half a frame at the end anyway.
                unsafe { libc::ftruncate(descriptor, self.length.cast_signed()) };
                return Err(error);
            }
        }
        Ok(())
    }

    /// The file's descriptor, if the file is as it was left. Reopens it if the program closed it, even if it does so
    /// repeatedly.
    fn descriptor(&mut self) -> io::Result<RawFd> {
        for attempt in 0..=PATIENCE {
            if let Some(status) = self.file.status() {
                if self.counts_names && status.links == 0 {
                    return Err(io::Error::other("the file was deleted"));
                }
                if status.length < self.length {
                    return Err(io::Error::other("the file was truncated"));
                }
                return Ok(self.file.as_raw_fd());
            }
            if attempt > 0 {
                std::thread::sleep(BETWEEN_ATTEMPTS);
            }
            let again = Guarded::open(&self.path, APPEND)?;
            if again.is_same(&self.file) {
                self.file.replace_gone(again);
            }
        }
        Err(io::Error::other("the file was replaced, or the program keeps closing its descriptor"))
    }
}

/// Creates the folders that a placeholder names, such as one for each job, or the last one if that is wanted. Another
/// folder that the user spelled out is not created, because its name may be a mistake. If this fails, so does the file,
/// with the reason.
fn make_folders(pattern: &[u8], makes_last: bool, path: &[u8]) {
    let is_slash = |&byte: &u8| byte == b'/';
    let folders = |path: &[u8]| path.iter().rposition(is_slash).map_or(0, |slash| slash);
    let has_placeholder = pattern.get(..folders(pattern)).is_some_and(|folder| folder.contains(&b'%'));
    let first = match (has_placeholder, makes_last) {
        (true, _) => 1,
        (false, true) => folders(path).max(1),
        (false, false) => return,
    };
    for end in (first..=folders(path)).filter(|&end| path.get(end).is_some_and(is_slash)) {
        if let Some(Ok(folder)) = path.get(..end).map(CString::new) {
            // SAFETY: the path is NUL-terminated.
            unsafe { libc::mkdir(folder.as_ptr(), 0o777) };
        }
    }
}

/// The file name, with its placeholders replaced. If that file exists, the process id (unless already in the name) and
/// then a number go before the extension.
///
/// | placeholder | value |
/// |---|---|
/// | `%p` | process id |
/// | `%h` | host name |
/// | `%r` | rank; if it has none, the process id, or nothing if the name has `%p` too |
/// | `%j` | job id, or `0` |
/// | `%a` | attempt, or `0` |
/// | `%%` | a percent sign |
fn expand(pattern: &[u8], job: &JobIdentity, header: &Header, attempt: u32) -> Vec<u8> {
    let pid = header.pid.to_string();
    let mut parts: Vec<u8> = Vec::new();
    let mut rest = pattern;
    let mut has_pid = names_pid(pattern);
    while let Some((&first, after)) = rest.split_first() {
        let value = match (first, after.first()) {
            (b'%', Some(b'p')) => pid.clone().into_bytes(),
            (b'%', Some(b'r')) => match job.rank {
                Some(rank) => rank.to_string().into_bytes(),
                None if names_pid(pattern) => {
                    // Of the separators on both sides, one is left.
                    let is_after_one = parts.last().is_none_or(|byte| b"./-_".contains(byte));
                    let is_before_one = after.get(1).is_some_and(|byte| b".-_".contains(byte));
                    // A folder needs a name.
                    let is_first = parts.last().is_none_or(|&byte| byte == b'/');
                    if is_first && after.get(1) == Some(&b'/') {
                        parts.extend(pid.as_bytes());
                        rest = after.get(1..).unwrap_or_default();
                        continue;
                    }
                    rest = after.get(1 + usize::from(is_after_one && is_before_one)..).unwrap_or_default();
                    continue;
                }
                None => {
                    has_pid = true;
                    pid.clone().into_bytes()
                }
            },
            (b'%', Some(b'h')) => header.host.clone(),
            (b'%', Some(b'j')) => job.job_id.as_deref().unwrap_or("0").as_bytes().to_vec(),
            (b'%', Some(b'a')) => job.attempt.unwrap_or(0).to_string().into_bytes(),
            (b'%', Some(b'%')) => b"%".to_vec(),
            _ => {
                parts.push(first);
                rest = after;
                continue;
            }
        };
        // A value is part of a name and never leads to another folder.
        parts.extend(value.into_iter().map(|byte| if byte == b'/' || byte == 0 { b'_' } else { byte }));
        rest = after.get(1..).unwrap_or_default();
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

/// Whether a pattern has `%p`.
fn names_pid(pattern: &[u8]) -> bool {
    let mut rest = pattern;
    while let Some((first, after)) = rest.split_first() {
        match (first, after.first()) {
            (b'%', Some(b'p')) => return true,
            (b'%', Some(_)) => rest = after.get(1..).unwrap_or_default(),
            _ => rest = after,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_room_for_further_processes() {
        let names = |pattern: &str| {
            let header = Header { pid: 42, ..Header::default() };
            let job = JobIdentity::default();
            [0, 1, 2]
                .map(|attempt| String::from_utf8(expand(pattern.as_bytes(), &job, &header, attempt)).unwrap())
        };
        assert_eq!(
            names("/tmp/a.b/run.room"),
            ["/tmp/a.b/run.room", "/tmp/a.b/run.42.room", "/tmp/a.b/run.42.2.room"]
        );
        assert_eq!(names("x.%p.room"), ["x.42.room", "x.42.2.room", "x.42.3.room"]);
        assert_eq!(names("d.d/run"), ["d.d/run", "d.d/run.42", "d.d/run.42.2"]);
    }

    #[test]
    fn placeholders_stand_for_the_place_in_the_job() {
        let header = Header { pid: 42, host: b"node7".to_vec(), ..Header::default() };
        let job = JobIdentity {
            rank: Some(3),
            job_id: Some("../4711".to_owned()),
            attempt: Some(1),
            ..JobIdentity::default()
        };
        let name = |pattern: &str, job: &JobIdentity, attempt| {
            String::from_utf8(expand(pattern.as_bytes(), job, &header, attempt)).unwrap()
        };
        assert_eq!(name("/d/%j/%h.%a.rank%r.%p.room", &job, 0), "/d/.._4711/node7.1.rank3.42.room");
        assert_eq!(name("rank%r.room", &job, 1), "rank3.42.room");
        assert_eq!(name("100%%.%x.%", &job, 0), "100%.%x.%", "unknown ones stay");
        let alone = JobIdentity::default();
        assert_eq!(name("%j-rank%r.room", &alone, 0), "0-rank42.room");
        assert_eq!(name("rank%r.room", &alone, 1), "rank42.2.room", "the process id is in the name already");
        for (pattern, expected) in [
            ("/d/%h.%r.%p.room", "/d/node7.42.room"),
            ("/d/%r-%p.room", "/d/42.room"),
            ("%r.%p", "42"),
            ("/d/%p.%r.room", "/d/42.room"),
            ("rank%r.%p.room", "rank.42.room"),
            ("/%r/%p.room", "/42/42.room"),
            ("%r/%p.room", "42/42.room"),
            ("%%p.%r.room", "%p.42.room"),
        ] {
            assert_eq!(name(pattern, &alone, 0), expected, "the process id is in the name once");
        }
    }
}
