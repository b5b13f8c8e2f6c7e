//! Parses `/proc/PID/stat`.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// More than the longest line: about 50 numbers, and a name of at most 64 bytes.
const LONGEST_LINE: usize = 4096;

/// The fields of the line that are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// PID.
    pub pid: u32,
    /// The program's name, truncated to 15 bytes by the kernel.
    pub name: String,
    /// State.
    pub state: State,
    /// PID of its parent, or of the process that adopted it.
    pub parent: u32,
    /// Process group ID: the PID of its leader.
    pub group: u32,
    /// Session ID: the PID of its leader.
    pub session: u32,
    /// Number of threads.
    pub threads: u32,
    /// Start time in clock ticks since boot.
    pub started: u64,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Running, or in an interruptible wait.
    #[default]
    Alive,
    /// Blocked in the kernel; cannot be killed.
    Uninterruptible,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Exited, not reaped.
    Zombie,
}

impl Stat {
    /// Reads a process's stat line; `None` if it is gone.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        // One read returns the whole line. `fs::read` would need about six, because the file reports a size of 0.
        let mut line = [0; LONGEST_LINE];
        let length = File::open(directory.join("stat")).ok()?.read(&mut line).ok()?;
        Self::parse(&line[..length])
    }

    /// Parses the line. The name is in parentheses and may contain any character, so fields are counted from the last
    /// parenthesis.
    fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|&byte| byte == b'(')?;
        let close = line.iter().rposition(|&byte| byte == b')')?;
        let name = String::from_utf8_lossy(line.get(open + 1..close)?).into_owned();
        let pid = std::str::from_utf8(line.get(..open)?).ok()?.trim().parse().ok()?;
        let mut fields = std::str::from_utf8(line.get(close + 1..)?).ok()?.split_ascii_whitespace();
        let state = match fields.next()? {
            "D" => State::Uninterruptible,
            "T" | "t" => State::Stopped,
            "Z" | "X" | "x" => State::Zombie,
            _ => State::Alive,
        };
        let mut number = || fields.next()?.parse::<i64>().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        let threads = fields.nth(13)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        let known = |number: i64| u32::try_from(number).unwrap_or(0);
        let (parent, group, session) = (known(parent), known(group), known(session));
        Some(Self { pid, name, state, parent, group, session, threads, started })
    }

    /// Whether it can have files open: kernel threads and zombies have none.
    pub(super) fn may_have_files(&self) -> bool {
        const KERNEL_THREADS: u32 = 2;
        self.state != State::Zombie && self.pid != KERNEL_THREADS && self.parent != KERNEL_THREADS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_with_parentheses() {
        let rest = "7 8 9 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 777 1 1";
        let stat = Stat::parse(format!("5 (a) b (c)) D {rest}").as_bytes()).unwrap();
        assert_eq!((stat.name.as_str(), stat.state), ("a) b (c)", State::Uninterruptible));
        assert_eq!((stat.parent, stat.group, stat.session), (7, 8, 9));
        assert_eq!((stat.threads, stat.started), (3, 777));
        assert_eq!(Stat::parse(b"garbage"), None);
        assert_eq!(Stat::parse(b"5 (x) S 1"), None);
        assert_eq!(Stat::parse(b")("), None);
    }

    #[test]
    fn reads_its_own_line() {
        let stat = Stat::read(Path::new("/proc/self")).unwrap();
        assert_eq!(stat.pid, std::process::id());
        assert_eq!(stat.state, State::Alive);
    }
}
