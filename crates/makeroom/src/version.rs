//! What `makeroom --version` prints: the version, the commit, and what the program contains.

use std::sync::LazyLock;

/// The version, as `-V` prints it.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| {
    let commit = env!("BUILT_FROM_COMMIT");
    let commit = if commit.is_empty() { String::new() } else { format!(" (commit {commit})") };
    let tls = if cfg!(feature = "tls") { ", TLS for serve" } else { "" };
    format!(
        "{}{commit}\ncontains: {}{tls}",
        env!("CARGO_PKG_VERSION"),
        if cfg!(target_os = "linux") { "recorder, software GPU with NVML, viewer" } else { "viewer" }
    )
});
