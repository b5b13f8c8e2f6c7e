//! Units, IDs and the trace model that all parts of makeroom share.
//!
//! Nothing here reads files, parses text of frameworks, or prints. Glossary:
//!
//! - **live**: requested bytes, from the allocation until its free is complete;
//! - **pending**: the part of live memory whose free was requested and waits for a stream;
//! - **rounding**: memory that an allocator adds to a request;
//! - **reserved**: memory that an allocator holds from the driver; **cached**: reserved − live − rounding;
//! - **segment**: a piece of driver memory; **block**: a part of a segment handed to the program;
//! - **site**: the call stack of an allocation.
//!
//! ```
//! use makeroom_core::{Bytes, Framework};
//!
//! let request: Bytes = "1.5 GiB".parse()?;
//! assert_eq!(request, Bytes::mib(1536));
//! assert_eq!(request.to_string(), "1.50 GiB");
//! assert_eq!(Framework::PyTorchRocm.id(), Some("pytorch-rocm"));
//! assert!(Framework::PyTorchRocm.is_torch());
//! # Ok::<(), makeroom_core::ParseBytesError>(())
//! ```
#![forbid(unsafe_code)]

mod address_table;
mod bytes;
mod column;
mod events;
mod framework;
mod hash;
mod holder;
pub mod identity;
mod ids;
mod lifetimes;
mod process;
mod ranges;
mod shell;
mod sort;
mod stacks;
mod start;
mod taken;
mod trace;

pub use address_table::AddressTable;
pub use bytes::{Bytes, ParseBytesError, unit_bytes};
pub use events::{Action, Event, Events};
pub use framework::Framework;
pub use hash::{FastHasher, FastMap};
pub use holder::{Holder, Library};
pub use ids::{Address, DeviceIndex, PoolId, StreamId};
pub use lifetimes::{Lifetime, lifetimes};
pub use process::{
    AskedMeanwhile, CallCount, CodeRecord, CompactedHistory, ContextRecord, DeviceIdentity, DeviceSample,
    DriverKeeps, FailedLaunch, HeapLimit, HostSample, PageFigure, PagesUse, PendingFrees, PinnedBlock,
    PinnedMemory, PoolUse, ProcessEnd, ProcessIdentity, ProcessRecord, RefusedContext, Remark, StreamFrees,
};
pub use ranges::Ranges;
pub use shell::shell_word;
pub use sort::SortCompact;
pub use stacks::{Frame, FrameId, NameId, StackId, Stacks};
pub use start::{OlderBlock, OlderSegment, Start};
pub use taken::Taken;
pub use trace::{
    AllocatorSettings, Annotation, AnnotationStage, Block, BlockState, DeviceTrace, Segment, Trace, TraceKind,
};
