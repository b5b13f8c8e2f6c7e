//! NVML in software, built as `libnvidia-ml.so.1`: how much memory of each simulated GPU is in use, and by which
//! process.
//!
//! It reads the ledger of the processes that use `makeroom-simgpu` ([`makeroom_simcard::Ledger`]) and does not
//! allocate anything. Memory of a dead process counts as free. Figures relate as on an H200: the total is the
//! driver's total plus the reserve; used memory includes the reserve in version 1 of the structure, and excludes it
//! in version 2.
//!
//! # What is simulated
//!
//! Initialization and shutdown, versions, error texts; handles by index, UUID and bus ID; names, UUIDs, indices, bus
//! IDs, compute capability, compute mode, persistence, display; memory in both versions; compute, graphics and MPS
//! processes in three versions; MIG instances; accounting. Nothing else is exported: there are no clocks, fans or
//! power readings.
//!
//! PIDs of the ledger are those that each process sees itself. `MAKEROOM_SIMNVML` describes what the ledger cannot
//! contain; its keys are in `scenario.rs`.

mod abi;
mod accounting;
mod device;
mod memory;
mod processes;
mod scenario;
mod state;
mod system;
