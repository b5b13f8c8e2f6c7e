//! Recordings of models whose memory is known (`traces/kinds`), and the sizes of their blocks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use makeroom_core::{Action, DeviceTrace, Event, Events, StackId, Trace};
use makeroom_kind::{Kind, Kinds};
use makeroom_trace::Input;

pub(crate) fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces")
}

pub(crate) fn open(path: &str) -> Trace {
    match makeroom_trace::open(&traces().join(path)) {
        Ok(Input::Trace(trace)) => trace,
        other => panic!("{path}: {other:?}"),
    }
}

/// The recording as if no stacks had been recorded.
pub(crate) fn without_stacks(mut trace: Trace) -> Trace {
    for device in &mut trace.devices {
        let mut events = Events::default();
        for event in device.events.iter() {
            events.push(Event { stack: StackId::NONE, ..event });
        }
        device.events = events;
        for segment in &mut device.segments {
            segment.blocks.iter_mut().for_each(|block| block.stack = StackId::NONE);
        }
    }
    trace
}

/// What a program found out about its own memory at one moment.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) name: String,
    /// Number of events before it; 0 if a mark stands for it.
    pub(crate) events: usize,
    /// Bytes of blocks, by the ID of a kind; also `live` and `rest`.
    pub(crate) bytes: BTreeMap<String, u64>,
}

pub(crate) fn moments(name: &str) -> Vec<Moment> {
    let text = std::fs::read_to_string(traces().join(format!("kinds/{name}.json"))).unwrap();
    let truth: serde_json::Value = serde_json::from_str(&text).unwrap();
    let moment = |moment: &serde_json::Value| Moment {
        name: moment["name"].as_str().unwrap().to_owned(),
        events: moment["events"].as_u64().unwrap_or(0) as usize,
        bytes: moment
            .as_object()
            .unwrap()
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.as_u64()?)))
            .collect(),
    };
    truth["moments"].as_array().unwrap().iter().map(moment).collect()
}

/// The number of events before each moment of a recording of `makeroom run`: the program marked them with allocations in its
/// function `mark`.
pub(crate) fn marks(trace: &Trace, device: &DeviceTrace) -> Vec<usize> {
    let is_mark = |event: &Event| {
        let frames = trace.stacks.frames_of(event.stack).iter();
        let mut functions =
            frames.map(|&frame| trace.stacks.name_text(trace.stacks.frame_at(frame).function));
        event.action == Action::Alloc && functions.any(|function| function == "Truth.mark")
    };
    device.events.iter().enumerate().filter(|(_, event)| is_mark(event)).map(|(index, _)| index).collect()
}

/// The size of the block of each allocation, by its number in [`Kinds::allocations`].
///
/// PyTorch takes the front of a free block and leaves the rest as another one, unless the rest is too small. Free
/// neighbors are one block.
pub(crate) fn block_sizes(device: &DeviceTrace, kinds: &Kinds) -> Vec<u64> {
    const SMALL: u64 = 1 << 20;
    let mut sizes = vec![0; kinds.allocations().len()];
    let older = kinds.allocations().iter().take_while(|allocation| allocation.born().is_none()).count();
    let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
    for (number, allocation) in kinds.allocations().iter().enumerate().take(older) {
        let at_end = device.segments.iter().flat_map(|segment| &segment.blocks);
        let block = at_end.into_iter().find(|block| block.address.0 == allocation.address && older > 0);
        // Of what was freed since, only the request is known.
        let kept = block.filter(|_| allocation.freed().is_none()).map(|block| block.size.get());
        sizes[number] = kept.unwrap_or(allocation.size.get().next_multiple_of(512));
        blocks.insert(allocation.address, sizes[number]);
    }
    let mut segments: BTreeMap<u64, u64> = device
        .segments
        .iter()
        .filter(|_| older > 0)
        .map(|segment| (segment.address.0, segment.size.get()))
        .collect();
    let mut number = older;
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
                let rounded = size.next_multiple_of(512);
                let (start, length) = segments.range(..=address).next_back().unwrap();
                let next = blocks.range(address..).next().map_or(u64::MAX, |(&next, _)| next);
                let rest = next.min(start + length) - address - rounded;
                let splits = if rounded <= SMALL { rest >= 512 } else { rest > SMALL };
                sizes[number] = if splits { rounded } else { rounded + rest };
                blocks.insert(address, sizes[number]);
                number += 1;
            }
            Action::FreeCompleted => {
                blocks.remove(&address);
            }
            _ => {}
        }
    }
    sizes
}

/// Bytes of live blocks of a kind after some events.
pub(crate) fn bytes_of(kinds: &Kinds, sizes: &[u64], kind: Kind, events: usize) -> u64 {
    kinds
        .allocations()
        .iter()
        .zip(sizes)
        .filter(|(allocation, _)| allocation.kind == kind && allocation.is_live_at(events))
        .map(|(_, size)| size)
        .sum()
}
