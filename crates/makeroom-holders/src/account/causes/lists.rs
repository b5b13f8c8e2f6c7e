//! Causes that follow from gaps in the driver's lists, or from the limited view of this process.

use makeroom_core::Bytes;

use super::{Scene, found, numbers, words};
use crate::account::{Cause, Certainty, Finding, Holder, UnlistedCause};
use crate::survey::{List, ProblemKind};

impl Scene<'_> {
    pub(super) fn other_namespace(&self) -> Option<UnlistedCause> {
        if self.joined.processes.view.is_whole_machine != Some(false) {
            return None;
        }
        let unseen: Vec<u32> =
            self.holders(|holder| holder.is(&Finding::Unseen)).map(|holder| holder.pid).collect();
        let mut evidence = vec![
            "this PID namespace is not the host's, and the driver lists processes by their host PID"
                .to_owned(),
        ];
        if !unseen.is_empty() {
            evidence.push(format!("the driver lists {}, not visible from here", numbers(&unseen)));
        }
        // Visible suspects are stronger evidence than processes that may be invisible.
        let certainty = match (unseen.is_empty(), self.suspects.is_empty()) {
            (false, _) => Certainty::Certain,
            (true, true) => Certainty::Likely,
            (true, false) => Certainty::Possible,
        };
        let fix = "run makeroom ps on the host, or start this container with --pid=host (in Kubernetes: hostPID: true)";
        Some(found(Cause::OtherNamespace, certainty, evidence, unseen, fix))
    }

    pub(super) fn managed_memory(&self) -> Option<UnlistedCause> {
        let recorded: Vec<(&Holder, Bytes)> = self
            .holders(|_| true)
            .filter_map(|holder| Some((holder, holder.recording.as_ref()?.managed)))
            .filter(|(_, managed)| !managed.is_zero())
            .collect();
        let fix =
            "stop the process, or prefetch less in it: managed memory that is not in use moves to the host";
        if recorded.is_empty() {
            let computing: Vec<u32> = self
                .holders(|holder| holder.lists.contains(&List::Compute) && holder.recording.is_none())
                .map(|holder| holder.pid)
                .collect();
            let evidence =
                format!("{} may use managed memory; makeroom run -- PROGRAM records it", numbers(&computing));
            return (!computing.is_empty())
                .then(|| found(Cause::ManagedMemory, Certainty::Possible, vec![evidence], computing, fix));
        }
        let evidence = recorded.iter().map(|(holder, managed)| {
            format!("{} has {managed} of managed memory, according to its recording", holder.pid)
        });
        let evidence = evidence.collect();
        let pids = recorded.iter().map(|(holder, _)| holder.pid).collect();
        let bytes = recorded.iter().map(|(_, managed)| *managed).sum();
        let cause = found(Cause::ManagedMemory, Certainty::Likely, evidence, pids, fix);
        Some(UnlistedCause { bytes: Some(bytes), ..cause })
    }

    pub(super) fn imported_memory(&self) -> Option<UnlistedCause> {
        let imports: Vec<(&Holder, u64)> = self
            .holders(|_| true)
            .filter_map(|holder| Some((holder, holder.recording.as_ref()?.imported)))
            .filter(|(_, imported)| *imported > 0)
            .collect();
        let evidence = imports.iter().map(|(holder, imported)| {
            let count = if *imported == 1 { "1 allocation".to_owned() } else { format!("{imported} allocations") };
            format!(
                "{} has {count} from other processes open, according to its recording: shared memory stays in use after its owner exits",
                holder.pid
            )
        });
        let evidence: Vec<String> = evidence.collect();
        let pids: Vec<u32> = imports.iter().map(|(holder, _)| holder.pid).collect();
        let fix = format!("stop the process that keeps it open: kill {}", words(&pids));
        (!pids.is_empty())
            .then(|| found(Cause::ImportedMemory, Certainty::Likely, evidence, pids.clone(), fix))
    }

    pub(super) fn no_permission(&self) -> Option<UnlistedCause> {
        let refused = self.card.problems.iter().filter(|problem| problem.kind == ProblemKind::NoPermission);
        let evidence: Vec<String> =
            refused.map(|problem| format!("could not read {}: {}", problem.what, problem.answer)).collect();
        let fix = "run as root: sudo makeroom ps";
        (!evidence.is_empty())
            .then(|| found(Cause::NoPermission, Certainty::Certain, evidence, Vec::new(), fix))
    }

    pub(super) fn no_size(&self) -> Option<UnlistedCause> {
        let blind: Vec<u32> =
            self.holders(|holder| holder.bytes.is_none()).map(|holder| holder.pid).collect();
        let evidence = vec![format!("the driver lists {} without a size", numbers(&blind))];
        let fix = "run makeroom ps on the host: the driver reports no sizes in containers and under WSL";
        (!blind.is_empty()).then(|| found(Cause::NoSize, Certainty::Certain, evidence, blind.clone(), fix))
    }

    pub(super) fn hidden_processes(&self) -> Option<UnlistedCause> {
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
            evidence.push(format!("the driver lists {}, missing from /proc", numbers(&unseen)));
        }
        let certainty = if evidence.is_empty() { Certainty::Possible } else { Certainty::Likely };
        if view.unreadable > 0 {
            evidence.push(format!("{} processes cannot be inspected", view.unreadable));
        }
        let fix = "run as root: sudo makeroom ps";
        (!evidence.is_empty())
            .then(|| found(Cause::HiddenProcesses, certainty, evidence, unseen.clone(), fix))
    }

    pub(super) fn mismatch(&self) -> Option<UnlistedCause> {
        let total = self.device.memory?.total;
        let absurd: Vec<u32> = self
            .holders(|holder| holder.bytes.is_some_and(|bytes| bytes > total))
            .map(|holder| holder.pid)
            .collect();
        let evidence =
            vec![format!("the driver reports that {} holds more memory than the GPU has", numbers(&absurd))];
        let fix = "use the libnvidia-ml.so.1 of the installed driver; in a container, mount it from the host";
        (!absurd.is_empty()).then(|| found(Cause::Mismatch, Certainty::Likely, evidence, absurd.clone(), fix))
    }

    pub(super) fn display(&self) -> Option<UnlistedCause> {
        let drawing: Vec<u32> =
            self.holders(|holder| holder.lists.contains(&List::Graphics)).map(|holder| holder.pid).collect();
        let mut evidence = Vec::new();
        if self.card.drives_display == Some(true) {
            evidence.push("the GPU drives a display".to_owned());
        }
        if !drawing.is_empty() {
            evidence.push(format!("{} uses it for graphics", numbers(&drawing)));
        }
        let fix = "compute on a GPU without a display, or stop the display manager: systemctl isolate multi-user.target";
        (!evidence.is_empty())
            .then(|| found(Cause::Display, Certainty::Possible, evidence, drawing.clone(), fix))
    }

    pub(super) fn driver(&self) -> Option<UnlistedCause> {
        let processes = self.joined.processes;
        let sees_all = processes.view.is_whole_machine == Some(true)
            && processes.view.unreadable == 0
            && !processes.view.hides_others;
        let is_used = !self.suspects.is_empty() || !self.device.holders.is_empty();
        if !sees_all || is_used {
            return None;
        }
        let evidence = vec!["every process was inspected, and none has this GPU's files open".to_owned()];
        let fix = format!(
            "reset the GPU: nvidia-smi --gpu-reset -i {}; if that fails, reload the driver or reboot",
            self.card.index
        );
        Some(found(Cause::Driver, Certainty::Likely, evidence, Vec::new(), fix))
    }
}
