//! Findings about a holder, from the state of its process and its relatives.

use crate::processes::{Process, Processes, Stat, State};
use crate::survey::List;

/// A fact about a holder that is worth reporting. The names are part of the JSON contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It has exited and was not reaped; some of its threads may still be running.
    Zombie {
        /// The process that has to reap it.
        parent: u32,
        /// The thread count in `/proc`, which includes the exited main thread.
        threads: u32,
    },
    /// It is blocked in the kernel and cannot be killed.
    Uninterruptible,
    /// It is stopped and keeps its memory.
    Stopped,
    /// Its parent is gone, and it is still running.
    Orphaned {
        /// The process group leader, if that is gone too.
        group: Option<u32>,
    },
    /// It holds only a context, and related processes hold memory too.
    IdleContext,
    /// It is the MPS server: the memory belongs to its clients.
    MpsServer,
    /// It is an MPS client.
    MpsClient,
    /// It renders graphics.
    Graphics,
    /// It runs in a nested PID namespace.
    OtherNamespace {
        /// Its PID there.
        inner_pid: u32,
    },
    /// The driver lists it, but it is not visible from here.
    Unseen,
    /// The driver lists it without a size.
    NoSize,
}

impl Finding {
    /// The name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Zombie { .. } => "zombie",
            Self::Uninterruptible => "uninterruptible",
            Self::Stopped => "stopped",
            Self::Orphaned { .. } => "orphaned_worker",
            Self::IdleContext => "idle_context",
            Self::MpsServer => "mps_server",
            Self::MpsClient => "mps_client",
            Self::Graphics => "graphics",
            Self::OtherNamespace { .. } => "other_namespace",
            Self::Unseen => "unseen",
            Self::NoSize => "no_size",
        }
    }

    /// The finding in words, for the line of a holder.
    pub fn words(&self) -> String {
        match self {
            Self::Zombie { parent, threads: 0 | 1 } => format!("zombie, parent {parent}"),
            Self::Zombie { threads, .. } => format!("zombie, threads still running: {}", threads - 1),
            Self::Uninterruptible => "state D, cannot be killed".to_owned(),
            Self::Stopped => "stopped".to_owned(),
            Self::Orphaned { group: Some(group) } => format!("its process group leader {group} is dead"),
            Self::Orphaned { group: None } => "its parent is dead".to_owned(),
            Self::IdleContext => "idle context".to_owned(),
            Self::MpsServer => "MPS server".to_owned(),
            Self::MpsClient => "MPS client".to_owned(),
            Self::Graphics => "graphics".to_owned(),
            Self::OtherNamespace { inner_pid } => format!("PID {inner_pid} in its container"),
            Self::Unseen => "not visible from here".to_owned(),
            Self::NoSize => "size unknown".to_owned(),
        }
    }
}

/// Findings about a process by itself.
pub(super) fn of_process(process: &Process, processes: &Processes) -> Vec<Finding> {
    let stat = &process.stat;
    let mut findings = Vec::new();
    match stat.state {
        State::Zombie => findings.push(Finding::Zombie { parent: stat.parent, threads: stat.threads }),
        State::Uninterruptible => findings.push(Finding::Uninterruptible),
        State::Stopped => findings.push(Finding::Stopped),
        State::Alive => {}
    }
    if is_mps_server(process) {
        findings.push(Finding::MpsServer);
    } else if let Some(orphaned) = orphaned(process, processes) {
        findings.push(orphaned);
    }
    if let Some(&inner_pid) = process.inner_pids.last() {
        findings.push(Finding::OtherNamespace { inner_pid });
    }
    findings
}

/// Findings from the driver's lists.
pub(super) fn of_lists(lists: &[List], has_size: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if lists.contains(&List::Graphics) && !lists.contains(&List::Compute) {
        findings.push(Finding::Graphics);
    }
    if lists.contains(&List::Mps) {
        findings.push(Finding::MpsClient);
    }
    if !has_size {
        findings.push(Finding::NoSize);
    }
    findings
}

/// Whether a process is the MPS server. The kernel's name for it is not enough: truncated to 15 bytes, it is also
/// that of the control daemon.
pub(crate) fn is_mps_server(process: &Process) -> bool {
    process.program() == "nvidia-cuda-mps-server"
}

/// Names of workers that run the same program as their parent.
const COPIES: [&str; 5] = [
    "multiprocessing.spawn",
    "multiprocessing-fork",
    "multiprocessing.forkserver",
    "multiprocessing.resource_tracker",
    "pt_data_worker",
];
/// Names of workers that are started by another program.
const SERVANTS: [&str; 1] = ["ray::"];

/// Whether a process is a worker, by its name or command line.
pub(crate) fn is_worker(process: &Process) -> bool {
    process.mentions(&COPIES) || process.mentions(&SERVANTS)
}

/// Whether the process that started this one is gone.
///
/// Heuristic: an orphan is adopted by a process of another session. A daemon does not count, because it has its own
/// session; nor does a shell command that outlives its shell, because it leads its own process group. So either its
/// group leader must be dead, or its name must be that of a worker. In a container, all processes may share one
/// session, including the one that adopts: there, a worker that should be a copy of its parent is an orphan if its
/// parent runs another program.
fn orphaned(process: &Process, processes: &Processes) -> Option<Finding> {
    let stat = &process.stat;
    let is_stranger = |parent: &Stat| parent.session != stat.session && stat.session != stat.pid;
    // PID 1 may be hidden; it adopts orphans.
    let has_stranger = processes.stats.get(&stat.parent).map_or(stat.parent == 1, is_stranger);
    let is_no_copy = process.has_parents_program == Some(false) && process.mentions(&COPIES);
    if !(has_stranger || is_no_copy) || stat.state == State::Zombie {
        return None;
    }
    let is_dead =
        |leader: u32| processes.stats.get(&leader).is_none_or(|leader| leader.state == State::Zombie);
    let group = Some(stat.group).filter(|&leader| leader != 0 && leader != stat.pid && is_dead(leader));
    (group.is_some() || is_worker(process)).then_some(Finding::Orphaned { group })
}
