//! Structures that may grow: the caller passes the size of its own.
//!
//! A program and the library it finds at run time may have different versions. Fields that only the library knows
//! keep their default when read, and are not written. Fields that only the caller knows must be zero when read, and
//! are left alone when written.

use makeroom_core::Bytes;

use crate::abi::RawOptions;
use crate::failure::{Failure, Result};

/// Maximum size of a structure: a larger value is an uninitialized variable.
const LARGEST: usize = 4096;

/// Maximum number of events in a history: about 6 GiB of host memory.
const MOST_EVENTS: usize = 100_000_000;

/// The size that a caller stored in the first field of its structure.
///
/// # Safety
///
/// `from` is null or begins with a readable size.
pub(crate) unsafe fn size_of_callers<T>(from: *const T, name: &str) -> Result<usize> {
    if from.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: not null, so the caller's structure starts there; it need not be aligned.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=LARGEST).contains(&size) {
        return Err(Failure::argument(format!(
            "{name}->size is {size}\n\nhint: set it to sizeof(*{name}) before the call"
        )));
    }
    Ok(size)
}

/// A caller's options for a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    /// Maximum device memory.
    pub(crate) limit: Option<Bytes>,
    /// Maximum host memory for spilling.
    pub(crate) spill: Option<Bytes>,
    /// Number of events in the history.
    pub(crate) history: usize,
}

/// Reads options; null means all defaults.
///
/// # Safety
///
/// `from` is null or points to as many readable bytes as its first field says.
pub(crate) unsafe fn read(from: *const RawOptions) -> Result<Wishes> {
    if from.is_null() {
        return Ok(Wishes::default());
    }
    // SAFETY: guaranteed by the caller.
    let size = unsafe { size_of_callers(from, "options") }?;
    let mut known = RawOptions::default();
    let common = size.min(size_of::<RawOptions>());
    // SAFETY: both have `common` bytes, and any bytes are valid for the fields.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut known).cast::<u8>(), common) };
    for offset in common..size {
        // SAFETY: the caller's structure has `size` bytes.
        if unsafe { from.cast::<u8>().add(offset).read() } != 0 {
            let text = "options sets a field that this version of the library does not have\n\nhint: \
                        update libmakeroom_pool, or leave the newer fields zero";
            return Err(Failure::argument(text.to_owned()));
        }
    }
    let history = usize::try_from(known.history).unwrap_or(usize::MAX).min(MOST_EVENTS);
    let if_set = |bytes: u64| (bytes != 0).then_some(Bytes::new(bytes));
    Ok(Wishes { limit: if_set(known.limit), spill: if_set(known.spill), history })
}

/// Writes as much of `values` as fits into the caller's structure, except its size field.
///
/// # Safety
///
/// `to` is null or points to as many writable bytes as its first field says.
pub(crate) unsafe fn write<T: Copy>(to: *mut T, name: &str, values: &T) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { size_of_callers(to, name) }?;
    let start = size_of::<usize>();
    let bytes = size.min(size_of::<T>()) - start;
    let from = std::ptr::from_ref(values).cast::<u8>();
    // SAFETY: both have `bytes` bytes after their first field.
    unsafe { std::ptr::copy_nonoverlapping(from.add(start), to.cast::<u8>().add(start), bytes) };
    Ok(())
}
