//! Lines of machine code, from what compilers leave in a program's own file (`-g`).
//!
//! The recorder names functions and no lines: debug information is large, and it runs inside somebody's program. Here,
//! where a recording is read, the file is usually still there. It is asked only if it is a plain file that is older than
//! the recording, because another build has other lines; what systems and packages installed is not asked, because
//! nobody looks for their own line there.

use std::fmt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use addr2line::Loader;
use makeroom_core::FastMap;

/// Where systems install, and where packages are.
const SYSTEM: [&str; 4] = ["/usr/", "/lib/", "/lib64/", "/opt/conda/"];
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Files that are opened for one recording.
const MOST_FILES: usize = 32;
/// Lines that are looked up for one recording.
const MOST_LINES: usize = 1 << 14;

/// The files that were asked so far.
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

    /// The source file and line of a call at an offset of a file, `None` where that is unknown. Where the compiler
    /// inlined functions it is the line of the one that is really there: its caller asked.
    pub(super) fn of(&mut self, file: &str, offset: u64) -> Option<(String, u32)> {
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

    /// Whether the file is a plain one that was there before the recording began.
    fn is_of_then(&self, file: &Path) -> bool {
        let began = UNIX_EPOCH + Duration::from_nanos(self.began_ns);
        let metadata = file.metadata();
        metadata.is_ok_and(|metadata| {
            metadata.is_file() && metadata.modified().is_ok_and(|modified| modified <= began)
        })
    }
}

fn is_installed(file: &str) -> bool {
    SYSTEM.iter().any(|folder| file.starts_with(folder))
        || PACKAGES.iter().any(|folder| file.contains(folder))
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

    /// The offset of a function in this test's own file.
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
        let (file, line) = Lines::new(now()).of(&own, at).unwrap();
        assert!(file.ends_with("import/lines.rs"), "{file}");
        let source =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/room/import/lines.rs"));
        let expected =
            source.unwrap().lines().position(|text| text.contains("fn asked_for()")).unwrap() as u32 + 1;
        assert!((expected..=expected + 1).contains(&line), "{line}, not {expected}");
        assert_eq!(Lines::new(1).of(&own, at), None);
    }

    #[test]
    fn what_is_no_program_or_not_the_programs_has_no_lines() {
        let mut lines = Lines::new(now());
        for file in ["/dev/zero", "/no/such/file", "/usr/lib/libc.so.6", "/proc/self", "Cargo.toml", ""] {
            assert_eq!(lines.of(file, 16), None, "{file}");
        }
    }
}
