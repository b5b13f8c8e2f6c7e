//! Whether a process's memory on the host grows without end.
//!
//! Any program grows while it starts: libraries are loaded, kernels unpacked, caches filled, at times a gigabyte in some
//! seconds; and at its exit destructors touch what nobody used before. A leak goes on. So the second half of a run is
//! cut into windows, the sample at the exit left out: memory must have grown in each of them, at a like rate. Where that
//! holds, the growth is followed back to where it began.
//!
//! A framework's start takes as much as many a leak, so its first seconds are left out. A run with too few samples for
//! windows is judged by its two ends, if no framework ran in it.

use makeroom_core::{Bytes, HostSample, ProcessRecord};

use super::HostGrowth;

/// Windows of the second half of a run.
const WINDOWS: u32 = 4;
/// How long a framework loads libraries and kernels from its first call on: up to 7 s on an H200's host.
const WARM_UP_US: u64 = 10_000_000;
/// From so many samples on, windows tell something.
const LEAST_SAMPLES: usize = 8;
/// How far the growth in a window may be from the mean, either way, to be at a like rate.
const LIKE_RATE: f64 = 4.0;
/// Growth that goes on counts from this on, if it is this share of what the process has at its end.
const LEAST_STEADY_GROWTH: Bytes = Bytes::mib(128);
const LEAST_STEADY_SHARE: f64 = 0.1;
/// Growth between two ends below this is what any CUDA program does at its start.
const LEAST_GROWTH: Bytes = Bytes::mib(512);

/// The growth of a process, if it has to be told.
pub(super) fn growth(process: &ProcessRecord) -> Option<HostGrowth> {
    let samples: Vec<Sample> = process.host_samples.iter().filter_map(Sample::new).collect();
    let (first, last) = samples.first().zip(samples.last())?;
    let warm_up_us = if process.sees_tensors { WARM_UP_US } else { 0 };
    let warm = samples.partition_point(|sample| sample.time_us < first.time_us.saturating_add(warm_up_us));
    let exit = samples.len() - usize::from(process.end.is_some());
    let judged = samples.get(warm..exit).unwrap_or_default();
    let (start, is_steady) = if judged.len() >= LEAST_SAMPLES {
        (steady_since(judged)?, true)
    } else if process.sees_tensors {
        return None;
    } else {
        (*first, false)
    };
    let grown = last.resident - start.resident;
    let is_large = if is_steady {
        grown >= LEAST_STEADY_GROWTH && grown.share_of(last.resident) >= LEAST_STEADY_SHARE
    } else {
        grown >= LEAST_GROWTH
    };
    is_large.then_some(HostGrowth {
        first: start.resident,
        last: last.resident,
        seconds: last.time_us.saturating_sub(start.time_us) / 1_000_000,
        is_steady,
        limit: process.host_samples.iter().rev().find_map(|sample| sample.cgroup_limit),
    })
}

/// What a process had in memory at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    time_us: u64,
    resident: Bytes,
}

impl Sample {
    fn new(sample: &HostSample) -> Option<Self> {
        Some(Self { time_us: sample.time_us, resident: sample.resident? })
    }
}

/// Since when memory has grown at the rate of the second half; `None` where it does not grow all through that.
fn steady_since(samples: &[Sample]) -> Option<Sample> {
    let (first, last) = samples.first().zip(samples.last())?;
    let half_us = last.time_us.saturating_sub(first.time_us) / 2;
    let width_us = half_us / u64::from(WINDOWS);
    let middle_us = last.time_us - u64::from(WINDOWS) * width_us;
    let mean = last.resident.difference(at(samples, middle_us)) as f64 / f64::from(WINDOWS);
    let grows = |from_us: u64| {
        let grown = at(samples, from_us + width_us).difference(at(samples, from_us)) as f64;
        grown >= mean / LIKE_RATE && grown <= mean * LIKE_RATE
    };
    let is_steady = (0..WINDOWS).all(|window| grows(middle_us + u64::from(window) * width_us));
    if width_us == 0 || mean <= 0.0 || !is_steady {
        return None;
    }
    let mut since_us = middle_us;
    while since_us >= first.time_us + width_us && grows(since_us - width_us) {
        since_us -= width_us;
    }
    Some(Sample { time_us: since_us, resident: at(samples, since_us) })
}

/// What there was at a moment, on the straight line between the samples around it.
fn at(samples: &[Sample], time_us: u64) -> Bytes {
    let after = samples.partition_point(|sample| sample.time_us < time_us);
    let Some(next) = samples.get(after).or(samples.last()) else { return Bytes::ZERO };
    let Some(before) = after.checked_sub(1).and_then(|index| samples.get(index)) else {
        return next.resident;
    };
    let whole = next.time_us.saturating_sub(before.time_us).max(1) as f64;
    let share = (time_us.saturating_sub(before.time_us) as f64 / whole).min(1.0);
    let grown = next.resident.difference(before.resident) as f64 * share;
    Bytes::new((before.resident.get() as f64 + grown).max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use makeroom_core::ProcessEnd;

    use super::*;

    /// A process with samples as milliseconds and mebibytes, that exited with the last of them.
    fn told(samples: &[(u64, u64)], sees_tensors: bool) -> Option<(u64, u64, bool)> {
        let host_samples = samples.iter().map(|&(time, mib)| HostSample {
            time_us: 1_794_752_155_000_000 + time * 1000,
            resident: Some(Bytes::mib(mib)),
            ..HostSample::default()
        });
        let end = Some(ProcessEnd::Exited(0));
        let process = ProcessRecord {
            host_samples: host_samples.collect(),
            end,
            sees_tensors,
            ..ProcessRecord::default()
        };
        growth(&process).map(|growth| (growth.first.get() >> 20, growth.last.get() >> 20, growth.is_steady))
    }

    /// Trainings on an H200, as they were sampled: cuDNN's and cuBLAS's kernels come, then nothing more until the exit.
    #[test]
    fn warming_up_is_no_leak() {
        let convolutions = [
            (0, 495),
            (1060, 663),
            (2060, 682),
            (3060, 739),
            (4070, 752),
            (5070, 1076),
            (6080, 1365),
            (7080, 1365),
            (7760, 1476),
        ];
        let refused = [
            (0, 499),
            (1060, 668),
            (2060, 689),
            (3060, 751),
            (4070, 765),
            (5070, 1108),
            (5470, 1151),
            (5950, 1270),
        ];
        let longer = [
            (0, 493),
            (1020, 661),
            (2020, 680),
            (3020, 736),
            (4020, 747),
            (5020, 899),
            (6030, 1347),
            (7030, 1347),
            (8030, 1347),
            (9040, 1347),
            (10040, 1347),
            (11040, 1347),
            (12040, 1347),
            (12430, 1491),
        ];
        for samples in [&convolutions[..], &refused, &longer] {
            // Wherever the run had ended.
            for end in 2..=samples.len() {
                assert_eq!(told(&samples[..end], true), None, "{end} of {samples:?}");
            }
        }
    }

    #[test]
    fn what_goes_on_to_the_end_is_told_from_where_it_began() {
        // 1.56 GiB in 400 rounds behind the start of a context.
        let leak: Vec<(u64, u64)> = (0..24)
            .map(|tenth| (tenth * 100, if tenth < 5 { 40 + tenth * 30 } else { 160 + (tenth - 4) * 84 }))
            .collect();
        let (first, last, is_steady) = told(&leak, false).unwrap();
        assert!(last - first > 1 << 10 && is_steady, "{first} to {last}");
        // A training that also leaks 20 MiB a second.
        let training: Vec<(u64, u64)> = (0..60)
            .map(|second| (second * 1000, if second < 6 { 500 + second * 140 } else { 1220 + second * 20 }))
            .collect();
        assert!(told(&training, true).is_some_and(|(first, last, _)| (900..1200).contains(&(last - first))));
    }

    #[test]
    fn what_came_to_rest_or_is_small_is_not_told() {
        let rests: Vec<(u64, u64)> =
            (0..40).map(|second| (second * 1000, 300 + second.min(30) * 50)).collect();
        assert_eq!(told(&rests, false), None);
        let small: Vec<(u64, u64)> = (0..40).map(|second| (second * 1000, 300 + second * 3)).collect();
        assert_eq!(told(&small, false), None);
        let one_step: Vec<(u64, u64)> =
            (0..40).map(|second| (second * 1000, if second < 33 { 300 } else { 3000 })).collect();
        assert_eq!(told(&one_step, false), None);
        let falls: Vec<(u64, u64)> = (0..40).map(|second| (second * 1000, 3000 - second * 40)).collect();
        assert_eq!(told(&falls, false), None);
    }

    #[test]
    fn a_short_run_is_judged_by_its_ends_unless_a_framework_starts_in_it() {
        assert_eq!(told(&[(0, 30), (450, 606)], false), Some((30, 606, false)));
        assert_eq!(told(&[(0, 30), (450, 500)], false), None);
        assert_eq!(told(&[(0, 495), (1060, 663), (2060, 1365)], true), None);
        assert_eq!(told(&[], false), None);
        assert_eq!(told(&[(5, 30)], false), None);
    }
}
