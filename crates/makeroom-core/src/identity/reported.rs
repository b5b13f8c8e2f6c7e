//! Processes that a log names by their PID alone: those that the kernel's OOM killer killed, and those that torchrun asked
//! to end.
//!
//! ```text
//! Nov 17 10:14:11 node7 kernel: Out of memory: Killed process 4711 (python) total-vm:98123456kB, …
//! oom-kill:constraint=CONSTRAINT_MEMCG,…,task_memcg=/slurm/uid_1000/job_77/step_0/task_3,task=python,pid=4711,uid=1000
//! Sending process 4711 closing signal SIGTERM
//! ```
//!
//! The kernel prints the line with the cgroup just before the one about the kill.

use super::failure_list::{clipped, leading_number};

/// A process of which only the PID is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedProcess {
    /// Its PID.
    pub pid: u32,
    /// What happened to it.
    pub event: ProcessEvent,
    /// The name of its main thread, as the kernel knows it.
    pub program: Option<String>,
    /// Its cgroup.
    pub cgroup: Option<String>,
    /// The host, if the line has the prefix of syslog.
    pub host: Option<String>,
}

/// What happened to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The kernel killed it because host memory ran out.
    KilledForMemory,
    /// The launcher asked it to end.
    AskedToEnd,
}

/// Length of the longest name or cgroup that is kept, in bytes.
const LONGEST: usize = 255;

/// Reads the lines of the kernel's OOM killer and of torchrun.
#[derive(Debug, Default)]
pub struct ProcessReports {
    /// PID and cgroup of the process that the kernel is about to kill.
    chosen: Option<(u32, String)>,
}

impl ProcessReports {
    /// Reads a line, without the prefix of a launcher.
    pub fn read(&mut self, line: &str) -> Option<ReportedProcess> {
        if let Some(pid) = asked_to_end(line) {
            let event = ProcessEvent::AskedToEnd;
            return Some(ReportedProcess { pid, event, program: None, cgroup: None, host: None });
        }
        let lower = line.to_ascii_lowercase();
        if lower.contains("oom-kill:constraint=") {
            let value = |name: &str| line.split(',').find_map(|part| part.trim().strip_prefix(name));
            self.chosen = value("pid=").and_then(leading_number).zip(value("task_memcg=").map(kept));
            return None;
        }
        let (before, rest) = ["out of memory: killed process", "out of memory: kill process"]
            .iter()
            .find_map(|mark| line.split_at_checked(lower.find(mark)?))?;
        // The lower-case text has the same length: only ASCII letters differ.
        let rest = rest.splitn(6, ' ').nth(5)?;
        let pid = leading_number(rest)?;
        let name = rest.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(name, _)| name);
        let cgroup = self.chosen.take().filter(|(chosen, _)| *chosen == pid).map(|(_, cgroup)| cgroup);
        Some(ReportedProcess {
            pid,
            event: ProcessEvent::KilledForMemory,
            program: name.filter(|name| !name.is_empty()).map(kept),
            cgroup,
            host: syslog_host(before),
        })
    }
}

/// `Sending process 4711 closing signal SIGTERM`.
fn asked_to_end(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("Sending process ")?;
    leading_number(rest).filter(|_| line.contains("closing signal"))
}

/// `Nov 17 10:14:11 node7 kernel: …`: the word before the kernel's.
fn syslog_host(before: &str) -> Option<String> {
    let (before, _) = before.split_once(" kernel:")?;
    let host = before.split_whitespace().next_back()?;
    // The output of `dmesg` has only a time: `[12.5]`.
    host.starts_with(|letter: char| letter.is_ascii_alphanumeric()).then(|| kept(host))
}

/// A name or a cgroup, as far as it is kept.
fn kept(text: &str) -> String {
    clipped(text.trim(), LONGEST).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<ReportedProcess> {
        let mut reports = ProcessReports::default();
        text.lines().filter_map(|line| reports.read(line)).last()
    }

    #[test]
    fn processes_that_are_named_by_pid_are_read() {
        let killed = read("[12.5] Memory cgroup out of memory: Killed process 4006 (python) total-vm:98kB");
        let killed = killed.map(|found| (found.pid, found.event, found.program, found.host));
        assert_eq!(killed, Some((4006, ProcessEvent::KilledForMemory, Some("python".to_owned()), None)));
        let asked = read("W1] Sending process 4001 closing signal SIGTERM");
        assert_eq!(asked.map(|found| (found.pid, found.event)), Some((4001, ProcessEvent::AskedToEnd)));
        for line in ["Sending process x", "Out of memory: Killed process", "oom-kill:constraint=é,pid=,x", ""]
        {
            assert_eq!(read(line), None, "{line}");
        }
        let long = read(&format!("Out of memory: Killed process 7 ({}é)", "x".repeat(LONGEST)));
        assert!(long.and_then(|found| found.program).is_some_and(|name| name.len() <= LONGEST));
    }

    #[test]
    fn the_kernel_also_names_the_cgroup_and_syslog_the_host() {
        let chosen = "kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/slurm/job_77,\
            task_memcg=/slurm/uid_1000/job_77/step_0/task_3,task=python,pid=4711,uid=1000\n";
        let killed = |pid: u32| {
            format!(
                "Nov 17 10:14:11 node7 kernel: Memory cgroup out of memory: Killed process {pid} (pt main) x\n"
            )
        };
        let found = read(&format!("{chosen}{}", killed(4711)));
        let found = found.map(|found| (found.cgroup, found.host, found.program));
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            found,
            Some((text("/slurm/uid_1000/job_77/step_0/task_3"), text("node7"), text("pt main")))
        );
        let other = read(&format!("{chosen}{}", killed(4712)));
        assert_eq!(other.and_then(|found| found.cgroup), None, "the cgroup is that of another process");
    }
}
