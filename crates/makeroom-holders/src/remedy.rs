//! Which processes would have to exit to free memory, the commands for that, and what would be lost. Nothing is
//! executed.
//!
//! Candidates are chosen by loss: first leftovers (orphaned workers, stopped processes, zombies), then idle contexts,
//! the user's own processes, other users' processes, and finally the MPS server and graphics. Within a class, as few
//! as possible are chosen, and the smallest that suffice. A container, job or unit that one command ends is one
//! candidate with all the memory it holds.

use std::time::Duration;

use makeroom_core::{Bytes, SortCompact as _};

use crate::account::{Account, Device, Finding, Holder, Label, is_worker};
use crate::processes::{Process, State};

/// A command that would end some holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The holders that it ends.
    pub pids: Vec<u32>,
    /// The memory that it frees.
    pub frees: Bytes,
    /// The command.
    pub command: String,
    /// What would be lost.
    pub loses: String,
}

/// What to end so that a size fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The device.
    pub device: Label,
    /// Free memory now.
    pub free: Bytes,
    /// The commands, in order.
    pub remedies: Vec<Remedy>,
    /// Free memory afterward.
    pub free_then: Bytes,
}

/// Whether a size is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The size.
    pub size: Bytes,
    /// The only GPU that was considered.
    pub only: Option<u32>,
    /// The device with the most free memory among those considered, and how much.
    pub best: Option<(Label, Bytes)>,
    /// What to end if the size does not fit. `None` if it fits, or if nothing would help.
    pub plan: Option<Plan>,
}

impl Requirement {
    /// Whether it is available now.
    pub fn is_met(&self) -> bool {
        self.best.is_some_and(|(_, free)| free >= self.size)
    }
}

/// Whether `size` is free on a device (on GPU `only`, or on any), and if not, which processes would have to exit.
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

/// How much is lost if a holder ends, least first.
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

/// Whether an orphan is a leftover worker: it has the name of one, or its group has several orphans with the same
/// command. A single one may be the program itself, started with `nohup`.
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

/// All holders on a device that one command ends.
struct Candidate {
    loss: Loss,
    remedy: Remedy,
}

/// All candidates: the smallest loss first, then the largest first.
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
    candidates.sort_compact_by_key(|candidate| (candidate.loss, std::cmp::Reverse(candidate.remedy.frees)));
    candidates
}

/// The plan for one device and its cost: the largest loss, then the bytes freed.
fn plan(device: &Device, size: Bytes, user: u32) -> Option<((Loss, Bytes), Plan)> {
    let memory = device.memory?;
    let missing = size - memory.free;
    let mut candidates = candidates(device, user);
    let mut chosen: Vec<Candidate> = Vec::new();
    let mut freed = Bytes::ZERO;
    while freed < missing {
        // The smallest of the class that suffices by itself, else the largest.
        let class = candidates.first()?.loss;
        let in_class = candidates.iter().take_while(|candidate| candidate.loss == class);
        let enough = in_class.filter(|candidate| freed + candidate.remedy.frees >= missing).count();
        let candidate = candidates.remove(enough.saturating_sub(1));
        freed += candidate.remedy.frees;
        chosen.push(candidate);
    }
    // Earlier choices may have become unnecessary.
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

/// The command that would end a holder. It goes to the manager of the process, which would otherwise restart it.
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
            // Only that user can control that systemd instance.
            (true, _) => {}
            (false, 0) => return format!("systemctl stop {}", quoted(unit)),
            (false, _) => return format!("sudo systemctl stop {}", quoted(unit)),
        }
    }
    let sudo = if user == 0 || is_own { "" } else { "sudo " };
    // A zombie has exited already; the parent that does not reap it has to exit.
    let pid = if process.stat.state == State::Zombie { process.stat.parent } else { holder.pid };
    // A stopped process does not act on other signals.
    let signal = if process.stat.state == State::Stopped { "-KILL " } else { "" };
    format!("{sudo}kill {signal}{pid}")
}

/// A unit's name, quoted for a shell: systemd escapes characters with backslashes.
fn quoted(unit: &str) -> String {
    if unit.contains('\\') { format!("'{unit}'") } else { unit.to_owned() }
}

fn loses(loss: Loss, holder: &Holder, process: &Process) -> String {
    let is_orphaned = holder.findings.iter().any(|finding| matches!(finding, Finding::Orphaned { .. }));
    let what = if is_orphaned && loss == Loss::Leftover {
        "nothing: it is a leftover worker"
    } else if holder.is(&Finding::IdleContext) {
        "a worker; its parent may fail"
    } else if holder.is(&Finding::MpsServer) {
        "the work of all its clients"
    } else {
        "unsaved work"
    };
    let age = process.age.map_or(String::new(), |age| format!(", running for {}", words_of(age)));
    // Kubernetes restarts a pod's containers.
    let pod =
        process.belonging.pod.as_ref().map_or(String::new(), |pod| {
            format!(", in pod {pod}, which restarts it unless the pod is deleted")
        });
    format!("{what} ({}, user {}{age}{pod})", process.command_line(), process.user_name)
}

/// A duration in one or two units.
pub(crate) fn words_of(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}
