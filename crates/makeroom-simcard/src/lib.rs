//! The GPUs of the simulated machine: their number and size, and which process holds how much of them.
//!
//! Two libraries share these GPUs: `makeroom-simgpu` (`libcuda.so.1`) allocates and frees memory, `makeroom-simnvml`
//! (`libnvidia-ml.so.1`) reports which process holds it. Their shared parts are here:
//!
//! ```text
//! description.rs   MAKEROOM_SIMGPU as data            ledger.rs    allocated pages by process, in a shared file
//! identity.rs      names, UUIDs, bus IDs              process.rs   whether a process is still alive
//! install.rs       a directory with both libraries    table.rs     the layout of the shared file
//! testing/         the harness of tests on these GPUs
//! ```
//!
//! # Environment
//!
//! `MAKEROOM_SIMGPU` describes the machine: `devices=2,memory=8GiB,context=512MiB`; all keys and defaults are at
//! [`Description`]. `MAKEROOM_SIMGPU_DIR` is the directory of the shared file; processes with the same directory and
//! the same description of GPUs share them. The default is `$XDG_RUNTIME_DIR/makeroom-simgpu`, or
//! `makeroom-simgpu-UID` in the directory for temporary files. Tests that must be isolated set it.

mod description;
mod identity;
pub mod install;
mod ledger;
mod process;
mod table;
pub mod testing;

pub use description::{Delay, Description, DescriptionError, Fault, parse_size};
pub use identity::{bus_id, driver_version, name, uuid, uuid_text};
pub use ledger::{Holder, Ledger, Member};
pub use table::DEVICES;

/// Page size of device memory, in bytes: GPU memory is allocated in these units.
pub const PAGE: u64 = 2 << 20;
