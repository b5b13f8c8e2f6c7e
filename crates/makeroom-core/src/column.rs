//! A column of 64-bit numbers whose upper halves seldom change, such as times and sizes.
//!
//! The lower halves are stored one by one, the upper ones as runs, which takes half of the memory. A file that makes
//! every number begin a run pays for it: a number that is far from the one before takes more bytes there than a run here.

/// Numbers in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    low: Vec<u32>,
    /// Where a run of equal upper halves begins, and these.
    runs: Vec<(u32, u32)>,
}

impl Column {
    /// Appends a number.
    #[inline]
    pub(crate) fn push(&mut self, number: u64) {
        let high = (number >> 32) as u32;
        if self.runs.last().is_none_or(|&(_, last)| last != high) {
            self.runs.push((self.low.len() as u32, high));
        }
        self.low.push(number as u32);
    }

    /// The number at a position.
    #[inline]
    pub(crate) fn get(&self, position: usize) -> Option<u64> {
        let low = u64::from(*self.low.get(position)?);
        Some(u64::from(self.high(position)) << 32 | low)
    }

    /// The numbers, for a pass over them.
    pub(crate) fn view(&self) -> View<'_> {
        let (last_begin, last_high) = self.runs.last().copied().unwrap_or_default();
        View { column: self, last_begin: last_begin as usize, last_high }
    }

    /// The lower halves, in order.
    pub(crate) fn low_mut(&mut self) -> &mut Vec<u32> {
        &mut self.low
    }

    /// The number of a lower half that was at a position.
    #[inline]
    pub(crate) fn with_low(&self, position: usize, low: u32) -> u64 {
        u64::from(self.high(position)) << 32 | u64::from(low)
    }

    #[inline]
    fn high(&self, position: usize) -> u32 {
        match self.runs[..] {
            [] => 0,
            [.., (begin, high)] if position >= begin as usize => high,
            _ => self.earlier_high(position),
        }
    }

    /// The upper half at a position before the last run. Not inlined, so that passes over events stay small loops.
    #[cold]
    #[inline(never)]
    fn earlier_high(&self, position: usize) -> u32 {
        let after = self.runs.partition_point(|&(begin, _)| begin as usize <= position);
        after.checked_sub(1).and_then(|run| self.runs.get(run)).map_or(0, |&(_, high)| high)
    }
}

/// Numbers of a column. Most columns have one run, so the last one is at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'column> {
    column: &'column Column,
    last_begin: usize,
    last_high: u32,
}

impl View<'_> {
    /// The number at a position; 0 if it is not there.
    #[inline]
    pub(crate) fn at(&self, position: usize) -> u64 {
        let high =
            if position >= self.last_begin { self.last_high } else { self.column.earlier_high(position) };
        u64::from(high) << 32 | u64::from(self.column.low.get(position).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_whatever_their_upper_halves() {
        let numbers = [0, 7, 1 << 32, (1 << 32) + 9, u64::MAX, u64::MAX - 1, 3, 1 << 63, 1 << 63];
        let mut column = Column::default();
        for number in numbers {
            column.push(number);
        }
        let view = column.view();
        for (position, number) in numbers.into_iter().enumerate() {
            assert_eq!((column.get(position), view.at(position)), (Some(number), number));
        }
        assert_eq!(column.get(numbers.len()), None);
        assert_eq!(column.runs.len(), 5);
    }
}
