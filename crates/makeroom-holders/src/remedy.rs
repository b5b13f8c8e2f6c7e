//! What would have to go to make room, the command that would do it, and what would be lost. Nothing is done.
//!
//! Who loses least goes first: workers left behind by a dead parent, what is stopped, idle contexts, then the asking user's
//! own processes, then others'. Within a class as few as possible go, the smallest that suffice. What ends by one command
//! (a container, a job, a unit) is one candidate with all that it holds.

use std::time::Duration;

use makeroom_core::Bytes;

use crate::account::{Account, Device, Finding, Holder, Label, is_worker};
use crate::processes::{Process, State};

/// How a holder could be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The holders that go with it.
    pub pids: Vec<u32>,
    /// What it frees.
    pub frees: Bytes,
    /// The command.
    pub command: String,
    /// What is lost.
    pub loses: String,
}

/// What would have to go for a size to fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// On which device.
    pub device: Label,
    /// What is free there now.
    pub free: Bytes,
    /// Who would have to go, in order.
    pub remedies: Vec<Remedy>,
    /// What would then be free.
    pub free_then: Bytes,
}

/// Whether a size can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The size.
    pub size: Bytes,
    /// The only card that it was asked of.
    pub only: Option<u32>,
    /// The device with most free memory of those it was asked of, and how much that is.
    pub best: Option<(Label, Bytes)>,
    /// What would have to go, if it does not fit. `None` when it fits, or when nothing would help.
    pub plan: Option<Plan>,
}

impl Requirement {
    /// Whether it can be had now.
    pub fn is_met(&self) -> bool {
        self.best.is_some_and(|(_, free)| free >= self.size)
    }
}

/// Whether `size` can be had on a device (`only`, or any), and if not, who would have to go.
pub fn require(account: &Account, size: Bytes, only: Option<u32>) -> Requirement {
    let cards = account.devices.iter().filter(|device| only.is_none_or(|only| device.label.card == only));
    let devices: Vec<&Device> = cards.flat_map(Device::usable).collect();
    let free = |device: &Device| device.memory.map_or(Bytes::ZERO, |memory| memory.free);
    let best = devices.iter().map(|device| (device.label, free(device))).max_by_key(|(_, free)| *free);
    let mut requirement = Requirement { size, only, best, plan: None };
    if !requirement.is_met() {
        let user = account.view.user;
        let plans = devices.iter().filter_map(|device| plan(device, size, user));
        requirement.plan = plans.min_by_key(|(cost, _)| *cost).map(|(_, plan)| plan);
    }
    requirement
}

/// Who would miss a holder, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    Leftover,
    Idle,
    Own,
    Others,
    Everybody,
}

fn loss(device: &Device, holder: &Holder, process: &Process, user: u32) -> Loss {
    let is_leftover = holder.findings.iter().any(|finding| match finding {
        Finding::Orphaned { .. } => is_left_behind(device, process),
        Finding::Stopped | Finding::Zombie { .. } => true,
        _ => false,
    });
    if is_leftover {
        Loss::Leftover
    } else if holder.is(&Finding::IdleContext) {
        Loss::Idle
    } else if holder.is(&Finding::MpsServer) || holder.is(&Finding::Graphics) {
        Loss::Everybody
    } else if process.user == Some(user) {
        Loss::Own
    } else {
        Loss::Others
    }
}

/// Whether a process without a parent was left behind by it: it calls itself a worker, or several were, by one parent.
/// One alone may be the program itself, which a shell started and did not wait for (`nohup`).
fn is_left_behind(device: &Device, process: &Process) -> bool {
    let is_sibling = |other: &&Holder| {
        let is_orphaned = other.findings.iter().any(|finding| matches!(finding, Finding::Orphaned { .. }));
        let theirs = other.process.as_ref().filter(|_| is_orphaned);
        theirs.is_some_and(|theirs| {
            theirs.stat.group == process.stat.group && theirs.command == process.command
        })
    };
    is_worker(process) || device.holders.iter().filter(is_sibling).count() > 1
}

/// What one command ends: all of it on one device.
struct Candidate {
    loss: Loss,
    remedy: Remedy,
}

/// What could be ended, who loses least first, of those the largest first.
fn candidates(device: &Device, user: u32) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for holder in &device.holders {
        let (Some(process), Some(bytes)) = (&holder.process, holder.bytes) else { continue };
        if holder.is(&Finding::Uninterruptible) {
            continue;
        }
        let (loss, command) = (loss(device, holder, process, user), command(holder, process, user));
        if let Some(known) = candidates.iter_mut().find(|known| known.remedy.command == command) {
            known.loss = known.loss.max(loss);
            known.remedy.pids.push(holder.pid);
            known.remedy.frees += bytes;
        } else {
            let words = loses(loss, holder, process);
            let remedy = Remedy { pids: vec![holder.pid], frees: bytes, command, loses: words };
            candidates.push(Candidate { loss, remedy });
        }
    }
    for candidate in &mut candidates {
        match candidate.remedy.pids.len() - 1 {
            0 => {}
            1 => candidate.remedy.loses += ", and 1 more process",
            others => candidate.remedy.loses += &format!(", and {others} more processes"),
        }
    }
    candidates.sort_by_key(|candidate| (candidate.loss, std::cmp::Reverse(candidate.remedy.frees)));
    candidates
}

/// The plan of one device and what it costs: the worst loss, then the bytes that go.
fn plan(device: &Device, size: Bytes, user: u32) -> Option<((Loss, Bytes), Plan)> {
    let memory = device.memory?;
    let missing = size - memory.free;
    let mut candidates = candidates(device, user);
    let mut chosen: Vec<Candidate> = Vec::new();
    let mut freed = Bytes::ZERO;
    while freed < missing {
        // The smallest of the class that is enough by itself, else the largest.
        let class = candidates.first()?.loss;
        let in_class = candidates.iter().take_while(|candidate| candidate.loss == class);
        let enough = in_class.filter(|candidate| freed + candidate.remedy.frees >= missing).count();
        let candidate = candidates.remove(enough.saturating_sub(1));
        freed += candidate.remedy.frees;
        chosen.push(candidate);
    }
    // Who was chosen early may not be needed any more.
    chosen.retain(|candidate| {
        let is_needed = freed - candidate.remedy.frees < missing;
        freed = if is_needed { freed } else { freed - candidate.remedy.frees };
        is_needed
    });
    let worst = chosen.iter().map(|candidate| candidate.loss).max()?;
    let remedies = chosen.into_iter().map(|candidate| candidate.remedy).collect();
    let plan = Plan { device: device.label, free: memory.free, remedies, free_then: memory.free + freed };
    Some(((worst, freed), plan))
}

/// The command that would end a holder: what runs it is asked, because it would start a killed process again.
fn command(holder: &Holder, process: &Process, user: u32) -> String {
    if holder.is(&Finding::MpsServer) {
        return "echo quit | nvidia-cuda-mps-control".to_owned();
    }
    let is_own = process.user == Some(user);
    let belonging = &process.belonging;
    if let Some(job) = &belonging.slurm_job {
        return format!("scancel {job}");
    }
    if let (Some(container), Some(runtime)) = (belonging.short_container(), belonging.runtime) {
        let stop = match runtime {
            "docker" => "docker stop",
            "podman" => "podman stop",
            "lxc" => "lxc-stop -n",
            _ => "crictl stop",
        };
        return format!("{stop} {container}");
    }
    if let Some(unit) = belonging.unit.as_ref().filter(|_| process.is_its_unit) {
        match (belonging.is_users_unit, user) {
            (true, _) if is_own => return format!("systemctl --user stop {}", quoted(unit)),
            // Only that user's own systemd would hear.
            (true, _) => {}
            (false, 0) => return format!("systemctl stop {}", quoted(unit)),
            (false, _) => return format!("sudo systemctl stop {}", quoted(unit)),
        }
    }
    let sudo = if user == 0 || is_own { "" } else { "sudo " };
    // A zombie has ended already; who does not collect it has to end.
    let pid = if process.stat.state == State::Zombie { process.stat.parent } else { holder.pid };
    // A stopped process hears nothing else.
    let signal = if process.stat.state == State::Stopped { "-KILL " } else { "" };
    format!("{sudo}kill {signal}{pid}")
}

/// A unit's name for a shell: systemd writes letters that names cannot have with a backslash.
fn quoted(unit: &str) -> String {
    if unit.contains('\\') { format!("'{unit}'") } else { unit.to_owned() }
}

fn loses(loss: Loss, holder: &Holder, process: &Process) -> String {
    let is_orphaned = holder.findings.iter().any(|finding| matches!(finding, Finding::Orphaned { .. }));
    let what = if is_orphaned && loss == Loss::Leftover {
        "nothing, it is a leftover worker"
    } else if holder.is(&Finding::IdleContext) {
        "a worker; its parent may fail"
    } else if holder.is(&Finding::MpsServer) {
        "the work of all its clients"
    } else {
        "unsaved work"
    };
    let age = process.age.map_or(String::new(), |age| format!(", running for {}", words_of(age)));
    // Kubernetes keeps a pod's containers running.
    let pod =
        process.belonging.pod.as_ref().map_or(String::new(), |pod| {
            format!(", in pod {pod}, which restarts it unless the pod is deleted")
        });
    format!("{what} ({}, user {}{age}{pod})", process.command_line(), process.user_name)
}

/// A duration in the two units that matter.
pub(crate) fn words_of(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}
