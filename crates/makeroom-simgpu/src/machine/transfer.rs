//! Copies and fills as data.

use crate::status::{Result, Status};

/// What a function assumes about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Memory of the program, which is not checked.
    Host,
    /// Memory of a GPU, or host memory that the driver knows.
    Device,
    /// Either, depending on the address.
    Any,
}

/// The source or the destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The first byte.
    pub address: u64,
    /// Bytes between rows.
    pub pitch: u64,
    /// Bytes between slices.
    pub slice: u64,
    /// What the function assumes about it.
    pub side: Side,
}

impl End {
    /// Contiguous bytes.
    pub fn flat(address: u64, side: Side) -> Self {
        Self { address, pitch: 0, slice: 0, side }
    }
}

/// A copy of slices of rows of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The destination.
    pub destination: End,
    /// The source.
    pub source: End,
    /// Bytes per row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

impl Copy {
    /// A copy of contiguous bytes.
    pub fn flat(destination: End, source: End, bytes: u64) -> Self {
        Self { destination, source, width: bytes, height: 1, depth: 1 }
    }

    /// Whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// Source and destination of every row. Overlapping rows are an invalid value.
    pub fn rows(&self) -> Result<impl Iterator<Item = (u64, u64)> + use<>> {
        let copy = *self;
        let ends = [copy.destination, copy.source];
        let narrow = |end: &End| copy.height > 1 && end.pitch < copy.width;
        let far = |end: &End| {
            let rows = end.pitch.checked_mul(copy.height)?;
            end.slice
                .checked_mul(copy.depth)?
                .checked_add(rows)?
                .checked_add(end.address)?
                .checked_add(copy.width)
        };
        if ends.iter().any(narrow) || ends.iter().any(|end| far(end).is_none()) {
            return Err(Status::INVALID_VALUE);
        }
        let at = |end: End, slice: u64, row: u64| end.address + slice * end.slice + row * end.pitch;
        let places = (0..copy.depth).flat_map(move |slice| (0..copy.height).map(move |row| (slice, row)));
        Ok(places.map(move |(slice, row)| (at(copy.destination, slice, row), at(copy.source, slice, row))))
    }
}

/// A fill of rows of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The first element.
    pub address: u64,
    /// Bytes between rows.
    pub pitch: u64,
    /// Bytes per element: 1, 2 or 4.
    pub element: u64,
    /// The value; an element uses its lowest bytes.
    pub value: u32,
    /// Elements per row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

impl Fill {
    /// Bytes per row.
    pub fn row_bytes(&self) -> Result<u64> {
        let bytes = self.width.checked_mul(self.element).ok_or(Status::INVALID_VALUE)?;
        let aligned = self.address.is_multiple_of(self.element) && self.pitch.is_multiple_of(self.element);
        if !aligned || (self.height > 1 && self.pitch < bytes) {
            return Err(Status::INVALID_VALUE);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_step_by_pitch_and_slice() {
        let end = |address| End { address, pitch: 10, slice: 100, side: Side::Any };
        let copy = Copy { destination: end(1000), source: end(5000), width: 8, height: 2, depth: 2 };
        let rows: Vec<_> = copy.rows().unwrap().collect();
        assert_eq!(rows, [(1000, 5000), (1010, 5010), (1100, 5100), (1110, 5110)]);
        assert!(Copy { width: 11, ..copy }.rows().is_err(), "rows overlap");
        assert!(Copy { height: u64::MAX, ..copy }.rows().is_err(), "out of all addresses");
    }
}
