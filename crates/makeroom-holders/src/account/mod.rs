//! The account of each device, built so that it adds up.
//!
//! ```text
//! total = free + reserved + Σ holders + unlisted
//! ```
//!
//! `unlisted` is what is left of the driver's own figures, so the equation holds by construction. It can be below zero
//! where the driver's lists and its total were read at different moments.

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

/// Memory without a listed owner below this is the driver's own: it keeps some beside every process.
pub(crate) const LEAST_UNLISTED: Bytes = Bytes::mib(128);

/// Who holds what, on all devices, at one moment.
#[derive(Debug)]
pub struct Account {
    /// When.
    pub taken: SystemTime,
    /// The machine.
    pub host: String,
    /// The driver, or why it could not be asked.
    pub driver: Result<Driver, SurveyError>,
    /// The devices, in the driver's order.
    pub devices: Vec<Device>,
    /// Processes that have the driver's files open, also where the driver could not be asked.
    pub users: Vec<Process>,
    /// What can be seen from here.
    pub view: View,
}

/// The driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its version.
    pub version: String,
    /// The newest CUDA version it serves, as a number: 13000 is 13.0.
    pub cuda: Option<i32>,
}

impl Driver {
    /// The CUDA version as people write it.
    pub fn cuda_text(&self) -> Option<String> {
        self.cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10))
    }
}

/// Which device: a card, or a part of a divided card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// The card.
    pub card: u32,
    /// The part.
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
    /// Which.
    pub label: Label,
    /// Its identity: `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// What it is called.
    pub name: String,
    /// Where it sits.
    pub bus_id: String,
    /// The number of its file.
    pub minor: Option<u32>,
    /// Its memory; `None` when the driver did not say.
    pub memory: Option<DeviceMemory>,
    /// Who holds it, most first.
    pub holders: Vec<Holder>,
    /// What nobody listed holds.
    pub unlisted: Unlisted,
    /// Contexts that hold nothing else, in groups with one parent.
    pub idle: Vec<IdleContexts>,
    /// Its parts, if it is divided.
    pub parts: Vec<Self>,
    /// Whether it is divided.
    pub is_divided: bool,
    /// Who may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Whether the driver stays loaded without users.
    pub is_persistent: Option<bool>,
    /// What the driver did not answer.
    pub problems: Vec<Problem>,
}

/// A device's memory: `total = reserved + used + free`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// All of it.
    pub total: Bytes,
    /// What the driver keeps for itself.
    pub reserved: Bytes,
    /// What is used beside that.
    pub used: Bytes,
    /// What is left.
    pub free: Bytes,
}

/// A process, or what is left of one, that keeps memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its number, as the driver counts.
    pub pid: u32,
    /// What it holds; `None` when the driver does not say.
    pub bytes: Option<Bytes>,
    /// The most it ever held, where the driver keeps account.
    pub peak: Option<Bytes>,
    /// The driver's lists that it is in.
    pub lists: Vec<List>,
    /// The process; `None` when it cannot be seen from here.
    pub process: Option<Process>,
    /// What is odd about it.
    pub findings: Vec<Finding>,
    /// What its own recording says.
    pub recording: Option<Recording>,
}

impl Holder {
    /// Whether something was found.
    pub fn is(&self, finding: &Finding) -> bool {
        self.findings.contains(finding)
    }
}

/// Memory that is used and that nobody listed holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlisted {
    /// How much; below zero where the driver's figures were read at different moments.
    pub bytes: i64,
    /// Why, most probable first. Empty when it is too little to ask.
    pub causes: Vec<UnlistedCause>,
}

impl Unlisted {
    /// Whether it is enough to ask why.
    pub fn matters(&self) -> bool {
        self.bytes > 0 && self.bytes.unsigned_abs() >= LEAST_UNLISTED.get()
    }
}

/// Contexts of one parent's processes that hold nothing else: what workers cost that only load data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleContexts {
    /// Who started them.
    pub parent: u32,
    /// The processes.
    pub pids: Vec<u32>,
    /// What they hold together.
    pub bytes: Bytes,
}

/// How sure a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// It follows from what was read.
    Certain,
    /// It takes something for granted that the evidence names.
    Likely,
    /// It agrees with what was read, and so do other causes.
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
    pub(crate) fn of(card: &Card, label: Label) -> Self {
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

    /// What listed processes hold together.
    pub fn held(&self) -> Bytes {
        self.holders.iter().filter_map(|holder| holder.bytes).sum()
    }

    /// The devices that programs can use: the parts of a divided card, or the card itself.
    pub fn usable(&self) -> Vec<&Self> {
        if self.parts.is_empty() { vec![self] } else { self.parts.iter().collect() }
    }
}

#[cfg(test)]
mod tests;
