//! The answer from rows alone: it does not depend on the order of rows or on clocks, and it names what it is based on.

use makeroom_job::{
    DeviceRow, End, FailureKind, FailureRow, JobCause, RankFate, RecordingKind, RecordingRow, Rows,
    SeriesRow, SiteRow, Unread, answer,
};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn recording(rank: u32, end: End) -> RecordingRow {
    RecordingRow {
        recording: format!("rank{rank}.room"),
        process: None,
        kind: RecordingKind::Room,
        rank: Some(rank),
        local_rank: Some(rank % 8),
        world_size: Some(16),
        host: Some(format!("node{}", rank / 8)),
        pod: None,
        node_rank: Some(rank / 8),
        job: Some("77".to_owned()),
        attempt: None,
        replica: None,
        run: None,
        pid: Some(1000 + rank),
        parent_pid: Some(1),
        program: Some("train.py".to_owned()),
        model: None,
        framework: None,
        launcher: None,
        began_us: Some(1_000_000_000 + u64::from(rank) * 1000),
        ended_us: Some(1_060_000_000),
        silence_us: Some(80_000),
        end,
        ended_line: None,
        torn_bytes: 0,
        events: 100,
        is_incomplete: false,
        devices: vec![DeviceRow {
            device: rank % 8,
            uuid: Some(format!("GPU-{rank}")),
            name: None,
            total_bytes: Some(8 * GIB),
            is_used: true,
            peak_bytes: 3 * GIB,
            last_bytes: 3 * GIB,
            overhead_bytes: GIB / 2,
            ..DeviceRow::default()
        }],
        host_peak_bytes: Some(GIB),
        cgroup_bytes: None,
        cgroup_limit_bytes: None,
        is_first_failure: false,
        error: None,
        cause: "none".to_owned(),
        certainty: "certain".to_owned(),
        summary: String::new(),
        fixes: Vec::new(),
    }
}

fn site(rank: u32, place: &str, bytes: u64) -> SiteRow {
    SiteRow {
        recording: format!("rank{rank}.room"),
        device: rank % 8,
        place: place.to_owned(),
        bytes,
        blocks: 1,
    }
}

fn failure(rank: u32, time_us: u64) -> FailureRow {
    FailureRow {
        recording: format!("rank{rank}.room"),
        kind: FailureKind::DeviceMemory,
        time_us: Some(time_us),
        device: Some(rank % 8),
        requested_bytes: Some(2 * GIB),
        free_bytes: Some(GIB / 2),
        limit_bytes: None,
        held_bytes: Some(7 * GIB),
        place: Some("model.py:9 forward".to_owned()),
        later_allocations: 0,
        line: None,
        others: Vec::new(),
        pid: None,
        killed: None,
        collective: None,
    }
}

/// 16 ranks on two hosts; rank 5 holds more and runs out, and the launcher ends the others.
fn heavy() -> Rows {
    let mut rows = Rows::default();
    for rank in 0..16 {
        let end = if rank == 5 { End::Exited(1) } else { End::Signaled(15) };
        rows.recordings.push(recording(rank, end));
        rows.sites.push(site(rank, "model.py:3 weights", GIB));
        rows.sites.push(site(rank, "model.py:9 forward", if rank == 5 { 5 * GIB } else { 2 * GIB }));
        rows.series.push(SeriesRow {
            recording: format!("rank{rank}.room"),
            device: rank % 8,
            elapsed_us: vec![0, 30_000_000, 59_000_000],
            held_bytes: vec![GIB, 2 * GIB, 3 * GIB],
            peak_bytes: vec![GIB, 2 * GIB, 3 * GIB],
        });
    }
    rows.failures.push(failure(5, 1_059_000_000));
    rows
}

#[test]
fn the_heavy_rank_is_named_with_its_line() {
    let report = answer(&heavy());
    assert_eq!(report.verdict.cause, JobCause::RankHoldsMore);
    assert_eq!(report.verdict.title, "RANK 5 HOLDS MORE THAN THE OTHERS");
    assert_eq!(report.culprits[0].lines[0].place, "model.py:9 forward");
    assert_eq!(report.consequences.len(), 1);
    assert_eq!(report.consequences[0].words, "ranks 0–4 and 6–15");
    assert!(!report.fixes.is_empty());
}

#[test]
fn other_jobs_attempts_duplicates_missing_and_unread_files_are_named() {
    let mut rows = heavy();
    rows.recordings.retain(|row| row.rank != Some(9));
    let mut older = recording(3, End::Exited(0));
    older.recording = "old/rank3.room".to_owned();
    older.began_us = Some(1_000);
    older.ended_us = Some(2_000);
    rows.recordings.push(older);
    let mut other = recording(0, End::Exited(0));
    (other.recording, other.job) = ("other/rank0.room".to_owned(), Some("76".to_owned()));
    rows.recordings.push(other);
    rows.unread.push(Unread { file: "x.pickle".to_owned(), reason: "damaged".to_owned() });
    let report = answer(&rows);
    assert_eq!(report.verdict.cause, JobCause::RankHoldsMore);
    assert_eq!(report.used.missing_ranks, [9]);
    assert_eq!(report.used.duplicates, ["old/rank3.room"]);
    assert_eq!(report.used.other_jobs, ["job 76 (1 recording)"]);
    assert_eq!(report.notes[0], "rank 9 of 16 has no recording");
    assert!(
        report.notes.iter().any(|note| note.contains("x.pickle could not be read: damaged")),
        "{:?}",
        report.notes
    );
}

/// torchrun imports PyTorch, which loads the driver, so it has a recording too.
#[test]
fn the_launcher_is_not_a_rank() {
    let mut rows = heavy();
    let mut launcher = recording(0, End::Exited(1));
    (launcher.recording, launcher.pid) = ("launcher.room".to_owned(), Some(1));
    (launcher.rank, launcher.local_rank, launcher.world_size) = (None, None, None);
    launcher.devices[0].is_used = false;
    rows.recordings.iter_mut().chain([&mut launcher]).for_each(|row| row.run = Some("r".to_owned()));
    rows.recordings.push(launcher.clone());
    let report = answer(&rows);
    assert_eq!(report.used.recordings, 16);
    assert!(report.used.other_jobs.is_empty(), "{:?}", report.used.other_jobs);
    // One that holds memory is part of the job, whoever started it.
    launcher.devices[0].is_used = true;
    launcher.recording = "main.room".to_owned();
    rows.recordings.push(launcher);
    assert_eq!(answer(&rows).used.recordings, 17);
}

#[test]
fn tasks_of_an_array_are_named_as_such() {
    let mut rows = heavy();
    for (number, task) in [(0, "task 1"), (1, "task 0")] {
        let mut other = recording(number, End::Exited(0));
        (other.recording, other.replica) = (format!("{task}.room"), Some(task.to_owned()));
        rows.recordings.push(other);
    }
    let others = answer(&rows).used.other_jobs;
    assert_eq!(others, ["job 77, task 0 (1 recording)", "job 77, task 1 (1 recording)"]);
}

#[test]
fn the_newest_attempt_that_failed_is_answered() {
    let mut rows = Rows::default();
    for (attempt, end) in [(0, End::Exited(1)), (1, End::Killed), (2, End::Exited(0))] {
        for rank in 0..2 {
            let mut row = recording(rank, if rank == 1 { end } else { End::Exited(0) });
            row.recording = format!("{attempt}/rank{rank}.room");
            row.attempt = Some(attempt);
            // The clock of the first attempt's host is ahead.
            row.began_us = Some(5_000_000_000 - u64::from(attempt) * 1_000_000_000);
            rows.recordings.push(row);
        }
    }
    let report = answer(&rows);
    assert_eq!((report.attempt, report.verdict.cause), (Some(1), JobCause::RankKilled));
    assert_eq!(report.used.other_jobs.len(), 2);
}

#[test]
fn equally_full_ranks_and_lost_peers_are_nobodys_fault() {
    let mut rows = heavy();
    for site in &mut rows.sites {
        site.bytes = 3 * GIB;
    }
    for rank in 0..16 {
        rows.failures.push(failure(rank, 1_059_000_000));
    }
    assert_eq!(answer(&rows).verdict.cause, JobCause::EveryRankFull);
    let mut rows = Rows::default();
    for rank in (0..16).filter(|&rank| rank != 4) {
        rows.recordings.push(recording(rank, End::Exited(1)));
        rows.failures.push(FailureRow { kind: FailureKind::PeerLost, ..failure(rank, 1) });
    }
    let report = answer(&rows);
    assert_eq!(report.verdict.cause, JobCause::Undetermined);
    assert!(report.verdict.summary.contains("Rank 4 has no recording"), "{}", report.verdict.summary);
}

#[test]
fn no_rows_are_an_answer_too() {
    assert_eq!(answer(&Rows::default()).verdict.title, "NO RECORDINGS");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Shuffled rows and clocks that are wrong by up to an hour give the same answer.
    #[test]
    fn order_and_clocks_do_not_matter(
        order in Just((0..16_usize).collect::<Vec<_>>()).prop_shuffle(),
        skews in prop::collection::vec(0_u64..3_600_000_000, 2),
    ) {
        let usual = answer(&heavy());
        let mut rows = heavy();
        let host = |name: &str| skews[name.trim_end_matches(".room").trim_start_matches("rank").parse::<usize>().unwrap_or(0) / 8];
        for row in &mut rows.recordings {
            let skew = host(&row.recording);
            row.began_us = row.began_us.map(|time| time + skew);
            row.ended_us = row.ended_us.map(|time| time + skew);
        }
        for row in &mut rows.failures {
            row.time_us = row.time_us.map(|time| time + host(&row.recording));
        }
        rows.recordings = order.iter().map(|&index| rows.recordings[index].clone()).collect();
        rows.sites.reverse();
        rows.series = order.iter().map(|&index| rows.series[index].clone()).collect();
        let report = answer(&rows);
        prop_assert_eq!(report.verdict, usual.verdict);
        prop_assert_eq!(report.culprits, usual.culprits);
        prop_assert_eq!(report.groups, usual.groups);
        prop_assert_eq!(report.account, usual.account);
        prop_assert_eq!(report.imbalance, usual.imbalance);
        prop_assert_eq!(report.ranks, usual.ranks);
    }

    /// Whatever the fates, ranks and sizes, there is an answer, and every failed rank is a culprit or a consequence.
    #[test]
    fn any_rows_have_an_answer(
        ranks in prop::collection::vec((0_u32..20, 0_u32..5, 0_u64..u64::MAX, any::<bool>()), 0..24),
    ) {
        let mut rows = Rows::default();
        for (index, &(rank, end, bytes, fails)) in ranks.iter().enumerate() {
            let end = [End::Exited(0), End::Exited(1), End::Killed, End::Signaled(15), End::Unknown][end as usize];
            let mut row = recording(rank, end);
            row.recording = format!("{index}.room");
            row.began_us = Some(bytes % 1_000_000);
            let name = row.recording.clone();
            rows.recordings.push(row);
            rows.sites.push(SiteRow { recording: name.clone(), ..site(rank, "a", bytes / 2) });
            if fails {
                rows.failures.push(FailureRow { recording: name, requested_bytes: Some(bytes), ..failure(rank, bytes) });
            }
        }
        let report = answer(&rows);
        let ended = report.ranks.iter().filter(|rank| rank.fate == RankFate::RanOut).count();
        let told = report.culprits.len() + report.consequences.iter().map(|kind| kind.ranks.len()).sum::<usize>();
        prop_assert!(told >= ended, "{:?}", report.verdict);
        prop_assert!(report.culprits.is_empty() || report.verdict.cause.is_failure());
    }
}

/// 16 ranks on two hosts that were all killed; those of `early` this much earlier, in microseconds.
fn killed(early: &[(u32, u64)]) -> Rows {
    let mut rows = Rows::default();
    for rank in 0..16 {
        let mut row = recording(rank, End::Killed);
        let lead = early.iter().find(|(early, _)| *early == rank).map_or(0, |(_, lead)| *lead);
        // Each was silent for another part of the interval when it was killed.
        row.ended_us = row.ended_us.map(|time| time - lead + u64::from(rank * 7 % 16) * 5_000);
        // The clocks of the hosts differ.
        if rank >= 8 {
            row.began_us = row.began_us.map(|time| time - 500_000_000);
            row.ended_us = row.ended_us.map(|time| time - 500_000_000);
        }
        rows.recordings.push(row);
    }
    rows
}

#[test]
fn the_first_rank_that_was_killed_is_named_if_its_host_shows_it() {
    let culprits = |rows: &Rows| {
        let report = answer(rows);
        let ranks: Vec<Option<u32>> = report.culprits.iter().map(|culprit| culprit.rank).collect();
        (report.verdict.cause, report.verdict.certainty, ranks)
    };
    let unknown = (JobCause::AllKilled, "possible", vec![]);
    assert_eq!(culprits(&killed(&[])), unknown);
    assert_eq!(culprits(&killed(&[(11, 400_000)])), (JobCause::RankKilled, "possible", vec![Some(11)]));
    // Two hosts have a first one, and clocks of hosts do not compare.
    assert_eq!(culprits(&killed(&[(3, 400_000), (11, 300_000)])), unknown);
    let one_host = |lead| {
        let mut rows = killed(&[(5, lead)]);
        rows.recordings.retain(|row| row.rank < Some(8));
        for row in &mut rows.recordings {
            row.world_size = Some(8);
        }
        rows
    };
    assert_eq!(culprits(&one_host(400_000)), (JobCause::RankKilled, "likely", vec![Some(5)]));
    assert_eq!(culprits(&one_host(90_000)), (JobCause::RankKilled, "possible", vec![Some(5)]));
    let report = answer(&one_host(400_000));
    assert!(report.verdict.summary.contains("before those of the other ranks"), "{}", report.verdict.summary);
    // Recordings that were written once a second do not show it.
    let mut silent = one_host(400_000);
    for row in &mut silent.recordings {
        row.silence_us = Some(1_000_000);
    }
    assert_eq!(culprits(&silent), unknown);
}

#[test]
fn the_few_are_to_blame_unless_the_order_shows_otherwise() {
    let rows = |failed: std::ops::Range<u32>, lead: u64| {
        let mut rows = Rows::default();
        for rank in 0..8 {
            let is_failed = failed.contains(&rank);
            let mut row = recording(rank, if is_failed { End::Exited(1) } else { End::Killed });
            row.world_size = Some(8);
            row.ended_us = row.ended_us.map(|time| if is_failed { time } else { time - lead });
            rows.recordings.push(row);
        }
        answer(&rows)
    };
    // One rank exits, and the launcher kills the others at once; their last records are from before.
    let report = rows(2..3, 30_000);
    assert_eq!((report.verdict.cause, report.culprits.len()), (JobCause::OtherFailure, 1));
    // One rank is killed, and the others lose their connection.
    let report = rows(1..8, 0);
    assert_eq!((report.verdict.cause, report.culprits[0].rank), (JobCause::RankKilled, Some(0)));
    // The others were killed long before the one that exits.
    let report = rows(2..3, 5_000_000);
    assert_eq!(report.verdict.cause, JobCause::RankKilled);
}

#[test]
fn of_two_ranks_on_one_gpu_the_heavy_one_is_named_whichever_fails() {
    for extra in ["train.py:9 step", "train.py:20 keep"] {
        for failed in [0, 1] {
            let mut rows = Rows::default();
            for rank in [0, 1] {
                let mut row = recording(rank, End::Exited(1));
                row.world_size = Some(2);
                row.devices[0].device = 0;
                row.devices[0].uuid = Some("GPU-0".to_owned());
                row.devices[0].peak_bytes = if rank == 1 { 6 * GIB } else { GIB };
                rows.recordings.push(row);
                let mut lines = vec![("train.py:9 step", GIB)];
                match rank {
                    1 if extra == lines[0].0 => lines[0].1 = 6 * GIB,
                    1 => lines.push((extra, 5 * GIB)),
                    _ => {}
                }
                let of_line = |(place, bytes)| SiteRow { device: 0, ..site(rank, place, bytes) };
                rows.sites.extend(lines.into_iter().map(of_line));
            }
            rows.failures.push(FailureRow { device: Some(0), ..failure(failed, 5) });
            let answer = answer(&rows);
            let culprits: Vec<Option<u32>> = answer.culprits.iter().map(|culprit| culprit.rank).collect();
            let case =
                format!("{extra}, rank {failed} failed: {} {}", answer.verdict.title, answer.verdict.summary);
            assert_eq!((answer.verdict.cause, culprits), (JobCause::RankHoldsMore, vec![Some(1)]), "{case}");
            assert!(answer.verdict.summary.contains(", rank 0 "), "{case}");
            assert!(answer.verdict.summary.contains(extra), "{case}");
        }
    }
}

#[test]
fn a_snapshot_does_not_hide_the_failure_in_the_log_of_its_rank() {
    let snapshot = RecordingRow {
        recording: "rank2.pickle".to_owned(),
        kind: RecordingKind::TorchSnapshot,
        ..recording(2, End::Unknown)
    };
    let log = RecordingRow {
        recording: "rank2.log".to_owned(),
        kind: RecordingKind::Log,
        began_us: None,
        ended_us: None,
        devices: Vec::new(),
        cause: "live_data_fills_device".to_owned(),
        summary: "7.00 GiB is live.".to_owned(),
        fixes: vec![("use a smaller batch".to_owned(), None)],
        ..recording(2, End::Unknown)
    };
    let failure = FailureRow { recording: "rank2.log".to_owned(), time_us: None, ..failure(2, 0) };
    let rows = Rows { recordings: vec![snapshot, log], failures: vec![failure], ..Rows::default() };
    let report = answer(&rows);
    assert_eq!(report.verdict.cause, JobCause::RankRanOut);
    assert!(report.verdict.summary.contains("7.00 GiB is live."), "{}", report.verdict.summary);
    assert_eq!(report.fixes[0].action, "use a smaller batch");
    assert_eq!(report.fixes.last().and_then(|fix| fix.command.as_deref()), Some("makeroom why rank2.log"));
    assert_eq!((report.ranks.len(), report.ranks[0].kind), (1, RecordingKind::TorchSnapshot));
}

#[test]
fn only_jobs_of_slurm_are_looked_up_there_and_missing_ranks_leave_doubt() {
    let rows = |launcher: &str, missing: u32| {
        let ended = |rank| recording(rank, if rank == 2 { End::Killed } else { End::Signaled(15) });
        let launched = |rank| RecordingRow { launcher: Some(launcher.to_owned()), ..ended(rank) };
        Rows { recordings: (0..16 - missing).map(launched).collect(), ..Rows::default() }
    };
    let slurm = answer(&rows("slurm", 0));
    assert_eq!((slurm.verdict.cause, slurm.verdict.certainty), (JobCause::RankKilled, "likely"));
    let is_lookup =
        |fix: &makeroom_job::JobFix| fix.command.as_ref().is_some_and(|line| line.contains("sacct -j 77"));
    assert!(slurm.fixes.iter().any(is_lookup), "{:?}", slurm.fixes);
    let mpi = answer(&rows("openmpi", 1));
    assert_eq!((mpi.verdict.cause, mpi.verdict.certainty), (JobCause::RankKilled, "possible"));
    assert!(!mpi.fixes.iter().any(is_lookup), "{:?}", mpi.fixes);
}
