//! NVML, NVIDIA's management library, loaded at run time, with typed wrappers.
//!
//! NVML reports each GPU's memory and its processes without creating a context on it. This crate has the functions that
//! makeroom calls, and no others: no clocks, fans or power readings. Nothing is linked: if the driver is missing
//! or too old for a function, the program gets an error.
//!
//! ```
//! use makeroom_nvml::{Error, Library, List};
//!
//! fn main() -> Result<(), Error> {
//!     let library = match Library::open("libnvidia-ml.so.1") {
//!         Ok(library) => library,
//!         Err(error) => {
//!             println!("no GPU to look at: {error}");
//!             return Ok(());
//!         }
//!     };
//!     for index in 0..library.device_count()? {
//!         let device = library.device(index)?;
//!         let memory = device.memory()?;
//!         println!("{}: {} of {} bytes free", device.name()?, memory.free, memory.total);
//!         for process in device.processes(List::Compute)? {
//!             println!("  process {}: {:?} bytes", process.pid, process.used_memory);
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Trust
//!
//! A library found by name need not be NVIDIA's, and values change between calls. Counts are therefore bounded, lists are
//! read again if they have grown, strings end at the end of their buffer at the latest, and an unknown enum value is an
//! error. There is no defense against a library that writes outside the buffers it is given.
//!
//! A call into a driver that hangs does not return, and nothing can interrupt it. Programs that must not hang call NVML in
//! a child process.
//!
//! # Source files
//!
//! ```text
//! raw.rs      every function in one table                 abi.rs    structures and constants
//! library.rs  loading, initialization and shutdown        error.rs  errors and NVML's return codes
//! device.rs   properties of a GPU or MIG instance         processes.rs  its process lists
//! ```

mod abi;
mod device;
mod error;
mod library;
mod processes;
mod raw;
#[cfg(test)]
mod tests;

pub use device::{ComputeMode, Device, Memory};
pub use error::{Code, Error, Result};
pub use library::Library;
pub use processes::{List, Process};
