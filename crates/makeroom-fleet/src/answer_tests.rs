//! Tests of the answer: every figure from rows that can be added up by hand.

use super::*;

const DAY_US: u64 = 86_400_000_000;

fn row(job: &str, cause: &str, hours: u64, day: u64) -> Row {
    Row {
        source: format!("s3://bucket/{job}/{cause}{day}"),
        job: job.to_owned(),
        program: Some("train.py".to_owned()),
        began_us: Some(day * DAY_US),
        duration_seconds: hours * 3600,
        gpus: 2,
        ran_out: cause != "none",
        cause: cause.to_owned(),
        failed_bytes: (cause != "none").then_some(day << 20),
        failed_at: (cause != "none").then(|| format!("train.py:{day}")),
        held_byte_seconds: 3_600_000_000_000 * 10,
        cached_byte_seconds: 3_600_000_000_000 * 4,
        fragmented_byte_seconds: 3_600_000_000_000,
        fix: (cause != "none").then(|| format!("reduce the batch size by {day} %")),
        ..Row::default()
    }
}

fn rows() -> Vec<Row> {
    vec![
        // A job of three ranks: one runs out, and the work of all is lost.
        row("7", "fragmentation", 10, 4),
        row("7", "none", 10, 4),
        row("7", "none", 10, 5),
        row("8", "live_data_fills_device", 1, 11),
        row("8", "live_data_fills_device", 1, 12),
        row("9", "none", 100, 12),
        Row { unreadable: Some("torn".to_owned()), source: "x".to_owned(), ..Row::default() },
    ]
}

#[test]
fn failures_are_added_up_by_job() {
    let report = answer(&rows());
    assert_eq!((report.recordings, report.unreadable, report.jobs, report.failed_jobs), (6, 1, 3, 2));
    assert!((report.gpu_hours - 264.0).abs() < 1e-9, "{}", report.gpu_hours);
    assert!((report.failed_gpu_hours - 64.0).abs() < 1e-9, "{}", report.failed_gpu_hours);
    let causes: Vec<_> = report.causes.iter().map(|cause| (cause.name.as_str(), cause.failed_jobs)).collect();
    assert_eq!(causes, [("fragmentation", 1), ("live_data_fills_device", 1)]);
    assert_eq!(report.causes[1].failed_recordings, 2);
    assert_eq!(report.causes[1].largest_failed_bytes, Some(12 << 20));
    assert_eq!(report.by_job[0].job, "7");
    assert_eq!((report.by_job[0].failed_recordings, report.by_job[0].recordings), (1, 3));
    assert_eq!(report.models.len(), 1, "{:?}", report.models);
    assert_eq!(report.lines.len(), 3);
}

#[test]
fn fixes_that_differ_in_figures_are_one() {
    let report = answer(&rows());
    assert_eq!(report.fixes.len(), 1, "{:?}", report.fixes);
    assert_eq!(report.fixes[0].failed_jobs, 2);
    assert!((report.fixes[0].failed_gpu_hours - 64.0).abs() < 1e-9);
}

#[test]
fn weeks_and_waste() {
    let report = answer(&rows());
    let weeks: Vec<_> =
        report.weeks.iter().map(|week| (week.monday.as_str(), week.jobs, week.failed_jobs)).collect();
    // 1970-01-05 is a Monday, day 4.
    assert_eq!(weeks, [("1970-01-05", 1, 1), ("1970-01-12", 2, 1)]);
    assert_eq!((report.from.as_deref(), report.to.as_deref()), (Some("1970-01-05"), Some("1970-01-13")));
    assert!((report.waste.held - 60.0).abs() < 1e-9);
    assert!((report.waste.cached - 24.0).abs() < 1e-9);
    assert!((report.waste.fragmented - 6.0).abs() < 1e-9);
}

#[test]
fn the_order_of_rows_does_not_matter() {
    let mut reversed = rows();
    reversed.reverse();
    assert_eq!(answer(&rows()), answer(&reversed));
}

#[test]
fn similar_jobs_are_named() {
    assert_eq!(near(["4711", "4712", "x"].into_iter(), "471"), ["4711", "4712"]);
    assert_eq!(near(["a", "b"].into_iter(), "471"), ["a", "b"]);
}
