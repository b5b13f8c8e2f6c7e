//! The process that a line of a log belongs to, from the prefix that launchers add to the lines of all ranks.
//!
//! | launcher | prefix |
//! |---|---|
//! | PyTorch | `[rank3]: ` |
//! | torchrun | `[default3]:` (the local rank, after the name of the role) |
//! | `mpirun --tag-output` | `[1,3]<stderr>:` |
//! | `srun --label` | `3: ` |

use super::JobIdentity;
use super::fields::JobField;

impl JobIdentity {
    /// The identity in the prefix of a line. `None` if it has no such prefix. `srun`'s bare number is recognized only
    /// if the caller knows that lines are labeled: `12: ` also starts a line of a listing.
    pub fn from_log_line(line: &str, is_labeled: bool) -> Option<Self> {
        let mut identity = Self::default();
        let is_set = if let Some(rest) = line.strip_prefix('[') {
            let (inside, after) = rest.split_once(']')?;
            if let Some((_, rank)) = inside.split_once(',') {
                after.starts_with("<std") && identity.set(JobField::Rank, rank)
            } else {
                let number = inside.trim_start_matches(|letter: char| !letter.is_ascii_digit());
                let role = inside.get(..inside.len() - number.len()).unwrap_or_default();
                let field = if role == "rank" { JobField::Rank } else { JobField::LocalRank };
                let is_role = role.bytes().all(|byte| byte.is_ascii_alphabetic() || b"_-".contains(&byte));
                !role.is_empty() && is_role && after.starts_with(':') && identity.set(field, number)
            }
        } else {
            let (number, _) = line.split_once(": ").filter(|_| is_labeled)?;
            identity.set(JobField::Rank, number)
        };
        is_set.then_some(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_of_each_launcher_is_read() {
        let rank = |line: &str| JobIdentity::from_log_line(line, true).and_then(|identity| identity.rank);
        let local =
            |line: &str| JobIdentity::from_log_line(line, true).and_then(|identity| identity.local_rank);
        assert_eq!(rank("[rank3]: Traceback (most recent call last):"), Some(3));
        assert_eq!(rank("[1,12]<stderr>:RuntimeError"), Some(12));
        assert_eq!(rank("  7: out of memory"), Some(7));
        assert_eq!(local("[default5]:RuntimeError"), Some(5));
        assert_eq!(local("[trainer0]:x"), Some(0));
    }

    #[test]
    fn other_lines_have_none() {
        for line in
            ["", "[", "[]:", "[3]:", "[rank]: x", "[rank3] x", "[2024-01-01 10:00:00]: x", "[1,2]: x", "é: x"]
        {
            assert_eq!(JobIdentity::from_log_line(line, true), None, "{line}");
        }
        assert_eq!(JobIdentity::from_log_line("12: fn main", false), None);
    }
}
