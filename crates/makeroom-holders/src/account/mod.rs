//! The account of each device. It always adds up:
//!
//! ```text
//! total = free + reserved + Σ holders + unlisted
//! ```
//!
//! `unlisted` is the remainder of the driver's own figures, so the equation holds by construction. It can be negative
//! if the driver's lists and its total were read at different times.

mod cause;
mod causes;
mod findings;
mod join;

use std::fmt;
use std::time::SystemTime;

use makeroom_core::Bytes;

use crate::processes::{Process, View};
use crate::recording::Recording;
use crate::survey::{Card, ComputeMode, List, Problem, SurveyError};

pub use cause::{Cause, UnlistedCause};
pub use findings::Finding;
pub(crate) use findings::is_worker;
pub(crate) use join::join;

/// Less memory than this without a listed owner is normal: the driver keeps some for itself.
pub(crate) const LEAST_UNLISTED: Bytes = Bytes::mib(128);

/// A snapshot of which processes hold memory, on all devices.
#[derive(Debug)]
pub struct Account {
    /// Time of the snapshot.
    pub taken: SystemTime,
    /// Host name.
    pub host: String,
    /// The driver, or why it could not be queried.
    pub driver: Result<Driver, SurveyError>,
    /// The devices, in the driver's order.
    pub devices: Vec<Device>,
    /// Processes that have the driver's files open. Also known if the driver could not be queried.
    pub users: Vec<Process>,
    /// What is visible from here.
    pub view: View,
}

/// The driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its version.
    pub version: String,
    /// The newest CUDA version it supports; 13000 is 13.0.
    pub cuda: Option<i32>,
}

impl Driver {
    /// The CUDA version as text, such as `13.0`.
    pub fn cuda_text(&self) -> Option<String> {
        self.cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10))
    }
}

/// Identifies a device: a GPU, or a MIG instance of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// Index of the GPU.
    pub card: u32,
    /// Index of the MIG instance.
    pub part: Option<u32>,
}

impl fmt::Display for Label {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            None => write!(formatter, "{}", self.card),
            Some(part) => write!(formatter, "{}/{part}", self.card),
        }
    }
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its indices.
    pub label: Label,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// PCI bus ID.
    pub bus_id: String,
    /// Minor number of its device file.
    pub minor: Option<u32>,
    /// Its memory; `None` if the driver did not report it.
    pub memory: Option<DeviceMemory>,
    /// Processes that hold its memory, largest first.
    pub holders: Vec<Holder>,
    /// Memory without a listed owner.
    pub unlisted: Unlisted,
    /// Bare contexts, grouped by parent.
    pub idle: Vec<IdleContexts>,
    /// Its MIG instances.
    pub parts: Vec<Self>,
    /// Whether MIG is enabled.
    pub is_divided: bool,
    /// How many processes may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Whether the driver stays loaded when there is no user (persistence mode).
    pub is_persistent: Option<bool>,
    /// Queries that failed.
    pub problems: Vec<Problem>,
}

/// A device's memory: `total = reserved + used + free`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Total memory.
    pub total: Bytes,
    /// Reserved by the driver.
    pub reserved: Bytes,
    /// Used, without the reserved part.
    pub used: Bytes,
    /// Free.
    pub free: Bytes,
}

/// A process that holds memory, or the remains of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its PID in the driver's namespace.
    pub pid: u32,
    /// Its memory; `None` if the driver does not report it.
    pub bytes: Option<Bytes>,
    /// Its peak, if the driver keeps accounts.
    pub peak: Option<Bytes>,
    /// The driver's lists that it is in.
    pub lists: Vec<List>,
    /// The process; `None` if it is not visible from here.
    pub process: Option<Process>,
    /// Findings about it.
    pub findings: Vec<Finding>,
    /// Figures from its own recording.
    pub recording: Option<Recording>,
}

impl Holder {
    /// Whether it has a finding.
    pub fn is(&self, finding: &Finding) -> bool {
        self.findings.contains(finding)
    }
}

/// Memory that is in use without a listed owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlisted {
    /// Its size. Negative if the driver's figures were read at different times.
    pub bytes: i64,
    /// The causes, most certain first. Empty if the size is negligible.
    pub causes: Vec<UnlistedCause>,
}

impl Unlisted {
    /// Whether it is large enough to look for a cause.
    pub fn matters(&self) -> bool {
        self.bytes > 0 && self.bytes.unsigned_abs() >= LEAST_UNLISTED.get()
    }
}

/// Bare contexts of processes with the same parent, typically data loading workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleContexts {
    /// The parent's PID.
    pub parent: u32,
    /// Their PIDs.
    pub pids: Vec<u32>,
    /// Their memory in total.
    pub bytes: Bytes,
}

/// How certain a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// It follows from the observations.
    Certain,
    /// It depends on an assumption that the evidence states.
    Likely,
    /// It is consistent with the observations, as are other causes.
    Possible,
}

impl Certainty {
    /// The word in texts and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::Possible => "possible",
        }
    }
}

impl Device {
    pub(crate) fn from_card(card: &Card, label: Label) -> Self {
        Self {
            label,
            uuid: card.uuid.clone(),
            name: card.name.clone(),
            bus_id: card.bus_id.clone(),
            minor: card.minor,
            memory: card.memory.map(|memory| DeviceMemory {
                total: Bytes::new(memory.total),
                reserved: Bytes::new(memory.reserved),
                used: Bytes::new(memory.used),
                free: Bytes::new(memory.free),
            }),
            is_divided: card.is_divided,
            compute_mode: card.compute_mode,
            is_persistent: card.is_persistent,
            problems: card.problems.clone(),
            ..Self::default()
        }
    }

    /// The memory that listed processes hold in total.
    pub fn held(&self) -> Bytes {
        self.holders.iter().filter_map(|holder| holder.bytes).sum()
    }

    /// The devices that programs can use: the MIG instances, or the GPU itself.
    pub fn usable(&self) -> Vec<&Self> {
        if self.parts.is_empty() { vec![self] } else { self.parts.iter().collect() }
    }
}

#[cfg(test)]
mod tests;
