//! How long a recording is silent between two records.
//!
//! A process that was killed left no end: it ran until some time between its last record and the one that it would have
//! written next. The silences before show how long that is. Those at the start do not count, because the program may
//! have been busy with something else.

/// Silences that are kept, the last ones.
const KEPT: usize = 8;
/// Shorter ones are the time between two events.
const SHORTEST_NS: i64 = 5_000_000;

/// The last silences of a recording.
#[derive(Debug, Default)]
pub(super) struct Silences {
    last_ns: [i64; KEPT],
    count: usize,
}

impl Silences {
    /// Adds the time since the latest record before.
    pub(super) fn add(&mut self, silence_ns: i64) {
        if silence_ns >= SHORTEST_NS {
            self.last_ns[self.count % KEPT] = silence_ns;
            self.count += 1;
        }
    }

    /// The longest.
    pub(super) fn longest_ns(&self) -> u64 {
        self.last_ns.iter().copied().max().map_or(0, i64::unsigned_abs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_silences_count() {
        let mut silences = Silences::default();
        assert_eq!(silences.longest_ns(), 0);
        silences.add(9_000_000_000);
        silences.add(-3);
        for _ in 0..KEPT - 1 {
            silences.add(80_000_000);
        }
        assert_eq!(silences.longest_ns(), 9_000_000_000);
        silences.add(90_000_000);
        assert_eq!(silences.longest_ns(), 90_000_000);
    }
}
