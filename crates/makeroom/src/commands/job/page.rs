//! Writes the page of a job, and the pages of its most important ranks to a folder next to it.
//!
//! A rank's page can have 10 MB, so a job of 1,000 ranks cannot have one each. The ranks to blame come first, then those
//! that ran out, outliers, and one typical rank of each group. For the others, the page shows the command.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;

use makeroom_core::Bytes;
use makeroom_explain::TraceQuestion;
use makeroom_gather::read_recording;
use makeroom_job::{JobReport, RankFate, RankReport, RecordingKind, Rows};
use makeroom_view::{Opened, OpenedInput, Refusal, Viewer, job_page, report as rank_page};

use crate::commands::{Kind, place};
use crate::failure::Failure;
use crate::output;

/// Writes the page, and up to `most` pages of ranks.
pub(super) fn write(path: &Path, report: &JobReport, rows: &Rows, most: usize) -> Result<(), Failure> {
    let failed = |path: &Path, error| Failure::Write { name: path.display().to_string(), error };
    let stem = path.file_stem().map_or_else(|| "job".into(), |stem| stem.to_string_lossy().into_owned());
    let folder_name = format!("{stem}-ranks");
    let folder = path.with_file_name(&folder_name);
    let chosen = chosen(report, most);
    if !chosen.is_empty() {
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    }
    let mut pages = BTreeMap::new();
    let mut written = 0_u64;
    for rank in chosen {
        let name = format!("{}.html", file_name(&rank.label));
        match write_rank(&folder.join(&name), rank) {
            Ok(bytes) => {
                written += bytes;
                pages.insert(rank.recording.clone(), format!("{folder_name}/{name}"));
            }
            // The job's page is worth more than one rank's.
            Err(failure) => {
                output::remark(&format!("makeroom: could not write the page of {}: {failure}\n", rank.label));
            }
        }
    }
    let html = job_page(report, rows, &pages).ok_or_else(|| {
        Failure::View(Refusal::new(500, "the page has no placeholder for the data", "please report this bug"))
    })?;
    place::write(path, Kind::JobPage, |file| {
        file.write_all(html.as_bytes()).map_err(|error| failed(path, error))
    })?;
    let size = Bytes::new(html.len() as u64);
    output::remark(&format!("makeroom: wrote {} ({size})\n", path.display()));
    if !pages.is_empty() {
        let pages_size = Bytes::new(written);
        let count = pages.len();
        let of_ranks =
            if count == 1 { "the page of 1 rank".to_owned() } else { format!("the pages of {count} ranks") };
        output::remark(&format!("makeroom: wrote {of_ranks} to {} ({pages_size})\n", folder.display()));
    }
    Ok(())
}

/// The ranks that get a page, the most important first.
fn chosen(report: &JobReport, most: usize) -> Vec<&RankReport> {
    let by_label = |label: &str| report.ranks.iter().find(|rank| rank.label == label);
    let culprits = report.culprits.iter().filter_map(|culprit| by_label(&culprit.label));
    let ran_out = report.ranks.iter().filter(|rank| rank.fate == RankFate::RanOut);
    let outliers =
        report.groups.iter().flat_map(|group| &group.outliers).filter_map(|outlier| by_label(&outlier.label));
    let typical = report.groups.iter().filter_map(|group| {
        let is_usual = |label: &&String| !group.outliers.iter().any(|outlier| outlier.label == **label);
        group.ranks.iter().find(is_usual).and_then(|label| by_label(label))
    });
    let all = culprits.chain(ran_out).chain(outliers).chain(typical).chain(&report.ranks);
    let mut seen = BTreeSet::new();
    let has_page = |rank: &&RankReport| rank.kind != RecordingKind::Log;
    all.filter(has_page).filter(|rank| seen.insert(rank.recording.as_str())).take(most).collect()
}

fn write_rank(path: &Path, rank: &RankReport) -> Result<u64, Failure> {
    let trace = read_recording(&rank.recording).map_err(|error| Failure::input(&rank.recording, error))?;
    let trace = trace.ok_or_else(|| Failure::NotARecording { name: rank.recording.clone() })?;
    let bytes = fs::metadata(&rank.recording).ok().map(|found| found.len());
    let opened = Opened {
        name: rank.label.clone(),
        bytes,
        input: OpenedInput::Trace(Box::new(trace)),
        question: TraceQuestion::default(),
    };
    let page = rank_page(&Viewer::new(vec![opened]), false).map_err(Failure::View)?;
    let failed = |error| Failure::Write { name: path.display().to_string(), error };
    Kind::Page.check(path)?;
    place::write(path, Kind::Page, |out| out.write_all(page.html.as_bytes()).map_err(failed))?;
    Ok(page.html.len() as u64)
}

/// A label as a file name.
fn file_name(label: &str) -> String {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() || ".-_".contains(letter) { letter } else { '-' };
    let name: String = label.chars().take(80).map(letter).collect();
    name.trim_start_matches('.').to_owned()
}
