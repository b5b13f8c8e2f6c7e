//! NVML in software, built as `libnvidia-ml.so.1`: how much of each simulated card is taken, and by which
//! process.
//!
//! It reads the account that the processes using `makeroom-simgpu` keep ([`makeroom_simcard::Ledger`]) and
//! changes nothing. Memory of a process that is gone counts as free. Figures stand to each other as on an
//! H200: the total is what the driver calls total and the reserve; used memory leaves out the reserve in the
//! second form of the structure and contains it in the first.
//!
//! # What there is
//!
//! Start and end, versions, error texts; handles by index, UUID and bus id; names, UUIDs, indices, bus ids,
//! compute capability, compute mode, persistence, display; memory in both forms; compute, graphics and MPS
//! processes in three forms; parts of a divided card; accounting. Everything else is not exported: there are no
//! clocks, fans or watts to tell of.
//!
//! Processes of the account are numbered as this process sees them; one of another PID namespace is taken for dead.
//! What the account cannot hold is described by `MAKEROOM_SIMNVML`: its keys stand in `scenario.rs`.

mod abi;
mod accounting;
mod device;
mod memory;
mod processes;
mod scenario;
mod state;
mod system;
