//! The header of the recording.

use std::fs;
use std::os::unix::ffi::OsStringExt as _;

use makeroom_trace::room::Header;

use super::secrets;
use crate::config::config;
use crate::{clock, files};

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
