//! What the driver says of its cards, as data that can cross a pipe.
//!
//! NVML is asked in a process of its own ([`Surveyor`]): a driver that hangs leaves its caller in uninterruptible
//! sleep, and a process with such a thread cannot even exit. What crosses the pipe is a [`Survey`], one line of JSON.
//! Figures are the driver's; nothing is concluded here.

mod read;
mod surveyor;

use serde::{Deserialize, Serialize};

pub use read::answer;
pub use surveyor::{SurveyError, Surveyor};

/// What the driver says at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// The driver's version: `580.159.03`.
    pub driver: String,
    /// The newest CUDA version it serves, as a number: 13000 is 13.0.
    pub cuda: Option<i32>,
    /// The cards, by their index.
    pub cards: Vec<Card>,
}

impl Survey {
    /// Who is listed, on cards and on parts of them.
    pub fn listed(&self) -> impl Iterator<Item = &Listed> {
        let cards = self.cards.iter().flat_map(|card| std::iter::once(card).chain(&card.parts));
        cards.flat_map(|card| &card.listed)
    }
}

/// One card, or one part of a divided card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The driver's number for it.
    pub index: u32,
    /// Its identity: `GPU-…`, or `MIG-…` for a part; empty when even that could not be read.
    pub uuid: String,
    /// What it is called.
    pub name: String,
    /// Where it sits.
    pub bus_id: String,
    /// The number of its file `/dev/nvidiaN`, of a part that of its card.
    pub minor: Option<u32>,
    /// Its memory; `None` when it could not be read.
    pub memory: Option<Memory>,
    /// The processes that the driver lists.
    pub listed: Vec<Listed>,
    /// Whether it is divided (MIG).
    pub is_divided: bool,
    /// Its parts.
    pub parts: Vec<Self>,
    /// Whether it drives a display.
    pub drives_display: Option<bool>,
    /// Whether the driver stays loaded without users.
    pub is_persistent: Option<bool>,
    /// Who may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Whether the driver keeps account of processes' peaks.
    pub keeps_account: Option<bool>,
    /// What could not be read, in the driver's words.
    pub problems: Vec<Problem>,
}

/// A card's memory in bytes, in the driver's words: `total = reserved + used + free`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// What the driver keeps for itself.
    pub reserved: u64,
    /// What is used beside that.
    pub used: u64,
    /// What is left.
    pub free: u64,
}

/// A process in one of the driver's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its number, as the driver counts: on the host.
    pub pid: u32,
    /// The list.
    pub list: List,
    /// What it holds, if the driver says so.
    pub bytes: Option<u64>,
    /// The most it ever held, where accounting is on.
    pub peak: Option<u64>,
}

/// The driver's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum List {
    /// CUDA.
    Compute,
    /// Displays and rendering.
    Graphics,
    /// CUDA through the multi-process service.
    Mps,
}

/// Who may use a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeMode {
    /// Any number of processes.
    Shared,
    /// One process.
    Exclusive,
    /// Nobody.
    Prohibited,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What was asked for.
    pub what: String,
    /// What the driver answered.
    pub answer: String,
    /// What kind of answer that is.
    pub kind: ProblemKind,
}

impl Problem {
    /// What to do about it, on this card.
    pub fn hint(&self, card: u32) -> String {
        match self.kind {
            ProblemKind::Lost => {
                "reboot; if it happens again, look for Xid 79 in dmesg and check the GPU's power and seating"
                    .to_owned()
            }
            ProblemKind::NeedsReset => format!("nvidia-smi --gpu-reset -i {card}"),
            ProblemKind::NoPermission => "run as root: sudo makeroom ps".to_owned(),
            ProblemKind::Other => {
                "check whether nvidia-smi reports the same, and look for NVRM lines in dmesg".to_owned()
            }
        }
    }
}

/// Kinds of answers that are no answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProblemKind {
    /// The user may not know.
    NoPermission,
    /// The card fell off the bus.
    Lost,
    /// The card wants a reset.
    NeedsReset,
    /// Anything else.
    Other,
}
