//! The names of why memory is used that nobody listed holds, in words and for programs.

use makeroom_core::Bytes;

use super::Certainty;

/// Why memory is used that nobody listed holds. The names are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Processes of another PID namespace: a container sees its own, the driver counts the host's.
    OtherNamespace,
    /// A process that ended and was not collected, or whose threads live on.
    Zombie,
    /// A process that waits in the kernel and cannot be killed.
    Uninterruptible,
    /// Workers whose parent died.
    OrphanedWorkers,
    /// The multi-process service holds memory for its clients.
    Mps,
    /// Processes use the driver that it does not list.
    NotListed,
    /// Managed memory, which the driver counts for nobody.
    ManagedMemory,
    /// Memory that a process opened of another one, which has ended.
    ImportedMemory,
    /// The driver may not tell this user.
    NoPermission,
    /// The driver lists processes without their sizes.
    NoSize,
    /// Processes that are hidden from this user.
    HiddenProcesses,
    /// The driver's lists make no sense: its library is of another version.
    Mismatch,
    /// A display, and what draws on it.
    Display,
    /// Nobody uses the driver, so it keeps the memory by itself.
    Driver,
}

impl Cause {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::OtherNamespace => "other_namespace",
            Self::Zombie => "zombie",
            Self::Uninterruptible => "uninterruptible",
            Self::OrphanedWorkers => "orphaned_workers",
            Self::Mps => "mps",
            Self::NotListed => "not_listed",
            Self::ManagedMemory => "managed_memory",
            Self::ImportedMemory => "imported_memory",
            Self::NoPermission => "no_permission",
            Self::NoSize => "no_size",
            Self::HiddenProcesses => "hidden_processes",
            Self::Mismatch => "version_mismatch",
            Self::Display => "display",
            Self::Driver => "driver",
        }
    }

    /// The cause in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::OtherNamespace => "processes of another PID namespace",
            Self::Zombie => "a process that ended and was not collected",
            Self::Uninterruptible => "a process that hangs in the kernel",
            Self::OrphanedWorkers => "workers whose parent died",
            Self::Mps => "clients of the MPS server",
            Self::NotListed => "processes that the driver does not list",
            Self::ManagedMemory => "managed memory, which the driver counts for nobody",
            Self::ImportedMemory => "memory of a process that ended, which another keeps open",
            Self::NoPermission => "processes that the driver does not tell this user of",
            Self::NoSize => "processes whose size the driver does not tell",
            Self::HiddenProcesses => "processes that are hidden from this user",
            Self::Mismatch => "a library of another version than the driver",
            Self::Display => "a display and what draws on it",
            Self::Driver => "the driver itself: nobody uses it",
        }
    }
}

/// A cause with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedCause {
    /// Which.
    pub cause: Cause,
    /// How sure.
    pub certainty: Certainty,
    /// How much of the memory it explains, where that is known.
    pub bytes: Option<Bytes>,
    /// What was seen.
    pub evidence: Vec<String>,
    /// Processes it is about.
    pub pids: Vec<u32>,
    /// What to do.
    pub fix: String,
}
