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
            assert_eq!(command_of(name, RecordingKind::Room), expected);
        }
        assert_eq!(command_of("job.log (rank 3)", RecordingKind::Log), "makeroom why job.log");
        assert_eq!(
            command_of("x.tar!job.log (PID 3 on a)", RecordingKind::Log),
            "tar -xOf x.tar -- job.log | makeroom why"
        );
    }

    fn command_of(name: &str, kind: RecordingKind) -> String {
        let source = crate::Source { name: name.to_owned(), ..crate::Source::default() };
        let mut reader = crate::LogReader::new(source);
        reader.push(b"x\n");
        let mut rows = reader.finish();
        rows.recordings[0].kind = kind;
        command(&rows.recordings[0])
    }
}
