//! Live memory over time: the maximum load, and the relevant sections of time.
//!
//! A *section* is a period of time whose set of live buffers is not contained in another such set. Two buffers are live
//! at the same time exactly if they share a section, so placement needs to consider only sections: a trace of a million
//! time steps often has a few thousand of them.
//!
//! ```text
//! time      0    1    2    3    4    5
//! a         |---------|
//! b              |--------------|
//! c                   |----|
//! d                             |----|
//! section     [ 0    ][ 1       ][ 2 ]      {a,b}  {b,c}  {d}
//! ```
//!
//! This file does not choose offsets. Loads are summed in 128 bits, so no input can overflow them.

use crate::Buffer;

/// The time at which the most bytes are live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxLoad {
    /// The first time of the maximum load.
    pub time: u64,
    /// The sum of the sizes of the buffers that are live then. No plan is lower than this.
    pub bytes: u128,
}

/// The maximum sum of the sizes of buffers live at one time, and that time; `None` if no buffer is ever live.
pub fn max_load(buffers: &[Buffer]) -> Option<MaxLoad> {
    let mut best: Option<MaxLoad> = None;
    let mut load: u128 = 0;
    for event in events(buffers) {
        let size = u128::from(buffers[event.buffer].size);
        if event.starts {
            load += size;
            if best.is_none_or(|most| load > most.bytes) {
                best = Some(MaxLoad { time: event.time, bytes: load });
            }
        } else {
            load -= size;
        }
    }
    best
}

/// One end of a lifetime. Ends sort before starts at the same time, because lifetimes are half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    time: u64,
    starts: bool,
    buffer: usize,
}

fn events(buffers: &[Buffer]) -> Vec<Event> {
    let mut events = Vec::with_capacity(buffers.len() * 2);
    for (index, buffer) in buffers.iter().enumerate() {
        if !buffer.is_empty() {
            events.push(Event { time: buffer.lower, starts: true, buffer: index });
            events.push(Event { time: buffer.upper, starts: false, buffer: index });
        }
    }
    events.sort_unstable();
    events
}

/// The sections of a set of buffers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sections {
    /// The sections in which each buffer is live, as a half-open range; `None` for empty buffers.
    pub(crate) spans: Vec<Option<(u32, u32)>>,
    /// The load of each section.
    pub(crate) load: Vec<u128>,
}

impl Sections {
    /// Sweeps over the lifetimes once: a section closes at the first end after a start.
    pub(crate) fn new(buffers: &[Buffer]) -> Self {
        let mut spans = vec![None; buffers.len()];
        let mut loads = Vec::new();
        let mut load: u128 = 0;
        let mut started_since_last_end = false;
        for event in events(buffers) {
            let size = u128::from(buffers[event.buffer].size);
            if event.starts {
                load += size;
                started_since_last_end = true;
                spans[event.buffer] = Some((loads.len() as u32, 0));
            } else {
                if started_since_last_end {
                    loads.push(load);
                    started_since_last_end = false;
                }
                load -= size;
                if let Some(span) = &mut spans[event.buffer] {
                    span.1 = loads.len() as u32;
                }
            }
        }
        Self { spans, load: loads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_the_drawing() {
        let buffers =
            [Buffer::new(0, 2, 1), Buffer::new(1, 4, 2), Buffer::new(2, 3, 4), Buffer::new(4, 5, 8)];
        let sections = Sections::new(&buffers);
        assert_eq!(sections.spans, [Some((0, 1)), Some((0, 2)), Some((1, 2)), Some((2, 3))]);
        assert_eq!(sections.load, [3, 6, 8]);
        assert_eq!(max_load(&buffers), Some(MaxLoad { time: 4, bytes: 8 }));
    }

    #[test]
    fn touching_lifetimes_do_not_meet() {
        let buffers = [Buffer::new(0, 5, 7), Buffer::new(5, 9, 7)];
        assert_eq!(max_load(&buffers), Some(MaxLoad { time: 0, bytes: 7 }));
        assert_eq!(Sections::new(&buffers).load, [7, 7]);
    }

    #[test]
    fn empty_buffers_are_never_alive() {
        let buffers = [Buffer::new(3, 3, 7), Buffer::new(9, 4, 7), Buffer::new(0, 9, 0)];
        assert_eq!(max_load(&buffers), None);
        assert_eq!(Sections::new(&buffers).spans, [None, None, None]);
    }

    #[test]
    fn loads_beyond_64_bits_are_exact() {
        let buffers = [Buffer::new(0, 2, u64::MAX), Buffer::new(1, 3, u64::MAX)];
        assert_eq!(max_load(&buffers), Some(MaxLoad { time: 1, bytes: 2 * u128::from(u64::MAX) }));
    }
}
