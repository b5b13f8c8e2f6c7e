//! Processes that a log names by their PID alone: those that the kernel's OOM killer killed, and those that torchrun asked
//! to end.
//!
//! ```text
//! Nov 17 10:14:11 node7 kernel: Out of memory: Killed process 4711 (python) total-vm:98123456kB, …
//! oom-kill:constraint=CONSTRAINT_MEMCG,…,task_memcg=/slurm/uid_1000/job_77/step_0/task_3,task=python,pid=4711,uid=1000
//! Sending process 4711 closing signal SIGTERM
//! ```
//!
//! The kernel prints the line with the cgroup just before the one about the kill. Older kernels, such as
//! that of RHEL 7, announce a process, and then kill it or one of its children:
//!
//! ```text
//! Out of memory: Kill process 4711 (python) score 9 or sacrifice child
//! Killed process 4712 (python) total-vm:98123456kB, …
//! ```
//!
//! The announced process counts only if the log does not contain the second line.

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
    /// The process that the kernel has announced.
    announced: Option<ReportedProcess>,
}

impl ProcessReports {
    /// Reads a line, without the prefix of a launcher. Returns whether it is about another process, and a process whose
    /// end it shows, or that was announced before.
    pub fn read(&mut self, line: &str) -> (bool, Option<ReportedProcess>) {
        if let Some(pid) = asked_to_end(line) {
            let event = ProcessEvent::AskedToEnd;
            return (true, Some(ReportedProcess { pid, event, program: None, cgroup: None, host: None }));
        }
        let lower = line.to_ascii_lowercase();
        if lower.contains("oom-kill:constraint=") {
            let value = |name: &str| line.split(',').find_map(|part| part.trim().strip_prefix(name));
            self.chosen = value("pid=").and_then(leading_number).zip(value("task_memcg=").map(kept));
            return (false, None);
        }
        if let Some(announced) = self.process(line, &lower, "out of memory: kill process ") {
            return (true, self.announced.replace(announced));
        }
        let is_kernels = self.announced.is_some() || lower.contains("total-vm:");
        let killed = self.process(line, &lower, "out of memory: killed process ");
        let killed = killed.or_else(|| self.process(line, &lower, "killed process ").filter(|_| is_kernels));
        if killed.is_some() {
            (self.chosen, self.announced) = (None, None);
        }
        (killed.is_some(), killed)
    }

    /// Ends the log. Returns a process that the kernel announced, and of which no line shows the end.
    pub fn finish(self) -> Option<ReportedProcess> {
        self.announced
    }

    /// The process that a line of the kernel names after a mark in lower case.
    fn process(&self, line: &str, lower: &str, mark: &str) -> Option<ReportedProcess> {
        // The lower-case text has the same length: only ASCII letters differ.
        let (before, rest) = line.split_at_checked(lower.find(mark)?)?;
        let rest = rest.get(mark.len()..)?;
        let pid = leading_number(rest)?;
        let name = rest.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(name, _)| name);
        let chosen = self.chosen.as_ref().filter(|(chosen, _)| *chosen == pid);
        Some(ReportedProcess {
            pid,
            event: ProcessEvent::KilledForMemory,
            program: name.filter(|name| !name.is_empty()).map(kept),
            cgroup: chosen.map(|(_, cgroup)| cgroup.clone()),
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

    fn all(text: &str) -> Vec<ReportedProcess> {
        let mut reports = ProcessReports::default();
        let mut found: Vec<_> = text.lines().filter_map(|line| reports.read(line).1).collect();
        found.extend(reports.finish());
        found
    }

    fn read(text: &str) -> Option<ReportedProcess> {
        all(text).pop()
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
    fn older_kernels_announce_a_process_and_may_kill_its_child() {
        let pids = |text: &str| all(text).iter().map(|found| found.pid).collect::<Vec<_>>();
        let announced = "Nov 17 10:14:11 node7 kernel: Out of memory: Kill process 4711 (python) score 9 or sacrifice child\n";
        let killed = "Nov 17 10:14:11 node7 kernel: Killed process 4712 (python) total-vm:98123456kB\n";
        assert_eq!(pids(&format!("{announced}{killed}")), [4712]);
        let found = read(&format!("{announced}{killed}"));
        assert_eq!(found.and_then(|found| found.host).as_deref(), Some("node7"));
        let cgroup = announced.replace("Out of", "Memory cgroup out of");
        assert_eq!(pids(&format!("{cgroup}step 7\n{killed}")), [4712]);
        // Excerpts with one of the lines, of several kills.
        assert_eq!(pids(killed), [4712]);
        assert_eq!(pids(&format!("{announced}{}", announced.replace("4711", "4713"))), [4711, 4713]);
        assert_eq!(pids("launcher: killed process 4711\n"), [0_u32; 0], "not a line of the kernel");
        let mut reports = ProcessReports::default();
        assert_eq!(reports.read(&cgroup), (true, None), "it is not about the process that prints it");
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
