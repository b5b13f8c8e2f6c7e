//! `run --pool`: the environment in which each framework allocates so that its memory does not fragment.
//!
//! PyTorch keeps its native allocator and gets expandable segments, a setting of its own, merged into the user's
//! settings. JAX and TensorFlow are switched to the driver's stream-ordered calls, which makeroom's pool answers, as it
//! answers CuPy, Numba and plain CUDA programs without any setting. Only `--spill` needs PyTorch on the stream-ordered
//! calls as well. Each decision that the user did not expect is one line before the program starts.

mod settings;
mod version;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use makeroom_core::Bytes;
use settings::Expandable;
use version::Version;

/// Variables for the program, and what its user should know before it starts.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    /// Name and value.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// One line each.
    pub(crate) notes: Vec<String>,
}

/// The variable of PyTorch's settings that all versions read.
pub(crate) const TORCH: &str = "PYTORCH_CUDA_ALLOC_CONF";
/// The name that PyTorch 2.9 and later prefer. Where both are set, the other one wins.
pub(crate) const TORCH_NEW: &str = "PYTORCH_ALLOC_CONF";
/// The first version with expandable segments, and the first that reads [`TORCH_NEW`].
const FIRST_EXPANDABLE: Version = Version { major: 2, minor: 1 };
const FIRST_WITH_NEW_NAME: Version = Version { major: 2, minor: 9 };
/// The hook that registers PyTorch's segments with NCCL, and its name before 2.2.
const NCCL_HOOKS: [&str; 2] =
    ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"];

/// What decides whether PyTorch has expandable segments here.
#[derive(Clone, Copy, Debug)]
struct Machine {
    /// The platform that has none.
    without: Option<&'static str>,
    /// The PyTorch that the command imports; `None` where it is not known.
    torch: Option<Version>,
    /// Whether the command may run Python: only then are lines about PyTorch's version or platform of use.
    may_run_python: bool,
}

impl Machine {
    fn here(command: &[OsString], environment: impl Fn(&str) -> Option<String>) -> Self {
        let is_wsl = std::fs::read_to_string("/proc/version")
            .is_ok_and(|version| version.to_ascii_lowercase().contains("microsoft"));
        let is_jetson = Path::new("/etc/nv_tegra_release").exists();
        Self {
            without: if is_wsl { Some("WSL") } else { is_jetson.then_some("Jetson") },
            torch: version::find(command, environment),
            may_run_python: version::may_run_python(command),
        }
    }
}

/// Decides how a program gets the pool.
pub(crate) fn switches(
    command: &[OsString],
    spill: Option<Bytes>,
    environment: impl Fn(&str) -> Option<String>,
) -> Switches {
    let machine = Machine::here(command, &environment);
    switches_on(machine, command, spill, environment)
}

fn switches_on(
    machine: Machine,
    command: &[OsString],
    spill: Option<Bytes>,
    environment: impl Fn(&str) -> Option<String>,
) -> Switches {
    let mut switches = Switches::default();
    switches.set("MAKEROOM_POOL", "on");
    if let Some(spill) = spill {
        switches.set("MAKEROOM_SPILL", spill.get().to_string());
        switches.spill_torch(machine, &environment);
    } else if let Some(reason) = keeps_settings(machine, command, &environment) {
        if !reason.is_empty() {
            switches.notes.push(format!("{reason}; PyTorch's allocator settings are unchanged"));
        }
    } else {
        switches.expand_torch(machine, &environment);
    }
    switches.tell_jax(&environment);
    if environment("TF_GPU_ALLOCATOR").is_none() {
        switches.set("TF_GPU_ALLOCATOR", "cuda_malloc_async");
    }
    switches
}

/// Why expandable segments must stay off; empty where the program has nothing to do with it.
fn keeps_settings(
    machine: Machine,
    command: &[OsString],
    environment: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    if command.iter().any(|word| word == "--enable-sleep-mode") {
        return Some("vLLM's sleep mode does not work with expandable segments".to_owned());
    }
    // The values that PyTorch takes for yes.
    let is_yes = |value: &String| matches!(&*value.to_ascii_lowercase(), "1" | "y" | "yes" | "t" | "true");
    if let Some(hook) = NCCL_HOOKS.into_iter().find(|hook| environment(hook).as_ref().is_some_and(is_yes)) {
        return Some(format!("PyTorch ignores {hook} with expandable segments"));
    }
    let reason = match (machine.without, machine.torch) {
        (Some(platform), _) => format!("PyTorch has no expandable segments on {platform}"),
        (None, Some(torch)) if torch < FIRST_EXPANDABLE => {
            format!("PyTorch {}.{} has no expandable segments (2.1 and later do)", torch.major, torch.minor)
        }
        _ => return None,
    };
    Some(if machine.may_run_python { reason } else { String::new() })
}

impl Switches {
    fn set(&mut self, name: &'static str, value: impl AsRef<OsStr>) {
        self.variables.push((name, value.as_ref().to_owned()));
    }

    /// Turns on expandable segments, unless the user's settings say otherwise.
    fn expand_torch(&mut self, machine: Machine, environment: impl Fn(&str) -> Option<String>) {
        let (name, theirs) = torch_settings(&environment);
        match settings::with_expandable_segments(&theirs) {
            Expandable::On(value) => self.set_torch(machine, &value, environment),
            Expandable::Declined(setting) if setting == "backend:cudaMallocAsync" => self.notes.push(format!(
                "{name} has {setting}: kept, and makeroom's pool serves PyTorch instead of expandable segments"
            )),
            Expandable::Declined(setting) => {
                self.notes.push(format!("{name} has {setting}: kept, so PyTorch runs without expandable segments"));
            }
        }
    }

    /// Both variables say the same. PyTorch warns that the older name is deprecated wherever it is set, so a version that
    /// reads the newer one gets that alone, unless the user set the older.
    fn set_torch(&mut self, machine: Machine, value: &str, environment: impl Fn(&str) -> Option<String>) {
        let reads_new = machine.torch.is_none_or(|torch| torch >= FIRST_WITH_NEW_NAME);
        let reads_only_new = reads_new && machine.torch.is_some();
        if !reads_only_new || environment(TORCH).is_some() {
            self.set(TORCH, value);
        }
        if reads_new || environment(TORCH_NEW).is_some() {
            self.set(TORCH_NEW, value);
        }
    }

    /// Spilling needs every block of PyTorch's to be one of the pool's.
    fn spill_torch(&mut self, machine: Machine, environment: impl Fn(&str) -> Option<String>) {
        let (_, theirs) = torch_settings(&environment);
        let merged = settings::with_stream_ordered_backend(&theirs);
        if machine.may_run_python {
            self.notes.push(
                "--spill runs PyTorch on its cudaMallocAsync backend, which has no memory history, no \
                 torch.cuda.MemPool, no sharing of tensors between processes (CUDA IPC) and no CUDA-graph trees \
                 (torch.compile's reduce-overhead mode)"
                    .to_owned(),
            );
        }
        if !merged.dropped.is_empty() {
            self.notes
                .push(format!("--spill ignores these settings of PyTorch's: {}", merged.dropped.join(", ")));
        }
        self.set(TORCH, &merged.value);
        if environment(TORCH_NEW).is_some() {
            self.set(TORCH_NEW, &merged.value);
        }
    }

    fn tell_jax(&mut self, environment: impl Fn(&str) -> Option<String>) {
        // "platform" asks the driver for every array, which the pool answers as well.
        match environment("XLA_PYTHON_CLIENT_ALLOCATOR").as_deref() {
            Some("platform" | "cuda_async") => {}
            other => {
                if let Some(other) = other {
                    self.notes.push(format!(
                        "with the pool XLA_PYTHON_CLIENT_ALLOCATOR={other} becomes cuda_async"
                    ));
                }
                self.set("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async");
            }
        }
        // What JAX takes in advance it would hold for itself.
        if environment("XLA_PYTHON_CLIENT_PREALLOCATE").is_none() {
            self.set("XLA_PYTHON_CLIENT_PREALLOCATE", "false");
        }
    }
}

/// The settings that PyTorch would read, and the variable they stand in.
fn torch_settings(environment: impl Fn(&str) -> Option<String>) -> (&'static str, String) {
    let set = [TORCH, TORCH_NEW].into_iter().find_map(|name| Some((name, environment(name)?)));
    set.unwrap_or((TORCH, String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Version = Version { major: 2, minor: 11 };

    fn machine(torch: Option<Version>) -> Machine {
        Machine { without: None, torch, may_run_python: true }
    }

    fn python(machine: Machine, variables: &[(&str, &str)]) -> Switches {
        let environment = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        switches_on(machine, &["python".into(), "train.py".into()], None, environment)
    }

    fn value(switches: &Switches, name: &str) -> Option<String> {
        let found = switches.variables.iter().find(|(known, _)| *known == name)?;
        found.1.to_str().map(str::to_owned)
    }

    #[test]
    fn pytorch_gets_expandable_segments_and_the_others_the_pool() {
        let switches = python(machine(None), &[]);
        assert_eq!(value(&switches, "MAKEROOM_POOL").as_deref(), Some("on"));
        assert_eq!(value(&switches, TORCH).as_deref(), Some("expandable_segments:True"));
        assert_eq!(value(&switches, TORCH_NEW).as_deref(), Some("expandable_segments:True"));
        assert_eq!(value(&switches, "XLA_PYTHON_CLIENT_ALLOCATOR").as_deref(), Some("cuda_async"));
        assert_eq!(value(&switches, "TF_GPU_ALLOCATOR").as_deref(), Some("cuda_malloc_async"));
        assert!(switches.notes.is_empty(), "{:?}", switches.notes);
    }

    #[test]
    fn the_version_decides_which_variable_is_set() {
        let names = |torch, variables: &[(&str, &str)]| {
            let switches = python(machine(torch), variables);
            [TORCH, TORCH_NEW].map(|name| value(&switches, name).is_some())
        };
        let old = Some(Version { major: 2, minor: 8 });
        assert_eq!(names(old, &[]), [true, false]);
        assert_eq!(names(Some(NEW), &[]), [false, true], "the older name would be warned about");
        assert_eq!(names(Some(NEW), &[(TORCH, "max_split_size_mb:64")]), [true, true]);
        assert_eq!(names(old, &[(TORCH_NEW, "max_split_size_mb:64")]), [true, true]);
        assert_eq!(names(None, &[]), [true, true]);
    }

    #[test]
    fn the_users_settings_are_merged_and_both_variables_say_the_same() {
        let theirs = [
            (TORCH, "max_split_size_mb:64"),
            (TORCH_NEW, "ignored:1"),
            ("XLA_PYTHON_CLIENT_PREALLOCATE", "true"),
        ];
        let switches = python(machine(Some(NEW)), &theirs);
        let merged = "max_split_size_mb:64,expandable_segments:True";
        assert_eq!(value(&switches, TORCH).as_deref(), Some(merged));
        assert_eq!(value(&switches, TORCH_NEW).as_deref(), Some(merged));
        assert_eq!(value(&switches, "XLA_PYTHON_CLIENT_PREALLOCATE"), None);
        assert!(switches.notes.is_empty(), "{:?}", switches.notes);
    }

    #[test]
    fn the_users_own_choice_is_kept_and_reported() {
        for (setting, words) in [
            ("expandable_segments:False", "without expandable segments"),
            ("backend:cudaMallocAsync", "makeroom's pool serves PyTorch"),
        ] {
            let switches = python(machine(None), &[(TORCH_NEW, setting)]);
            assert_eq!((value(&switches, TORCH), value(&switches, TORCH_NEW)), (None, None));
            let [note] = &*switches.notes else { panic!("{:?}", switches.notes) };
            assert!(note.contains(TORCH_NEW) && note.contains(setting) && note.contains(words), "{note}");
            assert_eq!(value(&switches, "MAKEROOM_POOL").as_deref(), Some("on"), "others keep the pool");
        }
    }

    #[test]
    fn exceptions_keep_pytorchs_settings_with_one_line() {
        let wsl = Machine { without: Some("WSL"), ..machine(None) };
        let old = machine(Some(Version { major: 2, minor: 0 }));
        let hook = [(NCCL_HOOKS[0], "true")];
        let older_hook = [(NCCL_HOOKS[1], "1")];
        let unset: &[(&str, &str)] = &[];
        let cases = [
            (wsl, unset, "on WSL"),
            (old, unset, "PyTorch 2.0 has no expandable segments"),
            (machine(None), &hook, NCCL_HOOKS[0]),
            (machine(None), &older_hook, NCCL_HOOKS[1]),
        ];
        for (machine, variables, words) in cases {
            let switches = python(machine, variables);
            assert_eq!((value(&switches, TORCH), value(&switches, TORCH_NEW)), (None, None), "{words}");
            let [note] = &*switches.notes else { panic!("{words}: {:?}", switches.notes) };
            assert!(note.contains(words) && note.contains("unchanged"), "{note}");
        }
        let off = python(machine(None), &[(NCCL_HOOKS[0], "0")]);
        assert!(value(&off, TORCH).is_some() && off.notes.is_empty(), "a hook that is off is none");
        let solver = python(Machine { may_run_python: false, ..wsl }, &[]);
        assert!(value(&solver, TORCH).is_none() && solver.notes.is_empty(), "{:?}", solver.notes);
    }

    #[test]
    fn vllm_with_sleep_mode_runs_as_without_makeroom() {
        let command = ["vllm", "serve", "model", "--enable-sleep-mode"].map(OsString::from);
        let switches = switches_on(machine(Some(NEW)), &command, None, |_| None);
        assert_eq!((value(&switches, TORCH), value(&switches, TORCH_NEW)), (None, None));
        assert!(switches.notes[0].contains("sleep mode"), "{:?}", switches.notes);
        let awake = switches_on(machine(Some(NEW)), &command[..3], None, |_| None);
        assert!(value(&awake, TORCH_NEW).is_some() && awake.notes.is_empty());
    }

    #[test]
    fn spilling_uses_the_stream_ordered_backend_and_names_what_it_lacks() {
        let theirs = |name: &str| {
            (name == TORCH_NEW).then(|| "pinned_num_register_threads:4,max_split_size_mb:64".to_owned())
        };
        let command = ["python".into(), "train.py".into()];
        let switches = switches_on(machine(None), &command, Some(Bytes::gib(2)), theirs);
        assert_eq!(value(&switches, "MAKEROOM_SPILL").as_deref(), Some("2147483648"));
        let merged = "backend:cudaMallocAsync,pinned_num_register_threads:4";
        assert_eq!(value(&switches, TORCH).as_deref(), Some(merged));
        assert_eq!(value(&switches, TORCH_NEW).as_deref(), Some(merged));
        let [lacks, dropped] = &*switches.notes else { panic!("{:?}", switches.notes) };
        for word in ["memory history", "MemPool", "CUDA IPC", "CUDA-graph trees"] {
            assert!(lacks.contains(word), "{lacks}");
        }
        assert!(dropped.contains("max_split_size_mb:64"), "{dropped}");
        let compiled = Machine { may_run_python: false, ..machine(None) };
        let switches = switches_on(compiled, &["./solver".into()], Some(Bytes::gib(2)), |_| None);
        assert!(switches.notes.is_empty(), "{:?}", switches.notes);
    }
}
