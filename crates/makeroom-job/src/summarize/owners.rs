//! Which rank the lines of a process belong to.
//!
//! One process can have several names in a log: Ray's prefix has the PID, and its list of workers the rank; torchrun's
//! prefix has the local rank, and its report both ranks. A traceback without a prefix is that of the rank that the launcher
//! names.

use makeroom_ordered::{OrderedMap, OrderedSet};

use super::log::{LogReader, MOST_RANKS};
use super::log_text::{Label, RankText};

/// The ranks of Ray's workers.
#[derive(Debug, Default)]
pub(super) struct Workers {
    /// By PID, and by PID and host: hosts may use the same PID, and not every line names the host.
    by_pid: OrderedMap<u32, Ranks>,
    by_host: OrderedMap<(u32, Option<String>), Ranks>,
    /// Workers that Ray killed because host memory ran out.
    pub(super) starved: OrderedSet<u32>,
}

/// The rank of a worker: the least and the greatest that its lines name, and its local rank.
#[derive(Clone, Copy, Debug)]
struct Ranks {
    least: u32,
    greatest: u32,
    local: Option<u32>,
}

impl Ranks {
    fn merge(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            greatest: self.greatest.max(other.greatest),
            local: self.local.into_iter().chain(other.local).min(),
        }
    }
}

impl Workers {
    pub(super) fn add(&mut self, pid: u32, host: Option<String>, rank: u32, local: Option<u32>) {
        let key = (pid, host);
        let is_known = self.by_host.contains_key(&key);
        if is_known || self.by_host.len() < MOST_RANKS {
            let ranks = Ranks { least: rank, greatest: rank, local };
            let merge = |known: &mut Ranks| *known = known.merge(ranks);
            self.by_pid.entry(pid).and_modify(merge).or_insert(ranks);
            self.by_host.entry(key).and_modify(merge).or_insert(ranks);
        }
    }

    /// `Setting up process group for: env:// [rank=3, world_size=8]`, which a worker prints about itself.
    pub(super) fn read_own(&mut self, pid: u32, host: Option<&str>, line: &str) {
        let Some((_, rest)) = line.split_once("[rank=") else { return };
        let Some((rank, size)) = rest.split_once(", world_size=") else { return };
        if let (Ok(rank), true) = (rank.parse(), size.starts_with(|letter: char| letter.is_ascii_digit())) {
            self.add(pid, host.map(str::to_owned), rank, None);
        }
    }

    /// The rank and the local rank of a process, unless several have its PID.
    fn of(&self, pid: u32, host: Option<&str>) -> Option<(u32, Option<u32>)> {
        let found = match host {
            None => self.by_pid.get(&pid).copied(),
            Some(host) => {
                let of = |host: Option<&str>| self.by_host.get(&(pid, host.map(str::to_owned))).copied();
                of(Some(host)).into_iter().chain(of(None)).reduce(Ranks::merge)
            }
        }?;
        (found.least == found.greatest).then_some((found.least, found.local))
    }
}

impl LogReader {
    /// Gives the lines of Ray's workers to their ranks, and Ray's explanation of a kill to the worker.
    pub(super) fn merge_workers(&mut self) {
        if let [pid] = self.workers.starved.iter().copied().collect::<Vec<_>>().as_slice() {
            let reader = self.ranks.get_mut(&Label::None).and_then(|text| text.reader.take());
            let is_worker = |label: &&Label| matches!(label, Label::Process(own, _) if own == pid);
            let worker = self.ranks.keys().find(is_worker).cloned();
            if let Some(text) = worker.and_then(|label| self.ranks.get_mut(&label)) {
                text.reader = text.reader.take().or(reader);
            }
        }
        let processes = self.ranks.keys().filter_map(|label| match label {
            Label::Process(pid, host) => {
                Some((label.clone(), host.clone(), self.workers.of(*pid, host.as_deref())?))
            }
            _ => None,
        });
        for (label, host, (rank, local)) in processes.collect::<Vec<_>>() {
            let Some(mut text) = self.ranks.remove(&label) else { continue };
            text.identity.rank = Some(rank);
            text.identity.local_rank = text.identity.local_rank.or(local);
            text.identity.host = text.identity.host.take().or(host);
            match self.ranks.get_mut(&Label::Rank(rank)) {
                Some(owner) => owner.merge(text),
                None => _ = self.ranks.insert(Label::Rank(rank), text),
            }
        }
    }

    /// Merges the lines of a local rank with those of the rank that has it, if there is only one.
    pub(super) fn merge_local(&mut self) {
        let locals: Vec<(u32, Option<String>)> = self
            .ranks
            .keys()
            .filter_map(|label| match label {
                Label::LocalRank(local, pod) => Some((*local, pod.clone())),
                _ => None,
            })
            .collect();
        let pods: OrderedSet<&Option<String>> = locals.iter().map(|(_, pod)| pod).collect();
        let is_one_pod = pods.len() == 1;
        for (local, pod) in locals {
            // torchrun's report does not name pods.
            let any = || self.by_local.get(&(local, None)).filter(|_| is_one_pod);
            let rank = self.by_local.get(&(local, pod.clone())).or_else(any).copied().flatten();
            let Some(rank) = rank.map(Label::Rank).filter(|rank| self.ranks.contains_key(rank)) else {
                continue;
            };
            let text = self.ranks.remove(&Label::LocalRank(local, pod));
            if let (Some(text), Some(owner)) = (text, self.ranks.get_mut(&rank)) {
                owner.merge(text);
            }
        }
    }

    /// Restores errors that seemed to be handled, of ranks that exited with an error and printed nothing else about it. If
    /// one of them shows its error, that explains the others.
    pub(super) fn restore_dropped(&mut self) {
        let failed = || self.ranks.values().filter(|text| text.has_exited_with_error());
        if failed().any(|text| !text.errors.is_empty()) {
            return;
        }
        let failed = self.ranks.values_mut().filter(|text| text.has_exited_with_error());
        failed.filter(|text| text.is_unexplained()).for_each(|text| text.errors.restore());
    }

    /// Gives a traceback without a prefix to the rank that the launcher names as the root cause, or to the only one that it
    /// lists with an exit code above 0, if that rank printed nothing about its error. Of several such ranks, none is known
    /// to have printed it. Without a prefix, lines of other ranks look as if the program had continued, so an error that
    /// seemed to be handled is restored.
    pub(super) fn assign_unnamed(&mut self) {
        let Some(mut unnamed) = self.ranks.remove(&Label::None) else { return };
        let root = self.root.take();
        let is_candidate = |label: &Label| root.as_ref().is_none_or(|root| *label == Label::Rank(root.rank));
        let failed = self.ranks.iter_mut().filter(|(_, text)| text.has_exited_with_error());
        let mut failed: Vec<&mut RankText> =
            failed.filter(|(label, _)| is_candidate(label)).map(|(_, text)| text).collect();
        if !failed.is_empty() && failed.iter().all(|text| text.reader.is_none() && text.is_unexplained()) {
            unnamed.errors.restore();
        }
        if let [owner] = failed.as_mut_slice()
            && owner.reader.is_none()
            && owner.errors.is_empty()
        {
            owner.reader = unnamed.reader.take();
            owner.errors = std::mem::take(&mut unnamed.errors);
        }
        self.ranks.insert(Label::None, unnamed);
    }

    /// Takes the number of the file as its rank, unless the lines name other ranks.
    pub(super) fn number(&mut self) {
        let Some(numbered) = self.numbered.take() else { return };
        let Some(own) = numbered.rank.map(Label::Rank) else { return };
        if self.ranks.keys().any(|label| *label != Label::None && *label != own) {
            return;
        }
        let texts = [self.ranks.remove(&own), self.ranks.remove(&Label::None)];
        let text = texts.into_iter().flatten().reduce(|mut text, other| {
            text.merge(other);
            text
        });
        if let Some(mut text) = text {
            text.identity = numbered.clone();
            self.ranks.insert(own, text);
        }
        self.source.identity = numbered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_found_by_their_pid_and_host() {
        let mut workers = Workers::default();
        let host = |name: &str| Some(name.to_owned());
        workers.add(7, host("a"), 0, Some(0));
        workers.add(7, host("b"), 1, None);
        workers.add(8, None, 2, Some(2));
        assert_eq!(workers.of(7, Some("a")), Some((0, Some(0))));
        assert_eq!(workers.of(7, Some("b")), Some((1, None)));
        assert_eq!((workers.of(7, None), workers.of(7, Some("c"))), (None, None), "either can be meant");
        assert_eq!(workers.of(8, Some("a")), Some((2, Some(2))));
        workers.add(8, host("a"), 3, None);
        assert_eq!(workers.of(8, Some("a")), None, "two ranks");
    }
}
