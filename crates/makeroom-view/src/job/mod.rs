//! The page of `makeroom job`: one self-contained file with a row per rank, a heat map of memory over ranks and time,
//! and links to the ranks' own pages.
//!
//! The heat map has one byte per rank and point in time, so a page of 1,000 ranks has well under 1 MB. Times are since
//! each recording began. Everything that recordings contain is data for the script, which sets it as text; nothing of
//! it becomes HTML or code.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use makeroom_job::{JobFix, JobReport, Rows, SeriesRow};
use makeroom_ordered::OrderedMap;
use makeroom_report::job_text;
use serde::Serialize;

use crate::page;

/// The page without data.
const PAGE: &str = include_str!("page.html");
/// The place for its data.
const DATA: &str = "<script id=\"makeroom-job\" type=\"application/json\">";
/// Points in time.
const POINTS: u64 = 240;
/// Width of the verdict as text.
const TEXT_COLUMNS: usize = 110;

/// What the page shows.
#[derive(Debug, Serialize)]
struct Data<'report> {
    title: &'report str,
    certainty: &'static str,
    is_failure: bool,
    summary: &'report str,
    consequences: Vec<String>,
    errors: Vec<String>,
    fixes: &'report [JobFix],
    text: String,
    ranks: Vec<Rank<'report>>,
    notes: &'report [String],
    /// Length of the time axis in microseconds.
    length_us: u64,
    points: u64,
    /// The value that 255 stands for.
    full_bytes: u64,
    /// One byte per rank and point, row by row, as base64.
    heat: String,
}

/// A row.
#[derive(Debug, Serialize)]
struct Rank<'report> {
    label: &'report str,
    host: Option<&'report str>,
    fate: &'static str,
    culprit: bool,
    group: Option<&'report str>,
    cards: &'report [String],
    peak: u64,
    last: u64,
    requested: Option<u64>,
    place: Option<&'report str>,
    recording: &'report str,
    /// The rank's own page, relative to this one.
    page: Option<&'report str>,
    /// The command that shows the rank.
    command: &'report str,
}

/// Writes the page. `pages` has the names of the ranks' own pages, by recording.
pub fn job_page(report: &JobReport, rows: &Rows, pages: &BTreeMap<String, String>) -> Option<String> {
    let mut series: OrderedMap<&str, Vec<&SeriesRow>> = OrderedMap::new();
    for row in &rows.series {
        series.entry(&row.recording).or_default().push(row);
    }
    let of = |recording: &str| series.get(recording).map_or(&[][..], Vec::as_slice);
    let lengths =
        report.ranks.iter().flat_map(|rank| of(&rank.recording)).filter_map(|row| row.elapsed_us.last());
    let length_us = lengths.max().copied().unwrap_or(0).max(1);
    let totals = report.cards.iter().filter_map(|card| card.total_bytes);
    let peaks = report.ranks.iter().map(|rank| rank.peak_bytes);
    let full_bytes = totals.chain(peaks).max().unwrap_or(0).max(1);
    let mut heat = Vec::with_capacity(report.ranks.len() * POINTS as usize);
    for rank in &report.ranks {
        heat.extend(row(of(&rank.recording), length_us, full_bytes));
    }
    let data = Data {
        title: &report.verdict.title,
        certainty: report.verdict.certainty,
        is_failure: report.verdict.cause.is_failure(),
        summary: &report.verdict.summary,
        consequences: report
            .consequences
            .iter()
            .map(|found| format!("{}: {}", found.words, found.kind.words()))
            .collect(),
        errors: report.errors.iter().map(|found| format!("{}: {}", found.words, found.error)).collect(),
        fixes: &report.fixes,
        text: anstream::adapter::strip_str(&job_text(report, TEXT_COLUMNS, None)).to_string(),
        ranks: report
            .ranks
            .iter()
            .map(|rank| Rank {
                label: &rank.label,
                host: rank.host.as_deref(),
                fate: rank.fate.words(),
                culprit: rank.is_culprit,
                group: rank.group.as_deref(),
                cards: &rank.cards,
                peak: rank.peak_bytes,
                last: rank.last_bytes,
                requested: rank.requested_bytes,
                place: rank.place.as_deref(),
                recording: &rank.recording,
                page: pages.get(&rank.recording).map(String::as_str),
                command: &rank.command,
            })
            .collect(),
        notes: &report.notes,
        length_us,
        points: POINTS,
        full_bytes,
        heat: STANDARD.encode(heat),
    };
    // A name in a recording must not end the script element.
    let json = serde_json::to_string(&data).ok()?.replace('<', "\\u003c");
    page::filled(PAGE, DATA, &json)
}

/// One row of the heat map. 0 means that the rank was not recorded at that time; memory is at least 1.
fn row(series: &[&SeriesRow], length_us: u64, full_bytes: u64) -> Vec<u8> {
    let end = series.iter().filter_map(|row| row.elapsed_us.last()).max().copied();
    let start = series.iter().filter_map(|row| row.elapsed_us.first()).min().copied();
    let (Some(start), Some(end)) = (start, end) else { return vec![0; POINTS as usize] };
    let at = |point: u64| (u128::from(length_us) * u128::from(point) / u128::from(POINTS)) as u64;
    (0..POINTS)
        .map(|point| {
            let (from, to) = (at(point), at(point + 1));
            if to < start || from > end {
                return 0;
            }
            let held: u64 = series.iter().map(|row| peak_between(row, from, to)).fold(0, u64::saturating_add);
            1 + (254.0 * (held as f64 / full_bytes as f64).min(1.0)).round() as u8
        })
        .collect()
}

/// The most that was held in an interval.
fn peak_between(row: &SeriesRow, from: u64, to: u64) -> u64 {
    let first = row.elapsed_us.partition_point(|&time| time <= from);
    let last = row.elapsed_us.partition_point(|&time| time <= to);
    let inside = row.peak_bytes.get(first..last).unwrap_or(&[]).iter().copied().max().unwrap_or(0);
    inside.max(row.held_at(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: &[(u64, u64)]) -> SeriesRow {
        SeriesRow {
            recording: "a".to_owned(),
            device: 0,
            elapsed_us: points.iter().map(|point| point.0).collect(),
            held_bytes: points.iter().map(|point| point.1).collect(),
            peak_bytes: points.iter().map(|point| point.1).collect(),
        }
    }

    #[test]
    fn a_row_shows_peaks_and_where_a_recording_ends() {
        let one = series(&[(0, 50), (500, 100), (501, 0)]);
        let drawn = row(&[&one], 1000, 100);
        assert_eq!(drawn.len(), POINTS as usize);
        assert_eq!(drawn[0], 128);
        assert_eq!(drawn.iter().max(), Some(&255), "the short peak is shown");
        assert_eq!(drawn[POINTS as usize - 1], 0, "after its end");
        assert_eq!(row(&[], 1000, 100), vec![0; POINTS as usize]);
    }

    #[test]
    fn the_page_has_one_place_for_data_and_a_policy() {
        assert_eq!(PAGE.matches(DATA).count(), 1);
        let page = page::filled(PAGE, DATA, "{}").unwrap_or_default();
        assert!(page.contains("script-src 'sha256-") && page.contains(&format!("{DATA}{{}}")), "{page}");
    }
}
