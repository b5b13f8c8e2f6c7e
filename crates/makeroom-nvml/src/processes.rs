//! The process lists of a device.
//!
//! A list can grow between two calls, so the buffer has room for additional entries, and the list is read again if the buffer
//! was too small. Each entry has room for the longest one of any version: drivers 535.43 to 535.86 write 32 bytes and all
//! others write 24, in functions of the same name. The buffer consists of words, so entries of either size can be read from it.

use crate::abi::{Handle, LongProcessInfo, ProcessInfo};
use crate::device::{Device, available};
use crate::error::{Code, Error, Result};
use crate::library::bounded;
use crate::raw::Functions;

/// Entries in the first buffer.
const FIRST_ROOM: u32 = 32;
/// Entries beyond the reported number, for processes that start before the next call.
const HEADROOM: u32 = 8;
/// Maximum number of times to read a list that keeps growing.
const ATTEMPTS: usize = 8;
/// Maximum number of processes; a larger count is an error.
const MOST_PROCESSES: u32 = 1 << 16;

/// Words in an entry.
const ENTRY: usize = size_of::<ProcessInfo>() / size_of::<u64>();
/// Words in an entry with the additional field.
const LONG_ENTRY: usize = size_of::<LongProcessInfo>() / size_of::<u64>();

/// NVML's process lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Processes with a compute context.
    Compute,
    /// Processes with a graphics context.
    Graphics,
    /// MPS clients.
    Mps,
}

/// A process in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its PID, in the namespace that the driver sees.
    pub pid: u32,
    /// Its memory in bytes; `None` if the driver does not know it.
    pub used_memory: Option<u64>,
}

/// A function that fills a list.
type ReadList = unsafe fn(&Functions, Handle, *mut u32, *mut ProcessInfo) -> Result<()>;

impl Device<'_> {
    /// The processes in a list. If the newest version of the function is missing, an older one is called.
    pub fn processes(self, list: List) -> Result<Vec<Process>> {
        let (newest, older): (ReadList, Option<ReadList>) = match list {
            List::Compute => (Functions::compute_processes_v3, Some(Functions::compute_processes_v2)),
            List::Graphics => (Functions::graphics_processes_v3, Some(Functions::graphics_processes_v2)),
            List::Mps => (Functions::mps_processes_v3, None),
        };
        let length = if self.library.has_long_entries { LONG_ENTRY } else { ENTRY };
        match (self.read(newest, length), older) {
            (Err(Error::Missing { .. }), Some(older)) => self.read(older, ENTRY),
            (processes, _) => processes,
        }
    }

    /// Reads a list whose entries have `length` words.
    fn read(self, function: ReadList, length: usize) -> Result<Vec<Process>> {
        let mut room = FIRST_ROOM;
        let mut attempts = 1;
        loop {
            let mut words = vec![0_u64; room as usize * LONG_ENTRY];
            let mut count = room;
            // SAFETY: the handle is NVML's, and the buffer has room for `count` entries, even if they are long.
            let result = unsafe {
                function(&self.library.functions, self.handle, &raw mut count, words.as_mut_ptr().cast())
            };
            match result {
                Ok(()) => {
                    let entries = words.chunks_exact(length).take(count.min(room) as usize);
                    return Ok(entries.map(process).collect());
                }
                Err(error) if error.code() == Some(Code::INSUFFICIENT_SIZE) && attempts < ATTEMPTS => {
                    room = bounded("processes", count, MOST_PROCESSES)?.max(room) + HEADROOM;
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The first two fields of an entry: the PID, and the memory in the second word.
fn process(words: &[u64]) -> Process {
    let [first, second, third, fourth, ..] = words[0].to_ne_bytes();
    let pid = u32::from_ne_bytes([first, second, third, fourth]);
    Process { pid, used_memory: available(words[1]) }
}
