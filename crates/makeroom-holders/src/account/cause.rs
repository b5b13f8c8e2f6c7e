//! The causes of memory without a listed owner, with titles for people and names for programs.

use makeroom_core::Bytes;

use super::Certainty;

/// Why memory is in use without a listed owner. The names are part of the JSON contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Processes of another PID namespace: a container sees its own, the driver counts the host's.
    OtherNamespace,
    /// A process that exited and was not reaped, or whose threads are still running.
    Zombie,
    /// A process that waits in the kernel and cannot be killed.
    Uninterruptible,
    /// Workers whose parent died.
    OrphanedWorkers,
    /// The multi-process service holds memory for its clients.
    Mps,
    /// Processes that use the driver but are not in its lists.
    NotListed,
    /// Managed memory, which the driver assigns to no process.
    ManagedMemory,
    /// Memory of an exited process that another process still has open.
    ImportedMemory,
    /// The driver hides processes from this user.
    NoPermission,
    /// The driver lists processes without their sizes.
    NoSize,
    /// Processes that are hidden from this user.
    HiddenProcesses,
    /// The driver's lists make no sense: the library and the driver have different versions.
    Mismatch,
    /// A display and the programs that draw on it.
    Display,
    /// No process uses the driver, so it holds the memory itself.
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

    /// The title in text output.
    pub fn words(self) -> &'static str {
        match self {
            Self::OtherNamespace => "processes in another PID namespace",
            Self::Zombie => "a process that exited and was not reaped",
            Self::Uninterruptible => "a process stuck in the kernel",
            Self::OrphanedWorkers => "workers whose parent died",
            Self::Mps => "clients of the MPS server",
            Self::NotListed => "processes that the driver does not list",
            Self::ManagedMemory => "managed memory, which the driver does not attribute to any process",
            Self::ImportedMemory => "memory of an exited process, kept open by another process",
            Self::NoPermission => "processes that the driver hides from this user",
            Self::NoSize => "processes whose memory use the driver does not report",
            Self::HiddenProcesses => "processes that the system hides from this user",
            Self::Mismatch => "NVML and the driver have different versions",
            Self::Display => "a display and the programs that draw on it",
            Self::Driver => "the driver itself (no process uses the GPU)",
        }
    }
}

/// A cause with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedCause {
    /// The cause.
    pub cause: Cause,
    /// How certain it is.
    pub certainty: Certainty,
    /// How much of the memory it explains, if known.
    pub bytes: Option<Bytes>,
    /// The observations that support it.
    pub evidence: Vec<String>,
    /// The processes involved.
    pub pids: Vec<u32>,
    /// The fix.
    pub fix: String,
}
