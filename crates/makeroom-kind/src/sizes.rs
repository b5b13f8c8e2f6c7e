//! Multisets of sizes. Gradients and optimizer state repeat the sizes of the parameters exactly, so a size and how often
//! it occurs identify memory whose stack is missing or says nothing.

use makeroom_core::FastMap;

/// How often each size occurs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes(FastMap<u64, u32>);

impl Sizes {
    pub(crate) fn add(&mut self, size: u64) {
        self.add_many(size, 1);
    }

    pub(crate) fn add_many(&mut self, size: u64, times: u32) {
        let count = self.0.entry(size).or_default();
        *count = count.saturating_add(times);
    }

    /// All sizes that occur, and how often.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.0.iter().map(|(&size, &count)| (size, count)).filter(|&(_, count)| count > 0)
    }

    pub(crate) fn count(&self, size: u64) -> u32 {
        self.0.get(&size).copied().unwrap_or(0)
    }

    pub(crate) fn contains(&self, size: u64) -> bool {
        self.count(size) > 0
    }

    /// Removes one occurrence, if there is one.
    pub(crate) fn take(&mut self, size: u64) -> bool {
        match self.0.get_mut(&size) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    /// For each size the larger count of both.
    pub(crate) fn widen(&mut self, other: &Self) {
        for (&size, &count) in &other.0 {
            let own = self.0.entry(size).or_default();
            *own = (*own).max(count);
        }
    }

    /// This without the other.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let rest = self.0.iter().map(|(&size, &count)| (size, count.saturating_sub(other.count(size))));
        Self(rest.filter(|&(_, count)| count > 0).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.values().all(|&count| count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_taken_and_subtracted() {
        let mut one = Sizes::default();
        for size in [4, 4, 8] {
            one.add(size);
        }
        let mut two = Sizes::default();
        for size in [4, 16] {
            two.add(size);
        }
        let rest = one.without(&two);
        assert_eq!([rest.count(4), rest.count(8), rest.count(16)], [1, 1, 0]);
        two.widen(&one);
        assert_eq!([two.count(4), two.count(8), two.count(16)], [2, 1, 1]);
        assert!(one.take(8) && !one.take(8) && one.contains(4) && !one.is_empty());
    }
}
