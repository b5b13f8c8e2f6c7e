//! Lines in which a launcher, Ray or the kernel reports how other processes ended.

use makeroom_core::identity::{RayEvent, RayWorker, ended_local_rank};

use super::log::{LogReader, MOST_RANKS, MOST_REPORTED};
use super::log_text::{Label, RankText};
use crate::tables::{End, FailureKind};

impl LogReader {
    /// Reads a line about other processes. Returns whether it is one.
    pub(super) fn report(&mut self, line: &str, pod: Option<&str>) -> bool {
        let is_listed = self.list(line, pod)
            | self.list_local(line, pod)
            | self.list_signal(line)
            | self.list_container(line);
        let (is_report, reported) = self.reports.read(line);
        self.reported.extend(reported.filter(|_| self.reported.len() < MOST_REPORTED));
        let worker = self.ray.read(line);
        let is_of_ray = worker.is_some();
        if let Some(worker) = worker {
            self.report_worker(worker);
        }
        is_listed || is_report || is_of_ray
    }

    /// The text of a process, unless the log has too many.
    fn text(&mut self, label: Label) -> Option<&mut RankText> {
        let is_new = !self.ranks.contains_key(&label);
        if is_new && self.ranks.len() >= MOST_RANKS {
            return None;
        }
        Some(self.ranks.entry(label).or_default())
    }

    /// Notes that a rank has a local rank.
    pub(super) fn pair(&mut self, rank: u32, local: u32, pod: Option<String>) {
        if self.by_local.len() < MOST_RANKS {
            let known = self.by_local.entry((local, pod)).or_insert(Some(rank));
            *known = known.filter(|&known| known == rank);
        }
    }

    /// Reads a line in which a launcher reports ranks that ended.
    fn list(&mut self, line: &str, pod: Option<&str>) -> bool {
        let listed = self.listed.read(line);
        let is_listed = !listed.is_empty();
        self.has_list |= is_listed;
        let is_starved = line.ends_with(": Out Of Memory");
        let number = self.lines;
        for listed in listed {
            if let Some(local) = listed.local_rank {
                self.pair(listed.rank, local, pod.map(str::to_owned));
            }
            let Some(text) = self.text(Label::Rank(listed.rank)) else { break };
            text.identity.rank = Some(listed.rank);
            text.identity.local_rank = text.identity.local_rank.or(listed.local_rank);
            text.host = text.host.take().or_else(|| listed.host.clone());
            text.pid = text.pid.or(listed.pid);
            text.ended(listed.exit_code, number);
            if is_starved {
                text.add(FailureKind::HostMemory);
            }
            text.is_first |= listed.is_first;
            if listed.is_first {
                self.root = Some(listed);
            }
        }
        is_listed
    }

    /// Reads a line in which a launcher reports a local rank that ended.
    fn list_local(&mut self, line: &str, pod: Option<&str>) -> bool {
        let Some((local, pid, status)) = ended_local_rank(line) else { return false };
        let number = self.lines;
        if let Some(text) = self.text(Label::LocalRank(local, pod.map(str::to_owned))) {
            text.identity.local_rank = Some(local);
            text.pid = text.pid.or(pid);
            text.ended(status, number);
        }
        self.has_list = true;
        true
    }

    /// `Signal 11 (SIGSEGV) received by PID 4711`, in torchrun's list or without it.
    fn list_signal(&mut self, line: &str) -> bool {
        let Some((before, pid)) = line.split_once(") received by PID ") else { return false };
        let signal: Option<i32> =
            before.rsplit_once("Signal ").and_then(|(_, signal)| signal.split(' ').next()?.parse().ok());
        let (Some(signal), Ok(pid)) = (signal.filter(|signal| (1..=64).contains(signal)), pid.trim().parse())
        else {
            return false;
        };
        // The list has just named the rank with this PID.
        let is_known = self.has_list;
        let number = self.lines;
        if !is_known && let Some(text) = self.text(Label::Process(pid, None)) {
            text.pid = Some(pid);
            text.ended(-signal, number);
        }
        true
    }

    /// `trainer-1 exited with code 137`, which Docker Compose prints without a prefix.
    fn list_container(&mut self, line: &str) -> bool {
        let Some((name, status)) = line.split_once(" exited with code ") else { return false };
        let Ok(status) = status.trim().parse() else { return false };
        let number = self.lines;
        let text = self.ranks.get_mut(&Label::Pod(name.trim().to_owned()));
        let is_known = text.is_some();
        if let Some(text) = text {
            text.ended(status, number);
        }
        is_known
    }

    fn report_worker(&mut self, worker: RayWorker) {
        let RayWorker { pid, host, event } = worker;
        let number = self.lines;
        let kind = match event {
            RayEvent::Numbered(rank, local) => return self.workers.add(pid, host, rank, local),
            RayEvent::KilledForMemory => FailureKind::HostMemory,
            RayEvent::Died => FailureKind::Died,
        };
        let Some(text) = self.text(Label::Process(pid, host)) else { return };
        text.pid = Some(pid);
        text.add(kind);
        text.end_line = text.end_line.or(Some(number));
        if kind == FailureKind::HostMemory {
            text.end = Some(End::Killed);
            self.workers.starved.insert(pid);
        }
    }
}
