//! Reads files that another user could make endless, or that could block: up to a number of bytes and, where the
//! kernel may block, with a timeout.
//!
//! The command line and the maps of a process are protected by a lock on its memory map, which a thread that hangs in
//! the driver can hold forever; that is why `ps` hangs on such machines. They are read by a helper thread.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use crate::helper::Helper;

/// Timeout for one file.
const PATIENCE: Duration = Duration::from_millis(200);
/// After this many timeouts, no more files are read.
const MOST_HANGS: u32 = 5;

/// Opens a regular file. Anything else, such as a pipe, could block.
pub(crate) fn open(path: &Path) -> Option<File> {
    let waits_not = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(waits_not).open(path).ok()?;
    file.metadata().is_ok_and(|file| file.is_file()).then_some(file)
}

/// The beginning of a regular file.
pub(super) fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The beginning of a regular file as text; empty if it cannot be read.
pub(super) fn text(path: &Path, most: u64) -> String {
    String::from_utf8_lossy(&read(path, most).unwrap_or_default()).into_owned()
}

type Read = fn(&Path, u64) -> Option<Vec<u8>>;

/// Reads on a helper thread.
#[derive(Debug)]
pub(super) struct Patient {
    read: Read,
    helper: Option<Helper>,
    hangs: u32,
}

impl Default for Patient {
    fn default() -> Self {
        Self { read, helper: None, hangs: 0 }
    }
}

impl Patient {
    /// The beginning of a file; `None` if it cannot be read or times out.
    pub(super) fn read(&mut self, path: &Path, most: u64) -> Option<Vec<u8>> {
        if self.hangs >= MOST_HANGS {
            return None;
        }
        let helper = match self.helper.take() {
            Some(helper) => helper,
            None => Helper::start("reading").ok()?,
        };
        let (read, path) = (self.read, path.to_owned());
        let Some(answer) = helper.within(PATIENCE, move || read(&path, most)) else {
            self.hangs += 1;
            return None;
        };
        self.helper = Some(helper);
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn files_are_read_up_to_a_bound_and_pipes_are_not_waited_for() {
        assert_eq!(read(Path::new("/proc/self/stat"), 3).map(|bytes| bytes.len()), Some(3));
        assert_eq!(read(Path::new("/dev/zero"), 3), None);
        let pipe = std::env::temp_dir().join(format!("makeroom-reading-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read(&pipe, 3), None);
        std::fs::remove_file(&pipe).unwrap();
    }

    #[test]
    fn what_does_not_come_is_given_up_and_the_rest_is_read() {
        let hangs_on_odd: Read = |path, _| {
            if path.ends_with("hangs") {
                std::thread::sleep(Duration::from_secs(600));
            }
            Some(Vec::new())
        };
        let mut patient = Patient { read: hangs_on_odd, ..Patient::default() };
        let began = Instant::now();
        assert_eq!(patient.read(Path::new("comes"), 1), Some(Vec::new()));
        for _ in 0..20 {
            assert_eq!(patient.read(Path::new("hangs"), 1), None);
        }
        assert!(began.elapsed() < 2 * PATIENCE * MOST_HANGS, "{:?}", began.elapsed());
        let mut other = Patient { read: hangs_on_odd, ..Patient::default() };
        assert_eq!(other.read(Path::new("hangs"), 1), None);
        assert_eq!(other.read(Path::new("comes"), 1), Some(Vec::new()), "by another thread");
    }
}
