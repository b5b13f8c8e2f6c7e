//! Which process, so surely that a reused number is not taken for it.
//!
//! A process is told by its number, its start time, and the address of its stack's start: the last one
//! changes when the process replaces its program with `exec`, which takes its GPU memory away as exit does.
//!
//! A number means something only in the `/proc` that it was read from: in another PID namespace it is somebody
//! else's, or nobody's. So that `/proc` is kept with it, and who looks into another one cannot judge by it.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A process at one time of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: u64,
    pub(crate) started: u64,
    pub(crate) image: u64,
    /// The `/proc` that the number is of, by the number of its device.
    pub(crate) numbering: u64,
}

/// The `/proc` that this process sees; 0 without one.
pub(crate) fn own_numbering() -> u64 {
    fs::metadata("/proc").map_or(0, |folder| folder.dev())
}

impl Process {
    /// This process, by the number that its `/proc` has for it: without one of its own, a namespace sees the one above.
    pub(crate) fn current() -> Self {
        let line = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let id = line.split(' ').next().and_then(|id| id.parse().ok());
        let id = id.unwrap_or(u64::from(std::process::id()));
        Self::parse(id, &line).unwrap_or(Self { id, started: 0, image: 0, numbering: own_numbering() })
    }

    /// The process of that number, if it lives; a zombie does not.
    pub(crate) fn find(id: u64) -> Option<Self> {
        let line = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        Self::parse(id, &line)
    }

    fn parse(id: u64, line: &str) -> Option<Self> {
        // The name stands in parentheses and may hold anything; fields are counted after it, the state being
        // the third.
        let mut fields = line[line.rfind(')')? + 1..].split_ascii_whitespace();
        if matches!(fields.next()?, "Z" | "X" | "x") {
            return None;
        }
        let started = fields.nth(18)?.parse().ok()?;
        let image = fields.nth(5)?.parse().ok()?;
        Some(Self { id, started, image, numbering: own_numbering() })
    }

    /// Whether it is still there and still the same. Only of a process whose number is of the own `/proc`.
    pub(crate) fn lives(self) -> bool {
        Self::find(self.id).is_some_and(|found| {
            // Without the right to look into the other process its stack reads as 0 or 1.
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
    fn reads_names_with_parentheses_and_leaves_out_zombies() {
        let rest = "1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1 1 1 1 888 1 1";
        let line = |state| format!("5 (a) b (c)) {state} {rest}");
        let found = Process { id: 5, started: 777, image: 888, numbering: own_numbering() };
        assert_eq!(Process::parse(5, &line("S")), Some(found));
        assert_eq!(Process::parse(5, &line("Z")), None);
        assert_eq!(Process::parse(5, "garbage"), None);
    }
}
