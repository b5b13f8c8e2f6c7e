//! Sizes: the rounding of requests, and the size of new segments.

use super::settings::Settings;

/// The granularity of blocks.
pub(crate) const GRAIN: u64 = 512;
/// The largest rounded size that counts as small.
pub(crate) const SMALL: u64 = 1 << 20;
/// Size of a segment for small blocks.
pub(crate) const SMALL_SEGMENT: u64 = 2 << 20;
/// Requests of at least this size get a segment of their own size.
const LEAST_OWN_SEGMENT: u64 = 10 << 20;
/// Such segments are rounded up to a multiple of this.
const SEGMENT_GRAIN: u64 = 2 << 20;

impl Settings {
    /// The size of a block for a request.
    pub fn round_size(&self, requested: u64) -> u64 {
        if requested < GRAIN {
            return GRAIN;
        }
        let divisions = self.divisions_for(requested);
        if divisions > 1 && requested > GRAIN * divisions {
            return round_to_division(requested, divisions);
        }
        requested.checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX - (GRAIN - 1))
    }

    /// The size of a new segment for a block.
    pub fn allocation_size(&self, size: u64) -> u64 {
        if size <= SMALL {
            SMALL_SEGMENT
        } else if size < LEAST_OWN_SEGMENT {
            self.large_segment_size
        } else {
            size.checked_next_multiple_of(SEGMENT_GRAIN).unwrap_or(size)
        }
    }

    /// The granularity in which an expandable segment maps pages.
    pub(crate) fn page(&self, is_small: bool) -> u64 {
        if is_small { SMALL_SEGMENT } else { self.large_segment_size }
    }
}

/// Rounds up to the next division of a power of two.
fn round_to_division(size: u64, divisions: u64) -> u64 {
    if size.is_power_of_two() {
        return size;
    }
    let power = 1_u64 << size.ilog2();
    let step = power >> divisions.trailing_zeros();
    if step == 0 { power.saturating_mul(2) } else { size.checked_next_multiple_of(step).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_to_the_grain() {
        let settings = Settings::default();
        for (requested, size) in [(1, 512), (511, 512), (512, 512), (513, 1024), (1 << 20, 1 << 20)] {
            assert_eq!(settings.round_size(requested), size);
        }
    }

    #[test]
    fn divisions_round_up_within_a_power_of_two() {
        let settings = Settings::parse("roundup_power2_divisions:4").unwrap();
        assert_eq!(settings.round_size(1200 << 10), 1280 << 10);
        assert_eq!(settings.round_size(1 << 21), 1 << 21);
        assert_eq!(settings.round_size(1000), 1024);
        let off = Settings::parse("roundup_power2_divisions:1").unwrap();
        assert_eq!(off.round_size(1_200_000), 1_200_128);
    }

    #[test]
    fn segments_have_three_sizes() {
        let settings = Settings::default();
        assert_eq!(settings.allocation_size(1 << 20), 2 << 20);
        assert_eq!(settings.allocation_size((1 << 20) + 512), 20 << 20);
        assert_eq!(settings.allocation_size((10 << 20) - 512), 20 << 20);
        assert_eq!(settings.allocation_size((10 << 20) + 512), 12 << 20);
    }
}
