//! The processes of this machine, as far as `/proc` shows them.
//!
//! One pass over `/proc` reads one line of every process and the names of its open files; the rest is read only of
//! processes that matter here: those with the driver's files open, and those that the driver lists. A process that
//! vanishes between two reads is simply not there; one that may not be looked into is counted.
//!
//! The reading is our own, not the `procfs` crate's: that one fills large structures field by field and fails as a
//! whole where a field is odd, while a few fields are wanted here, from a folder that may be the host's `/proc` mounted
//! elsewhere.

mod belonging;
mod files;
mod stat;
mod users;
mod view;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use belonging::Belonging;
pub use files::OpenFiles;
pub use stat::{Stat, State};
pub use view::View;

use users::Users;

/// A process that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// What its line in `/proc` says.
    pub stat: Stat,
    /// Its words; empty for a zombie and for kernel threads.
    pub command: Vec<String>,
    /// Its user's number.
    pub user: Option<u32>,
    /// Its user's name, or the number.
    pub user_name: String,
    /// Its numbers in namespaces below this one, outermost first; empty when it is in this one.
    pub inner_pids: Vec<u32>,
    /// The container, pod, job or unit it belongs to.
    pub belonging: Belonging,
    /// Its files of the driver, and a recording of it.
    pub files: OpenFiles,
    /// How long it has been running.
    pub age: Option<Duration>,
}

impl Process {
    /// The command as one line; the name in brackets where there is none, as `ps` shows it.
    pub fn command_line(&self) -> String {
        if self.command.is_empty() {
            return format!("[{}]", self.stat.name);
        }
        self.command.join(" ")
    }

    /// The program's name without its folder.
    pub fn program(&self) -> &str {
        let first = self.command.first().map_or(self.stat.name.as_str(), String::as_str);
        first.rsplit('/').next().unwrap_or(first)
    }

    /// Whether any of its words contains one of these.
    pub fn mentions(&self, parts: &[&str]) -> bool {
        self.command.iter().any(|word| parts.iter().any(|part| word.contains(part)))
    }
}

/// All processes at one moment.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// Every process by its number.
    pub stats: BTreeMap<u32, Stat>,
    /// Those that matter here.
    pub known: BTreeMap<u32, Process>,
    /// What can be seen from here.
    pub view: View,
    /// Whether mapped files were looked at too.
    pub(crate) has_mapped: bool,
}

impl Processes {
    /// Reads the processes under `root` (`/proc`), in full those with the driver's files open and those in `listed`.
    /// Processes in `own` are left out.
    pub fn read(root: &Path, listed: &HashSet<u32>, own: &[u32]) -> Self {
        let mut processes = Self { view: View::read(root), ..Self::default() };
        let mut reader = Reader::new(root);
        for pid in pids(root) {
            let folder = reader.folder(pid);
            let Some(stat) = Stat::read(&folder) else { continue };
            let files = OpenFiles::read(&folder, &stat);
            processes.view.unreadable += u32::from(files.is_none() && stat.may_have_files());
            let files = files.unwrap_or_default();
            if (files.has_driver() || listed.contains(&pid)) && !own.contains(&pid) {
                processes.known.insert(pid, reader.process(stat.clone(), files));
            }
            processes.stats.insert(pid, stat);
        }
        processes
    }

    /// Reads the processes in `listed` again, and leaves the others as they were.
    pub(crate) fn refresh(&mut self, root: &Path, listed: &HashSet<u32>) {
        let mut reader = Reader::new(root);
        for &pid in listed {
            let Some(stat) = Stat::read(&reader.folder(pid)) else {
                self.stats.remove(&pid);
                self.known.remove(&pid);
                continue;
            };
            let known = self.known.get_mut(&pid).filter(|process| process.stat.started == stat.started);
            if let Some(process) = known {
                process.age = reader.age(&stat);
                process.stat = stat.clone();
            } else {
                let files = OpenFiles::read(&reader.folder(pid), &stat).unwrap_or_default();
                self.known.insert(pid, reader.process(stat.clone(), files));
            }
            self.stats.insert(pid, stat);
        }
    }

    /// Looks for processes that keep the driver's files mapped after closing them. That means reading every
    /// process's map, so it is done only when memory is missing.
    pub fn add_mapped(&mut self, root: &Path, own: &[u32]) {
        self.has_mapped = true;
        let mut reader = Reader::new(root);
        let rest: Vec<u32> = self
            .stats
            .keys()
            .copied()
            .filter(|pid| !self.known.contains_key(pid) && !own.contains(pid))
            .collect();
        for pid in rest {
            let files = OpenFiles::read_mapped(&reader.folder(pid));
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
}

impl<'root> Reader<'root> {
    fn new(root: &'root Path) -> Self {
        Self { root, uptime: uptime(root), users: Users::default() }
    }

    fn folder(&self, pid: u32) -> PathBuf {
        self.root.join(pid.to_string())
    }

    /// How long a process has been running.
    fn age(&self, stat: &Stat) -> Option<Duration> {
        let started = Duration::from_secs_f64(stat.started as f64 / ticks_per_second());
        self.uptime.map(|uptime| uptime.saturating_sub(started))
    }

    fn process(&mut self, stat: Stat, files: OpenFiles) -> Process {
        let folder = self.folder(stat.pid);
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let user = field("Uid").and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok());
        let pids = field("NSpid").unwrap_or_default();
        let command = fs::read(folder.join("cmdline")).unwrap_or_default();
        let words = command.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        let groups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        Process {
            command: words.filter(|word| !word.is_empty()).collect(),
            user,
            user_name: user.map_or("?".to_owned(), |user| self.users.name(user)),
            inner_pids: pids.split_ascii_whitespace().skip(1).filter_map(|pid| pid.parse().ok()).collect(),
            belonging: Belonging::parse(&groups),
            age: self.age(&stat),
            files,
            stat,
        }
    }
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The numbers of all processes.
fn pids(root: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// How long the system has been running.
fn uptime(root: &Path) -> Option<Duration> {
    let text = fs::read_to_string(root.join("uptime")).ok()?;
    Duration::try_from_secs_f64(text.split_ascii_whitespace().next()?.parse().ok()?).ok()
}
