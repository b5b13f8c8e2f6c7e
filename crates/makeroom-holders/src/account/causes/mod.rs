//! Finds the causes of memory without a listed owner. Each rule looks for its own evidence, and the results are
//! sorted by certainty.
//!
//! The order of the rules decides between causes of equal certainty. Rules do not estimate how much memory a cause
//! explains: only recordings contain that figure.
//!
//! ```text
//! suspects   processes that use the GPU without being listed
//! lists      gaps in the driver's lists and in this process's view
//! ```

mod lists;
mod suspects;

use super::join::Joined;
use super::{Cause, Certainty, Device, Finding, Holder, UnlistedCause, findings};
use crate::processes::Process;
use crate::survey::Card;
use makeroom_core::SortCompact as _;

/// All causes with evidence, the most certain first.
pub(super) fn find(joined: &Joined<'_>, card: &Card, device: &Device) -> Vec<UnlistedCause> {
    let scene = Scene { joined, card, device, suspects: suspects(joined, card) };
    // Inconsistent figures cannot support any other cause.
    if let Some(mismatch) = scene.mismatch() {
        return vec![mismatch];
    }
    let rules = [
        Scene::other_namespace,
        Scene::zombie,
        Scene::uninterruptible,
        Scene::orphaned_workers,
        Scene::mps,
        Scene::not_listed,
        Scene::managed_memory,
        Scene::imported_memory,
        Scene::no_permission,
        Scene::no_size,
        Scene::hidden_processes,
        Scene::display,
        Scene::driver,
    ];
    let mut causes: Vec<UnlistedCause> = rules.iter().filter_map(|rule| rule(&scene)).collect();
    // Stable sort: rules of equal certainty keep their order.
    causes.sort_compact_by_key(|cause| cause.certainty);
    causes
}

/// A process that uses this GPU without being listed, and its findings.
struct Suspect<'read> {
    process: &'read Process,
    findings: Vec<Finding>,
}

struct Scene<'read> {
    joined: &'read Joined<'read>,
    card: &'read Card,
    device: &'read Device,
    suspects: Vec<Suspect<'read>>,
}

/// Monitoring programs, which hold no GPU memory.
const WATCHERS: [&str; 15] = [
    "nvidia-smi",
    "nvidia-persistenced",
    "nvidia-powerd",
    "nv-hostengine",
    "dcgmi",
    "dcgm-exporter",
    "nvidia_gpu_exporter",
    "nv-fabricmanager",
    "nvidia-cuda-mps-control",
    "nvtop",
    "nvitop",
    "nvitop-exporter",
    "gpustat",
    "all-smi",
    "makeroom",
];

/// Whether a process uses a GPU, judging by its open files. A process that has only the file of unified memory may
/// use any GPU: it has closed the other files, or they are not visible.
fn uses(process: &Process, card: &Card) -> bool {
    let files = &process.files;
    let is_of_card = card.minor.is_none_or(|minor| files.cards.contains(&minor));
    is_of_card || (files.unified && files.cards.is_empty())
}

fn suspects<'read>(joined: &'read Joined<'_>, card: &Card) -> Vec<Suspect<'read>> {
    // Monitoring programs do not open unified memory.
    let holds = |process: &&Process| process.files.unified || !WATCHERS.contains(&process.program().as_str());
    let processes = joined.not_listed().filter(|process| uses(process, card)).filter(holds);
    processes
        .map(|process| Suspect { process, findings: findings::of_process(process, joined.processes) })
        .collect()
}

impl Scene<'_> {
    fn holders<'scene>(
        &'scene self,
        is_meant: impl Fn(&Holder) -> bool + 'scene,
    ) -> impl Iterator<Item = &'scene Holder> {
        self.device.holders.iter().filter(move |holder| is_meant(holder))
    }

    fn suspects(&self, is_meant: impl Fn(&Finding) -> bool) -> Vec<&Process> {
        let meant = self.suspects.iter().filter(|suspect| suspect.findings.iter().any(&is_meant));
        meant.map(|suspect| suspect.process).collect()
    }
}

fn found(
    cause: Cause,
    certainty: Certainty,
    evidence: Vec<String>,
    pids: Vec<u32>,
    fix: impl Into<String>,
) -> UnlistedCause {
    UnlistedCause { cause, certainty, bytes: None, evidence, pids, fix: fix.into() }
}

/// A cause that involves processes; `None` if there are none.
fn found_of(
    cause: Cause,
    certainty: Certainty,
    evidence: Vec<String>,
    processes: &[&Process],
    fix: String,
) -> Option<UnlistedCause> {
    (!processes.is_empty()).then(|| found(cause, certainty, evidence, pids_of(processes), fix))
}

fn pids_of(processes: &[&Process]) -> Vec<u32> {
    processes.iter().map(|process| process.stat.pid).collect()
}

/// PIDs separated by spaces, for a command.
fn words(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// PIDs in a sentence: all if there are few, else the first ones.
fn numbers(pids: &[u32]) -> String {
    const MOST: usize = 4;
    match pids {
        [one] => format!("process {one}"),
        _ if pids.len() > MOST => {
            format!("processes {} and {} more", words(&pids[..MOST]), pids.len() - MOST)
        }
        _ => format!("processes {}", words(pids)),
    }
}
