//! The command that shows one recording: a file, a rank in a log, or a member of an archive.

use makeroom_core::shell_word;

use crate::tables::{RecordingKind, RecordingRow};

/// Endings of tar archives; `tar` recognizes the compression.
const TAR: [&str; 4] = [".tar", ".tar.gz", ".tgz", ".tar.zst"];
const ZIP: &str = ".zip";

/// The command, to paste into a shell. It fetches an object of a bucket first: makeroom's other commands read files.
pub(super) fn command(row: &RecordingRow) -> String {
    let is_log = row.kind == RecordingKind::Log;
    let (object, member) =
        member(row.file()).map_or((row.file(), None), |(archive, member)| (archive, Some(member)));
    let fetch = fetch(object);
    let file = if fetch.is_some() { object.rsplit('/').next().unwrap_or(object) } else { object };
    let is_zip = file.to_ascii_lowercase().ends_with(ZIP);
    let (file, member) = (shell_word(file), member.map(shell_word));
    let show = match (member, is_zip, is_log) {
        (None, _, true) => format!("makeroom why {file}"),
        (None, _, false) => format!("makeroom view {file}"),
        (Some(member), false, true) => format!("tar -xOf {file} -- {member} | makeroom why"),
        (Some(member), false, false) => format!("tar -xf {file} -- {member} && makeroom view {member}"),
        (Some(member), true, true) => format!("unzip -p {file} {member} | makeroom why"),
        (Some(member), true, false) => format!("unzip {file} {member} && makeroom view {member}"),
    };
    match fetch {
        Some(fetch) => format!("{fetch} && {show}"),
        None => show,
    }
}

/// The command that fetches an object to the working directory; `None` for a file.
fn fetch(object: &str) -> Option<String> {
    let (scheme, place) = object.split_once("://")?;
    let url = shell_word(object);
    match scheme {
        "s3" => Some(format!("aws s3 cp {url} .")),
        "gs" => Some(format!("gcloud storage cp {url} .")),
        "az" => {
            let (container, name) = place.split_once('/')?;
            let file = shell_word(name.rsplit('/').next()?);
            let (container, name) = (shell_word(container), shell_word(name));
            Some(format!("az storage blob download -c {container} -n {name} -f {file}"))
        }
        "http" | "https" => Some(format!("curl -fO {url}")),
        _ => None,
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
            ("s3://runs/a/rank3.room", "aws s3 cp s3://runs/a/rank3.room . && makeroom view rank3.room"),
            (
                "gs://runs/jobs.zip!r.pickle",
                "gcloud storage cp gs://runs/jobs.zip . && unzip jobs.zip r.pickle && makeroom view r.pickle",
            ),
            (
                "az://runs/a/b.room",
                "az storage blob download -c runs -n a/b.room -f b.room && makeroom view b.room",
            ),
            ("https://host/a%20b.room", "curl -fO https://host/a%20b.room && makeroom view a%20b.room"),
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
