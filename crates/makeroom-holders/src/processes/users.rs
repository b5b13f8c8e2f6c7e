//! User names, from `/etc/passwd` only: a directory service that hangs must not block the command. Users that are not
//! in it are shown by ID.
//!
//! The file is read from the root directory of process 1. In a container that inspects the host's processes, that is
//! the host's file, which has their users.

use std::path::{Path, PathBuf};

use makeroom_ordered::OrderedMap;

use super::reading::text;

/// How much of the file to read.
const LONGEST_FILE: u64 = 16 << 20;

/// Users by ID, read on first use.
#[derive(Debug)]
pub(super) struct Users {
    first_process: PathBuf,
    names: Option<OrderedMap<u32, String>>,
}

impl Users {
    /// The users of the processes under `root`.
    pub(super) fn read(root: &Path) -> Self {
        Self { first_process: root.join("1"), names: None }
    }

    /// The name of a user, or the ID.
    pub(super) fn name(&mut self, user: u32) -> String {
        let names = self.names.get_or_insert_with(|| {
            let theirs = parse(&text(&self.first_process.join("root/etc/passwd"), LONGEST_FILE));
            // The root of another user's process is not readable.
            if theirs.is_empty() { parse(&text(Path::new("/etc/passwd"), LONGEST_FILE)) } else { theirs }
        });
        names.get(&user).cloned().unwrap_or_else(|| user.to_string())
    }
}

fn parse(text: &str) -> OrderedMap<u32, String> {
    let mut names = OrderedMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(Ok(user))) = (fields.next(), fields.nth(1).map(str::parse)) {
            names.entry(user).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_keeps_the_first_of_two() {
        let names = parse("root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nbroken\nbob:x:1000:");
        assert_eq!(names.get(&0).map(String::as_str), Some("root"));
        assert_eq!(names.get(&1000).map(String::as_str), Some("bob"));
        assert_eq!(names.len(), 2);
    }
}
