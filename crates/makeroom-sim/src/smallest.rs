//! The least memory in which a program completes under an allocator, found by running it.
//!
//! Completion is not monotonic in memory: an allocator that releases memory when it runs short can succeed in less
//! memory than it fails in, and a pool that preallocates a share is divided differently for every size. The result is
//! therefore not claimed to be the smallest of all sizes. It is guaranteed, because both were run, that the program
//! completes in the result and does not complete in one page less.

use crate::allocators::AllocatorSpec;
use crate::device::PAGE;
use crate::program::Program;

/// Upper limit of the search: no device has more.
const LARGEST: u64 = 1 << 50;

/// The least memory in which a program completes, in whole pages of 2 MiB; the module documentation defines what
/// that means. `None` if it does not complete in any memory that a device could have.
///
/// A run ends at its first failed allocation, so most of the roughly fifteen runs are short.
pub fn smallest_memory(program: &Program, spec: &AllocatorSpec) -> Option<u64> {
    let completes = |pages: u64| spec.run(program, Some(pages * PAGE)).refusal.is_none();
    let unlimited = spec.run(program, None);
    if unlimited.refusal.is_some() {
        return None;
    }
    if spec.needs_the_same_in_any_memory() {
        return Some(unlimited.peak_reserved.next_multiple_of(PAGE));
    }
    let live = unlimited.peak_live.div_ceil(PAGE);
    let (too_little, enough) = bracket(live, unlimited.peak_reserved.div_ceil(PAGE).max(live), completes)?;
    Some(bisect(too_little, enough, completes) * PAGE)
}

/// A size in which the program does not complete and a larger one in which it does, starting from guesses: usually just
/// below peak live memory, and the memory reserved without a limit.
///
/// Neither guess is certain. Expandable segments are charged for whole requests but map only the missing part, so they
/// can fail under a limit that they would not exceed; they also map more than they are charged for.
fn bracket(live: u64, reserved: u64, completes: impl Fn(u64) -> bool) -> Option<(u64, u64)> {
    let mut enough = reserved;
    let mut too_little = live.checked_sub(1);
    let mut step = 1;
    while !completes(enough) {
        too_little = Some(enough);
        enough += step;
        step *= 2;
        if enough > LARGEST / PAGE {
            return None;
        }
    }
    step = 1;
    while let Some(guess) = too_little.filter(|&guess| guess > 0 && completes(guess)) {
        enough = guess;
        too_little = guess.checked_sub(step);
        step *= 2;
    }
    // Without memory, only a program without requests completes.
    Some((too_little.unwrap_or(0), enough))
}

/// Bisects down to one page: `too_little` never completes, the result does.
fn bisect(mut too_little: u64, mut enough: u64, completes: impl Fn(u64) -> bool) -> u64 {
    while too_little + 1 < enough {
        let middle = u64::midpoint(too_little, enough);
        if completes(middle) {
            enough = middle;
        } else {
            too_little = middle;
        }
    }
    enough
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::parse;
    use crate::testing::Script;

    const MIB: u64 = 1 << 20;

    /// Blocks that keep every second hole open, and one that needs two holes.
    fn fragmenting() -> Program {
        let mut script = Script::default();
        let blocks: Vec<u32> = (0..8).map(|_| script.allocate(12 * MIB)).collect();
        for &block in blocks.iter().step_by(2) {
            script.free(block);
        }
        script.allocate(24 * MIB);
        script.program()
    }

    #[test]
    fn the_result_completes_and_one_page_less_does_not() {
        let program = fragmenting();
        for name in [
            "pytorch",
            "pytorch:expandable_segments:True",
            "pytorch-2.9:max_split_size_mb:20",
            "bfc",
            "bfc:preallocate=false",
            "cuda-async",
            "cupy",
            "rmm-pool",
            "rmm-pool:initial=8MiB",
            "ideal",
        ] {
            let spec = parse(name).unwrap();
            let memory = smallest_memory(&program, &spec).unwrap();
            assert_eq!(spec.run(&program, Some(memory)).refusal, None, "{name}");
            assert!(spec.run(&program, Some(memory - PAGE)).refusal.is_some(), "{name}");
        }
    }

    #[test]
    fn the_least_of_the_ideal_allocator_is_what_is_live() {
        assert_eq!(smallest_memory(&fragmenting(), &parse("ideal").unwrap()), Some(96 * MIB));
    }

    #[test]
    fn nothing_needs_nothing_and_the_impossible_has_no_answer() {
        assert_eq!(smallest_memory(&Program::default(), &parse("ideal").unwrap()), Some(0));
        let mut script = Script::default();
        script.allocate(u64::MAX);
        assert_eq!(smallest_memory(&script.program(), &parse("pytorch").unwrap()), None);
    }
}
