//! What is odd about a holder, from the state of its process and from who is left of its family.

use crate::processes::{Process, Processes, Stat, State};
use crate::survey::List;

/// Something worth saying about a holder. The names are a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It has ended, and nobody asked how; threads of it may live on.
    Zombie {
        /// Who would have to ask.
        parent: u32,
        /// Threads that live on.
        threads: u32,
    },
    /// It waits in the kernel and cannot be killed.
    Uninterruptible,
    /// It is stopped and keeps what it has.
    Stopped,
    /// Who started it is gone, and it goes on.
    Orphaned {
        /// The process group's first process, which is gone too.
        group: Option<u32>,
    },
    /// It holds a context and nothing else, beside others of its family.
    IdleContext,
    /// It is the server of the multi-process service: what it holds is its clients'.
    MpsServer,
    /// It is a client of the multi-process service.
    MpsClient,
    /// It draws.
    Graphics,
    /// It runs in a PID namespace below this one, under this number.
    OtherNamespace {
        /// Its number there.
        inner_pid: u32,
    },
    /// The driver lists it, and it cannot be seen from here.
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

    /// The finding in words, to stand beside a holder.
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

/// What is odd about a process by itself.
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

/// What the lists say of it.
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

/// Whether a process is the server of the multi-process service. The kernel cuts names to 15 bytes, and the control
/// daemon begins alike.
pub(crate) fn is_mps_server(process: &Process) -> bool {
    process.program() == "nvidia-cuda-mps-server"
}

/// Words in the names and command lines of workers that their parent's own program starts.
const COPIES: [&str; 5] = [
    "multiprocessing.spawn",
    "multiprocessing-fork",
    "multiprocessing.forkserver",
    "multiprocessing.resource_tracker",
    "pt_data_worker",
];
/// The same of workers that a program of another kind starts.
const SERVANTS: [&str; 1] = ["ray::"];

/// Whether a process calls itself a worker.
pub(crate) fn is_worker(process: &Process) -> bool {
    process.mentions(&COPIES) || process.mentions(&SERVANTS)
}

/// Whether the process that started this one is gone.
///
/// Whoever adopts processes is not of their session, and a daemon begins a session of its own. The first process of the
/// group is what a worker is left behind by; a command of a shell is the first of its own group and may outlive the
/// shell. Who calls itself a worker is one in any case. In a container all processes may be of one session, the one
/// that adopts too: there a worker that is its parent's copy shows by running another program than its parent.
fn orphaned(process: &Process, processes: &Processes) -> Option<Finding> {
    let stat = &process.stat;
    let is_stranger = |parent: &Stat| parent.session != stat.session && stat.session != stat.pid;
    // The first process may be hidden; it is the one that adopts.
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
