//! The user's command line, with a placeholder for the batch size.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use crate::failure::Failure;

/// The placeholder.
const PLACEHOLDER: &[u8] = b"{}";

/// A command line with at least one placeholder.
#[derive(Debug)]
pub(crate) struct Command<'words>(&'words [OsString]);

impl<'words> Command<'words> {
    /// Checks that a command line has a placeholder.
    pub(crate) fn new(words: &'words [OsString]) -> Result<Self, Failure> {
        let has_place = words.iter().skip(1).any(|word| find(word).is_some());
        if has_place { Ok(Self(words)) } else { Err(Failure::NoPlaceholder) }
    }

    /// The command line with each placeholder replaced by a batch size.
    pub(crate) fn with(&self, batch: u64) -> Vec<OsString> {
        let number = batch.to_string();
        self.0.iter().map(|word| replace(word, number.as_bytes())).collect()
    }
}

fn find(word: &OsStr) -> Option<usize> {
    word.as_bytes().windows(PLACEHOLDER.len()).position(|window| window == PLACEHOLDER)
}

fn replace(word: &OsStr, number: &[u8]) -> OsString {
    let mut rest = word;
    let mut replaced = Vec::new();
    while let Some(position) = find(rest) {
        let (before, after) = rest.as_bytes().split_at(position);
        replaced.extend_from_slice(before);
        replaced.extend_from_slice(number);
        rest = OsStr::from_bytes(&after[PLACEHOLDER.len()..]);
    }
    replaced.extend_from_slice(rest.as_bytes());
    OsString::from_vec(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_is_put_wherever_there_is_a_place() {
        let words = ["python", "train.py", "--batch={}", "{}x{}", "{"].map(OsString::from);
        let command = Command::new(&words).unwrap();
        assert_eq!(command.with(16), ["python", "train.py", "--batch=16", "16x16", "{"].map(OsString::from));
    }

    #[test]
    fn a_command_without_a_place_is_refused() {
        let words = ["{}", "train.py"].map(OsString::from);
        assert!(matches!(Command::new(&words), Err(Failure::NoPlaceholder)));
    }
}
