//! Detects host memory that grows without bound.
//!
//! Every program grows during startup: it loads libraries, unpacks kernels and fills caches, for seconds or minutes. At
//! exit, destructors touch pages that were never used. A leak continues. A short run is therefore no evidence. The
//! second half of a long run, without startup and exit, is divided into equal parts of at least half a minute: memory
//! must have grown in each of them, according to samples within that part, at a similar rate. If so, the growth is
//! traced back to where it began.
//!
//! One kind of run is reported regardless of its length: a process that was killed close to its cgroup's limit.

use makeroom_core::{Bytes, HostSample, ProcessRecord};

use super::HostGrowth;

/// Parts of the second half of a run.
const PARTS: u32 = 4;
/// Minimum length of a part, which makes the whole run at least four and a half minutes long.
const LEAST_PART_US: u64 = 30_000_000;
/// Minimum startup time: a framework's libraries and kernels take up to 7 s on an H200's host.
const START_US: u64 = 30_000_000;
/// Minimum number of samples in a part.
const LEAST_SAMPLES: usize = 3;
/// Maximum factor between the growth in a part and the mean, in either direction, to count as a similar rate.
const LIKE_RATE: f64 = 4.0;
/// Minimum growth, in bytes and as a share of the process's final memory.
const LEAST_GROWTH: Bytes = Bytes::mib(128);
const LEAST_SHARE: f64 = 0.1;
/// A process without an exit that reached this share of its limit was killed for it.
const AT_LIMIT: f64 = 0.9;

/// The growth of a process, if it should be reported.
pub(super) fn growth(process: &ProcessRecord) -> Option<HostGrowth> {
    let samples: Vec<Sample> = process.host_samples.iter().filter_map(Sample::new).collect();
    let (first, last) = samples.first().zip(samples.last())?;
    let limit = process.host_samples.iter().rev().find_map(|sample| sample.cgroup_limit);
    let started = samples.partition_point(|sample| sample.time_us < first.time_us.saturating_add(START_US));
    let exit = samples.len() - usize::from(process.end.is_some());
    let is_at_limit =
        process.end.is_none() && limit.is_some_and(|limit| last.resident.share_of(limit) >= AT_LIMIT);
    let steady = samples.get(started..exit).and_then(steady_since);
    let start = steady.or(is_at_limit.then_some(*first))?;
    let grown = last.resident - start.resident;
    let is_large = grown >= LEAST_GROWTH && grown.share_of(last.resident) >= LEAST_SHARE;
    is_large.then_some(HostGrowth {
        first: start.resident,
        last: last.resident,
        seconds: last.time_us.saturating_sub(start.time_us) / 1_000_000,
        is_steady: steady.is_some(),
        limit,
    })
}

/// Resident memory of a process at one point in time.
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

/// Since when memory has grown at the rate of the second half; `None` if it does not grow throughout the second half.
fn steady_since(samples: &[Sample]) -> Option<Sample> {
    let (first, last) = samples.first().zip(samples.last())?;
    let half_us = last.time_us.saturating_sub(first.time_us) / 2;
    let width_us = half_us / u64::from(PARTS);
    if width_us < LEAST_PART_US {
        return None;
    }
    let middle_us = last.time_us - u64::from(PARTS) * width_us;
    let mean = last.resident.difference(at(samples, middle_us)) as f64 / f64::from(PARTS);
    let grows = |from_us: u64| {
        let until_us = from_us + width_us;
        let until = samples.partition_point(|sample| sample.time_us <= until_us);
        let within = until.saturating_sub(samples.partition_point(|sample| sample.time_us < from_us));
        let grown = at(samples, until_us).difference(at(samples, from_us)) as f64;
        within >= LEAST_SAMPLES && grown >= mean / LIKE_RATE && grown <= mean * LIKE_RATE
    };
    let is_steady = (0..PARTS).all(|part| grows(middle_us + u64::from(part) * width_us));
    if mean <= 0.0 || !is_steady {
        return None;
    }
    let mut since_us = middle_us;
    while since_us >= first.time_us.saturating_add(width_us) && grows(since_us - width_us) {
        since_us -= width_us;
    }
    Some(Sample { time_us: since_us, resident: at(samples, since_us) })
}

/// Memory at a point in time, interpolated linearly between samples.
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

    /// A process with samples in seconds and mebibytes that exits at the last one.
    fn told(samples: &[(u64, u64)]) -> Option<(u64, u64, bool)> {
        growth(&process(samples, Some(ProcessEnd::Exited(0)), None))
            .map(|growth| (growth.first.get() >> 20, growth.last.get() >> 20, growth.is_steady))
    }

    fn process(samples: &[(u64, u64)], end: Option<ProcessEnd>, limit: Option<u64>) -> ProcessRecord {
        let host_samples = samples.iter().map(|&(second, mib)| HostSample {
            time_us: 1_794_752_155_000_000 + second * 1_000_000,
            resident: Some(Bytes::mib(mib)),
            cgroup_limit: limit.map(Bytes::mib),
            ..HostSample::default()
        });
        ProcessRecord { host_samples: host_samples.collect(), end, ..ProcessRecord::default() }
    }

    /// One sample per second.
    fn run(seconds: u64, resident: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        (0..seconds).map(|second| (second, resident(second))).collect()
    }

    /// Training on an H200, as sampled: cuDNN's and cuBLAS's kernels are loaded, then nothing changes until exit.
    #[test]
    fn a_healthy_training_of_ten_seconds_is_not_told() {
        let training = [495, 663, 682, 739, 752, 1076, 1365, 1365, 1365, 1365, 1476]
            .into_iter()
            .zip(0..)
            .map(|(mib, at)| (at, mib));
        let training: Vec<(u64, u64)> = training.collect();
        for end in 2..=training.len() {
            assert_eq!(told(&training[..end]), None, "{end}");
        }
        // Also with growth in every second, and with only two samples.
        assert_eq!(told(&run(12, |second| 400 + second * 120)), None);
        assert_eq!(told(&[(0, 30), (1, 1606)]), None);
    }

    /// A loader that fills its cache, for various durations.
    #[test]
    fn growth_that_ends_is_not_told() {
        for loading in [20, 60, 150, 250] {
            assert_eq!(told(&run(300, |second| 300 + second.min(loading) * 50)), None, "{loading}");
        }
        // Startup may take most of a two-minute run.
        assert_eq!(told(&run(120, |second| 300 + second * 50)), None);
    }

    #[test]
    fn growth_through_a_long_run_is_told_from_where_it_began() {
        let (first, last, is_steady) = told(&run(600, |second| 1000 + second * 20)).unwrap();
        assert!(is_steady && last - first > 10_000, "{first} to {last}");
        // After a startup that grows faster.
        let leak = run(600, |second| if second < 60 { 500 + second * 140 } else { 8900 + second * 20 });
        let (first, last, _) = told(&leak).unwrap();
        assert!((9_000..11_000).contains(&(last - first)), "{first} to {last}");
        // A buffer every ten seconds.
        assert!(told(&run(600, |second| 1000 + second / 10 * 200)).is_some());
    }

    #[test]
    fn steps_falls_and_small_growth_are_not_told() {
        assert_eq!(told(&run(600, |second| if second < 500 { 300 } else { 3000 })), None);
        assert_eq!(told(&run(600, |second| 300 + second / 290 * 2000)), None);
        assert_eq!(told(&run(600, |second| 30_000 - second * 40)), None);
        assert_eq!(told(&run(600, |second| 1000 + second / 10)), None);
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[(5, 30)]), None);
    }

    /// Samples that are far apart are no evidence.
    #[test]
    fn a_few_samples_are_no_evidence() {
        let sparse: Vec<(u64, u64)> = (0..9).map(|number| (number * 100, 1000 + number * 500)).collect();
        assert_eq!(told(&sparse), None);
        let gap: Vec<(u64, u64)> = run(900, |second| 1000 + second * 20)
            .into_iter()
            .filter(|&(at, _)| !(500..800).contains(&at))
            .collect();
        assert_eq!(told(&gap), None);
    }

    /// The kernel kills a process at its cgroup's limit, no matter how briefly it ran.
    #[test]
    fn a_process_that_ended_at_its_limit_is_told() {
        let samples = run(40, |second| 200 + second * 100);
        let growth = growth(&process(&samples, None, Some(4200))).unwrap();
        assert_eq!((growth.is_steady, growth.last.get() >> 20), (false, 4100));
        assert_eq!(super::growth(&process(&samples, None, Some(8000))), None);
        assert_eq!(super::growth(&process(&samples, Some(ProcessEnd::Exited(0)), Some(4200))), None);
    }
}
