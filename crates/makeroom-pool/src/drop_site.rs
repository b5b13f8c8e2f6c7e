//! Finds where a value was dropped, in debug builds: the first frame above the drop glue.
//!
//! `#[track_caller]` does not reach through drop glue. Walking the stack takes microseconds, but resolving a function
//! takes milliseconds, so the result is cached per return address. A forked child is not walked: the dynamic linker's
//! lock may be held there forever.

use std::sync::{Mutex, PoisonError};

use makeroom_core::FastMap;

use crate::fork::Process;

/// Maximum number of frames to search.
const DEEPEST: usize = 32;

/// Return addresses, and whether their code only passes a drop on.
static KNOWN: Mutex<Option<FastMap<usize, bool>>> = Mutex::new(None);

/// The return address in the function that dropped a value, called from inside the drop.
pub(crate) fn find() -> Option<u64> {
    if Process::is_forked() {
        return None;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(FastMap::default);
    let (mut depth, mut found) = (0, None);
    let mut visit = |frame: &backtrace::Frame| {
        let address = frame.ip() as usize;
        let passes_on = *known.entry(address).or_insert_with(|| passes_on(address));
        depth += 1;
        found = (!passes_on).then_some(address as u64);
        passes_on && depth < DEEPEST
    };
    // SAFETY: the crate's own lock is for platforms whose unwinders need one; Linux's does not. Resolving names,
    // which must not run concurrently, is under the lock above.
    unsafe { backtrace::trace_unsynchronized(&mut visit) };
    found
}

/// Whether all functions at an address, including inlined ones, belong to the language or to this crate.
fn passes_on(address: usize) -> bool {
    let (mut any, mut all) = (false, true);
    each_symbol(address, |symbol| {
        any = true;
        all &= is_own(symbol);
    });
    any && all
}

/// Decided by file: with line tables only, names are incomplete.
fn is_own(symbol: &backtrace::Symbol) -> bool {
    let this_crate = file!().trim_end_matches("drop_site.rs");
    let file = symbol.filename().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    ["/rustc/", "/rustlib/", "/registry/src/", this_crate].iter().any(|part| file.contains(part))
}

fn each_symbol(address: usize, mut see: impl FnMut(&backtrace::Symbol)) {
    // A return address follows the call; the call itself has the line.
    let call = (address - 1) as *mut std::ffi::c_void;
    // SAFETY: under this module's lock, so not concurrent with another call from here.
    unsafe { backtrace::resolve_unsynchronized(call, &mut see) };
}

/// The line of the program's own code at a return address, in debug builds.
pub(crate) fn line(address: u64) -> Option<String> {
    if !cfg!(debug_assertions) || Process::is_forked() || address == 0 {
        return None;
    }
    let _known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut line = None;
    each_symbol(address as usize, |symbol| {
        let (file, number) = (symbol.filename(), symbol.lineno());
        if let (None, false, Some(file), Some(number)) = (&line, is_own(symbol), file, number) {
            line = Some(format!("{}:{number}", file.display()));
        }
    });
    line
}
