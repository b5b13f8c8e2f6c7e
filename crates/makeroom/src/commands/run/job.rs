//! The end of a run whose processes are ranks of a job: one summary for all of them, instead of one each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use makeroom_core::ProcessEnd;
use makeroom_gather::reduce;
use makeroom_job::{Rows, Source, Unread, answer, summarize};
use makeroom_report::job_run_text;

use super::listener::{Heard, Recorded};
use super::{lines, summary};
use crate::commands::recording;
use crate::output;

/// The summary of a job; `None` if fewer than two of the processes have ranks.
pub(super) fn text(program: &str, heard: &Heard, run: &str) -> Option<String> {
    let rank = |recorded: &Recorded| summary::place_in_job(&recorded.file, run).and_then(|job| job.rank);
    let ranked: Vec<(&Recorded, u32)> =
        heard.recordings.iter().filter_map(|recorded| Some((recorded, rank(recorded)?))).collect();
    let ranks: BTreeSet<u32> = ranked.iter().map(|&(_, rank)| rank).collect();
    if ranks.len() < 2 {
        return None;
    }
    let rows = reduce(&heard.recordings, |recorded| rows(recorded, run));
    let report = answer(&rows);
    // A launcher that touches the GPU leaves a recording of its own, outside the folder of the ranks.
    let files: Vec<&Path> = ranked.iter().map(|(recorded, _)| recorded.file.as_path()).collect();
    let folder = relative(&folder_of(&files));
    let stopped: Vec<&str> = heard
        .recordings
        .iter()
        .filter_map(|recorded| recorded.stop.as_ref())
        .map(|stop| stop.reason.as_str())
        .collect();
    let program = program_of(program, &rows);
    Some(job_run_text(&report, &program, &folder, &stopped, output::remark_columns()))
}

/// The name of the program that the ranks run: the command starts a launcher, or the program itself.
fn program_of(command: &str, rows: &Rows) -> String {
    let ranked = rows.recordings.iter().filter(|row| row.rank.is_some());
    let programs: BTreeSet<&str> = ranked.filter_map(|row| row.program.as_deref()).collect();
    let name = Path::new(command).file_name().map_or_else(|| command.into(), |name| name.to_string_lossy());
    match programs.first().filter(|_| programs.len() == 1) {
        Some(&program) if program != name => program.to_owned(),
        _ if command.starts_with('/') => name.into_owned(),
        _ => command.to_owned(),
    }
}

fn rows(recorded: &Recorded, run: &str) -> Rows {
    let (path, name) = (&recorded.file, relative(&recorded.file));
    match summary::read(path, run) {
        Ok(trace) => {
            let end = trace.process.as_ref().and_then(|process| process.end);
            // Without line numbers, the recording is still complete on this machine.
            if matches!(end, Some(ProcessEnd::Exited(_))) {
                let _ = lines::keep(path);
            }
            let is_running = recording::is_running(&trace, path);
            summarize(&trace, &Source { name, is_running, ..Source::default() })
        }
        Err(failure) => {
            let unread = Unread { file: name, reason: failure.to_string() };
            Rows { unread: vec![unread], ..Rows::default() }
        }
    }
}

/// The folder that contains all files.
fn folder_of(files: &[&Path]) -> PathBuf {
    let mut folders = files.iter().map(|file| file.parent().unwrap_or(file));
    let Some(first) = folders.next() else { return PathBuf::new() };
    folders.fold(first.to_owned(), |common, folder| {
        let same = common.components().zip(folder.components()).take_while(|(one, other)| one == other);
        same.map(|(part, _)| part).collect()
    })
}

/// The path from the working directory, if it is below it.
fn relative(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let below = path.strip_prefix(&here).unwrap_or(path);
    if below.as_os_str().is_empty() { ".".to_owned() } else { below.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_the_name_of_their_own_program() {
        let mut reader = makeroom_job::LogReader::new(Source::default());
        reader.push(b"[rank0]: x\n[rank1]: x\n");
        let mut rows = reader.finish();
        assert_eq!(program_of("/usr/bin/mpirun", &rows), "mpirun");
        for row in &mut rows.recordings {
            row.program = Some("train".to_owned());
        }
        assert_eq!(program_of("mpirun", &rows), "train");
        assert_eq!(program_of("./train", &rows), "./train");
        rows.recordings[0].program = Some("other".to_owned());
        assert_eq!(program_of("mpirun", &rows), "mpirun");
    }

    #[test]
    fn the_folder_of_all_files_is_found() {
        let folder = |files: &[&str]| folder_of(&files.iter().map(Path::new).collect::<Vec<_>>());
        assert_eq!(folder(&["/a/b/1.room", "/a/b/2.room"]), Path::new("/a/b"));
        assert_eq!(folder(&["/a/b/1.room", "/a/c/2.room", "/a/b/3.room"]), Path::new("/a"));
        assert_eq!(folder(&["/a/b/1.room"]), Path::new("/a/b"));
    }
}
