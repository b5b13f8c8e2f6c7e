//! Why memory is used that nobody listed holds: every rule looks for its own evidence, and all that find some are
//! ranked by how sure they are.
//!
//! The rules are definitions, in the order in which equally sure causes are shown. None of them decides how much of
//! the memory a cause explains: only recordings know that.

use makeroom_core::Bytes;

use super::join::Joined;
use super::{Cause, Certainty, Device, Finding, Holder, UnlistedCause, findings};
use crate::processes::{Process, State};
use crate::survey::{Card, List, ProblemKind};

/// All causes with evidence, the surest first.
pub(super) fn find(joined: &Joined<'_>, card: &Card, device: &Device) -> Vec<UnlistedCause> {
    let scene = Scene { joined, card, device, suspects: suspects(joined, card) };
    // Figures that make no sense explain nothing.
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
        Scene::no_permission,
        Scene::no_size,
        Scene::hidden_processes,
        Scene::display,
        Scene::driver,
    ];
    let mut causes: Vec<UnlistedCause> = rules.iter().filter_map(|rule| rule(&scene)).collect();
    // Stable: rules of equal certainty keep their order.
    causes.sort_by_key(|cause| cause.certainty);
    causes
}

/// A process that uses this card without being listed, and what is odd about it.
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

/// Programs that watch over cards and hold no memory of them.
const WATCHERS: [&str; 10] = [
    "nvidia-smi",
    "nvidia-persistenced",
    "nv-hostengine",
    "dcgm-exporter",
    "nv-fabricmanager",
    "nvidia-cuda-mps-control",
    "nvtop",
    "nvitop",
    "all-smi",
    "makeroom",
];

/// Whether a process uses a card, as far as its open files tell. Who has none of any card but unified memory has closed
/// them or cannot be looked into far enough.
fn uses(process: &Process, card: &Card) -> bool {
    let files = &process.files;
    let is_of_card = card.minor.is_none_or(|minor| files.cards.contains(&minor));
    is_of_card || (files.unified && files.cards.is_empty())
}

fn suspects<'read>(joined: &'read Joined<'_>, card: &Card) -> Vec<Suspect<'read>> {
    // What only watches opens no unified memory.
    let holds = |process: &&Process| process.files.unified || !WATCHERS.contains(&process.program());
    let processes = joined.not_listed().filter(|process| uses(process, card)).filter(holds);
    processes
        .map(|process| Suspect { process, findings: findings::of_process(process, joined.processes) })
        .collect()
}

impl Scene<'_> {
    fn other_namespace(&self) -> Option<UnlistedCause> {
        if self.joined.processes.view.is_whole_machine != Some(false) {
            return None;
        }
        let unseen: Vec<u32> =
            self.holders(|holder| holder.is(&Finding::Unseen)).map(|holder| holder.pid).collect();
        let mut evidence = vec![
            "this is not the machine's first PID namespace, and the driver counts processes there".to_owned(),
        ];
        if !unseen.is_empty() {
            evidence.push(format!("the driver lists {}, which cannot be seen from here", numbers(&unseen)));
        }
        let certainty = if unseen.is_empty() { Certainty::Likely } else { Certainty::Certain };
        let fix = "run makeroom ps on the host, or start this container with --pid=host (in Kubernetes: hostPID: true)";
        Some(found(Cause::OtherNamespace, certainty, evidence, unseen, fix))
    }

    fn zombie(&self) -> Option<UnlistedCause> {
        let with_threads = self.suspects(|finding| matches!(finding, Finding::Zombie { .. }));
        let certainty = if with_threads.is_empty() { Certainty::Possible } else { Certainty::Likely };
        let mut evidence: Vec<String> = with_threads
            .iter()
            .map(|process| {
                format!(
                    "{} has ended, and {} of its threads have not",
                    process.stat.pid,
                    process.stat.threads.saturating_sub(1)
                )
            })
            .collect();
        let mut pids: Vec<u32> = with_threads.iter().map(|process| process.stat.pid).collect();
        let mut parents: Vec<u32> = with_threads.iter().map(|process| process.stat.parent).collect();
        if pids.is_empty() {
            // A zombie has no files; that its parent uses the driver is what connects it.
            let processes = self.joined.processes;
            let zombies = processes.stats.values().filter(|stat| stat.state == State::Zombie);
            for zombie in zombies.filter(|stat| {
                processes.known.get(&stat.parent).is_some_and(|parent| uses(parent, self.card))
            }) {
                evidence.push(format!(
                    "{} ({}) has ended and its parent {} has not asked how",
                    zombie.pid, zombie.name, zombie.parent
                ));
                pids.push(zombie.pid);
                parents.push(zombie.parent);
            }
        }
        parents.sort_unstable();
        parents.dedup();
        if pids.is_empty() {
            return None;
        }
        let fix = format!(
            "a zombie cannot be killed; end the parent that does not collect it: kill {}",
            words(&parents)
        );
        Some(found(Cause::Zombie, certainty, evidence, pids, fix))
    }

    fn uninterruptible(&self) -> Option<UnlistedCause> {
        let hanging = self.suspects(|finding| *finding == Finding::Uninterruptible);
        let evidence = hanging.iter().map(|process| {
            format!(
                "{} ({}) has the driver's files open and is in state D",
                process.stat.pid,
                process.program()
            )
        });
        let fix = format!(
            "it cannot be killed; reset the card (nvidia-smi --gpu-reset -i {}) or reboot",
            self.card.index
        );
        found_of(Cause::Uninterruptible, Certainty::Likely, evidence.collect(), &hanging, fix)
    }

    fn orphaned_workers(&self) -> Option<UnlistedCause> {
        let orphaned = self.suspects(|finding| matches!(finding, Finding::Orphaned { .. }));
        let evidence = orphaned.iter().map(|process| {
            let group = process.stat.group;
            let dead = if group == process.stat.pid {
                "its parent".to_owned()
            } else {
                format!("its parent {group}")
            };
            format!(
                "{} ({}) has the driver's files open and {dead} is dead",
                process.stat.pid,
                process.command_line()
            )
        });
        let evidence = evidence.collect();
        let fix = format!("kill {}", words(&pids_of(&orphaned)));
        found_of(Cause::OrphanedWorkers, Certainty::Likely, evidence, &orphaned, fix)
    }

    fn mps(&self) -> Option<UnlistedCause> {
        let processes = self.joined.processes;
        // The kernel cuts names to 15 bytes; where files cannot be read, a server is known by that alone.
        let servers: Vec<u32> = processes
            .stats
            .values()
            .filter(|stat| match processes.known.get(&stat.pid) {
                Some(process) => findings::is_mps_server(process) && uses(process, self.card),
                None => stat.name == "nvidia-cuda-mps" && processes.view.unreadable > 0,
            })
            .map(|stat| stat.pid)
            .collect();
        let clients: Vec<u32> =
            self.holders(|holder| holder.lists.contains(&List::Mps)).map(|holder| holder.pid).collect();
        if servers.is_empty() {
            return None;
        }
        let mut evidence = vec![format!("{} serves CUDA for other processes", numbers(&servers))];
        if !clients.is_empty() {
            evidence.push(format!("the driver lists its clients {}", words(&clients)));
        }
        let fix = "echo get_client_list SERVER | nvidia-cuda-mps-control names its clients; echo quit | nvidia-cuda-mps-control ends it and them";
        let fix = fix.replace("SERVER", &servers[0].to_string());
        Some(found(Cause::Mps, Certainty::Likely, evidence, servers, fix))
    }

    fn not_listed(&self) -> Option<UnlistedCause> {
        let plain: Vec<&Process> = self
            .suspects
            .iter()
            .filter(|suspect| {
                suspect
                    .findings
                    .iter()
                    .all(|finding| matches!(finding, Finding::OtherNamespace { .. } | Finding::Stopped))
            })
            .map(|suspect| suspect.process)
            .collect();
        let evidence = plain.iter().map(|process| {
            let how = if process.files.are_mapped_only { "mapped" } else { "open" };
            let stopped = if process.stat.state == State::Stopped { " and is stopped" } else { "" };
            format!("{} ({}) has the driver's files {how}{stopped}", process.stat.pid, process.command_line())
        });
        let evidence = evidence.collect();
        let fix = format!("kill {}", words(&pids_of(&plain)));
        found_of(Cause::NotListed, Certainty::Likely, evidence, &plain, fix)
    }

    fn managed_memory(&self) -> Option<UnlistedCause> {
        let recorded: Vec<(&Holder, Bytes)> = self
            .holders(|_| true)
            .filter_map(|holder| Some((holder, holder.recording.as_ref()?.managed)))
            .filter(|(_, managed)| !managed.is_zero())
            .collect();
        let fix =
            "end the process, or let it prefetch less: what it does not use moves to the host by itself";
        if recorded.is_empty() {
            let computing: Vec<u32> = self
                .holders(|holder| holder.lists.contains(&List::Compute) && holder.recording.is_none())
                .map(|holder| holder.pid)
                .collect();
            let evidence =
                format!("{} may hold some; makeroom run -- PROGRAM would record it", numbers(&computing));
            return (!computing.is_empty())
                .then(|| found(Cause::ManagedMemory, Certainty::Possible, vec![evidence], computing, fix));
        }
        let evidence = recorded.iter().map(|(holder, managed)| {
            format!("{} has {managed} of managed memory, by its own recording", holder.pid)
        });
        let evidence = evidence.collect();
        let pids = recorded.iter().map(|(holder, _)| holder.pid).collect();
        let bytes = recorded.iter().map(|(_, managed)| *managed).sum();
        let cause = found(Cause::ManagedMemory, Certainty::Likely, evidence, pids, fix);
        Some(UnlistedCause { bytes: Some(bytes), ..cause })
    }

    fn no_permission(&self) -> Option<UnlistedCause> {
        let refused = self.card.problems.iter().filter(|problem| problem.kind == ProblemKind::NoPermission);
        let evidence: Vec<String> =
            refused.map(|problem| format!("{}: {}", problem.what, problem.answer)).collect();
        let fix = "ask as root: sudo makeroom ps";
        (!evidence.is_empty())
            .then(|| found(Cause::NoPermission, Certainty::Certain, evidence, Vec::new(), fix))
    }

    fn no_size(&self) -> Option<UnlistedCause> {
        let blind: Vec<u32> =
            self.holders(|holder| holder.bytes.is_none()).map(|holder| holder.pid).collect();
        let evidence = vec![format!("the driver lists {} without a size", numbers(&blind))];
        let fix = "ask where the driver tells it: on the host, not in a container or under WSL";
        (!blind.is_empty()).then(|| found(Cause::NoSize, Certainty::Certain, evidence, blind.clone(), fix))
    }

    fn hidden_processes(&self) -> Option<UnlistedCause> {
        let view = &self.joined.processes.view;
        let unseen: Vec<u32> = self
            .holders(|holder| holder.is(&Finding::Unseen) && view.is_whole_machine != Some(false))
            .map(|holder| holder.pid)
            .collect();
        let mut evidence = Vec::new();
        if view.hides_others {
            evidence.push("/proc is mounted with hidepid: other users' processes are not shown".to_owned());
        }
        if !unseen.is_empty() {
            evidence.push(format!("the driver lists {}, which /proc does not have", numbers(&unseen)));
        }
        let certainty = if evidence.is_empty() { Certainty::Possible } else { Certainty::Likely };
        if view.unreadable > 0 {
            evidence.push(format!("{} processes may not be looked into", view.unreadable));
        }
        let fix = "ask as root: sudo makeroom ps";
        (!evidence.is_empty())
            .then(|| found(Cause::HiddenProcesses, certainty, evidence, unseen.clone(), fix))
    }

    fn mismatch(&self) -> Option<UnlistedCause> {
        let total = self.device.memory?.total;
        let absurd: Vec<u32> = self
            .holders(|holder| holder.bytes.is_some_and(|bytes| bytes > total))
            .map(|holder| holder.pid)
            .collect();
        let evidence =
            vec![format!("the driver says that {} holds more than the whole card", numbers(&absurd))];
        let fix =
            "use the libnvidia-ml.so.1 of the installed driver; in containers it is mounted from the host";
        (!absurd.is_empty()).then(|| found(Cause::Mismatch, Certainty::Likely, evidence, absurd.clone(), fix))
    }

    fn display(&self) -> Option<UnlistedCause> {
        let drawing: Vec<u32> =
            self.holders(|holder| holder.lists.contains(&List::Graphics)).map(|holder| holder.pid).collect();
        let mut evidence = Vec::new();
        if self.card.drives_display == Some(true) {
            evidence.push("the card drives a display".to_owned());
        }
        if !drawing.is_empty() {
            evidence.push(format!("{} draws with it", numbers(&drawing)));
        }
        let fix = "compute on a card without a display, or stop the display manager: systemctl isolate multi-user.target";
        (!evidence.is_empty())
            .then(|| found(Cause::Display, Certainty::Possible, evidence, drawing.clone(), fix))
    }

    fn driver(&self) -> Option<UnlistedCause> {
        let processes = self.joined.processes;
        let sees_all = processes.view.is_whole_machine == Some(true)
            && processes.view.unreadable == 0
            && !processes.view.hides_others;
        let is_used = !self.suspects.is_empty() || !self.device.holders.is_empty();
        if !sees_all || is_used {
            return None;
        }
        let evidence =
            vec!["every process could be looked into, and none has the files of this card open".to_owned()];
        let fix = format!(
            "reset the card: nvidia-smi --gpu-reset -i {}; if that is refused, reload the driver or reboot",
            self.card.index
        );
        Some(found(Cause::Driver, Certainty::Likely, evidence, Vec::new(), fix))
    }

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

/// A cause about processes, if there are any.
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

/// Numbers side by side, as a command wants them.
fn words(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// Numbers in a sentence: all of a few, the first of many.
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
