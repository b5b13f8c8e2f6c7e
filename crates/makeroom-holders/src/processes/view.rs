//! What is visible from here: which users' processes, and in which namespace.

use std::fs;
use std::path::Path;

/// The initial PID namespace has this name on every Linux system.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// What is visible from here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Whether all processes of the machine are visible, under the PIDs that the driver uses. `None` if unknown.
    pub is_whole_machine: Option<bool>,
    /// Whether `/proc` is mounted so that other users' processes are hidden (`hidepid`).
    pub hides_others: bool,
    /// Number of processes whose open files may not be read.
    pub unreadable: u32,
    /// Effective user ID of this process.
    pub user: u32,
}

impl View {
    pub(super) fn read(root: &Path) -> Self {
        // For a /proc mounted from elsewhere, use process 1, which is always in the namespace of its /proc.
        let namespace =
            fs::read_link(root.join("1/ns/pid")).or_else(|_| fs::read_link(root.join("self/ns/pid")));
        let user = rustix::process::geteuid().as_raw();
        let mounts = fs::read_to_string(root.join("self/mounts")).unwrap_or_default();
        Self {
            is_whole_machine: namespace.ok().map(|namespace| namespace == Path::new(FIRST_PID_NAMESPACE)),
            hides_others: user != 0 && hides(&mounts, root),
            unreadable: 0,
            user,
        }
    }
}

/// Whether the mount of `root` hides other users' processes.
fn hides(mounts: &str, root: &Path) -> bool {
    // Later mounts cover earlier ones.
    let options = mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ');
        let (place, kind, options) = (fields.nth(1)?, fields.next()?, fields.next()?);
        (kind == "proc" && Path::new(place) == root).then_some(options)
    });
    options.is_some_and(|options| {
        options
            .split(',')
            .any(|option| option.strip_prefix("hidepid=").is_some_and(|how| !matches!(how, "0" | "off")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_of_a_place_counts() {
        let plain = "proc /proc proc rw,nosuid 0 0\n";
        let hidden = "proc /proc proc rw,hidepid=invisible 0 0\nproc /other proc rw,hidepid=2 0 0\n";
        assert!(!hides(plain, Path::new("/proc")));
        assert!(hides(&format!("{plain}{hidden}"), Path::new("/proc")));
        assert!(!hides(&format!("{hidden}{plain}"), Path::new("/proc")));
        assert!(!hides("proc /proc proc rw,hidepid=off 0 0", Path::new("/proc")));
    }
}
