//! Statistics of spilled memory.

use std::fmt;

use makeroom_core::Bytes;

/// Memory that a [`Spill`](super::Spill) has moved to the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// Spilled now.
    pub now: Bytes,
    /// Peak.
    pub peak: Bytes,
    /// Maximum allowed.
    pub quota: Bytes,
    /// Blocks spilled in total.
    pub blocks: u64,
    /// Bytes spilled in total.
    pub bytes: Bytes,
    /// Of these blocks, those below the size threshold: the device had no space even for them.
    pub small: u64,
    /// Of these blocks, those that would have fit on the device: they left their space to hotter ones.
    pub made_way: u64,
    /// Requests that fit neither on the device nor on the host.
    pub refused: u64,
    /// By size, smallest first, without empty rows.
    pub by_size: Vec<SpilledSizes>,
}

/// Spilled blocks with sizes from one power of two to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpilledSizes {
    /// Smallest size of the row.
    pub from: Bytes,
    /// Blocks spilled in total.
    pub blocks: u64,
    /// Bytes spilled in total.
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
            writeln!(
                formatter,
                "{made_way} of them were spilled to make room for memory that is used more often"
            )?;
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

/// The running statistics.
#[derive(Debug)]
pub(super) struct Tally {
    spilled: Spilled,
    sizes: [SpilledSizes; 64],
}

/// Why a block was spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The device had no space for it.
    NoRoom,
    /// It left its space to hotter ones.
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
