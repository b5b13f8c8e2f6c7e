//! Native stacks, by the tables that compilers write for exceptions: they need no frame pointers and cover every
//! library that was not stripped of them. The walk is libgcc's, as for a thrown exception; since glibc 2.35 it takes
//! no lock. Only addresses are kept.

use std::ffi::c_void;

use super::Words;

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> i32, argument: *mut c_void) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

const GO_ON: i32 = 0;
const STOP: i32 = 4;

struct Walk<'words> {
    words: &'words mut Words,
    most: usize,
    count: usize,
}

/// Adds the return addresses of the calling thread, innermost first, and says how many.
pub(crate) fn walk(words: &mut Words, most: usize) -> usize {
    let mut walk = Walk { words, most, count: 0 };
    // SAFETY: `step` gets the pointer it is given here, to a `Walk` that outlives the call.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.count
}

extern "C" fn step(context: *mut c_void, walk: *mut c_void) -> i32 {
    // SAFETY: `walk` is what the caller above passed, and nobody else holds it during the walk.
    let Some(walk) = (unsafe { walk.cast::<Walk<'_>>().as_mut() }) else { return STOP };
    // SAFETY: the context is the one that the unwinder just handed over.
    let address = unsafe { _Unwind_GetIP(context) } as u64;
    // Where a thread began there is none.
    if address == 0 || walk.count == walk.most {
        return STOP;
    }
    walk.words.push(address);
    walk.count += 1;
    GO_ON
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_are_found_and_a_short_buffer_is_enough() {
        let mut words = Words::new();
        let count = walk(&mut words, 64);
        assert!(count > 3, "{count}");
        assert!(words.all().len() == count && words.all().iter().all(|&frame| frame != 0));
        assert_eq!(walk(&mut Words::new(), 2), 2);
    }
}
