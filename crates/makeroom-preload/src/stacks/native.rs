//! Native stack walks with the unwind tables that compilers emit for exceptions. They need no frame pointers and
//! cover every library that was not stripped of them. libgcc walks the stack, as for a thrown exception; since glibc
//! 2.35 that takes no lock. Only addresses are kept.

use std::ffi::c_void;

use crate::record::words::Words;

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

/// Appends the calling thread's return addresses, innermost first. Returns how many.
pub(crate) fn walk(words: &mut Words, most: usize) -> usize {
    let mut walk = Walk { words, most, count: 0 };
    // SAFETY: `step` receives the pointer given here, to a `Walk` that outlives the call.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.count
}

extern "C" fn step(context: *mut c_void, walk: *mut c_void) -> i32 {
    // SAFETY: `walk` is the pointer passed above, and nothing else uses the `Walk` during the call.
    let Some(walk) = (unsafe { walk.cast::<Walk<'_>>().as_mut() }) else { return STOP };
    // SAFETY: the unwinder just passed this context.
    let address = unsafe { _Unwind_GetIP(context) } as u64;
    // The outermost frame of a thread has no return address.
    if address == 0 || walk.count == walk.most {
        return STOP;
    }
    walk.words.push(address);
    walk.count += 1;
    GO_ON
}

/// Whether any of the calling thread's `most` innermost return addresses satisfies the predicate.
pub(crate) fn any(most: usize, is_wanted: impl Fn(usize) -> bool) -> bool {
    struct Search<F> {
        is_wanted: F,
        left: usize,
        is_found: bool,
    }
    extern "C" fn step<F: Fn(usize) -> bool>(context: *mut c_void, search: *mut c_void) -> i32 {
        // SAFETY: `search` is the pointer passed below, and nothing else uses the `Search` during the call.
        let Some(search) = (unsafe { search.cast::<Search<F>>().as_mut() }) else { return STOP };
        // SAFETY: the unwinder just passed this context.
        let address = unsafe { _Unwind_GetIP(context) };
        search.is_found = (search.is_wanted)(address);
        search.left -= 1;
        if search.is_found || address == 0 || search.left == 0 { STOP } else { GO_ON }
    }
    fn step_of<F: Fn(usize) -> bool>(_: &F) -> extern "C" fn(*mut c_void, *mut c_void) -> i32 {
        step::<F>
    }
    let step = step_of(&is_wanted);
    let mut search = Search { is_wanted, left: most.max(1), is_found: false };
    // SAFETY: the step receives a pointer to the search that it was instantiated for, which outlives the call.
    unsafe { _Unwind_Backtrace(step, (&raw mut search).cast()) };
    search.is_found
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

    #[test]
    fn a_caller_is_searched_for_no_further_than_wanted() {
        let mut words = Words::new();
        walk(&mut words, 64);
        let outer = words.all()[3] as usize;
        assert!(any(64, |address| address == outer));
        assert!(!any(2, |address| address == outer));
        assert!(!any(64, |_| false));
    }
}
