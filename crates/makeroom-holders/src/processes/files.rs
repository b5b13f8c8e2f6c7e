//! Which of the driver's files a process has open, and a recording that it writes.
//!
//! Files are told by their name, `dev/nvidia0` at the end of a path: inside a chroot it is not `/dev`. An open file
//! proves that a process uses the driver, not how much of which card it holds: CUDA opens the files of all cards that
//! it may use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::stat::{Stat, State};
use crate::recording::writers;

/// Open files of one process that are looked at: CUDA opens its own early, and a server may have millions.
const MOST_FILES: usize = 1 << 16;

/// Files of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenFiles {
    /// Cards, by the number of their file.
    pub cards: BTreeSet<u32>,
    /// The control file, which every user of the driver has.
    pub control: bool,
    /// The file of unified memory, which every CUDA context has.
    pub unified: bool,
    /// Whether the files are mapped only: they were closed, and the driver still serves the process.
    pub are_mapped_only: bool,
    /// A recording that makeroom writes: the path to open it by, and its name.
    pub recording: Option<(PathBuf, PathBuf)>,
}

impl OpenFiles {
    /// Reads the open files of a process; `None` when that is not allowed or it is gone. A process whose first thread
    /// has ended shows them only at the threads that live on.
    pub(super) fn read(folder: &Path, stat: &Stat) -> Option<Self> {
        if stat.state != State::Zombie {
            return Self::read_folder(&folder.join("fd"));
        }
        let threads = fs::read_dir(folder.join("task")).ok()?.flatten();
        threads.filter_map(|thread| Self::read_folder(&thread.path().join("fd"))).find(Self::has_driver)
    }

    /// Looks for the recording of a process that counts: the recorder's descriptors are its thread's alone.
    pub(super) fn find_recording(&mut self, folder: &Path) {
        if self.recording.is_none() {
            self.recording = writers(folder).find_map(|table| Self::read_folder(&table)?.recording);
        }
    }

    fn read_folder(folder: &Path) -> Option<Self> {
        let mut files = Self::default();
        for entry in fs::read_dir(folder).ok()?.flatten().take(MOST_FILES) {
            let path = entry.path();
            if let Ok(target) = fs::read_link(&path) {
                files.add(&target);
                if target.extension().is_some_and(|extension| extension == "room") {
                    files.recording = Some((path, target));
                }
            }
        }
        Some(files)
    }

    /// Of a process's maps no more is read: some ten times what the kernel lets a process have.
    pub(super) const LONGEST_MAPS: u64 = 64 << 20;

    /// The mapped files of a process, out of its maps.
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
        let is_device = path.parent().is_some_and(|folder| folder.ends_with("dev"));
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
    fn tells_the_drivers_files_by_their_names() {
        let mut files = OpenFiles::default();
        for path in ["/dev/null", "/home/dev/nvidia", "/dev/nvidia-modeset", "/tmp/nvidia0", "nvidia0"] {
            files.add(Path::new(path));
        }
        assert!(!files.has_driver());
        files.add(Path::new("/srv/chroot/dev/nvidia13"));
        files.add(Path::new("/dev/nvidia-uvm"));
        assert!(files.unified && !files.control);
        assert_eq!(files.cards, BTreeSet::from([13]));
    }
}
