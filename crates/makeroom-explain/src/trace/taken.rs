//! Which memory a process took from the driver at a moment; `makeroom_core::Taken` is the running sum.
//!
//! Blocks inside of segments are a framework's own business: the driver does not know them.

use makeroom_core::{Bytes, DeviceTrace, Start, Taken};

use super::state::{LiveBlock, State};

/// What was taken at a moment.
pub(crate) fn at(device: &DeviceTrace, start: &Start, time_us: u64) -> Bytes {
    let mut taken = Taken::new(start);
    device.events.iter().take_while(|event| event.time_us <= time_us).for_each(|event| taken.apply(&event));
    taken.bytes()
}

/// The blocks that are the driver's: those outside of every segment.
pub(crate) fn outside(state: &State) -> impl Iterator<Item = &LiveBlock> {
    state.blocks.iter().filter(|block| is_outside(state, block))
}

/// Whether a block lies outside of every segment.
pub(crate) fn is_outside(state: &State, block: &LiveBlock) -> bool {
    let after = state.segments.partition_point(|segment| segment.address <= block.address);
    let before = after.checked_sub(1).and_then(|index| state.segments.get(index));
    before.is_none_or(|segment| block.address >= segment.address.saturating_add(segment.size))
}
