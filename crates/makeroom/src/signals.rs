//! Signals that whoever started this command has ignored, as `nohup` and background jobs of scripts do.
//!
//! A handler would end that: for this command, and for the programs it starts, since a program begins with the default
//! in place of a handler. So such signals are left alone. The kernel tells which they are.

use std::fs;

/// Those of these signals that are not ignored.
pub(crate) fn not_ignored(signals: &[i32]) -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status).unwrap_or(0);
    signals.iter().copied().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

/// A bit for each signal that is ignored, the lowest for signal 1.
fn ignored(status: &str) -> Option<u64> {
    let digits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
        assert_eq!(
            ignored("Name:\tcat\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001003\n"),
            Some(0x1003)
        );
        assert_eq!(ignored("Name:\tcat\n"), None);
        assert_eq!(ignored("SigIgn:\tnone\n"), None);
    }
}
