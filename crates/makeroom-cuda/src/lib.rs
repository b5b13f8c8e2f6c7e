//! The CUDA driver, found at run time. The only crate that calls it.
//!
//! A program without a GPU, or with an old driver, gets an error that says so: nothing is linked, nothing is decided
//! when this crate is compiled, and nothing here panics. So the same code serves a plain program
//! ([`Driver::load`]) and a library inside somebody else's process, which has the driver's own functions already
//! ([`Driver::resolve`]).
//!
//! ```no_run
//! # fn main() -> Result<(), makeroom_cuda::Error> {
//! let driver = makeroom_cuda::Driver::load()?;
//! let context = driver.device(0)?.retain_primary()?;
//! context.make_current()?;
//! let memory = makeroom_cuda::DeviceMemory::allocate(driver, makeroom_core::Bytes::mib(64))?;
//! memory.region().fill(0)?;
//! memory.free()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What owns what
//!
//! [`Stream`], [`Event`], [`Module`], [`DeviceMemory`], [`MemoryPool`], [`PhysicalMemory`], [`AddressRange`],
//! [`PinnedMemory`] and [`RegisteredMemory`] give back what they hold when they are dropped; what the driver answers
//! then is not heard. Each has a function that does the same and returns the answer. A [`Context`] stays until it is
//! given back by hand: everything made in it would die with it.
//!
//! Memory is reached through a [`Region`], which knows its bounds. What hands addresses on to kernels or gets them from
//! elsewhere uses [`raw::Functions`], whose every function is unsafe.
//!
//! # Order of the source
//!
//! ```text
//! raw.rs      every function in one table, and how a missing one is an error       abi.rs    structures and constants
//! driver.rs   finding the driver                                                    error.rs  which call, which code
//! device.rs  context.rs  stream.rs  event.rs  capture.rs  module.rs
//! memory.rs  pool.rs  virtual_memory.rs  host.rs  region.rs
//! ```

mod abi;
mod capture;
mod context;
mod device;
mod driver;
mod error;
mod event;
mod host;
mod memory;
mod module;
mod pool;
pub mod raw;
mod region;
mod stream;
mod virtual_memory;

pub use abi::{AccessDescription, AllocationProperties, Location, PoolProperties};
pub use capture::{CaptureMode, CaptureModeGuard, CaptureStatus};
pub use context::{Context, CurrentContext, Limit, MemoryInfo};
pub use device::{Attribute, Device};
pub use driver::Driver;
pub use error::{Code, Error, Refusal, Result};
pub use event::{Event, EventKind};
pub use host::{PinnedKind, PinnedMemory, RegisteredMemory};
pub use memory::DeviceMemory;
pub use module::{Function, Launch, Module};
pub use pool::{MemoryPool, PoolAttribute, PoolFigures};
pub use region::Region;
pub use stream::{Stream, StreamKind};
pub use virtual_memory::{Access, AddressRange, Granularity, PhysicalMemory};
