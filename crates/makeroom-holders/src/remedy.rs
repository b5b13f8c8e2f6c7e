//! What would have to go to make room, the command that would do it, and what would be lost. Nothing is done.
//!
//! Who loses least goes first: workers whose parent is dead, what is stopped, idle contexts, then the asking user's
//! own processes, then others'. Within a class as few as possible go, the smallest that suffice.

use std::time::Duration;

use makeroom_core::Bytes;

use crate::account::{Account, Device, Finding, Holder, Label};
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
    /// The device with most free memory, and how much that is.
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
    let mut requirement = Requirement { size, best, plan: None };
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

fn loss(holder: &Holder, user: u32) -> Option<Loss> {
    let process = holder.process.as_ref()?;
    if holder.is(&Finding::Uninterruptible) {
        return None;
    }
    let is_leftover = holder.findings.iter().any(|finding| {
        matches!(finding, Finding::Orphaned { .. } | Finding::Stopped | Finding::Zombie { .. })
    });
    Some(if is_leftover {
        Loss::Leftover
    } else if holder.is(&Finding::IdleContext) {
        Loss::Idle
    } else if holder.is(&Finding::MpsServer) || holder.is(&Finding::Graphics) {
        Loss::Everybody
    } else if process.user == Some(user) {
        Loss::Own
    } else {
        Loss::Others
    })
}

/// The plan of one device and what it costs: the worst loss, then the bytes that go.
fn plan(device: &Device, size: Bytes, user: u32) -> Option<((Loss, Bytes), Plan)> {
    let memory = device.memory?;
    let missing = size - memory.free;
    let mut candidates: Vec<(Loss, Bytes, &Holder)> = device
        .holders
        .iter()
        .filter_map(|holder| Some((loss(holder, user)?, holder.bytes?, holder)))
        .filter(|(_, bytes, _)| !bytes.is_zero())
        .collect();
    candidates.sort_by_key(|(loss, bytes, _)| (*loss, std::cmp::Reverse(*bytes)));
    let mut chosen: Vec<(Loss, Bytes, &Holder)> = Vec::new();
    let mut freed = Bytes::ZERO;
    while freed < missing {
        // The smallest of the class that is enough by itself, else the largest.
        let class = candidates.first()?.0;
        let in_class = candidates.iter().take_while(|(loss, _, _)| *loss == class);
        let enough = in_class.clone().filter(|(_, bytes, _)| freed + *bytes >= missing).count();
        let (loss, bytes, holder) = candidates.remove(enough.saturating_sub(1));
        freed += bytes;
        chosen.push((loss, bytes, holder));
    }
    // Who was chosen early may not be needed any more.
    let mut position = 0;
    while let Some(&(_, bytes, _)) = chosen.get(position) {
        if freed - bytes >= missing {
            freed = freed - bytes;
            chosen.remove(position);
        } else {
            position += 1;
        }
    }
    let worst = chosen.iter().map(|(loss, _, _)| *loss).max()?;
    let remedies = remedies(&chosen, user);
    let plan = Plan { device: device.label, free: memory.free, remedies, free_then: memory.free + freed };
    Some(((worst, freed), plan))
}

/// One command for all that it ends.
fn remedies(chosen: &[(Loss, Bytes, &Holder)], user: u32) -> Vec<Remedy> {
    let mut remedies: Vec<Remedy> = Vec::new();
    for (_, bytes, holder) in chosen {
        let Some(process) = &holder.process else { continue };
        let command = command(holder, process, user);
        let loses = loses(holder, process);
        match remedies.iter_mut().find(|remedy| remedy.command == command) {
            Some(remedy) => {
                remedy.pids.push(holder.pid);
                remedy.frees += *bytes;
            }
            None => remedies.push(Remedy { pids: vec![holder.pid], frees: *bytes, command, loses }),
        }
    }
    remedies
}

/// The command that would end a holder: what runs it is asked, because it would start a killed process again.
fn command(holder: &Holder, process: &Process, user: u32) -> String {
    if holder.is(&Finding::MpsServer) {
        return "echo quit | nvidia-cuda-mps-control".to_owned();
    }
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
    if let Some(unit) = &belonging.unit {
        return format!("systemctl stop {unit}");
    }
    let sudo = if user == 0 || process.user == Some(user) { "" } else { "sudo " };
    // A zombie has ended already; who does not collect it has to end.
    let pid = if process.stat.state == State::Zombie { process.stat.parent } else { holder.pid };
    // A stopped process hears nothing else.
    let signal = if process.stat.state == State::Stopped { "-KILL " } else { "" };
    format!("{sudo}kill {signal}{pid}")
}

fn loses(holder: &Holder, process: &Process) -> String {
    let what = if holder.findings.iter().any(|finding| matches!(finding, Finding::Orphaned { .. })) {
        "nothing anybody waits for"
    } else if holder.is(&Finding::IdleContext) {
        "a worker; its parent may fail"
    } else if holder.is(&Finding::MpsServer) {
        "the work of all its clients"
    } else {
        "what it has not saved"
    };
    let age = process.age.map_or(String::new(), |age| format!(", running for {}", words_of(age)));
    format!("{what}: {}, user {}{age}", process.command_line(), process.user_name)
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
