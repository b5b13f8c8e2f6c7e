//! The header of the recording.

use std::fs;
use std::os::unix::ffi::OsStringExt as _;

use makeroom_core::identity::{JobField, JobIdentity};
use makeroom_trace::room::Header;

use super::secrets;
use crate::config::config;
use crate::{clock, files};

/// Length of a container's ID, and of its short form.
const CONTAINER: usize = 64;
const SHORT_CONTAINER: usize = 12;

/// Describes this process. Unknown fields stay empty.
pub(crate) fn describe() -> Header {
    Header {
        run: config().run,
        wall_ns: clock::wall_ns(),
        monotonic_ns: clock::monotonic_ns(),
        pid: std::process::id(),
        parent_pid: std::os::unix::process::parent_id(),
        word_size: size_of::<usize>() as u8,
        recorder: concat!("makeroom ", env!("CARGO_PKG_VERSION")).into(),
        host: files::read("/proc/sys/kernel/hostname").unwrap_or_default().trim_ascii_end().to_vec(),
        executable: link("/proc/self/exe"),
        working_directory: link("/proc/self/cwd"),
        command_line: command_line(),
        rest: Vec::new(),
    }
}

/// The process's place in a job, with the container that it runs in.
pub(crate) fn place_in_job() -> JobIdentity {
    let mut job = config().job.clone();
    if job.container.is_none()
        && let Some(container) = files::read_text("/proc/self/cgroup").ok().as_deref().and_then(container)
    {
        job.set(JobField::Container, container);
    }
    job
}

/// The container in the names of control groups: the last 64 hexadecimal digits, shortened as people type it. Docker,
/// containerd, CRI-O and Podman all use such names.
fn container(groups: &str) -> Option<&str> {
    let mut names = groups.split(|character: char| !character.is_ascii_hexdigit()).rev();
    names.find(|name| name.len() == CONTAINER)?.get(..SHORT_CONTAINER)
}

/// The command line with secrets masked, or without arguments if the user asked for that.
fn command_line() -> Vec<Vec<u8>> {
    let bytes = files::read("/proc/self/cmdline").unwrap_or_default();
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|&byte| byte == 0);
    if config().leaves_arguments_out {
        return words.take(1).map(<[u8]>::to_vec).collect();
    }
    secrets::masked(words)
}

fn link(path: &str) -> Vec<u8> {
    fs::read_link(path).map(|target| target.into_os_string().into_vec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_container_is_found_in_the_names_of_control_groups() {
        let digits = "0123456789abcdef".repeat(4);
        for groups in [
            format!("0::/system.slice/docker-{digits}.scope\n"),
            format!("12:memory:/docker/{digits}\n"),
            format!("0::/kubepods.slice/kubepods-podab.slice/cri-containerd-{digits}.scope"),
        ] {
            assert_eq!(container(&groups), Some("0123456789ab"), "{groups}");
        }
        assert_eq!(container("0::/\n"), None);
        assert_eq!(container(&format!("0::/user.slice/{digits}0")), None);
    }
}
