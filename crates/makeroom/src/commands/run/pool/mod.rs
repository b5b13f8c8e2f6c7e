//! `run --pool`: the environment in which each framework allocates so that its memory does not fragment.
//!
//! PyTorch keeps its native allocator and gets expandable segments, one of its own settings, merged into the user's settings;
//! except with `--pool=expandable`, the recorder pages their memory. JAX and TensorFlow are switched to the driver's
//! stream-ordered calls, which makeroom's pool serves; it serves CuPy, Numba and plain CUDA programs without any setting.
//! PyTorch uses the stream-ordered calls only with `--spill`, if it is not paged; paging can spill to host memory without them.
//! A line before the program starts reports each decision that the user may not expect.

mod machine;
mod settings;
mod version;

use std::ffi::{OsStr, OsString};

use machine::Machine;
use makeroom_core::Bytes;
use settings::Expandable;
use version::Version;

use crate::cli::PoolKind;

/// Environment variables for the program, and notes for the user before it starts.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    /// Name and value.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// One line each.
    pub(crate) notes: Vec<String>,
    /// Whether expandable segments were turned on for PyTorch.
    pub(crate) expands_torch: bool,
}

/// The variable for PyTorch's settings that all versions read, and that libraries check.
pub(crate) const TORCH: &str = "PYTORCH_CUDA_ALLOC_CONF";
/// The name that newer versions prefer; PyTorch 2.9 documents it and does not read it for CUDA.
pub(crate) const TORCH_NEW: &str = "PYTORCH_ALLOC_CONF";
/// AMD's name, which PyTorch 2.10 and later read on every platform.
const TORCH_AMD: &str = "PYTORCH_HIP_ALLOC_CONF";
/// In the order in which PyTorch 2.10 and later read them: the first one that is set applies, even if it is empty.
const TORCH_VARIABLES: [&str; 3] = [TORCH, TORCH_AMD, TORCH_NEW];

const FIRST_WITH_ALL_NAMES: Version = Version { major: 2, minor: 10 };

/// Determines the environment in which a program uses the pool.
pub(crate) fn switches(
    command: &[OsString],
    kind: PoolKind,
    spill: Option<Bytes>,
    environment: impl Fn(&str) -> Option<String>,
) -> Switches {
    let machine = Machine::here(command, &environment);
    switches_on(machine, command, kind, spill, environment)
}

fn switches_on(
    machine: Machine,
    command: &[OsString],
    kind: PoolKind,
    spill: Option<Bytes>,
    environment: impl Fn(&str) -> Option<String>,
) -> Switches {
    let mut switches = Switches::default();
    switches.set("MAKEROOM_POOL", if kind == PoolKind::Paging { "paging" } else { "on" });
    if let Some(spill) = spill {
        switches.set("MAKEROOM_SPILL", spill.get().to_string());
    }
    let mut expanded = Switches::default();
    let may_be_asynchronous = expanded.expand_torch(machine, command, &environment);
    let could_page = expanded.expands_torch;
    if spill.is_none() || kind == PoolKind::Paging || !may_be_asynchronous {
        switches.add(expanded);
    }
    // Pages spill under PyTorch's own allocator; without them, the pool must serve it.
    if spill.is_some() && !switches.expands_torch {
        if may_be_asynchronous {
            switches.spill_torch(machine, could_page, &environment);
        } else {
            switches.notes.push("none of PyTorch's memory is spilled".to_owned());
        }
    }
    switches.tell_jax(&environment);
    if environment("TF_GPU_ALLOCATOR").is_none() {
        switches.set("TF_GPU_ALLOCATOR", "cuda_malloc_async");
    }
    switches
}

impl Switches {
    fn set(&mut self, name: &'static str, value: impl AsRef<OsStr>) {
        self.variables.push((name, value.as_ref().to_owned()));
    }

    fn add(&mut self, other: Self) {
        self.variables.extend(other.variables);
        self.notes.extend(other.notes);
        self.expands_torch |= other.expands_torch;
    }

    /// Turns on expandable segments, unless the user chose otherwise or they do not work here. Returns whether PyTorch may use its
    /// `cudaMallocAsync` backend instead.
    fn expand_torch(
        &mut self,
        machine: Machine,
        command: &[OsString],
        environment: impl Fn(&str) -> Option<String>,
    ) -> bool {
        let (name, theirs) = torch_settings(machine, &environment);
        match settings::with_expandable_segments(&theirs) {
            Expandable::Chosen => self.expand_torch_with(&theirs),
            Expandable::Declined(setting) => self.keep_torch_at(name, &setting),
            Expandable::Unset(value) => {
                // A variable that this version does not read still shows what the user wants.
                if let Some((name, setting)) = TORCH_VARIABLES.into_iter().find_map(|name| {
                    let Expandable::Declined(setting) =
                        settings::with_expandable_segments(&environment(name)?)
                    else {
                        return None;
                    };
                    Some((name, setting))
                }) {
                    self.keep_torch_at(name, &setting);
                } else if let Some(obstacle) = machine.obstacle(command, &environment) {
                    if obstacle.is_worth_a_line {
                        self.notes
                            .push(format!("PyTorch runs without expandable segments: {}", obstacle.reason));
                    }
                    return obstacle.may_be_asynchronous;
                } else {
                    self.expand_torch_with(&value);
                }
            }
        }
        true
    }

    /// Both variables get the same value, so that it does not matter which one PyTorch or a library reads.
    fn expand_torch_with(&mut self, value: &str) {
        self.set(TORCH, value);
        self.set(TORCH_NEW, value);
        self.expands_torch = true;
    }

    /// Keeps the user's choice.
    fn keep_torch_at(&mut self, name: &str, setting: &str) {
        let effect = if setting == settings::ASYNC_BACKEND {
            "PyTorch runs on makeroom's pool instead of expandable segments"
        } else {
            "PyTorch runs without expandable segments"
        };
        self.notes.push(format!("{effect}: {name} has {setting}"));
    }

    /// Without pages, spilling requires that the pool serves all of PyTorch's blocks.
    fn spill_torch(
        &mut self,
        machine: Machine,
        could_page: bool,
        environment: impl Fn(&str) -> Option<String>,
    ) {
        let (_, theirs) = torch_settings(machine, &environment);
        let merged = settings::with_stream_ordered_backend(&theirs);
        if machine.may_import_torch {
            let other = if could_page { "; --pool --spill does not have these restrictions" } else { "" };
            self.notes.push(format!(
                "--spill runs PyTorch on its cudaMallocAsync backend, which has no memory history, no \
                 torch.cuda.MemPool, no sharing of tensors between processes (CUDA IPC) and no CUDA-graph trees \
                 (torch.compile's reduce-overhead mode){other}"
            ));
        }
        if !merged.dropped.is_empty() {
            self.notes.push(format!(
                "--spill drops PyTorch settings that the cudaMallocAsync backend does not support: {}",
                merged.dropped.join(", ")
            ));
        }
        self.set(TORCH, &merged.value);
        self.set(TORCH_NEW, &merged.value);
    }

    fn tell_jax(&mut self, environment: impl Fn(&str) -> Option<String>) {
        // "platform" calls the driver for every array, which the pool serves as well.
        match environment("XLA_PYTHON_CLIENT_ALLOCATOR").as_deref() {
            Some("platform" | "cuda_async") => {}
            other => {
                if let Some(other) = other {
                    self.notes
                        .push(format!("--pool replaces XLA_PYTHON_CLIENT_ALLOCATOR={other} with cuda_async"));
                }
                self.set("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async");
            }
        }
        // JAX would keep preallocated memory for itself.
        if environment("XLA_PYTHON_CLIENT_PREALLOCATE").is_none() {
            self.set("XLA_PYTHON_CLIENT_PREALLOCATE", "false");
        }
    }
}

/// The settings that PyTorch would read, and the variable they are in.
fn torch_settings(machine: Machine, environment: impl Fn(&str) -> Option<String>) -> (&'static str, String) {
    let reads_all = machine.torch.is_none_or(|torch| torch >= FIRST_WITH_ALL_NAMES);
    let read = if reads_all { &TORCH_VARIABLES[..] } else { &[TORCH] };
    let set = read.iter().find_map(|&name| Some((name, environment(name)?)));
    set.unwrap_or((TORCH, String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Version = Version { major: 2, minor: 11 };

    fn machine(torch: Option<Version>) -> Machine {
        Machine { without: None, torch, may_import_torch: true, may_share: true }
    }

    fn python(machine: Machine, variables: &[(&str, &str)]) -> Switches {
        let environment = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        switches_on(machine, &["python".into(), "train.py".into()], PoolKind::Expandable, None, environment)
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

    /// It does not matter which one PyTorch or a library reads: PyTorch 2.9 reads only the older one, and so do the
    /// checks of vLLM and `torch_memory_saver`.
    #[test]
    fn both_variables_say_the_same_under_every_version() {
        let old = Some(Version { major: 2, minor: 9 });
        for torch in [None, old, Some(NEW)] {
            for theirs in [&[][..], &[(TORCH, "")], &[(TORCH_NEW, "expandable_segments:True")]] {
                let switches = python(machine(torch), theirs);
                for name in [TORCH, TORCH_NEW] {
                    assert_eq!(
                        value(&switches, name).as_deref(),
                        Some("expandable_segments:True"),
                        "{torch:?}"
                    );
                }
                assert!(switches.notes.is_empty() && switches.expands_torch, "{:?}", switches.notes);
            }
        }
    }

    #[test]
    fn the_settings_that_pytorch_reads_are_merged() {
        let merged = |torch, variables: &[(&str, &str)]| {
            let switches = python(machine(torch), variables);
            assert!(switches.notes.is_empty(), "{:?}", switches.notes);
            assert_eq!(value(&switches, TORCH), value(&switches, TORCH_NEW));
            value(&switches, TORCH).unwrap()
        };
        let (split, other) = ("max_split_size_mb:64", "garbage_collection_threshold:0.8");
        let with = |setting: &str| format!("{setting},expandable_segments:True");
        let alone = "expandable_segments:True";
        assert_eq!(merged(Some(NEW), &[(TORCH, split), (TORCH_NEW, other)]), with(split));
        assert_eq!(merged(Some(NEW), &[(TORCH_AMD, split), (TORCH_NEW, other)]), with(split));
        assert_eq!(merged(None, &[(TORCH_NEW, other)]), with(other));
        assert_eq!(merged(Some(NEW), &[(TORCH, ""), (TORCH_NEW, other)]), alone, "an empty one is read too");
        let old = Some(Version { major: 2, minor: 9 });
        assert_eq!(merged(old, &[(TORCH_NEW, "per_process_memory_fraction:0.5")]), alone, "2.9 rejects it");
        let jax = python(machine(None), &[("XLA_PYTHON_CLIENT_PREALLOCATE", "true")]);
        assert_eq!(value(&jax, "XLA_PYTHON_CLIENT_PREALLOCATE"), None);
    }

    #[test]
    fn the_users_own_choice_is_kept_and_reported() {
        let old = Some(Version { major: 2, minor: 8 });
        for (torch, variables, note) in [
            (
                None,
                &[(TORCH_NEW, "expandable_segments:False")][..],
                "PyTorch runs without expandable segments: PYTORCH_ALLOC_CONF has expandable_segments:False",
            ),
            (
                old,
                &[(TORCH, "max_split_size_mb:64"), (TORCH_NEW, "expandable_segments:False")],
                "PyTorch runs without expandable segments: PYTORCH_ALLOC_CONF has expandable_segments:False",
            ),
            (
                None,
                &[(TORCH, "backend:cudaMallocAsync")],
                "PyTorch runs on makeroom's pool instead of expandable segments: PYTORCH_CUDA_ALLOC_CONF has backend:cudaMallocAsync",
            ),
        ] {
            let switches = python(machine(torch), variables);
            assert_eq!((value(&switches, TORCH), value(&switches, TORCH_NEW)), (None, None));
            assert_eq!(switches.notes, [note]);
            assert!(!switches.expands_torch);
            assert_eq!(value(&switches, "MAKEROOM_POOL").as_deref(), Some("on"), "others keep the pool");
        }
    }

    #[test]
    fn obstacles_keep_pytorchs_settings_with_one_line() {
        let forbidden = Machine { may_share: false, ..machine(None) };
        let switches = python(forbidden, &[(TORCH, "max_split_size_mb:64")]);
        assert_eq!((value(&switches, TORCH), value(&switches, TORCH_NEW)), (None, None));
        let [note] = &*switches.notes else { panic!("{:?}", switches.notes) };
        assert!(note.starts_with("PyTorch runs without expandable segments: with them, sharing"), "{note}");
        let chosen = python(forbidden, &[(TORCH, "expandable_segments:True")]);
        assert!(
            chosen.expands_torch && chosen.notes.is_empty(),
            "the user asked for them: {:?}",
            chosen.notes
        );
        let solver = python(Machine { may_import_torch: false, ..forbidden }, &[]);
        assert!(value(&solver, TORCH).is_none() && solver.notes.is_empty(), "{:?}", solver.notes);
    }

    #[test]
    fn spilling_uses_the_stream_ordered_backend_and_names_what_it_lacks() {
        let theirs = |name: &str| {
            (name == TORCH_NEW).then(|| "pinned_num_register_threads:4,max_split_size_mb:64".to_owned())
        };
        let command = ["python".into(), "train.py".into()];
        let switches =
            switches_on(machine(None), &command, PoolKind::Expandable, Some(Bytes::gib(2)), theirs);
        assert_eq!(value(&switches, "MAKEROOM_SPILL").as_deref(), Some("2147483648"));
        let merged = "backend:cudaMallocAsync,pinned_num_register_threads:4";
        assert_eq!(value(&switches, TORCH).as_deref(), Some(merged));
        assert_eq!(value(&switches, TORCH_NEW).as_deref(), Some(merged));
        let [lacks, dropped] = &*switches.notes else { panic!("{:?}", switches.notes) };
        for word in ["memory history", "MemPool", "CUDA IPC", "CUDA-graph trees"] {
            assert!(lacks.contains(word), "{lacks}");
        }
        assert!(dropped.contains("max_split_size_mb:64"), "{dropped}");
        let compiled = Machine { may_import_torch: false, ..machine(None) };
        let switches =
            switches_on(compiled, &["./solver".into()], PoolKind::Expandable, Some(Bytes::gib(2)), |_| None);
        assert!(switches.notes.is_empty(), "{:?}", switches.notes);
    }

    #[test]
    fn the_pool_means_paging_unless_it_is_expandable() {
        use clap::Parser as _;

        use crate::cli::{Arguments, Command};

        for (option, expected) in [
            ("--pool", PoolKind::Paging),
            ("--pool=paging", PoolKind::Paging),
            ("--pool=expandable", PoolKind::Expandable),
        ] {
            let arguments = Arguments::try_parse_from(["makeroom", "run", option, "--", "train"]).unwrap();
            let Command::Run(run) = arguments.command else { panic!("another command") };
            assert_eq!(run.pool, Some(expected), "{option}");
        }
    }

    /// Where PyTorch has no expandable segments, nothing can be paged, and the stream-ordered backend spills.
    #[test]
    fn without_expandable_segments_spilling_uses_the_stream_ordered_backend() {
        let spilled = |machine, theirs: Option<&str>| {
            let command = ["python".into(), "train.py".into()];
            let theirs = |name: &str| theirs.filter(|_| name == TORCH).map(str::to_owned);
            switches_on(machine, &command, PoolKind::Paging, Some(Bytes::gib(2)), theirs)
        };
        let forbidden = Machine { may_share: false, ..machine(None) };
        for switches in [spilled(forbidden, None), spilled(machine(None), Some("expandable_segments:False"))]
        {
            assert_eq!(value(&switches, TORCH).as_deref(), Some("backend:cudaMallocAsync"));
            let [reason, lacks, ..] = &*switches.notes else { panic!("{:?}", switches.notes) };
            assert!(reason.starts_with("PyTorch runs without expandable segments: "), "{reason}");
            assert!(lacks.starts_with("--spill runs PyTorch on its cudaMallocAsync backend"), "{lacks}");
            assert!(!lacks.contains("--pool --spill"), "{lacks}");
        }
        let command = ["vllm".into(), "serve".into(), "--enable-sleep-mode".into()];
        for kind in [PoolKind::Paging, PoolKind::Expandable] {
            let switches = switches_on(machine(None), &command, kind, Some(Bytes::gib(2)), |_| None);
            assert_eq!(value(&switches, TORCH), None, "it would break: {:?}", switches.notes);
            let [reason, spilled] = &*switches.notes else { panic!("{:?}", switches.notes) };
            assert!(reason.starts_with("PyTorch runs without expandable segments: "), "{reason}");
            assert_eq!(spilled, "none of PyTorch's memory is spilled");
        }
        let chosen = spilled(machine(None), Some("backend:cudaMallocAsync"));
        assert_eq!(value(&chosen, TORCH).as_deref(), Some("backend:cudaMallocAsync"), "the pool serves it");
    }

    /// Pages spill without the stream-ordered backend, so PyTorch keeps all of its features.
    #[test]
    fn paging_keeps_pytorchs_allocator_even_when_it_spills() {
        for spill in [None, Some(Bytes::gib(2))] {
            let command = ["python".into(), "train.py".into()];
            let switches = switches_on(machine(Some(NEW)), &command, PoolKind::Paging, spill, |_| None);
            assert_eq!(value(&switches, "MAKEROOM_POOL").as_deref(), Some("paging"));
            assert_eq!(value(&switches, "MAKEROOM_SPILL").is_some(), spill.is_some());
            assert_eq!(value(&switches, TORCH).as_deref(), Some("expandable_segments:True"));
            assert!(switches.notes.is_empty(), "{:?}", switches.notes);
        }
    }
}
