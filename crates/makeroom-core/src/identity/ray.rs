//! What Ray reports about its workers: which rank each of them is, and how one ended.
//!
//! ```text
//! - (node_id=f3a…, ip=10.0.0.4, pid=4711) world_rank=3, local_rank=1, node_rank=1
//! Memory on the node (IP: 10.0.0.4, ID: f3a…) where the task (actor ID: …, pid=4711, memory used=182.33GB) was running …
//! A worker died or was killed while executing a task … Worker IP address: 10.0.0.4 … Worker PID: 4711 Worker exit type: …
//!
//! ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
//!         pid: 4711
//!         ip: 10.0.0.4
//! The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR …
//! ```
//!
//! Ray does not know why a worker died: its message lists the OOM killer among other possible reasons, so it is not
//! evidence for it.

use super::failure_list::{clipped, leading_number};

/// Lines of an error before the one with the reason.
const MOST_LINES: u32 = 12;
/// Length of the longest host name in bytes.
const LONGEST: usize = 255;

/// A worker in Ray's reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RayWorker {
    /// Its PID.
    pub pid: u32,
    /// Its host, as its prefix in a log shows it.
    pub host: Option<String>,
    /// What is reported.
    pub event: RayEvent,
}

/// What Ray reports about a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RayEvent {
    /// Its rank, and its rank on the host.
    Numbered(u32, Option<u32>),
    /// Ray killed it because its node ran low on host memory.
    KilledForMemory,
    /// It died, and Ray does not know why.
    Died,
}

/// Reads Ray's reports.
#[derive(Debug, Default)]
pub struct RayReports {
    actor: Option<Actor>,
}

/// An actor whose error is being read.
#[derive(Debug, Default)]
struct Actor {
    pid: Option<u32>,
    host: Option<String>,
    lines: u32,
}

impl RayReports {
    /// Reads a line. Returns the worker that it is about.
    pub fn read(&mut self, line: &str) -> Option<RayWorker> {
        if ["ActorDiedError", "RayActorError", "ActorUnavailableError"].iter().any(|name| line.contains(name))
        {
            self.actor = Some(Actor::default());
            return None;
        }
        self.read_actor(line).or_else(|| numbered(line)).or_else(|| killed(line)).or_else(|| died(line))
    }

    fn read_actor(&mut self, line: &str) -> Option<RayWorker> {
        let actor = self.actor.as_mut()?;
        actor.lines += 1;
        let text = line.trim();
        if let Some(pid) = text.strip_prefix("pid:") {
            actor.pid = leading_number(pid);
        } else if let Some(host) = text.strip_prefix("ip:") {
            actor.host = host_of(host);
        } else if text.starts_with("The actor is dead because") || text.starts_with("The actor died") {
            let actor = self.actor.take()?;
            let is_own =
                ["INTENDED_USER_EXIT", "creation task", "ray.kill"].iter().any(|why| text.contains(why));
            return actor.pid.filter(|_| !is_own).map(|pid| RayWorker {
                pid,
                host: actor.host,
                event: RayEvent::Died,
            });
        }
        if self.actor.as_ref().is_some_and(|actor| actor.lines > MOST_LINES) {
            self.actor = None;
        }
        None
    }
}

fn after<'line>(line: &'line str, mark: &str) -> Option<&'line str> {
    line.split_once(mark).map(|(_, rest)| rest)
}

fn host_of(text: &str) -> Option<String> {
    let end = text.trim_start().split([',', ' ', ')', '\t']).next()?;
    Some(clipped(end, LONGEST).to_owned()).filter(|host| !host.is_empty())
}

fn numbered(line: &str) -> Option<RayWorker> {
    let (worker, ranks) = line.split_once(") world_rank=")?;
    let local = after(ranks, "local_rank=").and_then(leading_number);
    Some(RayWorker {
        pid: after(worker, "pid=").and_then(leading_number)?,
        host: after(worker, "ip=").and_then(host_of),
        event: RayEvent::Numbered(leading_number(ranks)?, local),
    })
}

fn killed(line: &str) -> Option<RayWorker> {
    let rest = after(line, "Memory on the node (")?;
    let pid = after(rest, "pid=").and_then(leading_number)?;
    Some(RayWorker { pid, host: after(rest, "IP: ").and_then(host_of), event: RayEvent::KilledForMemory })
}

fn died(line: &str) -> Option<RayWorker> {
    let rest = after(line, "A worker died or was killed")?;
    let pid = after(rest, "Worker PID: ").and_then(leading_number)?;
    let is_own = rest.contains("INTENDED_USER_EXIT");
    let host = after(rest, "Worker IP address: ").and_then(host_of);
    (!is_own).then_some(RayWorker { pid, host, event: RayEvent::Died })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<RayWorker> {
        let mut reports = RayReports::default();
        text.lines().filter_map(|line| reports.read(line)).collect()
    }

    fn worker(pid: u32, event: RayEvent) -> RayWorker {
        RayWorker { pid, host: Some("10.0.0.4".to_owned()), event }
    }

    #[test]
    fn workers_are_read() {
        let text = "- (node_id=f3a, ip=10.0.0.4, pid=4711) world_rank=3, local_rank=1, node_rank=1\n\
            - (ip=10.0.0.4, pid=4712) world_rank=2, local_rank=0, node_rank=1\n\
            Memory on the node (IP: 10.0.0.4, ID: f3a) where the task (actor ID: a, name=W.__init__, pid=4711, memory \
            used=1.0GB) was running was 9GB / 9GB (0.96)\n\
            (raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID: d \
            Worker IP address: 10.0.0.4 Worker port: 10006 Worker PID: 4713 Worker exit type: SYSTEM_ERROR\n";
        assert_eq!(
            read(text),
            [
                worker(4711, RayEvent::Numbered(3, Some(1))),
                worker(4712, RayEvent::Numbered(2, Some(0))),
                worker(4711, RayEvent::KilledForMemory),
                worker(4713, RayEvent::Died)
            ]
        );
    }

    #[test]
    fn an_actor_that_died_is_read() {
        let error = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\
            \tclass_name: RayTrainWorker\n\tpid: 4711\n\tnamespace: n\n\tip: 10.0.0.4\n";
        let reason =
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n";
        assert_eq!(read(&format!("{error}{reason}")), [worker(4711, RayEvent::Died)]);
        let own = reason.replace("SYSTEM_ERROR", "INTENDED_USER_EXIT");
        for text in
            [format!("{error}{own}"), format!("{error}{}{reason}", "x\n".repeat(20)), reason.to_owned()]
        {
            assert_eq!(read(&text), [], "{text}");
        }
    }
}
