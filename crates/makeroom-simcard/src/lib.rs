//! The simulated machine's cards: how many, how large, and which process holds how much of them.
//!
//! Two libraries look at the same cards: `makeroom-simgpu` (`libcuda.so.1`) takes and gives back memory,
//! `makeroom-simnvml` (`libnvidia-ml.so.1`) tells who has it. What they share is here:
//!
//! ```text
//! description.rs   MAKEROOM_SIMGPU as data         ledger.rs    pages taken, per process, in a shared file
//! identity.rs      names, UUIDs, bus ids           process.rs   is the process that took them still there?
//! install.rs       a folder with both libraries    table.rs     the bytes of the shared file
//! ```
//!
//! # Environment
//!
//! `MAKEROOM_SIMGPU` describes the machine: `devices=2,memory=8GiB,context=512MiB`; every key and its default
//! stands at [`Description`]. `MAKEROOM_SIMGPU_DIR` is the folder of the shared file; processes with the same
//! folder and the same cards share these cards. Without it: `$XDG_RUNTIME_DIR/makeroom-simgpu`, or
//! `makeroom-simgpu-UID` in the folder for temporary files. A test that must not meet other tests sets it.

mod description;
mod identity;
pub mod install;
mod ledger;
mod process;
mod table;

pub use description::{Delay, Description, DescriptionError, Fault, parse_size};
pub use identity::{bus_id, driver_version, name, uuid, uuid_text};
pub use ledger::{Holder, Ledger, Member};
pub use table::DEVICES;

/// Bytes of a page of device memory: the grain in which a card is taken and given back.
pub const PAGE: u64 = 2 << 20;
