//! Recognises the rounds of a loop that the program does not mark: by a place that takes the same size in every round and
//! never gives it back, while other memory comes and goes.
//!
//! Weights are many blocks of one size too, but they are all taken before the work begins. Of programs with PyTorch this
//! says nothing: a forward pass takes the same size in every layer and keeps it for the backward pass, and their optimizers
//! mark the steps.

use makeroom_core::{Action, Bytes, DeviceTrace, FastMap, Framework, StackId, Trace};

use super::source::framework;

/// Fewer rounds than this say nothing.
const LEAST_ROUNDS: usize = 8;
/// The place holds at least this share of all that is live in the end.
const LEAST_SHARE: f64 = 0.25;
/// No round is longer than this many usual ones, in events.
const LONGEST_ROUND: usize = 4;

/// The rounds of a loop.
#[derive(Debug)]
pub(super) struct Rounds {
    /// The events at which they begin, ascending.
    pub(super) starts: Vec<usize>,
    /// Who keeps something from each of them.
    pub(super) stack: StackId,
    /// What is asked for at a time.
    pub(super) size: Bytes,
}

/// What one place did with one size.
#[derive(Debug, Default)]
struct Kept {
    starts: Vec<usize>,
    live: u64,
    is_ever_freed: bool,
    /// How many frees there had been in all when it was asked last.
    frees_before: usize,
}

impl Rounds {
    /// Looks for them up to the first refusal: what a program does after that is another story.
    pub(super) fn find(trace: &Trace, device: &DeviceTrace) -> Option<Self> {
        if trace.process.is_none() || framework(trace) != Framework::Unknown {
            return None;
        }
        let actions = device.events.actions();
        let end = actions.iter().position(|&action| action == Action::OutOfMemory).unwrap_or(actions.len());
        let places = read(device, end);
        let bytes = |(_, size): &(StackId, Bytes), kept: &Kept| Bytes::new(size.get() * kept.live);
        let all: Bytes = places.iter().map(|(place, kept)| bytes(place, kept)).sum();
        let steady = places.iter().filter(|(place, kept)| {
            !kept.is_ever_freed
                && bytes(place, kept).share_of(all) >= LEAST_SHARE
                && are_even(&kept.starts, end)
        });
        let (&(stack, size), kept) =
            steady.max_by_key(|(place, kept)| (bytes(place, kept), std::cmp::Reverse(kept.starts[0])))?;
        Some(Self { starts: kept.starts.clone(), stack, size })
    }
}

fn read(device: &DeviceTrace, end: usize) -> FastMap<(StackId, Bytes), Kept> {
    let mut places: FastMap<(StackId, Bytes), Kept> = FastMap::default();
    let mut owners: FastMap<u64, (StackId, Bytes)> = FastMap::default();
    let mut frees = 0;
    for (index, event) in device.events.iter().enumerate().take(end) {
        match event.action {
            Action::Alloc => {
                let place = (event.stack, event.size);
                owners.insert(event.address.0, place);
                let kept = places.entry(place).or_default();
                // Several blocks in a row are of one round.
                if kept.live == 0 || frees > kept.frees_before {
                    kept.starts.push(index);
                }
                kept.live += 1;
                kept.frees_before = frees;
            }
            Action::FreeCompleted => {
                frees += 1;
                if let Some(kept) = owners.remove(&event.address.0).and_then(|place| places.get_mut(&place)) {
                    kept.live = kept.live.saturating_sub(1);
                    kept.is_ever_freed = true;
                    // Nothing more is asked about it, and a place that comes and goes has a start for each time.
                    kept.starts = Vec::new();
                }
            }
            _ => {}
        }
    }
    places
}

/// Whether rounds are many, of about the same length, and go on to the end.
fn are_even(starts: &[usize], end: usize) -> bool {
    if starts.len() < LEAST_ROUNDS {
        return false;
    }
    let ends = starts.iter().skip(1).copied().chain([end]);
    let lengths: Vec<usize> = starts.iter().zip(ends).map(|(start, end)| end - start).collect();
    let mut ordered = lengths.clone();
    let (_, &mut usual, _) = ordered.select_nth_unstable(lengths.len() / 2);
    let is_spread = (end - starts[0]) * 2 >= end;
    is_spread && lengths.iter().all(|&length| length <= LONGEST_ROUND * usual)
}
