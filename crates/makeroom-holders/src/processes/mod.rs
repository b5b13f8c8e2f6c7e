//! The processes of this machine, as far as `/proc` shows them.
//!
//! One pass over `/proc` reads the stat line of every process and the names of its open files. More is read only of
//! relevant processes: those that have the driver's files open, and those that the driver lists. A process that
//! vanishes between two reads is skipped; one that may not be inspected is counted.
//!
//! The `procfs` crate is not used: it parses large structures and fails as a whole on one unexpected field, while
//! this module needs a few fields, from a directory that may be the host's `/proc` mounted elsewhere.

mod belonging;
mod files;
mod kubernetes;
mod reading;
mod stat;
mod users;
mod view;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use makeroom_ordered::{OrderedMap, OrderedSet};

pub use belonging::Belonging;
use files::LookBudget;
pub use files::OpenFiles;
pub use kubernetes::PodName;
use kubernetes::Pods;
pub use stat::{Stat, State};
pub use view::View;

pub(crate) use reading::open;
use reading::{Patient, text};
use users::Users;

/// How much of a command line to read: the rest does not help to identify a process.
const LONGEST_COMMAND: u64 = 16 << 10;
/// Time limit for inspecting mapped files: 1000 ordinary processes take a tenth of it.
const LONGEST_MAPPED: Duration = Duration::from_millis(500);
/// How much of the environment to read: the kernel's limit on one argument.
const LONGEST_ENVIRONMENT: u64 = 128 << 10;
/// How much to read of files that the kernel generates.
const LONGEST_FILE: u64 = 64 << 10;

/// A relevant process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its stat line.
    pub stat: Stat,
    /// Its arguments; empty for a zombie and for kernel threads.
    pub command: Vec<String>,
    /// User ID.
    pub user: Option<u32>,
    /// User name, or the ID if unknown.
    pub user_name: String,
    /// Its PIDs in nested namespaces, outermost first; empty if it is in this namespace.
    pub inner_pids: Vec<u32>,
    /// The container, pod, job or unit it belongs to.
    pub belonging: Belonging,
    /// The name of its pod, if it is in one and the name is known.
    pub pod_name: PodName,
    /// Its driver files and its recording.
    pub files: OpenFiles,
    /// Whether its session was started by systemd, so that stopping the unit ends this process and no unrelated ones.
    pub is_its_unit: bool,
    /// Whether its parent runs the same executable; `None` if its own is not readable. If the parent's is not
    /// readable, the parent belongs to another user, so this is false.
    pub has_parents_program: Option<bool>,
    /// Time since it started.
    pub age: Option<Duration>,
}

impl Process {
    /// The command as one line without control characters; if empty, the name in brackets, as `ps` shows it.
    pub fn command_line(&self) -> String {
        if self.command.is_empty() {
            return format!("[{}]", shown(&self.stat.name));
        }
        shown(&self.command.join(" "))
    }

    /// The program's name without its directory; for Python, that of the script or module.
    pub fn program(&self) -> String {
        let name = |word: &str| shown(word.rsplit('/').next().unwrap_or(word));
        if let Some(actor) = self.ray_actor() {
            return format!("ray::{actor}");
        }
        let program = self.command.first().map_or_else(|| name(&self.stat.name), |word| name(word));
        let script = match self.command.get(1).map(String::as_str) {
            _ if !program.starts_with("python") => None,
            Some("-m") => self.command.get(2).map(String::as_str),
            word => word.filter(|word| !word.starts_with('-')),
        };
        script.map_or(program, name)
    }

    /// The class of the actor or the name of the task that it runs, if it is a Ray worker. Ray puts it in the process
    /// title, as `ray::Trainer.step`; the method changes with every call, so it is left out.
    pub fn ray_actor(&self) -> Option<&str> {
        let title = self.command.first()?.strip_prefix("ray::")?;
        let is_part = |character: char| character.is_alphanumeric() || character == '_';
        let end = title.find(|character| !is_part(character)).unwrap_or(title.len());
        title.get(..end).filter(|name| !name.is_empty() && *name != "IDLE")
    }

    /// Whether its name or any argument contains one of these.
    pub fn mentions(&self, parts: &[&str]) -> bool {
        let mut words = self.command.iter().chain([&self.stat.name]);
        words.any(|word| parts.iter().any(|part| word.contains(part)))
    }
}

/// Replaces control characters with spaces: users choose the names of their processes, which must not control a
/// terminal.
pub(crate) fn shown(text: &str) -> String {
    text.split(char::is_control).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A snapshot of all processes.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// All processes by PID.
    pub stats: OrderedMap<u32, Stat>,
    /// The relevant ones.
    pub known: OrderedMap<u32, Process>,
    /// What is visible from here.
    pub view: View,
    /// Whether mapped files were inspected too.
    pub(crate) has_mapped: bool,
}

impl Processes {
    /// Reads the processes under `root` (`/proc`), with details for those that have the driver's files open and those
    /// in `listed`. Skips those in `own`.
    pub fn read(root: &Path, listed: &OrderedSet<u32>, own: &[u32]) -> Self {
        let mut processes = Self { view: View::read(root), ..Self::default() };
        let mut reader = Reader::new(root);
        for pid in pids(root) {
            let directory = reader.directory(pid);
            let Some(stat) = Stat::read(&directory) else { continue };
            let files = OpenFiles::read(&directory, &stat, &mut reader.budget);
            processes.view.unreadable += u32::from(files.is_none() && stat.may_have_files());
            let files = files.unwrap_or_default();
            if (files.has_driver() || listed.contains(&pid)) && !own.contains(&pid) {
                processes.known.insert(pid, reader.process(stat.clone(), files));
            }
            processes.stats.insert(pid, stat);
        }
        processes
    }

    /// Reads the processes in `listed` again and keeps the others.
    pub(crate) fn refresh(&mut self, root: &Path, listed: &OrderedSet<u32>) {
        let mut reader = Reader::new(root);
        for &pid in listed {
            let Some(stat) = Stat::read(&reader.directory(pid)) else {
                self.stats.remove(&pid);
                self.known.remove(&pid);
                continue;
            };
            let known = self.known.get_mut(&pid).filter(|process| process.stat.started == stat.started);
            if let Some(process) = known {
                process.age = reader.age(&stat);
                process.has_parents_program = reader.has_parents_program(&stat);
                process.stat = stat.clone();
            } else {
                let directory = reader.directory(pid);
                let files = OpenFiles::read(&directory, &stat, &mut reader.budget).unwrap_or_default();
                self.known.insert(pid, reader.process(stat.clone(), files));
            }
            self.stats.insert(pid, stat);
        }
    }

    /// Looks for processes that have closed the driver's files but keep them mapped. This reads the maps of every
    /// process, so it is done only if memory is unexplained.
    pub fn add_mapped(&mut self, root: &Path, own: &[u32]) {
        self.has_mapped = true;
        let mut reader = Reader::new(root);
        let rest: Vec<u32> = self
            .stats
            .keys()
            .copied()
            .filter(|pid| !self.known.contains_key(pid) && !own.contains(pid))
            .collect();
        // Each process may have megabytes of maps.
        let ends = Instant::now() + LONGEST_MAPPED;
        for pid in rest.into_iter().take_while(|_| Instant::now() < ends) {
            let maps = reader.patient.read(&reader.directory(pid).join("maps"), OpenFiles::LONGEST_MAPS);
            let files = OpenFiles::of_maps(&maps.unwrap_or_default());
            if files.has_driver()
                && let Some(stat) = self.stats.get(&pid)
            {
                self.known.insert(pid, reader.process(stat.clone(), files));
            }
        }
    }
}

struct Reader<'root> {
    root: &'root Path,
    uptime: Option<Duration>,
    users: Users,
    pods: Pods,
    patient: Patient,
    budget: LookBudget,
    /// The executables of parent processes, each read once for all of its children.
    parents_programs: OrderedMap<u32, Option<PathBuf>>,
}

impl<'root> Reader<'root> {
    fn new(root: &'root Path) -> Self {
        let (users, pods) = (Users::read(root), Pods::read(root));
        let (patient, budget) = (Patient::default(), LookBudget::default());
        Self { root, uptime: uptime(root), users, pods, patient, budget, parents_programs: OrderedMap::new() }
    }

    fn directory(&self, pid: u32) -> PathBuf {
        self.root.join(pid.to_string())
    }

    /// The time since a process started.
    fn age(&self, stat: &Stat) -> Option<Duration> {
        let started = Duration::from_secs_f64(stat.started as f64 / ticks_per_second());
        self.uptime.map(|uptime| uptime.saturating_sub(started))
    }

    fn process(&mut self, stat: Stat, mut files: OpenFiles) -> Process {
        let directory = self.directory(stat.pid);
        files.find_recording(&directory, &mut self.budget);
        let status = text(&directory.join("status"), LONGEST_FILE);
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let user = field("Uid").and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok());
        let pids = field("NSpid").unwrap_or_default();
        let command = self.patient.read(&directory.join("cmdline"), LONGEST_COMMAND).unwrap_or_default();
        let words = command.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        let belonging = Belonging::parse(&text(&directory.join("cgroup"), LONGEST_FILE));
        let pod_name = belonging.pod.as_deref().map_or_else(PodName::default, |uid| {
            self.pods.name(uid).unwrap_or_else(|| {
                let variables = self.patient.read(&directory.join("environ"), LONGEST_ENVIRONMENT);
                PodName::of_environment(&variables.unwrap_or_default())
            })
        });
        Process {
            command: words.filter(|word| !word.is_empty()).collect(),
            user,
            user_name: user.map_or("?".to_owned(), |user| self.users.name(user)),
            inner_pids: pids.split_ascii_whitespace().skip(1).filter_map(|pid| pid.parse().ok()).collect(),
            has_parents_program: self.has_parents_program(&stat),
            is_its_unit: belonging.unit.is_some() && self.is_begun_by_manager(stat.session),
            belonging,
            pod_name,
            age: self.age(&stat),
            files,
            stat,
        }
    }

    fn has_parents_program(&mut self, stat: &Stat) -> Option<bool> {
        let program = |directory: PathBuf| fs::read_link(directory.join("exe")).ok();
        let own = program(self.directory(stat.pid))?;
        let parent = self.directory(stat.parent);
        let parents = self.parents_programs.entry(stat.parent).or_insert_with(|| program(parent));
        Some(parents.as_ref().is_some_and(|parents| *parents == own))
    }

    /// Whether a session was started by systemd, the system's or a user's. Sessions that a service starts for users
    /// (logins, jobs, notebooks) are not part of the service.
    fn is_begun_by_manager(&self, session: u32) -> bool {
        let Some(leader) = Stat::read(&self.directory(session)) else { return false };
        leader.parent == 1
            || Stat::read(&self.directory(leader.parent)).is_some_and(|parent| parent.name == "systemd")
    }
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The PIDs of all processes.
fn pids(root: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The time since the system booted.
fn uptime(root: &Path) -> Option<Duration> {
    let text = fs::read_to_string(root.join("uptime")).ok()?;
    Duration::try_from_secs_f64(text.split_ascii_whitespace().next()?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(words: &[&str]) -> Process {
        let stat = Stat::read(Path::new("/proc/self")).unwrap();
        let mut process = Reader::new(Path::new("/proc")).process(stat, OpenFiles::default());
        process.command = words.iter().map(|word| (*word).to_owned()).collect();
        process
    }

    #[test]
    fn what_python_runs_has_its_own_name() {
        for (words, program) in [
            (&["/usr/bin/nvidia-smi", "-l"][..], "nvidia-smi"),
            (&["/usr/bin/python3.12", "/usr/local/bin/nvitop"], "nvitop"),
            (&["python", "train.py", "--batch", "32"], "train.py"),
            (&["python3", "-m", "vllm.entrypoints"], "vllm.entrypoints"),
            (&["python3", "-c", "import torch"], "python3"),
            (&["python3"], "python3"),
        ] {
            assert_eq!(running(words).program(), program);
        }
    }

    #[test]
    fn ray_workers_are_named_by_their_actor() {
        for (title, actor, program) in [
            ("ray::Trainer.step", Some("Trainer"), "ray::Trainer"),
            ("ray::Trainer", Some("Trainer"), "ray::Trainer"),
            ("ray::_map_task()", Some("_map_task"), "ray::_map_task"),
            ("ray::IDLE", None, "ray::IDLE"),
            ("ray::\u{1b}[2J", None, "ray:: [2J"),
        ] {
            let process = running(&[title]);
            assert_eq!((process.ray_actor(), process.program().as_str()), (actor, program));
        }
        assert_eq!(running(&["python", "ray::Trainer"]).ray_actor(), None);
    }

    #[test]
    fn words_of_others_do_nothing_to_a_terminal() {
        let process = running(&["python", "-c", "import torch\nprint(1)", "\u{1b}]0;owned\u{7}"]);
        assert_eq!(process.command_line(), "python -c import torch print(1)  ]0;owned");
        assert_eq!(running(&["/tmp/\u{1b}[2Jx"]).program(), "[2Jx");
    }

    #[test]
    fn the_own_process_is_read_in_full() {
        let process = running(&["x"]);
        assert_eq!(process.user, Some(rustix::process::geteuid().as_raw()));
        assert!(process.age.is_some() && !process.is_its_unit);
    }

    #[test]
    fn each_process_is_compared_with_its_own_parent() {
        let root = std::env::temp_dir().join(format!("makeroom-parents-{}", std::process::id()));
        for (pid, program) in [(1, "/a"), (2, "/b"), (3, "/a"), (4, "/a"), (5, "/b")] {
            let directory = root.join(pid.to_string());
            fs::create_dir_all(&directory).unwrap();
            std::os::unix::fs::symlink(program, directory.join("exe")).unwrap();
        }
        let mut reader = Reader::new(&root);
        let mut answer = |pid, parent| reader.has_parents_program(&Stat { pid, parent, ..Stat::default() });
        for (pid, parent, expected) in
            [(3, 1, true), (4, 2, false), (5, 1, false), (3, 2, false), (5, 2, true)]
        {
            assert_eq!(answer(pid, parent), Some(expected), "{pid}, {parent}");
        }
        // One of both has exited.
        assert_eq!((answer(3, 9), answer(9, 1)), (Some(false), None));
        fs::remove_dir_all(root).unwrap();
    }
}
