//! The set of streams that have free memory: a hierarchical bitmap, so that skipping thousands of empty lists takes a
//! few bit scans.
//!
//! Bit `b` of word `w` in a level is set if word `64 w + b` of the level below is nonzero; level 0 has one bit per
//! stream.

/// A set of small integers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filled {
    levels: Vec<Vec<u64>>,
    len: usize,
}

impl Filled {
    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a number that is not in the set.
    pub(crate) fn insert(&mut self, number: u32) {
        self.reach(number);
        self.len += 1;
        let mut place = number as usize;
        for level in &mut self.levels {
            let word = &mut level[place / 64];
            let was_empty = *word == 0;
            *word |= 1 << (place % 64);
            if !was_empty {
                return;
            }
            place /= 64;
        }
    }

    /// Removes a number that is in the set.
    pub(crate) fn remove(&mut self, number: u32) {
        self.len -= 1;
        let mut place = number as usize;
        for level in &mut self.levels {
            let word = &mut level[place / 64];
            *word &= !(1 << (place % 64));
            if *word != 0 {
                return;
            }
            place /= 64;
        }
    }

    /// The smallest element that is at least `from`.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let mut place = from as usize;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get(place / 64).map_or(0, |word| word & (u64::MAX << (place % 64)));
            if word != 0 {
                place = place / 64 * 64 + word.trailing_zeros() as usize;
                for below in self.levels[..height].iter().rev() {
                    place = place * 64 + below[place].trailing_zeros() as usize;
                }
                return Some(place as u32);
            }
            place = place / 64 + 1;
        }
        None
    }

    /// All elements from `from` on, ascending.
    pub(crate) fn from(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.next(from);
        std::iter::from_fn(move || {
            let this = next?;
            next = this.checked_add(1).and_then(|from| self.next(from));
            Some(this)
        })
    }

    /// Adds words and levels until there is a bit for `number`; the top level has one word.
    fn reach(&mut self, number: u32) {
        let mut words = number as usize / 64 + 1;
        let mut height = 0;
        loop {
            if self.levels.len() == height {
                // The new level must reflect the contents of the level below.
                let first = self.levels.last().and_then(|below| below.first()).is_some_and(|&word| word != 0);
                self.levels.push(vec![u64::from(first)]);
            }
            if self.levels[height].len() < words {
                self.levels[height].resize(words, 0);
            }
            if self.levels[height].len() == 1 {
                return;
            }
            words = (self.levels[height].len() - 1) / 64 + 1;
            height += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(numbers in prop::collection::vec((0_u32..300_000, any::<bool>()), 0..300), from in 0_u32..300_000) {
            let (mut filled, mut plain) = (Filled::default(), BTreeSet::new());
            for (number, spread) in numbers {
                let number = if spread { number } else { number % 200 };
                if plain.insert(number) {
                    filled.insert(number);
                } else {
                    plain.remove(&number);
                    filled.remove(number);
                }
                prop_assert_eq!(filled.next(from), plain.range(from..).next().copied());
            }
            prop_assert_eq!(filled.len(), plain.len());
            prop_assert!(filled.from(0).eq(plain.iter().copied()));
        }
    }
}
