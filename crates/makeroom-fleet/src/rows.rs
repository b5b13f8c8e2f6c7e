//! The columns of an index that answers need, read without the nested ones.

use std::collections::HashMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use makeroom_index::{Column, IndexFile};
use object_store::path::Path;

use crate::failure::Failure;
use crate::layout::{self, Files};
use crate::output;
use crate::store::Location;

/// Files that are read at the same time.
const FILES: usize = 32;
/// Files of single objects from which on a compaction pays off.
const MANY: usize = 2000;

/// One recording, or an object that could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) source: String,
    pub(crate) modified_us: u64,
    pub(crate) unreadable: Option<String>,
    pub(crate) job: String,
    pub(crate) program: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) began_us: Option<u64>,
    pub(crate) duration_seconds: u64,
    pub(crate) gpus: u64,
    pub(crate) ran_out: bool,
    pub(crate) cause: String,
    pub(crate) failed_bytes: Option<u64>,
    pub(crate) failed_at: Option<String>,
    pub(crate) top_line: Option<String>,
    pub(crate) held_byte_seconds: u64,
    pub(crate) cached_byte_seconds: u64,
    pub(crate) fragmented_byte_seconds: u64,
    pub(crate) fix: Option<String>,
    pub(crate) fix_command: Option<String>,
}

impl Row {
    /// GPU time. A recording without a GPU that it used has none.
    pub(crate) fn gpu_hours(&self) -> f64 {
        self.gpus as f64 * self.duration_seconds as f64 / 3600.0
    }
}

const TEXTS: [&str; 11] = [
    "source",
    "unreadable",
    "job_name",
    "program",
    "model",
    "cause",
    "failed_at",
    "top_line",
    "fix",
    "fix_command",
    "etag",
];
const NUMBERS: [&str; 8] = [
    "modified",
    "began",
    "duration_seconds",
    "gpus",
    "failed_bytes",
    "held_byte_seconds",
    "cached_byte_seconds",
    "fragmented_byte_seconds",
];

/// The rows of an index: of each source, those of its newest version.
pub(crate) async fn read(index: &Location) -> Result<Vec<Row>, Failure> {
    for _ in 0..layout::ATTEMPTS {
        let files = layout::existing(index).await?;
        if files.objects.len() >= MANY {
            output::remark(&format!(
                "the index has {} files of single objects; makeroom index --compact -o {} makes it faster",
                files.objects.len(),
                index.name
            ));
        }
        if let Some(rows) = read_files(index, &files).await? {
            return Ok(newest(rows));
        }
    }
    Err(layout::changing(index))
}

/// `None` if a file has been deleted since it was listed.
async fn read_files(index: &Location, files: &Files) -> Result<Option<Vec<(Row, String)>>, Failure> {
    let paths = files.parts.iter().chain(&files.objects).cloned();
    let read = stream::iter(paths.map(|path| read_file(index.clone(), path)));
    let read: Vec<Option<Vec<(Row, String)>>> = read.buffered(FILES).try_collect().await?;
    let mut rows = Vec::new();
    for of_file in read {
        let Some(of_file) = of_file else { return Ok(None) };
        rows.extend(of_file);
    }
    Ok(Some(rows))
}

async fn read_file(index: Location, path: Path) -> Result<Option<Vec<(Row, String)>>, Failure> {
    let Some(file) = layout::open(&index, &path).await? else { return Ok(None) };
    let failed = |error| Failure::Index { name: path.to_string(), error };
    rows_of(&file).map(Some).map_err(failed)
}

/// The rows of a file, with the etags of their objects.
fn rows_of(file: &IndexFile) -> Result<Vec<(Row, String)>, makeroom_index::IndexError> {
    let mut texts = Vec::new();
    for column in file.columns(&TEXTS)? {
        if let Column::Texts(values) = column {
            texts.push(values.into_iter());
        }
    }
    let mut numbers = Vec::new();
    for column in file.columns(&NUMBERS)? {
        if let Column::Numbers(values) = column {
            numbers.push(values.into_iter());
        }
    }
    let ran_out = match file.columns(&["ran_out"])?.pop() {
        Some(Column::Truths(values)) => values,
        _ => Vec::new(),
    };
    let mut rows = Vec::with_capacity(ran_out.len());
    for ran_out in ran_out {
        let mut text = texts.iter_mut().map(|column| column.next().flatten());
        let mut next_text = || text.next().flatten();
        let mut number = numbers.iter_mut().map(|column| column.next().flatten());
        let mut next_number = || number.next().flatten();
        let row = Row {
            source: next_text().unwrap_or_default(),
            unreadable: next_text(),
            job: next_text().unwrap_or_default(),
            program: next_text(),
            model: next_text(),
            cause: next_text().unwrap_or_default(),
            failed_at: next_text(),
            top_line: next_text(),
            fix: next_text(),
            fix_command: next_text(),
            modified_us: next_number().unwrap_or(0),
            began_us: next_number(),
            duration_seconds: next_number().unwrap_or(0),
            gpus: next_number().unwrap_or(0),
            failed_bytes: next_number(),
            held_byte_seconds: next_number().unwrap_or(0),
            cached_byte_seconds: next_number().unwrap_or(0),
            fragmented_byte_seconds: next_number().unwrap_or(0),
            ran_out: ran_out.unwrap_or(false),
        };
        let etag = next_text().unwrap_or_default();
        rows.push((row, etag));
    }
    Ok(rows)
}

/// Of each source, the rows of the version that was modified last; of versions of the same time, the one with the larger
/// etag, so that the answer does not depend on the order of the files. The same version twice counts once.
fn newest(rows: Vec<(Row, String)>) -> Vec<Row> {
    let mut versions: HashMap<&str, (u64, &str)> = HashMap::with_capacity(rows.len());
    for (row, etag) in &rows {
        let version = versions.entry(&row.source).or_insert((row.modified_us, etag));
        *version = (*version).max((row.modified_us, etag));
    }
    let is_kept: Vec<bool> = rows
        .iter()
        .map(|(row, etag)| versions.get(row.source.as_str()) == Some(&(row.modified_us, etag.as_str())))
        .collect();
    let mut is_kept = is_kept.into_iter();
    let kept = rows.into_iter().map(|(row, _)| row).filter(|_| is_kept.next().unwrap_or(false));
    // Sums of hours depend on the order: with one order, a compaction does not change a figure.
    let mut kept: Vec<Row> = kept.collect();
    kept.sort_by(|one, two| one.source.cmp(&two.source));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_a_source_counts() {
        let row = |source: &str, modified_us, job: &str| Row {
            source: source.to_owned(),
            modified_us,
            job: job.to_owned(),
            ..Row::default()
        };
        let rows = vec![
            (row("a", 1, "old"), "x".to_owned()),
            (row("a", 2, "new"), "y".to_owned()),
            (row("a", 2, "new"), "y".to_owned()),
            (row("a", 2, "tie"), "b".to_owned()),
            (row("b", 1, "other"), "x".to_owned()),
        ];
        let jobs: Vec<String> = newest(rows).into_iter().map(|row| row.job).collect();
        // Two recordings of one object, as an archive has them.
        assert_eq!(jobs, ["new", "new", "other"]);
    }
}
