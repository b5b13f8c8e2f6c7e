//! Host memory: that of the process, and of its control group.

use std::path::PathBuf;

use makeroom_core::Bytes;
use makeroom_trace::room::Sample;

use crate::{clock, files};

/// Measures host memory.
#[derive(Debug)]
pub(crate) struct Host {
    page: u64,
    usage: Option<PathBuf>,
    limit: Option<PathBuf>,
}

impl Host {
    /// Finds the files of the control group, version 1 or 2.
    pub(crate) fn new() -> Self {
        // SAFETY: `sysconf` has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let (usage, limit) = control_group().unzip();
        Self { page: u64::try_from(page).unwrap_or(4096), usage, limit }
    }

    /// Current memory use.
    pub(crate) fn sample(&self) -> Sample {
        let resident = files::read_text("/proc/self/statm")
            .ok()
            .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok())
            .map(|pages| Bytes::new(pages.saturating_mul(self.page)));
        Sample {
            time_ns: clock::monotonic_ns(),
            device: None,
            resident,
            cgroup_usage: number(self.usage.as_ref()),
            cgroup_limit: number(self.limit.as_ref()).filter(|limit| limit.get() < NO_LIMIT),
            pinned: None,
        }
    }
}

/// Version 1 reports "no limit" as the largest multiple of the page size.
const NO_LIMIT: u64 = 1 << 62;

fn number(path: Option<&PathBuf>) -> Option<Bytes> {
    files::read_text(path?).ok()?.trim().parse().ok().map(Bytes::new)
}

/// The usage and limit files of this process's control group.
fn control_group() -> Option<(PathBuf, PathBuf)> {
    let groups = files::read_text("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, usage, limit) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.current", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.limit_in_bytes")
        } else {
            return None;
        };
        // In a container the group's own path may be outside the mount: then the mount's root is the group.
        [PathBuf::from(root).join(group.trim_start_matches('/')), PathBuf::from(root)]
            .into_iter()
            .map(|directory| (directory.join(usage), directory.join(limit)))
            .find(|(usage, _)| usage.exists())
    })
}
