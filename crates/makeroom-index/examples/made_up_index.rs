//! Writes a compacted index of made-up recordings, for `bench/fleet`: `made_up_index DIRECTORY RECORDINGS`.
//!
//! Jobs of 64 ranks over half a year; every fifth job runs out of memory. Each recording has as many nested rows as a short
//! training run: 20 lines, 50 steps and 100 points of a series.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::fs::{self, File};
use std::path::PathBuf;

use makeroom_index::{Entry, IndexWriter, Object};
use makeroom_job::{
    DeviceRow, End, FailureKind, FailureRow, RecordingKind, RecordingRow, Rows, SeriesRow, SiteRow, StepRow,
};

const RANKS: u64 = 64;
const GIB: u64 = 1 << 30;
/// Objects of a row group.
const GROUP: u64 = 2000;
/// 2026-05-18, a Monday, and the length of half a year.
const BEGIN_US: u64 = 1_779_062_400_000_000;
const HALF_YEAR_US: u64 = 26 * 7 * 86_400_000_000;
const CAUSES: [(&str, &str); 3] = [
    ("live_data_fills_device", "use gradient checkpointing"),
    ("fragmentation", "set expandable_segments:True"),
    ("leak", "find what keeps the memory alive"),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap());
    let count: u64 = arguments.next().unwrap().parse().unwrap();
    let generation = directory.join("generations/made-up");
    fs::create_dir_all(&generation).unwrap();
    let mut writer = IndexWriter::new(File::create(generation.join("part-00000.parquet")).unwrap()).unwrap();
    let mut first = 0;
    while first < count {
        let last = (first + GROUP).min(count);
        let entries: Vec<Entry> = (first..last).map(|number| entry(number, count)).collect();
        writer.push(&entries).unwrap();
        first = last;
    }
    writer.finish().unwrap();
    fs::write(directory.join("CURRENT"), "made-up\n").unwrap();
}

fn entry(number: u64, count: u64) -> Entry {
    let (job, rank) = (number / RANKS, number % RANKS);
    let source = format!("s3://bucket/recordings/{job:06}/rank{rank}.room");
    let began_us = BEGIN_US + job * HALF_YEAR_US / (count / RANKS + 1);
    let (cause, fix) = CAUSES[(job % 3) as usize];
    let has_failed = job.is_multiple_of(5) && rank == 3;
    let hours = 1 + job % 12;
    let device = DeviceRow {
        device: 0,
        uuid: Some(format!("GPU-{rank}")),
        name: Some("NVIDIA H100 80GB HBM3".to_owned()),
        total_bytes: Some(80 * GIB),
        is_used: true,
        peak_bytes: 70 * GIB,
        last_bytes: 60 * GIB,
        overhead_bytes: GIB / 2,
        held_byte_seconds: hours * 3600 * 65 * GIB,
        cached_byte_seconds: hours * 3600 * 9 * GIB,
        fragmented_byte_seconds: hours * 3600 * 2 * GIB,
    };
    let place = |line: u64| format!("train.py:{} forward", 20 + (line * 7 + job) % 400);
    let recording = RecordingRow {
        recording: source.clone(),
        process: None,
        kind: RecordingKind::Room,
        rank: Some(rank as u32),
        local_rank: Some((rank % 8) as u32),
        world_size: Some(RANKS as u32),
        host: Some(format!("node{}", rank / 8)),
        pod: None,
        node_rank: Some((rank / 8) as u32),
        job: Some(job.to_string()),
        attempt: None,
        replica: None,
        run: None,
        pid: Some(1000 + rank as u32),
        parent_pid: Some(1),
        program: Some("train.py".to_owned()),
        model: Some(format!("model-{}", job % 40)),
        framework: Some("pytorch".to_owned()),
        launcher: Some("slurm".to_owned()),
        began_us: Some(began_us),
        ended_us: Some(began_us + hours * 3_600_000_000),
        silence_us: None,
        end: End::Exited(u32::from(has_failed)),
        ended_line: None,
        torn_bytes: 0,
        events: 1_000_000,
        is_incomplete: false,
        devices: vec![device],
        host_peak_bytes: Some(20 * GIB),
        cgroup_bytes: None,
        cgroup_limit_bytes: None,
        is_first_failure: false,
        error: None,
        cause: if has_failed { cause } else { "none" }.to_owned(),
        certainty: "certain".to_owned(),
        summary: if has_failed { format!("{} MiB failed.", 100 + job) } else { String::new() },
        fixes: if has_failed { vec![(fix.to_owned(), None)] } else { Vec::new() },
    };
    let failure = FailureRow {
        device: Some(0),
        requested_bytes: Some((100 + job) << 20),
        place: Some(place(1)),
        ..FailureRow::new(source.clone(), FailureKind::DeviceMemory)
    };
    let site = |line: u64| SiteRow {
        recording: source.clone(),
        device: 0,
        place: place(line),
        bytes: (line + 1) << 28,
        blocks: line + 1,
    };
    let step = |step: u64| StepRow {
        recording: source.clone(),
        device: 0,
        step: step as u32,
        peak_bytes: 70 * GIB - step,
        floor_bytes: 40 * GIB + step,
    };
    let points = |of: fn(u64) -> u64| (0..100).map(of).collect();
    let series = SeriesRow {
        recording: source.clone(),
        device: 0,
        elapsed_us: points(|point| point * 36_000_000),
        held_bytes: points(|point| 40 * GIB + (point << 24)),
        peak_bytes: points(|point| 41 * GIB + (point << 24)),
    };
    let rows = Rows {
        recordings: vec![recording],
        failures: if has_failed { vec![failure] } else { Vec::new() },
        sites: (0..20).map(site).collect(),
        steps: (0..50).map(step).collect(),
        series: vec![series],
        ..Rows::default()
    };
    let object =
        Object { source, size: 700_000_000, etag: format!("{number:x}"), modified_us: Some(began_us) };
    Entry { object, rows }
}
