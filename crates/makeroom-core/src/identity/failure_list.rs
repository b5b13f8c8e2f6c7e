//! The list of failed ranks that torchrun prints at the end:
//!
//! ```text
//! Failures:
//! [1]:
//!   host      : node7
//!   rank      : 9 (local_rank: 1)
//!   exitcode  : 1 (pid: 4711)
//! Root Cause (first observed failure):
//! [0]:
//!   …
//! ```

/// A rank in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRank {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: Option<String>,
    /// Its exit status, or a negative signal.
    pub exit_code: i32,
    /// Whether the launcher observed its failure first.
    pub is_first: bool,
}

/// The part of the list that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    None,
    Others,
    First,
}

/// Reads the list line by line.
#[derive(Debug, Default)]
pub struct FailureList {
    part: Part,
    host: Option<String>,
    rank: Option<u32>,
}

impl FailureList {
    /// Reads a line, without the prefix of a launcher. Returns a rank when its entry is complete.
    pub fn read(&mut self, line: &str) -> Option<ListedRank> {
        let line = line.trim();
        // Loggers put their own prefix in front of a heading.
        if line.ends_with("Root Cause (first observed failure):") {
            *self = Self { part: Part::First, ..Self::default() };
        } else if line.ends_with("Failures:") {
            *self = Self { part: Part::Others, ..Self::default() };
        }
        if self.part == Part::None {
            return None;
        }
        let (name, value) = line.split_once(':')?;
        let first = value.split_whitespace().next().unwrap_or_default();
        match name.split_whitespace().next_back()? {
            "host" => (self.host, self.rank) = (Some(first.to_owned()), None),
            "rank" => self.rank = first.parse().ok(),
            "exitcode" => {
                let (rank, exit_code) = (self.rank.take()?, first.parse().ok()?);
                let (host, is_first) = (self.host.take(), self.part == Part::First);
                return Some(ListedRank { rank, host, exit_code, is_first });
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_of_the_list_are_read() {
        let text = "exitcode : 3\nrank : 4\nexitcode : 3\ntrain.py FAILED\nFailures:\n[1]:\n  time : x\n  host      : n2\n  \
            rank      : 9 (local_rank: 1)\n  exitcode  : 1 (pid: 3)\n  error_file: <N/A>\n\
            Root Cause (first observed failure):\n[0]:\n  host      : node7\n  rank      : 5 (local_rank: 5)\n  \
            exitcode  : -9 (pid: 2)\n  traceback : Signal 9 (SIGKILL) received by PID 2\n";
        let mut list = FailureList::default();
        let found: Vec<ListedRank> = text.lines().filter_map(|line| list.read(line)).collect();
        let rank = |rank, host: &str, exit_code, is_first| ListedRank {
            rank,
            host: Some(host.to_owned()),
            exit_code,
            is_first,
        };
        assert_eq!(found, [rank(9, "n2", 1, false), rank(5, "node7", -9, true)]);
    }
}
