//! Whether PyTorch can use expandable segments here, judged by the platform, the system's permissions, PyTorch's
//! version and the program's options.
//!
//! Nothing here starts a program or touches the GPU. A program that works without `--pool` must also work with it, so
//! anything that is known to break with expandable segments, and can be detected before the program starts, is an
//! obstacle.

use std::ffi::OsString;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::version::{self, Version};

/// The first version with expandable segments, and the first that can share their tensors with other processes.
const FIRST_EXPANDABLE: Version = Version { major: 2, minor: 1 };
const FIRST_SHARED: Version = Version { major: 2, minor: 5 };
/// The hook that registers PyTorch's segments with NCCL, and its name before 2.2.
const NCCL_HOOKS: [&str; 2] =
    ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"];
/// Options of inference servers, and the feature that each turns on. The first two fail with an error or lose memory, and
/// KV connectors register memory that expandable segments may remap.
const OPTIONS: [(&str, &str); 3] = [
    ("--enable-sleep-mode", "vLLM's sleep mode"),
    ("--enable-memory-saver", "SGLang's memory saver"),
    ("--kv-transfer-config", "vLLM's KV transfer"),
];
/// Advice for users whose programs share no tensors.
const TURN_ON: &str =
    "If your program shares no tensors, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";

/// The facts that determine whether PyTorch can use expandable segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The platform, if they do not work on it.
    pub(super) without: Option<&'static str>,
    /// The version of PyTorch that the command imports; `None` if unknown.
    pub(super) torch: Option<Version>,
    /// Whether the command may import PyTorch: otherwise notes about it are useless.
    pub(super) may_import_torch: bool,
    /// Whether the system permits `pidfd_getfd`.
    pub(super) may_share: bool,
}

/// Why PyTorch's settings stay unchanged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// Follows "PyTorch runs without expandable segments:".
    pub(super) reason: String,
    /// Whether it is relevant to the program.
    pub(super) is_worth_a_line: bool,
    /// Whether PyTorch's `cudaMallocAsync` backend works nevertheless. It has no `MemPool` and no hooks either.
    pub(super) may_be_asynchronous: bool,
}

impl Machine {
    pub(super) fn here(command: &[OsString], environment: impl Fn(&str) -> Option<String>) -> Self {
        let is_wsl = std::fs::read_to_string("/proc/version")
            .is_ok_and(|version| version.to_ascii_lowercase().contains("microsoft"));
        let is_jetson = Path::new("/etc/nv_tegra_release").exists();
        Self {
            without: if is_wsl { Some("WSL") } else { is_jetson.then_some("Jetson") },
            torch: version::find(command, &environment),
            may_import_torch: version::may_import_torch(command, environment),
            may_share: may_copy_descriptors(),
        }
    }

    /// The reason to leave expandable segments off.
    pub(super) fn obstacle(
        self,
        command: &[OsString],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Option<Obstacle> {
        // The values that PyTorch accepts as true.
        let is_yes =
            |value: &String| matches!(&*value.to_ascii_lowercase(), "1" | "y" | "yes" | "t" | "true");
        let hook = NCCL_HOOKS.into_iter().find(|hook| environment(hook).as_ref().is_some_and(is_yes));
        let option = OPTIONS.into_iter().find(|(option, _)| has_option(command, option));
        if let Some((_, feature)) = option {
            let reason = format!("{feature} does not support them");
            return Some(Obstacle { reason, is_worth_a_line: true, may_be_asynchronous: false });
        }
        if let Some(hook) = hook {
            let reason = format!("with them, PyTorch ignores {hook}");
            return Some(Obstacle { reason, is_worth_a_line: true, may_be_asynchronous: false });
        }
        let reason = match (self.without, self.torch) {
            (Some(platform), _) => format!("they do not work reliably on {platform}"),
            (None, Some(torch)) if torch < FIRST_EXPANDABLE => {
                format!("PyTorch {torch} does not have them (2.1 and later do)")
            }
            (None, Some(torch)) if torch < FIRST_SHARED => format!(
                "with them, PyTorch {torch} cannot share tensors between processes (2.5 and later can). {TURN_ON}"
            ),
            _ if !self.may_share => format!(
                "with them, sharing tensors between processes needs pidfd_getfd, which this system does not permit. {TURN_ON}"
            ),
            _ => return None,
        };
        Some(Obstacle { reason, is_worth_a_line: self.may_import_torch, may_be_asynchronous: true })
    }
}

/// Whether a command has an option, even inside a shell command (`sh -c`). vLLM accepts underscores for dashes.
fn has_option(command: &[OsString], option: &str) -> bool {
    let words = command.iter().filter_map(|argument| argument.to_str()).flat_map(str::split_whitespace);
    words.map(|word| word.split('=').next().unwrap_or_default().replace('_', "-")).any(|word| word == option)
}

/// Whether `pidfd_getfd` is permitted at all, tested on this process: containers forbid it, and old kernels do not have
/// it.
fn may_copy_descriptors() -> bool {
    let Ok(process) = pidfd_open(getpid(), PidfdFlags::empty()) else { return false };
    pidfd_getfd(&process, process.as_raw_fd(), PidfdGetfdFlags::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine { without: None, torch: None, may_import_torch: true, may_share: true }
    }

    fn reason(machine: Machine, command: &[&str], variables: &[(&str, &str)]) -> Option<String> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let environment = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        machine.obstacle(&command, environment).map(|obstacle| obstacle.reason)
    }

    #[test]
    fn platforms_versions_and_permissions_are_obstacles() {
        let of = |major, minor| Machine { torch: Some(Version { major, minor }), ..machine() };
        let cases = [
            (Machine { without: Some("WSL"), ..of(2, 11) }, "on WSL"),
            (of(2, 0), "PyTorch 2.0 does not have them"),
            (of(2, 4), "PyTorch 2.4 cannot share tensors"),
            (Machine { may_share: false, ..of(2, 11) }, "pidfd_getfd"),
            (Machine { may_share: false, ..machine() }, "pidfd_getfd"),
        ];
        for (machine, words) in cases {
            let reason = reason(machine, &["python", "train.py"], &[]).unwrap();
            assert!(reason.contains(words), "{reason}");
            let solver = Machine { may_import_torch: false, ..machine };
            let obstacle = solver.obstacle(&["./solver".into()], |_| None).unwrap();
            assert!(!obstacle.is_worth_a_line, "a compiled program has nothing to do with it");
        }
        assert_eq!(reason(machine(), &["python", "train.py"], &[]), None);
        assert_eq!(reason(of(2, 5), &["python", "train.py"], &[]), None);
    }

    #[test]
    fn features_that_break_are_obstacles() {
        for (command, words) in [
            (&["vllm", "serve", "model", "--enable-sleep-mode"][..], "vLLM's sleep mode"),
            (&["vllm", "serve", "model", "--enable_sleep_mode"], "vLLM's sleep mode"),
            (&["sh", "-c", "exec vllm serve model --enable-sleep-mode"], "vLLM's sleep mode"),
            (&["vllm", "serve", "model", "--kv-transfer-config={}"], "vLLM's KV transfer"),
            (&["python", "-m", "sglang.launch_server", "--enable-memory-saver"], "SGLang's memory saver"),
        ] {
            let reason = reason(machine(), command, &[]).unwrap();
            assert!(reason.starts_with(words), "{command:?}: {reason}");
        }
        for command in [&["vllm", "serve", "model"][..], &["vllm", "serve", "--no-enable-sleep-mode"]] {
            assert_eq!(reason(machine(), command, &[]), None, "{command:?}");
        }
        for hook in NCCL_HOOKS {
            let found = reason(machine(), &["torchrun"], &[(hook, "True")]).unwrap();
            assert!(found.contains(hook), "{found}");
            assert_eq!(reason(machine(), &["torchrun"], &[(hook, "0")]), None);
        }
    }
}
