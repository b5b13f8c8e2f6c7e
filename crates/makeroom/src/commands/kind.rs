//! The kinds of files that makeroom writes, and how it recognizes its own: by what is at their beginning and end.
//!
//! The tests are strict, because many formats are shared with other programs: a Parquet file may be a data set, and a
//! pickle a model. Only a few kilobytes are read, and nothing is waited for.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use makeroom_export::is_export;
use makeroom_trace::room::MAGIC;
use rustix::fs::OFlags;

use super::new_file::flags;
use crate::failure::Failure;

/// How much is read of a file's beginning and of its end. A summary has a file name in the part that is searched, of up to
/// 4 KiB.
const READ: u64 = 8 << 10;

/// What an option writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A recording (`run -o`, `demo -o`).
    Recording,
    /// A page (`view -o`).
    Page,
    /// A page of a job (`job -o`).
    JobPage,
    /// A recording in another format (`export -o`). One format may replace another.
    Export,
    /// A summary as JSON (`run --summary`).
    Summary,
    /// Buffers with their offsets (`plan -o`).
    Plan,
    /// A man page (`man`).
    ManPage,
    /// A baseline (`gate --write`).
    Baseline,
    /// A JUnit report (`gate --junit`).
    GateReport,
}

impl Kind {
    /// For an error message.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Recording => "a recording",
            Self::Page => "a page of `makeroom view`",
            Self::JobPage => "a page of `makeroom job`",
            Self::Export => "a result of `makeroom export`",
            Self::Summary => "a summary of `makeroom run`",
            Self::Plan => "a result of `makeroom plan`",
            Self::ManPage => "a man page of makeroom",
            Self::Baseline => "a baseline of `makeroom gate`",
            Self::GateReport => "a report of `makeroom gate`",
        }
    }

    /// The permissions of a new file, which the umask restricts further. Recordings and summaries contain command lines, so
    /// only their user reads them.
    pub(crate) fn mode(self) -> u32 {
        match self {
            Self::Recording | Self::Summary => 0o600,
            _ => 0o666,
        }
    }

    /// Returns an error if there is a file of another kind at this path. For a recording, which must be a file, anything
    /// else, such as a device, is an error too.
    pub(crate) fn check(self, path: &Path) -> Result<(), Failure> {
        let name = || path.display().to_string();
        if self.may_replace(path).map_err(|error| Failure::Write { name: name(), error })? {
            return Ok(());
        }
        Err(Failure::NotReplaced { name: name(), kind: self })
    }

    fn may_replace(self, path: &Path) -> io::Result<bool> {
        let mut file = match File::options().read(true).custom_flags(flags(OFlags::NONBLOCK)).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            // The content of an unreadable file is unknown: keep it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
            opened => opened?,
        };
        let found = file.metadata()?;
        if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !found.is_file() {
            let is_possible = self != Self::Recording;
            return if is_possible { Ok(true) } else { Err(io::Error::other("this is not a regular file")) };
        }
        let mut start = Vec::new();
        (&file).take(READ).read_to_end(&mut start)?;
        file.seek(SeekFrom::Start(found.len().saturating_sub(READ)))?;
        let mut end = Vec::new();
        file.take(READ).read_to_end(&mut end)?;
        Ok(start.is_empty() || self.is_of(&start, &end))
    }

    /// Whether a file with this beginning and this end is of this kind.
    fn is_of(self, start: &[u8], end: &[u8]) -> bool {
        let has = |text: &str| memchr::memmem::find(start, text.as_bytes()).is_some();
        match self {
            Self::Recording => start.starts_with(&MAGIC),
            Self::Page => start.starts_with(b"<!doctype html>") && has("<title>makeroom view</title>"),
            Self::JobPage => start.starts_with(b"<!doctype html>") && has("<title>makeroom job</title>"),
            Self::Export => is_export(start, end),
            Self::Summary => {
                start == b"[]"
                    || start.starts_with(b"[\n  {\n    \"file\": \"") && has("\n    \"incomplete\": ")
            }
            Self::Plan => {
                let header = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
                matches!(header, b"id,lower,upper,size,offset" | b"id,lower,upper,size,alignment,offset")
            }
            Self::Baseline => start.starts_with(b"{\n  \"format\": \"makeroom baseline "),
            Self::GateReport => start.starts_with(b"<?xml ") && has("<testsuite name=\"makeroom gate\""),
            Self::ManPage => start.starts_with(b".ie \\n(.g .ds Aq") && has("\n.TH makeroom"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Kind; 9] = [
        Kind::Recording,
        Kind::Page,
        Kind::JobPage,
        Kind::Export,
        Kind::Summary,
        Kind::Plan,
        Kind::ManPage,
        Kind::Baseline,
        Kind::GateReport,
    ];

    #[test]
    fn a_file_is_of_one_kind() {
        let examples: [(&[u8], Kind); 9] = [
            (&MAGIC, Kind::Recording),
            (b"<!doctype html>\n<head><title>makeroom view</title>", Kind::Page),
            (b"<!doctype html>\n<head><title>makeroom job</title>", Kind::JobPage),
            (b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"makeroom 9", Kind::Export),
            (b"[\n  {\n    \"file\": \"a.room\",\n    \"incomplete\": null", Kind::Summary),
            (b"id,lower,upper,size,offset\nx,0,1,64,0\n", Kind::Plan),
            (b".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH makeroom 1", Kind::ManPage),
            (b"{\n  \"format\": \"makeroom baseline 1\",\n", Kind::Baseline),
            (b"<?xml version=\"1.0\"?>\n<testsuite name=\"makeroom gate\" tests=\"1\">", Kind::GateReport),
        ];
        for (content, is) in examples {
            for kind in ALL {
                assert_eq!(kind.is_of(content, content), kind == is, "{kind:?} {}", content.escape_ascii());
                assert!(!kind.is_of(&content[1..], content) && !kind.is_of(b"mine", b"mine"), "{kind:?}");
            }
        }
    }

    #[test]
    fn only_a_recording_must_be_a_file() {
        for kind in ALL {
            let device = kind.check(Path::new("/dev/null"));
            assert_eq!(device.is_ok(), kind != Kind::Recording, "{kind:?}");
            assert!(kind.check(Path::new("/no/such/file")).is_ok());
            assert!(kind.check(Path::new("/")).is_err());
        }
    }
}
