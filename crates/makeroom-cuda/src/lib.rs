//! The CUDA driver, loaded at run time. The only crate that calls it.
//!
//! Without a GPU, or with an old driver, a program gets an error that says so: nothing is linked or decided at
//! compile time, and nothing here panics. So the same code serves a plain program ([`Driver::load`]) and a library
//! inside another process, which already has the driver's functions ([`Driver::resolve`]).
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
//! # Ownership
//!
//! [`Stream`], [`Event`], [`Module`], [`DeviceMemory`], [`MemoryPool`], [`PhysicalMemory`], [`AddressRange`],
//! [`PinnedMemory`] and [`RegisteredMemory`] release their resource on drop and ignore errors. Each has a function
//! that does the same and returns the result. A [`Context`] must be ended explicitly, because that destroys
//! everything created in it.
//!
//! Memory is accessed through a [`Region`], which checks its bounds. Code that passes addresses to kernels, or gets
//! them from elsewhere, uses [`raw::Functions`], where every function is unsafe.
//!
//! # Source files
//!
//! ```text
//! raw.rs      every function in one table                 abi.rs    structures and constants
//! driver.rs   finding the driver                          error.rs  the failed call and its code
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
