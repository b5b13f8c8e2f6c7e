//! The driver's view of its GPUs, as data that can cross a pipe.
//!
//! NVML is called in a child process ([`Surveyor`]): a driver that hangs puts its caller into uninterruptible sleep,
//! and a process with such a thread cannot even exit. The child sends a [`Survey`] as one line of JSON. All figures
//! are the driver's; nothing is derived from them here.

mod read;
mod surveyor;

use serde::{Deserialize, Serialize};

pub use read::answer;
pub use surveyor::{SurveyError, Surveyor};

/// A snapshot of the driver's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// The driver's version: `580.159.03`.
    pub driver: String,
    /// The newest CUDA version it supports; 13000 is 13.0.
    pub cuda: Option<i32>,
    /// The GPUs, by index.
    pub cards: Vec<Card>,
}

impl Survey {
    /// The listed processes of all GPUs and MIG instances.
    pub fn listed(&self) -> impl Iterator<Item = &Listed> {
        let cards = self.cards.iter().flat_map(|card| std::iter::once(card).chain(&card.parts));
        cards.flat_map(|card| &card.listed)
    }
}

/// A GPU, or a MIG instance of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Its index in NVML.
    pub index: u32,
    /// `GPU-…`, or `MIG-…` for an instance; empty if it could not be read.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// PCI bus ID.
    pub bus_id: String,
    /// Minor number of `/dev/nvidiaN`; for a MIG instance, that of its GPU.
    pub minor: Option<u32>,
    /// Its memory; `None` if it could not be read.
    pub memory: Option<Memory>,
    /// The processes that the driver lists.
    pub listed: Vec<Listed>,
    /// Whether MIG is enabled.
    pub is_divided: bool,
    /// Its MIG instances.
    pub parts: Vec<Self>,
    /// Whether it drives a display.
    pub drives_display: Option<bool>,
    /// Whether the driver stays loaded when there is no user (persistence mode).
    pub is_persistent: Option<bool>,
    /// How many processes may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Whether the driver records peaks of processes (accounting mode).
    pub keeps_account: Option<bool>,
    /// Queries that failed.
    pub problems: Vec<Problem>,
}

/// A GPU's memory in bytes, as the driver reports it: `total = reserved + used + free`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Total memory.
    pub total: u64,
    /// Reserved by the driver.
    pub reserved: u64,
    /// Used, without the reserved part.
    pub used: u64,
    /// Free.
    pub free: u64,
}

/// A process in one of the driver's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// PID on the host, as the driver reports it.
    pub pid: u32,
    /// The list.
    pub list: List,
    /// Its memory, if the driver reports it.
    pub bytes: Option<u64>,
    /// Its peak, if accounting is on.
    pub peak: Option<u64>,
}

/// The driver's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum List {
    /// CUDA.
    Compute,
    /// Displays and rendering.
    Graphics,
    /// CUDA through MPS.
    Mps,
}

/// How many processes may use a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeMode {
    /// Any number of processes.
    Shared,
    /// One process.
    Exclusive,
    /// None.
    Prohibited,
}

/// A query that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The query.
    pub what: String,
    /// The driver's error.
    pub answer: String,
    /// The kind of error.
    pub kind: ProblemKind,
}

impl Problem {
    /// What to do about it, for this GPU.
    pub fn hint(&self, card: u32) -> String {
        match self.kind {
            ProblemKind::Lost => {
                "reboot; if it happens again, look for Xid 79 in dmesg and check the GPU's power and seating"
                    .to_owned()
            }
            ProblemKind::NeedsReset => format!("nvidia-smi --gpu-reset -i {card}"),
            ProblemKind::NoPermission => "run as root: sudo makeroom ps".to_owned(),
            ProblemKind::Other => {
                "check whether nvidia-smi reports the same error, and look for NVRM lines in dmesg".to_owned()
            }
        }
    }
}

/// Kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProblemKind {
    /// The user lacks the permission.
    NoPermission,
    /// The card fell off the bus.
    Lost,
    /// The GPU needs a reset.
    NeedsReset,
    /// Anything else.
    Other,
}
