//! `doctor` on simulated machines: problems are reported, and nothing else is.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::PathBuf;

use makeroom_holders::doctor::{Check, Surroundings, Verdict, examine};
use makeroom_holders::{Card, ComputeMode, Problem, ProblemKind, Survey, SurveyError};

/// Names and values.
type Variables<'text> = &'text [(&'text str, &'text str)];

fn machine(test: &str, variables: &[(&str, &str)], files: &[(&str, &str)]) -> Surroundings {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("doctor").join(test);
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).unwrap();
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let proc = root.join("proc");
    Surroundings { environment: variables.iter().map(pair).collect(), root, proc }
}

fn survey() -> Survey {
    let card = Card {
        uuid: "GPU-1234".into(),
        is_persistent: Some(true),
        compute_mode: Some(ComputeMode::Shared),
        ..Card::default()
    };
    Survey { driver: "580.159.03".into(), cuda: Some(13000), cards: vec![card] }
}

fn find<'checks>(checks: &'checks [Check], subject: &str) -> Vec<&'checks Check> {
    checks.iter().filter(|check| check.subject == subject).collect()
}

/// The results that are not good.
fn complaints(surroundings: &Surroundings, survey: Survey) -> Vec<(&'static str, Verdict, String)> {
    let checks = examine(&Ok(survey), surroundings);
    let bad = checks.into_iter().filter(|check| check.verdict != Verdict::Good);
    bad.map(|check| (check.subject, check.verdict, check.found)).collect()
}

#[test]
fn a_machine_in_order_has_no_complaints() {
    assert_eq!(complaints(&machine("order", &[], &[]), survey()), []);
}

#[test]
fn no_driver_is_the_first_complaint() {
    let checks = examine(&Err(SurveyError::NoDriver), &machine("driver", &[], &[]));
    assert_eq!((checks[0].subject, checks[0].verdict), ("driver", Verdict::Problem));
    assert!(checks[0].fix.as_ref().unwrap().contains("modprobe"));
}

#[test]
fn pairs_that_do_not_work_together() {
    let package = "venv/lib/python3.12/site-packages/torch-2.11.0+cu130.dist-info/METADATA";
    let surroundings = machine("pairs", &[("VIRTUAL_ENV", "/venv")], &[(package, "")]);
    let old = Survey { driver: "550.90.07".into(), cuda: Some(12040), ..survey() };
    let found = complaints(&surroundings, old);
    assert_eq!((found[0].0, found[0].1), ("versions", Verdict::Problem));
    assert!(found[0].2.contains("needs driver 580 or later; the installed driver is 550.90.07"));
    let checks = examine(&Ok(survey()), &surroundings);
    assert_eq!(find(&checks, "versions")[0].verdict, Verdict::Good);
    let package = "venv/lib/python3.12/site-packages/torch-2.8.0+cu129.dist-info/METADATA";
    let surroundings = machine("minor", &[("VIRTUAL_ENV", "/venv")], &[(package, "")]);
    let found =
        complaints(&surroundings, Survey { driver: "550.90.07".into(), cuda: Some(12040), ..survey() });
    assert_eq!((found[0].0, found[0].1), ("versions", Verdict::Warning));
}

#[test]
fn a_module_of_another_version_than_the_library() {
    let line =
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Thu Jan 1 2025\nGCC version: gcc 12.2.0";
    let surroundings = machine("module", &[], &[("proc/driver/nvidia/version", line)]);
    let found = complaints(&surroundings, survey());
    assert!(
        found[0]
            .2
            .contains("the loaded kernel module is version 570.86.10, but the library is version 580.159.03"),
        "{found:?}"
    );
}

#[test]
fn cards_that_cannot_be_used() {
    let lost = Problem { what: "memory".into(), answer: "lost".into(), kind: ProblemKind::Lost };
    let cards = vec![
        Card { problems: vec![lost], ..Card::default() },
        Card { index: 1, compute_mode: Some(ComputeMode::Prohibited), ..Card::default() },
        Card { index: 2, is_divided: true, ..Card::default() },
        Card { index: 3, is_persistent: Some(false), ..Card::default() },
    ];
    let found = complaints(&machine("cards", &[], &[]), Survey { cards, ..survey() });
    let subjects: Vec<_> = found.iter().map(|(subject, verdict, _)| (*subject, *verdict)).collect();
    let expected = [
        ("cards", Verdict::Problem),
        ("compute_mode", Verdict::Problem),
        ("mig", Verdict::Problem),
        ("persistence", Verdict::Note),
    ];
    assert_eq!(subjects, expected);
}

#[test]
fn names_of_devices_that_are_not_there() {
    for (value, verdict) in [
        ("0", Some(Verdict::Note)),
        ("GPU-12", Some(Verdict::Note)),
        ("0,1", Some(Verdict::Problem)),
        ("0,0", Some(Verdict::Problem)),
        ("0,GPU-1234", Some(Verdict::Problem)),
        ("GPU-9", Some(Verdict::Problem)),
        ("", Some(Verdict::Warning)),
        ("-1", Some(Verdict::Warning)),
    ] {
        let surroundings = machine("visible", &[("CUDA_VISIBLE_DEVICES", value)], &[]);
        let checks = examine(&Ok(survey()), &surroundings);
        let found = find(&checks, "visible_devices").first().map(|check| check.verdict);
        assert_eq!(found, verdict, "{value}");
    }
}

#[test]
fn a_device_that_is_named_twice_hides_all() {
    let mut two = survey();
    two.cards.push(Card { uuid: "GPU-5678".into(), ..two.cards[0].clone() });
    let surroundings = machine("twice", &[("CUDA_VISIBLE_DEVICES", "0,1, 0")], &[]);
    let checks = examine(&Ok(two), &surroundings);
    let check = find(&checks, "visible_devices")[0];
    assert!(check.found.contains("`0` is listed twice, so CUDA finds no GPU"), "{check:?}");
    assert_eq!(check.fix.as_deref(), Some("export CUDA_VISIBLE_DEVICES=0,1"));
}

/// PyTorch fails on the values that the simulator rejects.
#[test]
fn values_that_pytorch_does_not_take() {
    for (setting, reason) in [
        ("max_split_size_mb:5", "must be at least the size of a large segment, 20"),
        ("max_split_size_mb:many", "`many` is not a whole number"),
        ("garbage_collection_threshold:1.5", "`1.5` is not a number from 0 to 1"),
        ("garbage_collection_threshold:0", "must be between 0 and 1"),
        ("roundup_power2_divisions:3", "must be a power of two up to 64"),
        ("per_process_memory_fraction:2", "`2` is not a number from 0 to 1"),
    ] {
        assert!(makeroom_sim::Settings::parse(setting).is_err(), "{setting}");
        let found = complaints(&machine("values", &[("PYTORCH_CUDA_ALLOC_CONF", setting)], &[]), survey());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].1, Verdict::Problem);
        let words = format!("PYTORCH_CUDA_ALLOC_CONF: `{setting}`: {reason}; PyTorch stops with an error");
        assert_eq!(found[0].2, words);
    }
    let package = "usr/lib/python3.12/dist-packages/torch-2.9.1+cu128.dist-info/METADATA";
    let files = [(package, ""), ("usr/bin/python3", "")];
    let variables = [("PATH", "/usr/bin"), ("PYTORCH_CUDA_ALLOC_CONF", "large_segment_size_mb:40")];
    let found = complaints(&machine("newer", &variables, &files), survey());
    assert!(found.iter().any(|(_, _, found)| found.contains("not supported by PyTorch 2.9")), "{found:?}");
    let good = "large_segment_size_mb:40,max_split_size_mb:64,pinned_use_background_threads:True";
    let found = complaints(&machine("good", &[("PYTORCH_CUDA_ALLOC_CONF", good)], &[]), survey());
    assert_eq!(found, []);
}

#[test]
fn limits_of_host_memory() {
    let limits = "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         8388608              8388608              bytes\n";
    let files = [
        ("proc/self/limits", limits),
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("sys/fs/cgroup/a/memory.max", "17179869184\n"),
    ];
    let found = complaints(&machine("limits", &[], &files), survey());
    assert!(found.iter().any(|(subject, _, found)| *subject == "locked_memory"
        && found.starts_with("locked memory limit: 8.00 MiB")));
    assert!(
        found.iter().any(|(subject, _, found)| *subject == "host_memory" && found.contains("16.00 GiB")),
        "{found:?}"
    );
}

#[test]
fn missing_files_of_the_driver() {
    let found = complaints(&machine("files", &[], &[("dev/nvidiactl", "")]), survey());
    assert_eq!((found[0].0, found[0].1), ("device_files", Verdict::Problem));
    assert!(found[0].2.contains("/dev/nvidia-uvm is missing"));
}

#[test]
fn settings_that_contradict_or_are_not_read() {
    let cases: [(Variables<'_>, Verdict, &str); 9] = [
        (
            &[
                ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
                ("PYTORCH_ALLOC_CONF", "max_split_size_mb:64"),
            ],
            Verdict::Warning,
            "PYTORCH_ALLOC_CONF=max_split_size_mb:64 is ignored",
        ),
        (
            &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segment:True")],
            Verdict::Problem,
            "PyTorch does not recognize `expandable_segment`",
        ),
        (
            &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:true")],
            Verdict::Problem,
            "must be exactly True or False",
        ),
        (
            &[("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync,max_split_size_mb:64")],
            Verdict::Warning,
            "ignores max_split_size_mb",
        ),
        (
            &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:64")],
            Verdict::Warning,
            "max_split_size_mb stops large blocks from being split",
        ),
        (
            &[("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8")],
            Verdict::Note,
            "has no effect unless",
        ),
        (
            &[("XLA_PYTHON_CLIENT_ALLOCATOR", "platform"), ("XLA_PYTHON_CLIENT_PREALLOCATE", "false")],
            Verdict::Warning,
            "XLA_PYTHON_CLIENT_PREALLOCATE has no effect",
        ),
        (&[("CUDA_MODULE_LOADING", "EAGER")], Verdict::Warning, "loads all kernels"),
        (&[("MAKEROOM", "off")], Verdict::Warning, "records nothing"),
    ];
    for (variables, verdict, words) in cases {
        let found = complaints(&machine("settings", variables, &[]), survey());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].0, found[0].1), ("allocators", verdict));
        assert!(found[0].2.contains(words), "{}", found[0].2);
    }
}

#[test]
fn a_variable_that_the_installed_version_does_not_read() {
    let package = "usr/lib/python3.12/dist-packages/torch-2.9.1+cu128.dist-info/METADATA";
    let files = [(package, ""), ("usr/bin/python3", "")];
    let variables = [("PATH", "/usr/bin"), ("PYTORCH_ALLOC_CONF", "expandable_segments:True")];
    let found = complaints(&machine("version", &variables, &files), survey());
    assert!(
        found.iter().any(|(_, _, found)| found == "PYTORCH_ALLOC_CONF is ignored by PyTorch 2.9.1+cu128"),
        "{found:?}"
    );
}

#[test]
fn a_service_that_does_not_listen() {
    let surroundings = machine("mps", &[("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")], &[]);
    let found = complaints(&surroundings, survey());
    assert_eq!((found[0].0, found[0].1), ("mps", Verdict::Warning));
    let listening = [("tmp/nvidia-mps/control", "")];
    let surroundings = machine("mps-on", &[("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")], &listening);
    assert_eq!(complaints(&surroundings, survey()), []);
}

#[test]
fn libraries_that_stand_before_the_drivers() {
    let libraries =
        [("usr/local/cuda/lib64/stubs/libcuda.so.1", ""), ("usr/local/cuda/compat/libcuda.so.1", "")];
    let found = |path: &str| {
        let machine = machine("libraries", &[("LD_LIBRARY_PATH", path)], &libraries);
        complaints(&machine, survey())
            .into_iter()
            .map(|(subject, verdict, _)| (subject, verdict))
            .collect::<Vec<_>>()
    };
    assert_eq!(found("/usr/lib:/usr/local/cuda/lib64/stubs"), [("libraries", Verdict::Problem)]);
    assert_eq!(
        found("/usr/local/cuda/compat/:/usr/local/cuda/lib64/stubs"),
        [("libraries", Verdict::Warning)]
    );
    assert_eq!(found("/usr/local/cuda/lib64"), [], "there is none in it");
}

#[test]
fn what_several_cards_share_is_one_line() {
    let card = |index| Card {
        index,
        is_persistent: Some(false),
        compute_mode: Some(ComputeMode::Prohibited),
        ..survey().cards.remove(0)
    };
    let survey = Survey { cards: (0..3).map(card).collect(), ..survey() };
    let checks = examine(&Ok(survey), &machine("shared", &[], &[]));
    let (modes, persistence) = (find(&checks, "compute_mode"), find(&checks, "persistence"));
    assert_eq!((modes.len(), persistence.len()), (1, 1));
    assert!(modes[0].found.starts_with("GPUs 0, 1, 2 are in compute mode PROHIBITED"), "{}", modes[0].found);
    assert_eq!(modes[0].fix.as_deref(), Some("sudo nvidia-smi -i 0,1,2 -c DEFAULT"));
}
