//! What was spilled, in figures.

use std::fmt;

use makeroom_core::Bytes;

/// What a [`Spill`](super::Spill) has put into host memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// What is there now.
    pub now: Bytes,
    /// The most that was there at once.
    pub peak: Bytes,
    /// The most that may be there.
    pub quota: Bytes,
    /// Blocks, since the beginning.
    pub blocks: u64,
    /// Bytes, since the beginning.
    pub bytes: Bytes,
    /// Of these blocks, those below the size that spills: the device had no room even for them.
    pub small: u64,
    /// Of these blocks, those that the device could have taken: they left its room to hotter ones.
    pub made_way: u64,
    /// Requests that neither side could serve.
    pub refused: u64,
    /// By size, smallest first, without empty rows.
    pub by_size: Vec<SpilledSizes>,
}

/// Spilled blocks of sizes from a power of two to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpilledSizes {
    /// The least size of the row.
    pub from: Bytes,
    /// Blocks, since the beginning.
    pub blocks: u64,
    /// Bytes, since the beginning.
    pub bytes: Bytes,
}

impl fmt::Display for Spilled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now, peak, quota, blocks, bytes, small, made_way, refused, .. } = self;
        writeln!(formatter, "{now} spilled to host memory now, {peak} at the peak, quota {quota}")?;
        writeln!(formatter, "{blocks} blocks spilled since the start, {bytes} in total")?;
        for row in &self.by_size {
            let (from, to) = (row.from, Bytes::new(row.from.get().saturating_mul(2)));
            writeln!(formatter, "  {from:>10} to {to:>10} {:>8} blocks {:>12}", row.blocks, row.bytes)?;
        }
        if *made_way > 0 {
            writeln!(formatter, "{made_way} of them were moved out for memory that is used more often")?;
        }
        if *small > 0 {
            writeln!(formatter, "{small} of them were small: the device was completely full")?;
        }
        if *refused > 0 {
            writeln!(formatter, "{refused} requests fit neither on the device nor in the quota")?;
        }
        Ok(())
    }
}

/// The figures as they are kept.
#[derive(Debug)]
pub(super) struct Tally {
    spilled: Spilled,
    sizes: [SpilledSizes; 64],
}

/// Why a block went to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The device had no room for it.
    NoRoom,
    /// It left the room to hotter ones.
    MadeWay,
}

impl Tally {
    pub(super) fn new(quota: Bytes) -> Self {
        Self { spilled: Spilled { quota, ..Spilled::default() }, sizes: [SpilledSizes::default(); 64] }
    }

    pub(super) fn spilled(&mut self, bytes: u64, why: Why, is_small: bool) {
        let row = &mut self.sizes[bytes.max(1).ilog2() as usize];
        row.from = Bytes::new(1 << bytes.max(1).ilog2());
        row.blocks += 1;
        row.bytes += Bytes::new(bytes);
        let total = &mut self.spilled;
        total.now += Bytes::new(bytes);
        total.peak = total.peak.max(total.now);
        total.blocks += 1;
        total.bytes += Bytes::new(bytes);
        total.small += u64::from(is_small);
        total.made_way += u64::from(why == Why::MadeWay);
    }

    pub(super) fn returned(&mut self, bytes: u64) {
        self.spilled.now = self.spilled.now - Bytes::new(bytes);
    }

    pub(super) fn refused(&mut self) {
        self.spilled.refused += 1;
    }

    pub(super) fn report(&self) -> Spilled {
        let by_size = self.sizes.iter().filter(|row| row.blocks > 0).copied().collect();
        Spilled { by_size, ..self.spilled.clone() }
    }
}
