//! Identifies processes so that a reused PID is not mistaken for the same process.
//!
//! A process is identified by its PID, its start time, and the start address of its stack. The address changes when
//! the process calls `exec`, which frees its GPU memory as exit does.
//!
//! A PID is meaningful only in the `/proc` it was read from: in another PID namespace it belongs to another process,
//! or to none. So the `/proc` is stored too, and a process with another `/proc` cannot judge by the PID.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A process, running one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: u64,
    pub(crate) started: u64,
    pub(crate) image: u64,
    /// The device number of the `/proc` that the PID is from.
    pub(crate) numbering: u64,
}

/// The device number of this process's `/proc`; 0 if there is none.
pub(crate) fn own_numbering() -> u64 {
    fs::metadata("/proc").map_or(0, |directory| directory.dev())
}

/// The status line of a process. Its name may be anything, not only text.
fn stat(process: &str) -> Option<String> {
    fs::read(format!("/proc/{process}/stat")).ok().map(|line| String::from_utf8_lossy(&line).into_owned())
}

impl Process {
    /// This process, with the PID that its `/proc` shows: a namespace without a `/proc` of its own sees its parent's.
    pub(crate) fn current() -> Self {
        let line = stat("self").unwrap_or_default();
        let id = line.split(' ').next().and_then(|id| id.parse().ok());
        let id = id.unwrap_or(u64::from(std::process::id()));
        Self::parse(id, &line).unwrap_or(Self { id, started: 0, image: 0, numbering: own_numbering() })
    }

    /// The process with this PID, if it is alive; zombies are not.
    pub(crate) fn find(id: u64) -> Option<Self> {
        Self::parse(id, &stat(&id.to_string())?)
    }

    fn parse(id: u64, line: &str) -> Option<Self> {
        // The name is in parentheses and may contain any character. Fields are counted after it, and the state is the
        // third.
        let mut fields = line[line.rfind(')')? + 1..].split_ascii_whitespace();
        if matches!(fields.next()?, "Z" | "X" | "x") {
            return None;
        }
        let started = fields.nth(18)?.parse().ok()?;
        let image = fields.nth(5)?.parse().ok()?;
        Some(Self { id, started, image, numbering: own_numbering() })
    }

    /// Whether it is alive and still the same. Only for PIDs from this process's own `/proc`.
    pub(crate) fn lives(self) -> bool {
        Self::find(self.id).is_some_and(|found| {
            // Without permission to inspect the other process, its stack address reads as 0 or 1.
            let same_image = found.image == self.image || found.image <= 1 || self.image <= 1;
            found.started == self.started && same_image
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_itself_and_not_another() {
        let own = Process::current();
        assert!(own.lives());
        assert!(!Process { started: own.started + 1, ..own }.lives());
        assert!(!Process { image: own.image + 16, ..own }.lives());
    }

    #[test]
    fn finds_a_process_whose_name_is_no_text() {
        use std::os::unix::ffi::OsStrExt as _;
        let directory = std::env::temp_dir().join(format!("makeroom-name-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let program = directory.join(std::ffi::OsStr::from_bytes(b"a\xff) b"));
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("600").spawn().unwrap();
        let found = Process::find(u64::from(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!(found.is_some_and(|found| found.started > 0));
    }

    #[test]
    fn reads_names_with_parentheses_and_leaves_out_zombies() {
        let rest = "1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1 1 1 1 888 1 1";
        let line = |state| format!("5 (a) b (c)) {state} {rest}");
        let found = Process { id: 5, started: 777, image: 888, numbering: own_numbering() };
        assert_eq!(Process::parse(5, &line("S")), Some(found));
        assert_eq!(Process::parse(5, &line("Z")), None);
        assert_eq!(Process::parse(5, "garbage"), None);
    }
}
