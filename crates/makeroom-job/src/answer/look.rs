//! The command that shows one recording: a file, a rank in a log, or a member of an archive.

use makeroom_core::shell_word;

use crate::tables::{RecordingKind, RecordingRow};

/// Endings of tar archives; `tar` recognizes the compression.
const TAR: [&str; 4] = [".tar", ".tar.gz", ".tgz", ".tar.zst"];
const ZIP: &str = ".zip";

/// The command, to paste into a shell.
pub(super) fn command(row: &RecordingRow) -> String {
    let is_log = row.kind == RecordingKind::Log;
    let name = row.file();
    let Some((archive, member)) = member(name) else {
        return format!("makeroom {} {}", if is_log { "why" } else { "view" }, shell_word(name));
    };
    let is_zip = archive.to_ascii_lowercase().ends_with(ZIP);
    let (archive, member) = (shell_word(archive), shell_word(member));
    match (is_zip, is_log) {
        (false, true) => format!("tar -xOf {archive} -- {member} | makeroom why"),
        (false, false) => format!("tar -xf {archive} -- {member} && makeroom view {member}"),
        (true, true) => format!("unzip -p {archive} {member} | makeroom why"),
        (true, false) => format!("unzip {archive} {member} && makeroom view {member}"),
    }
}

/// An archive and the name of its member.
fn member(name: &str) -> Option<(&str, &str)> {
    name.match_indices('!').map(|(at, mark)| (&name[..at], &name[at + mark.len()..])).find(|(archive, _)| {
        let archive = archive.to_ascii_lowercase();
        archive.ends_with(ZIP) || TAR.iter().any(|ending| archive.ends_with(ending))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_suits_the_recording() {
        let commands = [
            ("a/rank3.room", "makeroom view a/rank3.room"),
            ("what!.room", "makeroom view 'what!.room'"),
            (
                "jobs.tar.gz!a/rank 3.room",
                "tar -xf jobs.tar.gz -- 'a/rank 3.room' && makeroom view 'a/rank 3.room'",
            ),
            ("jobs.ZIP!r.pickle", "unzip jobs.ZIP r.pickle && makeroom view r.pickle"),
        ];
        for (name, expected) in commands {
            assert_eq!(command_of(name, "x\n", RecordingKind::Room), expected);
        }
        let commands = [
            ("job.log", "[rank3]: x\n", "makeroom why job.log"),
            ("x (rank 3).log", "[rank3]: x\n", "makeroom why 'x (rank 3).log'"),
            ("x (rank 3)", "x\n", "makeroom why 'x (rank 3)'"),
            ("y (local rank é", "[default1]:x\n", "makeroom why 'y (local rank é'"),
            (
                "x.tar!job.log",
                "(w pid=3, ip=a) Connection closed by peer\n",
                "tar -xOf x.tar -- job.log | makeroom why",
            ),
        ];
        for (name, text, expected) in commands {
            assert_eq!(command_of(name, text, RecordingKind::Log), expected);
        }
    }

    fn command_of(name: &str, text: &str, kind: RecordingKind) -> String {
        let source = crate::Source { name: name.to_owned(), ..crate::Source::default() };
        let mut reader = crate::LogReader::new(source);
        reader.push(text.as_bytes());
        let mut rows = reader.finish();
        rows.recordings[0].kind = kind;
        command(&rows.recordings[0])
    }
}
