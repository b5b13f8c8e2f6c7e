//! Structures that may grow: the caller says how large its own is.
//!
//! A program and the library it finds at run time may come from different versions. What the library knows beyond the
//! caller's size is left at its default when read and left out when written; what the caller has beyond the library's
//! must be zero when read and is not touched when written.

use makeroom_core::Bytes;

use crate::abi::RawOptions;
use crate::failure::{Failure, Result};

/// No structure will be larger: a size beyond is a variable that was not set.
const LARGEST: usize = 4096;

/// The most events that are remembered: some 6 GiB of host memory.
const MOST_EVENTS: usize = 100_000_000;

/// The size that a caller wrote into the first field of its structure.
///
/// # Safety
///
/// `from` is null or begins with a readable size.
pub(crate) unsafe fn size_of_callers<T>(from: *const T, name: &str) -> Result<usize> {
    if from.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: not null, so the caller's structure begins there; it need not be aligned.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=LARGEST).contains(&size) {
        return Err(Failure::argument(format!(
            "{name}->size is {size}\n\nhint: set it to sizeof(*{name}) before the call"
        )));
    }
    Ok(size)
}

/// What a caller asks of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    /// The most that may be taken from the device.
    pub(crate) limit: Option<Bytes>,
    /// The most that may go to host memory.
    pub(crate) spill: Option<Bytes>,
    /// How many events are remembered.
    pub(crate) history: usize,
}

/// Reads options; null is the default of all.
///
/// # Safety
///
/// `from` is null or points to as many readable bytes as its first field says.
pub(crate) unsafe fn read(from: *const RawOptions) -> Result<Wishes> {
    if from.is_null() {
        return Ok(Wishes::default());
    }
    // SAFETY: passed on to the caller.
    let size = unsafe { size_of_callers(from, "options") }?;
    let mut known = RawOptions::default();
    let common = size.min(size_of::<RawOptions>());
    // SAFETY: both have so many bytes, and all bytes are values of its fields.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut known).cast::<u8>(), common) };
    for offset in common..size {
        // SAFETY: the caller's structure has `size` bytes.
        if unsafe { from.cast::<u8>().add(offset).read() } != 0 {
            let text = "options asks for something that this version of the library does not have\n\nhint: \
                        update libmakeroom_pool, or leave the newer fields zero";
            return Err(Failure::argument(text.to_owned()));
        }
    }
    let history = usize::try_from(known.history).unwrap_or(usize::MAX).min(MOST_EVENTS);
    let if_set = |bytes: u64| (bytes != 0).then_some(Bytes::new(bytes));
    Ok(Wishes { limit: if_set(known.limit), spill: if_set(known.spill), history })
}

/// Writes as much of `values` as the caller has room for, its own size left as it is.
///
/// # Safety
///
/// `to` is null or points to as many writable bytes as its first field says.
pub(crate) unsafe fn write<T: Copy>(to: *mut T, name: &str, values: &T) -> Result<()> {
    // SAFETY: passed on to the caller.
    let size = unsafe { size_of_callers(to, name) }?;
    let start = size_of::<usize>();
    let bytes = size.min(size_of::<T>()) - start;
    let from = std::ptr::from_ref(values).cast::<u8>();
    // SAFETY: both have so many bytes behind their first field.
    unsafe { std::ptr::copy_nonoverlapping(from.add(start), to.cast::<u8>().add(start), bytes) };
    Ok(())
}
