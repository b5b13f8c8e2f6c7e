//! Source lines of compiled programs, from the debug information in their files (`-g`).
//!
//! The recorder records functions but no lines: debug information is large, and the recorder runs inside the user's
//! program. Lines are looked up when a recording is read, if the program's files still exist (`import`). On another
//! machine they do not, so `run` writes the lines into the recording as soon as its process has ended
//! ([`add_lines`]), into fields that the frame records have for this.
//!
//! A file is used only if it is a regular file that is older than the recording, because another build has other
//! lines. Libraries of the system and of packages are skipped, because users look for lines in their own code. Programs
//! in a directory `bin` are not: users install their own ones there, too.

use std::fmt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use addr2line::Loader;
use makeroom_core::FastMap;

use super::{
    Encoder, Frame, FrameDefinition, NameNumber, Origin, Reader, Record, Records, beginning, seal, seal_as,
};
use crate::error::Error;

/// Directories of the system, and of packages.
const SYSTEM: [&str; 4] = ["/usr/", "/lib/", "/lib64/", "/opt/conda/"];
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Maximum number of files to open per recording.
const MOST_FILES: usize = 32;
/// Maximum number of lines to look up per recording.
const MOST_LINES: usize = 1 << 14;

/// A recording with the lines of its native frames added. `None` if there are none to add, or if the recording is not
/// complete.
pub fn add_lines(recording: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut reader = Reader::new(recording)?;
    let mut names: FastMap<NameNumber, String> = FastMap::default();
    while let Some(frame) = reader.next_frame()? {
        let Frame::Records(records) = frame else { continue };
        for record in records {
            if let Record::Name { number, text } = record? {
                names.insert(number, String::from_utf8_lossy(&text).into_owned());
            }
        }
    }
    if reader.unread().is_some() {
        return Ok(None);
    }
    let next = names.keys().map(|number| number.0).max().unwrap_or(0);
    let lines = Lines::new(reader.header().wall_ns);
    let mut writer = Writer { lines, names, next, numbers: FastMap::default(), added: 0 };
    let mut output = beginning(reader.header());
    let mut reader = Reader::new(recording)?;
    while let Some(frame) = reader.next_frame()? {
        let is_sealed = match frame {
            Frame::Records(records) => seal(&writer.batch(records)?, &mut output),
            Frame::Unknown { kind, payload } => seal_as(kind, payload, &mut output),
        };
        if !is_sealed {
            return Ok(None);
        }
    }
    Ok((writer.added > 0).then_some(output))
}

/// Rewrites a recording.
struct Writer {
    lines: Lines,
    names: FastMap<NameNumber, String>,
    /// The highest name number in use.
    next: u32,
    /// The numbers of added names.
    numbers: FastMap<String, NameNumber>,
    added: u64,
}

impl Writer {
    /// A batch with lines added to the frames that it defines.
    fn batch(&mut self, records: Records<'_>) -> Result<Vec<u8>, Error> {
        let mut encoder = Encoder::new(records.thread(), Vec::new());
        for record in records {
            let mut record = record?;
            if let Record::Frame { frame, .. } = &mut record {
                self.find_line(frame, &mut encoder);
            }
            encoder.record(&record);
        }
        Ok(encoder.replace(Vec::new()))
    }

    fn find_line(&mut self, frame: &mut FrameDefinition, encoder: &mut Encoder) {
        if frame.origin != Origin::Native || frame.line != 0 {
            return;
        }
        let library = self.names.get(&frame.library).map_or("", String::as_str);
        let Some((file, line)) = self.lines.line_at(library, frame.offset) else { return };
        (frame.file, frame.line) = (self.number(file, encoder), line);
        self.added += 1;
    }

    fn number(&mut self, text: String, encoder: &mut Encoder) -> NameNumber {
        if let Some(&known) = self.numbers.get(&text) {
            return known;
        }
        self.next += 1;
        let number = NameNumber(self.next);
        encoder.name(number, text.as_bytes());
        self.numbers.insert(text, number);
        number
    }
}

/// The files that were opened so far.
#[derive(Default)]
pub(super) struct Lines {
    /// When the recording began, in nanoseconds since 1970.
    began_ns: u64,
    files: FastMap<String, Option<Loader>>,
    asked: usize,
}

impl Lines {
    pub(super) fn new(began_ns: u64) -> Self {
        Self { began_ns, ..Self::default() }
    }

    /// The source file and line of a call at an offset in a file; `None` if unknown. If functions were inlined, this
    /// is the line in the outermost one, whose code is there.
    pub(super) fn line_at(&mut self, file: &str, offset: u64) -> Option<(String, u32)> {
        if offset == 0 || self.asked == MOST_LINES || is_installed(file) {
            return None;
        }
        self.asked += 1;
        if !self.files.contains_key(file) {
            if self.files.len() == MOST_FILES {
                return None;
            }
            let loader = self.is_of_then(Path::new(file)).then(|| Loader::new(file).ok()).flatten();
            self.files.insert(file.to_owned(), loader);
        }
        let loader = self.files.get(file)?.as_ref()?;
        let mut frames = loader.find_frames(offset).ok()?;
        let mut outermost = None;
        while let Ok(Some(frame)) = frames.next() {
            outermost = frame.location;
        }
        let location = outermost?;
        Some((location.file?.to_owned(), location.line.filter(|&line| line > 0)?))
    }

    /// Whether the file is a regular file from before the recording began.
    fn is_of_then(&self, file: &Path) -> bool {
        let began = UNIX_EPOCH + Duration::from_nanos(self.began_ns);
        let metadata = file.metadata();
        metadata.is_ok_and(|metadata| {
            metadata.is_file() && metadata.modified().is_ok_and(|modified| modified <= began)
        })
    }
}

/// Whether the file is a library of the system or of a package.
fn is_installed(file: &str) -> bool {
    let is_program = Path::new(file).parent().is_some_and(|directory| directory.ends_with("bin"));
    !is_program && SYSTEM.iter().any(|directory| file.starts_with(directory))
        || PACKAGES.iter().any(|directory| file.contains(directory))
}

impl fmt::Debug for Lines {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lines").field("began_ns", &self.began_ns).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
    }

    #[inline(never)]
    fn asked_for() -> u64 {
        std::hint::black_box(7)
    }

    /// The offset of a function in this test's executable.
    fn offset(address: usize) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = std::env::current_exe().unwrap().display().to_string();
        let first = maps.lines().find(|line| line.ends_with(&own)).unwrap();
        let base = usize::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
        (address - base) as u64
    }

    #[test]
    fn a_line_of_this_very_file_is_found_if_the_file_is_older_than_the_recording() {
        let own = std::env::current_exe().unwrap().display().to_string();
        let at = offset(asked_for as *const () as usize);
        let (file, line) = Lines::new(now()).line_at(&own, at).unwrap();
        assert!(file.ends_with("room/lines.rs"), "{file}");
        let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/room/lines.rs"));
        let expected =
            source.unwrap().lines().position(|text| text.contains("fn asked_for()")).unwrap() as u32 + 1;
        assert!((expected..=expected + 1).contains(&line), "{line}, not {expected}");
        assert_eq!(Lines::new(1).line_at(&own, at), None);
    }

    #[test]
    fn what_is_no_program_or_not_the_programs_has_no_lines() {
        let mut lines = Lines::new(now());
        for file in ["/dev/zero", "/no/such/file", "/usr/lib/libc.so.6", "/proc/self", "Cargo.toml", ""] {
            assert_eq!(lines.line_at(file, 16), None, "{file}");
        }
    }

    #[test]
    fn programs_of_the_system_may_have_lines_and_its_libraries_do_not() {
        for program in
            ["/usr/bin/solver", "/usr/local/bin/solver", "/opt/conda/bin/solver", "/home/me/lib.so"]
        {
            assert!(!is_installed(program), "{program}");
        }
        for library in ["/usr/lib/libc.so.6", "/usr/bin/plugins/a.so", "/home/me/site-packages/bin/a.so"] {
            assert!(is_installed(library), "{library}");
        }
    }

    /// A recording of this test, with a frame in its own code, one in an unknown file and one that already has a
    /// line.
    fn recording() -> Vec<u8> {
        let own = std::env::current_exe().unwrap().display().to_string();
        let header = crate::room::Header { wall_ns: now(), ..crate::room::Header::default() };
        let mut recording = beginning(&header);
        let mut encoder = Encoder::new(crate::room::ThreadNumber(0), Vec::new());
        encoder.name(NameNumber(7), own.as_bytes());
        encoder.name(NameNumber(9), b"/usr/lib/libc.so.6");
        let at = offset(asked_for as *const () as usize);
        let frame = FrameDefinition { library: NameNumber(7), offset: at, ..FrameDefinition::default() };
        let known = FrameDefinition { file: NameNumber(9), line: 3, ..frame };
        let installed = FrameDefinition { library: NameNumber(9), ..frame };
        for (number, frame) in [frame, known, installed].iter().enumerate() {
            encoder.frame(crate::room::FrameNumber(number as u32 + 1), frame);
        }
        seal(encoder.bytes(), &mut recording);
        seal_as(77, b"of a later version", &mut recording);
        recording
    }

    fn content(recording: &[u8]) -> (Vec<Record>, usize) {
        let mut reader = Reader::new(recording).unwrap();
        let (mut records, mut unknown) = (Vec::new(), 0);
        while let Some(frame) = reader.next_frame().unwrap() {
            match frame {
                Frame::Records(batch) => records.extend(batch.map(Result::unwrap)),
                Frame::Unknown { .. } => unknown += 1,
            }
        }
        (records, unknown)
    }

    #[test]
    fn lines_are_added_to_the_frames_and_nothing_else_changes() {
        let before = recording();
        let after = add_lines(&before).unwrap().unwrap();
        let ((old, _), (new, unknown)) = (content(&before), content(&after));
        assert_eq!((new.len(), unknown), (old.len() + 1, 1));
        let Record::Name { number, text } = &new[2] else { panic!("{new:?}") };
        assert!(*number == NameNumber(10) && text.ends_with(b"room/lines.rs"));
        let Record::Frame { frame, .. } = new[3] else { panic!("{new:?}") };
        assert!(frame.file == NameNumber(10) && frame.line > 0 && frame.library == NameNumber(7));
        assert_eq!((&new[..2], &new[4..]), (&old[..2], &old[3..]));
        assert_eq!(add_lines(&after).unwrap(), None, "there is nothing left to add");
        assert_eq!(add_lines(&before[..before.len() - 1]).unwrap(), None, "it is torn");
    }
}
