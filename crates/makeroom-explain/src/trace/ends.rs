//! Where blocks end that are followed by unused memory.
//!
//! In a segment of large blocks, the allocator splits off the rest of a free block only if it is more than 1 MiB. A smaller
//! rest stays with the block, up to the block that followed it at that moment. When that one is freed, the end can no longer
//! be seen from the live blocks: the rest and the free block after it are one gap.
//!
//! ```text
//! at the allocation    [ request | rest ][ live block    ]
//! later                [ request | rest ][ unused        ]    the block still ends at the same address
//! ```
//!
//! The events tell: the follower begins within 1 MiB of the request's end and was freed while the block was there. Without
//! such an event the block was split, and ends with its request. So every end follows from the recording, and `rounding`
//! is exact.

use makeroom_core::{Action, DeviceTrace, FastMap};
use makeroom_sim::Settings;

use super::cut::{LARGEST_UNSPLIT, is_small};
use super::segments::HeldSegment;
use super::state::LiveBlock;

/// The ends of the blocks that are followed by unused memory and do not end with their rounded request, by address.
#[derive(Clone, Debug, Default)]
pub struct BlockEnds {
    by_address: FastMap<u64, u64>,
}

/// The range of addresses in which a block must end.
struct Window {
    /// The end of the rounded request; the window ends 1 MiB after it.
    from: u64,
    /// The first event after the block's allocation.
    since: usize,
    block: u64,
    end: Option<u64>,
}

impl BlockEnds {
    /// Finds the ends of `blocks` in `segments` after `position` events. Both ascend by address.
    pub fn new(
        device: &DeviceTrace,
        settings: &Settings,
        segments: &[HeldSegment],
        blocks: &[LiveBlock],
        position: usize,
    ) -> Self {
        let mut windows = windows(settings, segments, blocks);
        let first = windows.iter().map(|window| window.since).min().unwrap_or(position);
        let actions = device.events.actions();
        for (index, action) in actions.iter().enumerate().take(position).skip(first) {
            if !matches!(action, Action::Alloc | Action::FreeCompleted) {
                continue;
            }
            let Some(event) = device.events.get(index) else { break };
            let address = event.address.0;
            let Some(last) = windows.partition_point(|window| window.from <= address).checked_sub(1) else {
                continue;
            };
            let window = &mut windows[last];
            if address - window.from <= LARGEST_UNSPLIT && window.since <= index {
                window.end.get_or_insert(address);
            }
        }
        let ends = windows.into_iter().filter_map(|window| Some((window.block, window.end?)));
        Self { by_address: ends.collect() }
    }

    pub(super) fn end_of(&self, block: &LiveBlock) -> Option<u64> {
        self.by_address.get(&block.address).copied()
    }
}

/// One window for each block with a gap after it that may contain a rest.
fn windows(settings: &Settings, segments: &[HeldSegment], blocks: &[LiveBlock]) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut rest = blocks;
    for segment in segments {
        rest = &rest[rest.partition_point(|block| block.address < segment.address)..];
        let end = segment.address.saturating_add(segment.size);
        let (inside, after) = rest.split_at(rest.partition_point(|block| block.address < end));
        rest = after;
        if segment.is_expandable || is_small(segment, inside) {
            continue;
        }
        for (index, block) in inside.iter().enumerate() {
            let next = inside.get(index + 1).map_or(end, |next| next.address);
            let from = block.address.saturating_add(settings.round_size(block.requested.get()));
            if next.saturating_sub(from) > LARGEST_UNSPLIT {
                let since = block.born().map_or(0, |born| born + 1);
                windows.push(Window { from, since, block: block.address, end: None });
            }
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use makeroom_core::{Bytes, Trace};
    use makeroom_trace::Input;

    use crate::trace::history::History;
    use crate::trace::pieces::Pieces;
    use crate::trace::state::states_at;

    use super::*;

    fn trace(name: &str) -> Trace {
        let traces = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../traces");
        match makeroom_trace::open(&traces.join(format!("{name}.pickle.gz"))).unwrap() {
            Input::Trace(trace) => trace,
            Input::Text(_) => panic!("{name} is no recording"),
        }
    }

    /// The rounding after every event, computed the other way around: a block's size is settled when it is allocated, by
    /// the distance to the next live block at that moment. Only for fixed segments and rounding to 512 bytes.
    fn rounding(device: &DeviceTrace, older: &[(u64, u64)], max_split_size: u64) -> Vec<u64> {
        let mut segments: BTreeMap<u64, u64> = older.iter().copied().collect();
        let mut live: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut sum = 0;
        let mut after = Vec::new();
        for event in device.events.iter() {
            let (address, size) = (event.address.0, event.size.get());
            match event.action {
                Action::SegmentAlloc => {
                    segments.insert(address, size);
                }
                Action::SegmentFree => {
                    segments.remove(&address);
                }
                Action::Alloc => {
                    let (start, segment) = segments.range(..=address).next_back().unwrap();
                    let end = live.range(address + 1..).next().map_or(u64::MAX, |(&next, _)| next);
                    let room = end.min(start + segment) - address;
                    let rounded = size.max(1).next_multiple_of(512);
                    let is_large_split = room - rounded > 1 << 20 && rounded < max_split_size;
                    let is_split = *segment == 2 << 20 || is_large_split;
                    let taken = if is_split { rounded } else { room };
                    sum += taken - size;
                    live.insert(address, (size, taken));
                }
                Action::FreeCompleted => {
                    let (size, taken) = live.remove(&address).unwrap();
                    sum -= taken - size;
                }
                _ => {}
            }
            after.push(sum);
        }
        after
    }

    /// Rounding at 40 moments of a recording, without the block sizes that its end contains.
    fn assert_exact(name: &str) -> (DeviceTrace, Vec<u64>) {
        let trace = trace(name);
        let settings = Settings::recorded(&trace.settings);
        let mut device = trace.devices[0].clone();
        for segment in &mut device.segments {
            segment.blocks.clear();
        }
        let history = History::new(&device, &[]);
        let older: Vec<(u64, u64)> =
            history.start.segments.iter().map(|segment| (segment.address.0, segment.size.get())).collect();
        let expected = rounding(&device, &older, settings.max_split_size);
        let moments: Vec<Option<usize>> =
            (0..device.events.len()).step_by(device.events.len() / 40).map(Some).collect();
        for (state, moment) in states_at(&device, &history, &moments).iter().zip(moments) {
            let pieces = Pieces::new(&device, &settings, state, moment);
            assert_eq!(pieces.rounding.get(), expected[moment.unwrap()], "{name} after event {moment:?}");
            assert_eq!(pieces.reserved, pieces.live + pieces.rounding + pieces.cached(), "{name}");
        }
        (device, expected)
    }

    #[test]
    fn rounding_is_exact_at_any_moment() {
        for name in ["gpt2_varlen", "oom_batch", "oom_fragmented", "seed004"] {
            assert_exact(name);
        }
    }

    #[test]
    fn blocks_that_are_not_split_are_rounded_to_their_segment() {
        assert_exact("../crates/makeroom-sim/tests/recordings/gc-split");
    }

    /// At the peak of this recording, three blocks keep a rest of 0.83 MiB in front of unused memory. Rounding read off the
    /// gaps between live blocks misses them: 5.37 instead of 6.19 MiB.
    #[test]
    fn rests_in_front_of_unused_memory_count_as_rounding() {
        let (device, expected) = assert_exact("streams");
        let history = History::new(&device, &[]);
        let peak = history.peak.unwrap();
        assert_eq!(expected[peak], 6_494_984);
        let state = states_at(&device, &history, &[Some(peak)]).remove(0);
        let settings = Settings::default();
        let pieces = Pieces::new(&device, &settings, &state, Some(peak));
        let sizes = [pieces.live, pieces.rounding, pieces.cached(), pieces.reserved];
        assert_eq!(sizes.map(Bytes::get), [413_894_904, 6_494_984, 124_869_632, 545_259_520]);
        let ends = BlockEnds::new(&device, &settings, &state.segments, &state.blocks, peak + 1);
        let rests = state.blocks.iter().filter_map(|block| {
            Some(ends.end_of(block)? - block.address - settings.round_size(block.requested.get()))
        });
        let mut rests: Vec<u64> = rests.filter(|&rest| rest > 0).collect();
        rests.sort_unstable();
        assert_eq!(rests, [66_048, 261_120, 538_624]);
    }
}
