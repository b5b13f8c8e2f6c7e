//! The driver's files that a process has open, and the recording it writes.
//!
//! Files are matched by the end of their path, such as `dev/nvidia0`, because in a chroot they are not in `/dev`. An
//! open file shows that a process uses the driver, but not how much memory it holds on which GPU: CUDA opens the
//! files of all GPUs that it may use.

use std::fs;
use std::path::{Path, PathBuf};

use makeroom_ordered::OrderedSet;

use super::stat::{Stat, State};
use crate::recording::{MOST_THREADS, threads, writers};

/// Maximum number of open files to inspect per process: CUDA opens its own early, and a server may have millions.
const MOST_FILES: usize = 1 << 16;

/// Limit on the open files and threads that are inspected, over all processes.
///
/// One process may have 65 536 of each, so a few such processes could take minutes. When the budget is spent, only
/// the first ones of each further process are inspected. A machine with 1000 ordinary processes needs a third of it.
#[derive(Debug)]
pub(super) struct LookBudget {
    left: usize,
}

impl LookBudget {
    const ALL: usize = 1 << 17;
    const LEAST_FILES: usize = 256;
    const LEAST_THREADS: usize = 64;

    fn files(&self) -> usize {
        self.left.clamp(Self::LEAST_FILES, MOST_FILES)
    }

    fn threads(&self) -> usize {
        self.left.clamp(Self::LEAST_THREADS, MOST_THREADS)
    }

    fn spend(&mut self, looks: usize) {
        self.left = self.left.saturating_sub(looks);
    }
}

impl Default for LookBudget {
    fn default() -> Self {
        Self { left: Self::ALL }
    }
}

/// The open driver files of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenFiles {
    /// GPUs, by the minor number of their device file.
    pub cards: OrderedSet<u32>,
    /// The control file, which every process that uses the driver has open.
    pub control: bool,
    /// The file of unified memory, which every CUDA context has open.
    pub unified: bool,
    /// Whether the files are only mapped: they were closed, but the driver still serves the process.
    pub are_mapped_only: bool,
    /// A recording written by makeroom: the path to open it with, and its name.
    pub recording: Option<(PathBuf, PathBuf)>,
}

impl OpenFiles {
    /// Reads the open files of a process; `None` if that is not permitted or it is gone. If the main thread has
    /// exited, only the remaining threads show them.
    pub(super) fn read(directory: &Path, stat: &Stat, budget: &mut LookBudget) -> Option<Self> {
        if stat.state != State::Zombie {
            return Self::read_directory(&directory.join("fd"), budget);
        }
        let threads = fs::read_dir(directory.join("task")).ok()?.flatten().take(budget.threads());
        threads
            .filter_map(|thread| Self::read_directory(&thread.path().join("fd"), budget))
            .find(Self::has_driver)
    }

    /// Looks for a recording. The recorder's thread has a file descriptor table of its own.
    pub(super) fn find_recording(&mut self, directory: &Path, budget: &mut LookBudget) {
        /// The recorder has one thread; any others of that name are the program's own.
        const MOST_WRITERS: usize = 4;
        if self.recording.is_some() {
            return;
        }
        let threads = threads(directory, budget.threads());
        budget.spend(threads.len());
        let mut tables = writers(&threads).take(MOST_WRITERS);
        self.recording = tables.find_map(|table| Self::read_directory(&table, budget)?.recording);
    }

    fn read_directory(directory: &Path, budget: &mut LookBudget) -> Option<Self> {
        let mut files = Self::default();
        let mut looks = 0;
        for entry in fs::read_dir(directory).ok()?.flatten().take(budget.files()) {
            looks += 1;
            let path = entry.path();
            if let Ok(target) = fs::read_link(&path) {
                files.add(&target);
                if target.extension().is_some_and(|extension| extension == "room") {
                    files.recording = Some((path, target));
                }
            }
        }
        budget.spend(looks);
        Some(files)
    }

    /// How much of a process's maps to read: about ten times what the kernel's limit on mappings allows.
    pub(super) const LONGEST_MAPS: u64 = 64 << 20;

    /// The mapped driver files in a process's maps.
    pub(super) fn of_maps(maps: &[u8]) -> Self {
        let mut files = Self::default();
        for line in maps.split(|&byte| byte == b'\n') {
            if let Some(start) = line.iter().position(|&byte| byte == b'/')
                && let Ok(path) = std::str::from_utf8(&line[start..])
            {
                files.add(Path::new(path.trim_end_matches(" (deleted)")));
            }
        }
        files.are_mapped_only = files.has_driver();
        files
    }

    /// Whether the process uses the driver.
    pub fn has_driver(&self) -> bool {
        self.control || self.unified || !self.cards.is_empty()
    }

    fn add(&mut self, path: &Path) {
        let is_device = path.parent().is_some_and(|directory| directory.ends_with("dev"));
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| is_device) else {
            return;
        };
        match name {
            "nvidiactl" => self.control = true,
            "nvidia-uvm" => self.unified = true,
            _ => {
                if let Some(number) = name.strip_prefix("nvidia").and_then(|rest| rest.parse().ok()) {
                    self.cards.insert(number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_many_files_costs_others_only_what_they_do_not_need() {
        let directory = std::env::temp_dir().join(format!("makeroom-many-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for number in 0..1000 {
            std::os::unix::fs::symlink("/dev/null", directory.join(number.to_string())).unwrap();
        }
        let mut budget = LookBudget { left: 1500 };
        let left: Vec<usize> = (0..3)
            .map(|_| {
                OpenFiles::read_directory(&directory, &mut budget).unwrap();
                budget.left
            })
            .collect();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(left, [500, 0, 0]);
        assert_eq!((budget.files(), budget.threads()), (LookBudget::LEAST_FILES, LookBudget::LEAST_THREADS));
    }

    #[test]
    fn tells_the_drivers_files_by_their_names() {
        let mut files = OpenFiles::default();
        for path in ["/dev/null", "/home/dev/nvidia", "/dev/nvidia-modeset", "/tmp/nvidia0", "nvidia0"] {
            files.add(Path::new(path));
        }
        assert!(!files.has_driver());
        files.add(Path::new("/srv/chroot/dev/nvidia13"));
        files.add(Path::new("/dev/nvidia-uvm"));
        assert!(files.unified && !files.control);
        assert_eq!(files.cards, OrderedSet::from([13]));
    }
}
