//! Causes that are processes: they use the GPU, and the driver does not list them.

use super::{Scene, Suspect, found, found_of, numbers, pids_of, words};
use crate::account::{Cause, Certainty, Finding, UnlistedCause, findings};
use crate::processes::{Process, State};
use crate::survey::List;

impl Scene<'_> {
    pub(super) fn zombie(&self) -> Option<UnlistedCause> {
        let with_threads = self.suspects(|finding| matches!(finding, Finding::Zombie { .. }));
        let certainty = if with_threads.is_empty() { Certainty::Possible } else { Certainty::Likely };
        let mut evidence: Vec<String> = with_threads
            .iter()
            .map(|process| {
                format!(
                    "{} has exited with threads still running: {}",
                    process.stat.pid,
                    process.stat.threads.saturating_sub(1)
                )
            })
            .collect();
        let mut pids: Vec<u32> = with_threads.iter().map(|process| process.stat.pid).collect();
        let mut parents: Vec<u32> = with_threads.iter().map(|process| process.stat.parent).collect();
        if pids.is_empty() {
            // A zombie has no open files. It is suspect if its parent uses the GPU.
            let processes = self.joined.processes;
            let zombies = processes.stats.values().filter(|stat| stat.state == State::Zombie);
            for zombie in zombies.filter(|stat| {
                processes.known.get(&stat.parent).is_some_and(|parent| super::uses(parent, self.card))
            }) {
                evidence.push(format!(
                    "{} ({}) has exited, and its parent {} has not reaped it",
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
        let fix = format!("a zombie cannot be killed; stop its parent instead: kill {}", words(&parents));
        Some(found(Cause::Zombie, certainty, evidence, pids, fix))
    }

    pub(super) fn uninterruptible(&self) -> Option<UnlistedCause> {
        let hanging = self.suspects(|finding| *finding == Finding::Uninterruptible);
        let evidence = hanging.iter().map(|process| {
            format!(
                "{} ({}) has the driver's files open and is in state D",
                process.stat.pid,
                process.program()
            )
        });
        let fix = format!(
            "it cannot be killed; reset the GPU (nvidia-smi --gpu-reset -i {}) or reboot",
            self.card.index
        );
        found_of(Cause::Uninterruptible, Certainty::Likely, evidence.collect(), &hanging, fix)
    }

    pub(super) fn orphaned_workers(&self) -> Option<UnlistedCause> {
        let of_one = |suspect: &Suspect<'_>| {
            let orphaned =
                suspect.findings.iter().find(|finding| matches!(finding, Finding::Orphaned { .. }));
            orphaned.map(|finding| {
                let (pid, command) = (suspect.process.stat.pid, suspect.process.command_line());
                format!("{pid} ({command}) has the driver's files open and {}", finding.words())
            })
        };
        let orphaned = self.suspects(|finding| matches!(finding, Finding::Orphaned { .. }));
        let evidence = self.suspects.iter().filter_map(of_one).collect();
        let fix = format!("kill {}", words(&pids_of(&orphaned)));
        found_of(Cause::OrphanedWorkers, Certainty::Likely, evidence, &orphaned, fix)
    }

    pub(super) fn mps(&self) -> Option<UnlistedCause> {
        let processes = self.joined.processes;
        // The kernel truncates names to 15 bytes. If files cannot be read, that name alone identifies a server.
        let servers: Vec<u32> = processes
            .stats
            .values()
            .filter(|stat| match processes.known.get(&stat.pid) {
                Some(process) => findings::is_mps_server(process) && super::uses(process, self.card),
                None => stat.name == "nvidia-cuda-mps" && processes.view.unreadable > 0,
            })
            .map(|stat| stat.pid)
            .collect();
        let clients: Vec<u32> =
            self.holders(|holder| holder.lists.contains(&List::Mps)).map(|holder| holder.pid).collect();
        if servers.is_empty() {
            return None;
        }
        let mut evidence = vec![format!("{} runs CUDA work for other processes", numbers(&servers))];
        if !clients.is_empty() {
            evidence.push(format!("the driver lists its clients {}", words(&clients)));
        }
        let fix = "echo get_client_list SERVER | nvidia-cuda-mps-control lists its clients; echo quit | nvidia-cuda-mps-control stops the server and its clients";
        let fix = fix.replace("SERVER", &servers[0].to_string());
        Some(found(Cause::Mps, Certainty::Likely, evidence, servers, fix))
    }

    pub(super) fn not_listed(&self) -> Option<UnlistedCause> {
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
}
