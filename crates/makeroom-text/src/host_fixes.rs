//! Steps against running out of host memory, by what ran out (shared memory, pinned memory, a language's heap, a
//! limit, RAM itself), by who ran out of it (a data loader, a compiler, a model that loads), and by operating system.

mod limits;
mod runtimes;

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Fix};
use makeroom_search::{Regex, pattern};

use crate::environment::System;
use crate::facts::Statement;
use crate::fixes::is_without_cuda;
use crate::language::Language;
use crate::own_code::is_own_code;
use crate::programs::Work;
use crate::situation::Situation;
use crate::smaller;

/// The steps for a text about host memory.
pub(crate) fn steps(situation: &Situation<'_>) -> Vec<Fix> {
    let lower = situation.facts.quote.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| lower.contains(words));
    if says(&["/dev/shm", "shm_open", "shm-size", "nccl-shm", "torch_", "shared memory", "bus error"]) {
        return shared_memory(situation);
    }
    let is_pinned = |statement: &Statement| {
        statement.cause == Cause::HostMemory
            && ["pinned host memory", "pins host memory", "pin host memory"]
                .iter()
                .any(|words| statement.summary.contains(words))
    };
    if situation.facts.statements.iter().any(is_pinned) {
        return pinned(situation);
    }
    if says(&[
        "pinned",
        "hostalloc",
        "mallochost",
        "allochost",
        "cuda_host",
        "page-locked",
        "hostregister",
        "bytes on host",
        "memlock",
        "mlock",
    ]) {
        return pinned(situation);
    }
    if let Some(fixes) = runtimes::steps(situation, &lower) {
        return fixes;
    }
    if says(&["cpuallocator", "you tried to allocate"]) {
        return tensors_on_cpu(situation);
    }
    let is_status = says(&["cl_out_of_host", "out_of_host_memory", "vkallocatememory", "out of host memory"]);
    if is_without_cuda(situation.facts) || is_status {
        return driver_status(situation);
    }
    let mut fixes = limits::steps(situation);
    if ["odm_", "OpenDroneMap", "opendm", "/odm/"].iter().any(|words| situation.settings.mentions(words)) {
        fixes.push(
            Fix::new("compute fewer and smaller depth maps at once: each takes host memory")
                .command("--max-concurrency 2 --pc-quality medium"),
        );
    }
    let is_limited = !fixes.is_empty();
    fixes.extend(overcommit(situation));
    fixes.extend(by_system(situation, is_limited));
    fixes
}

/// Whether the text shows a scheduler's or a container's limit, which comes before the program's own options.
pub(crate) fn has_limit(situation: &Situation<'_>) -> bool {
    !limits::steps(situation).is_empty()
}

/// A tensor on the CPU that is too large.
fn tensors_on_cpu(situation: &Situation<'_>) -> Vec<Fix> {
    /// Parts that any machine has room for.
    const PART: u64 = 4 << 30;
    let mut fixes = Vec::new();
    if situation.facts.request.is_some_and(|request| request > Bytes::gib(1024)) {
        return vec![
            Fix::new("print the shape just before the failing line: no machine has room for this tensor")
                .command("print(x.shape, x.dtype)"),
        ];
    }
    let is_own_code = situation.program.work != Work::Inference;
    // A small tensor is only the last that did not fit.
    let is_full = situation.facts.request.is_some_and(|request| request < Bytes::gib(1));
    if is_full && matches!(situation.environment.system, System::Windows | System::Wsl) {
        fixes.extend(by_system(situation, false).into_iter().take(1));
    }
    if let Some(request) = situation.facts.request.filter(|request| request.get() > PART && is_own_code) {
        let parts = request.get().div_ceil(PART).min(1024);
        fixes.push(
            Fix::new(format!(
                "keep the {request} of data in a file, written in {parts} parts, and read samples from it as they are needed"
            ))
            .command("data = np.lib.format.open_memmap('data.npy', mode='w+', dtype='float16', shape=shape); torch.from_numpy(data[i])"),
        );
    }
    if is_own_code && !is_full {
        fixes.extend(smaller::less_data(situation));
    }
    if is_data_loading(situation) {
        fixes.push(fewer_workers(situation));
    }
    let limits = limits::steps(situation);
    let is_limited = !limits.is_empty();
    fixes.extend(limits);
    if !is_limited {
        fixes.extend(by_system(situation, is_limited).into_iter().take(2));
    }
    fixes
}

/// Programs on graphics and compute drivers return this status for the driver's own resources too: what makes the
/// program's buffers smaller helps here.
fn driver_status(situation: &Situation<'_>) -> Vec<Fix> {
    let mut fixes: Vec<Fix> =
        (situation.program.advise)(situation, Cause::LiveDataFillsDevice).into_iter().take(2).collect();
    match situation.environment.system {
        System::Windows => fixes.push(page_file(situation)),
        System::MacOs => {}
        _ if situation.settings.mentions("Intel") || situation.settings.mentions("OneDNN") => fixes.insert(
            0,
            Fix::new("install the compute runtime that this version of the framework was built for: a driver that cannot build a kernel returns this status too")
                .command("sudo apt install --only-upgrade intel-opencl-icd libze-intel-gpu1 libze1"),
        ),
        _ => fixes.push(swap(situation)),
    }
    fixes
}

/// A process that cannot fork is short of memory that it may never use.
fn overcommit(situation: &Situation<'_>) -> Option<Fix> {
    let lower = situation.facts.quote.to_ascii_lowercase();
    let is_fork = ["errno 12", "fork", "os.fork"].iter().any(|words| lower.contains(words))
        && situation.environment.system != System::Windows;
    is_fork.then(|| {
        Fix::new("let processes fork without reserving a second copy of their memory (this setting is 0 by default)")
            .command("sudo sysctl vm.overcommit_memory=1")
    })
}

/// RAM ran out: what to set on this system, and what to load less of.
fn by_system(situation: &Situation<'_>, is_limited: bool) -> Vec<Fix> {
    let mut fixes = Vec::new();
    match situation.environment.system {
        System::Windows => fixes.push(page_file(situation)),
        System::Wsl => {
            let memory = gigabytes(needed(situation).map_or(Bytes::gib(24), |held| held.scaled(1.25)));
            fixes.push(
                Fix::new("give WSL more than half of the machine's memory: set this in %UserProfile%\\.wslconfig, then run `wsl --shutdown`")
                    .command(format!("[wsl2]\nmemory={memory}GB\nswap={memory}GB")),
            );
        }
        System::MacOs => {
            fixes.push(Fix::new(
                "close the programs that use the most memory (Activity Monitor, Memory tab): the GPU shares this memory",
            ));
        }
        System::Jetson => fixes.push(
            Fix::new("run without the desktop, which takes about 800 MB of the board's memory")
                .command("sudo systemctl set-default multi-user.target && sudo reboot"),
        ),
        System::Linux => {}
    }
    fixes.extend(less_in_ram(situation));
    let has_swap = !matches!(situation.environment.system, System::Windows | System::MacOs | System::Wsl);
    if has_swap && !is_limited {
        fixes.push(swap(situation));
    }
    fixes
}

/// Less data in RAM, where nothing better is known.
pub(crate) fn less_at_once(situation: &Situation<'_>) -> Fix {
    let has_frames = ["pandas", "dataset", "csv", "parquet", "features", "DataFrame"]
        .iter()
        .any(|words| situation.settings.mentions(words));
    if has_frames {
        return Fix::new(
            "read only the columns that you use, as 32-bit values, and drop columns with very many distinct values before encoding",
        )
        .command("pd.read_csv(path, usecols=[…], dtype={'x': 'float32', 'label': 'category'})");
    }
    Fix::new("load less at once: part of the data, a smaller model, or fewer parallel workers")
}

/// What a program can keep out of RAM, by what the text shows it does.
fn less_in_ram(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let says = |words: &[&str]| words.iter().any(|words| settings.mentions(words));
    let mut fixes = Vec::new();
    if settings.mentions("offload_optimizer")
        || settings.mentions("offload_param")
        || settings.mentions("cpu_offload")
    {
        fixes.push(
            Fix::new("offload less to the CPU: keep the optimizer on the GPU, or use NVMe")
                .command("\"offload_optimizer\": {\"device\": \"none\"}"),
        );
    }
    let is_loading = says(&[
        "Loading checkpoint",
        "loading shards",
        "from_pretrained",
        "load_state_dict",
        "torch.load",
        "safetensors",
        "modeling_utils",
        "AutoModel",
        "load_model",
        "loading model",
        "loading weight",
    ]);
    if is_loading && says(&["torch", "transformers", "checkpoint", "from_pretrained", ".bin", "safetensors"])
    {
        if says(&["from_pretrained", "transformers", "checkpoint shards", "AutoModel"]) {
            fixes.push(
                Fix::new("load the weights in 16-bit precision, one shard at a time, straight to the GPU").command(
                    "from_pretrained(…, torch_dtype=torch.bfloat16, low_cpu_mem_usage=True, device_map=\"auto\")",
                ),
            );
        } else {
            fixes.push(
                Fix::new("memory-map the checkpoint instead of reading it into RAM")
                    .command("torch.load(path, mmap=True, map_location='cpu')"),
            );
        }
    }
    let shuffled = shuffle_buffer(situation);
    if shuffled.is_none() && is_data_loading(situation) {
        fixes.push(fewer_workers(situation));
    }
    fixes.extend(shuffled);
    if fixes.is_empty() && situation.is_training() && settings.mentions("torch") {
        fixes.push(fewer_workers(situation));
    }
    if fixes.is_empty() && is_python(situation) && says(&["numpy", "np.", ".npy", ".npz", "array", "dataset"])
    {
        fixes.push(
            Fix::new("read arrays from disk as they are needed instead of loading them whole")
                .command("np.load(path, mmap_mode='r')   (torch.load(path, mmap=True))"),
        );
    }
    fixes
}

/// A smaller shuffle buffer of `tf.data`, which has no workers to drop.
fn shuffle_buffer(situation: &Situation<'_>) -> Option<Fix> {
    let has_buffer = ["rlds", "shuffle_buffer", "tensorflow_datasets", "Dataset.shuffle"]
        .iter()
        .any(|words| situation.settings.mentions(words));
    let present = situation
        .settings
        .number(&["shuffle_buffer_size", "shuffle_buffer"])
        .filter(|&size| (100.0..1e9).contains(&size))
        .map(|size| size as u64);
    let (from, to) = present.map_or((String::new(), 10_000), |size| (format!(" from {size}"), size / 10));
    has_buffer.then(|| {
        Fix::new(format!("shrink the shuffle buffer{from}: every process keeps its own in RAM"))
            .command(format!("shuffle_buffer_size={to}"))
    })
}

fn is_python(situation: &Situation<'_>) -> bool {
    ["python", ".py", "torch", "numpy", "pandas"].iter().any(|words| situation.settings.mentions(words))
}

/// Whether worker processes of a data loader are part of the picture.
fn is_data_loading(situation: &Situation<'_>) -> bool {
    ["DataLoader", "num_workers", "dataloader", "worker (pid", "--workers", "data loader", "process pool"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

fn shared_memory(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    let is_docker =
        ["docker", "container", "podman", "--shm-size", "--ipc"].iter().any(|mark| settings.mentions(mark));
    if limits::is_slurm(situation) && !is_docker {
        // Files in /dev/shm count against the job's memory.
        fixes.extend(limits::steps(situation));
    } else if limits::is_pod(situation) || settings.mentions("kubeflow") {
        fixes.push(
            Fix::new("mount a memory volume at /dev/shm: pods get 64 MB by default")
                .command("volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]"),
        );
    } else if settings.mentions("docker-compose") || settings.mentions("compose.y") {
        fixes.push(Fix::new("give the service more shared memory (default 64 MB)").command("shm_size: 8gb"));
    } else {
        fixes.push(
            Fix::new("give the container more shared memory (default 64 MB)")
                .command("docker run --shm-size=8g …   (or --ipc=host)"),
        );
    }
    fixes.push(fewer_workers(situation));
    if settings.mentions("torch") || settings.mentions("DataLoader") {
        fixes.push(
            Fix::new("outside a container: pass tensors between processes in files instead of /dev/shm")
                .command("torch.multiprocessing.set_sharing_strategy('file_system')"),
        );
    }
    fixes
}

fn pinned(situation: &Situation<'_>) -> Vec<Fix> {
    let facts = situation.facts;
    let mut fixes = Vec::new();
    // TensorFlow's advice already names the setting of its pool.
    if facts.framework == Framework::TensorFlow && !situation.settings.mentions("UNIFIED_MEMORY") {
    } else if situation.settings.mentions("faiss") {
        fixes.push(
            Fix::new("let FAISS pin less host memory (default 256 MiB per GPU)")
                .command("resources.setPinnedMemory(64 * 1024 * 1024)"),
        );
    } else if matches!(facts.framework, Framework::Jax | Framework::TensorFlow)
        || situation.settings.mentions("alphafold")
    {
        fixes.push(
            Fix::new("keep the pool in device memory: unified memory makes XLA pin host memory for it")
                .command(situation.environment.export("TF_FORCE_UNIFIED_MEMORY=0")),
        );
    } else if situation.settings.mentions("pin_memory") || is_data_loading(situation) {
        fixes.push(Fix::new("load data without pinning it").command("DataLoader(…, pin_memory=False)"));
    } else if situation.language == Language::Python && !situation.settings.mentions("torch") {
        // Who runs a Python program does not write its copies.
        fixes.push(Fix::new(
            "let the program keep less on the host at once: fewer jobs, classes or images in parallel, starting with 1",
        ));
    } else if is_own_code(facts) || !situation.settings.mentions("torch") {
        fixes.push(
            Fix::new("copy through one pinned buffer of 64 MiB instead of pinning all the data").command(
                if situation.settings.mentions("hip") && !situation.settings.mentions("cuda") {
                    "hipHostMalloc(&staging, 64 << 20, 0);"
                } else {
                    "cudaMallocHost(&staging, 64 << 20);"
                },
            ),
        );
    } else {
        fixes.push(Fix::new("load data without pinning it").command("DataLoader(…, pin_memory=False)"));
    }
    match situation.environment.system {
        System::Windows => fixes.push(page_file(situation)),
        System::Wsl => fixes.push(
            Fix::new(
                "give WSL more memory in %UserProfile%\\.wslconfig: it can pin at most half of its memory",
            )
            .command("[wsl2]\nmemory=24GB"),
        ),
        System::MacOs => {}
        System::Linux | System::Jetson => {
            fixes.push(Fix::new("raise the limit on locked memory before the program starts").command(
                if situation.settings.mentions("docker") {
                    "docker run --ulimit memlock=-1 …"
                } else {
                    "ulimit -l unlimited   (Docker: --ulimit memlock=-1)"
                },
            ));
        }
    }
    fixes
}

/// A size next to a mention of the page file.
static PAGE_FILE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:page ?-?file|paging ?file|virtual memory)[^\n.]{0,60}?\b(\d{1,3}) ?G|\b(\d{1,3}) ?GB? (?:of )?(?:page ?-?file|paging ?file|virtual memory)",
    )
});

/// The largest page file that the text says was tried, in gigabytes.
pub(crate) fn tried_page_file(situation: &Situation<'_>) -> Option<u64> {
    let parts = situation.settings.parts();
    let sizes = parts.into_iter().flat_map(|part| PAGE_FILE.captures_iter(part)).filter_map(|found| {
        found.get(1).or_else(|| found.get(2)).and_then(|size| size.as_str().parse::<u64>().ok())
    });
    sizes.filter(|&size| size <= 512).max()
}

/// Windows commits memory against RAM and page file together.
fn page_file(situation: &Situation<'_>) -> Fix {
    let size = situation.facts.request.map_or(64, |request| gigabytes(request.scaled(2.0)).clamp(64, 256));
    let size = size.max(tried_page_file(situation).map_or(0, |tried| gigabytes(Bytes::gib(tried * 2))));
    Fix::new(format!(
        "enlarge the page file to {size} GB (SystemPropertiesPerformance > Advanced > Virtual memory > Change)"
    ))
    .command(format!("Initial size = Maximum size = {}", size * 1024))
}

/// A machine whose OOM killer chooses a process of this size as the largest is a small board. Smaller ones are killed on
/// any machine, when the large ones are protected or gone.
const SMALL_PROCESS: RangeInclusive<Bytes> = Bytes::mib(16)..=Bytes::mib(256);

/// Whether the machine is a small board or a controller, whose flash is too small for swap.
fn is_small_board(situation: &Situation<'_>) -> bool {
    ["openbmc", "raspberry", "buildroot", "openwrt", "busybox", "armv6l", "armv7l", "esp32", "yocto"]
        .iter()
        .any(|words| situation.settings.mentions(words))
        || situation.settings.mentions("Killed process")
            && !["cgroup", "docker", "container", "nvidia", "cuda", "x86"]
                .iter()
                .any(|words| situation.settings.mentions(words))
            && situation
                .facts
                .statements
                .iter()
                .find_map(|statement| statement.bytes)
                .is_some_and(|held| SMALL_PROCESS.contains(&held))
}

/// Swap for the memory that the process had.
fn swap(situation: &Situation<'_>) -> Fix {
    if is_small_board(situation) {
        return Fix::new(
            "swap to compressed RAM, which needs no disk, and look for the process that fills the rest of the RAM",
        )
        .command("modprobe zram && zramctl --size 64M /dev/zram0 && mkswap /dev/zram0 && swapon /dev/zram0");
    }
    let is_board = situation.environment.system == System::Jetson;
    let usual = if is_board { 8 } else { 16 };
    let size = needed(situation).map_or(usual, |held| gigabytes(held).min(128));
    Fix::new(format!("add {size} GB of swap as a stopgap")).command(format!(
        "sudo fallocate -l {size}G /swapfile && sudo chmod 600 /swapfile && sudo mkswap /swapfile && sudo swapon /swapfile"
    ))
}

/// The data loader's workers by the names that programs give them: the program, the option to set, its default.
const WORKERS: &[(&str, &str, &str)] = &[
    ("YOLO", "--workers 2", "8"),
    ("Ultralytics YOLO", "workers=2", "8"),
    ("YOLOX", "-D data_num_workers=1", "4"),
    ("detectron2", "DATALOADER.NUM_WORKERS 0", "4"),
    ("OpenMMLab", "--cfg-options data.workers_per_gpu=0", "2"),
    ("nnU-Net", "nnUNet_n_proc_DA=4", "12"),
    ("sd-scripts", "--max_data_loader_n_workers 1", "8"),
    ("timm", "--workers 1", "4"),
    ("fairseq", "--num-workers 0", "1"),
    ("Whisper", "num_workers=0", "0"),
];

fn fewer_workers(situation: &Situation<'_>) -> Fix {
    let shown = situation.settings.shown(&[
        "--num_workers",
        "num_workers",
        "--workers",
        "--n_workers",
        "workers_per_gpu",
        "workers",
    ]);
    let known = WORKERS.iter().find(|(program, _, _)| *program == situation.program.name);
    match (shown.filter(|shown| (2.0..1e4).contains(&shown.value)), known) {
        (Some(shown), _) => {
            let (count, half) = (shown.value as u64, shown.value as u64 / 2);
            Fix::new(format!(
                "halve the data-loader workers from {count} to {half}: each holds its own copy of the dataset"
            ))
            .command(shown.with(half))
        }
        (None, Some((_, option, default))) => {
            Fix::new(format!("load data with fewer worker processes (default {default}): each holds its own copy of the dataset"))
                .command(*option)
        }
        (None, None) if situation.settings.number(&["num_workers"]) == Some(0.0) => {
            Fix::new("keep the dataset on disk: the data loader already runs without workers")
                .command("np.load(path, mmap_mode='r')")
        }
        (None, None) => Fix::new("load data in the main process: each worker holds its own copy of the dataset")
            .command("DataLoader(…, num_workers=0)"),
    }
}

/// Memory that was needed, as far as the text says: what the killed process held, else the request.
fn needed(situation: &Situation<'_>) -> Option<Bytes> {
    let facts = situation.facts;
    let held = facts.statements.iter().find_map(|statement| statement.bytes);
    held.or(facts.request).filter(|bytes| (Bytes::mib(512)..=Bytes::gib(4096)).contains(bytes))
}

/// A size in whole gigabytes that people set: the next multiple of 4, of 16 from 32 on.
fn gigabytes(bytes: Bytes) -> u64 {
    let whole = bytes.get().div_ceil(1 << 30).max(1);
    if whole > 32 { whole.div_ceil(16) * 16 } else { whole.div_ceil(4) * 4 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::find;
    use crate::log::Log;

    fn commands(text: &str) -> Vec<String> {
        let log = Log::new(text);
        let found = find::failures(&log).unwrap();
        let context = Context::read(&log, found.index);
        let situation = Situation::new(&log, found.index, &found.first, &context);
        steps(&situation).into_iter().filter_map(|fix| fix.command).collect()
    }

    #[test]
    fn limits_are_raised_from_the_figures_of_the_text() {
        for (text, first) in [
            (
                "#SBATCH --mem=16G\nslurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.",
                "#SBATCH --mem=32G",
            ),
            ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.", "#SBATCH --mem=64G"),
            (
                "slurmstepd: error: Step 9.0 exceeded memory limit (20971520 > 8388608), being killed",
                "#SBATCH --mem=32G",
            ),
            ("OSError: [Errno 12] Cannot allocate memory", "sudo sysctl vm.overcommit_memory=1"),
            ("job 12 exceeded MEM usage hard limit (4000 > 2000)", "#PBS -l mem=5000mb"),
            ("kubectl: limits: memory: 8Gi\nReason: OOMKilled", "resources: {limits: {memory: 16Gi}}"),
            ("java -Xmx4g -jar a.jar\njava.lang.OutOfMemoryError: Java heap space", "-Xmx8g"),
            (
                "ValueError: Unable to allocate 8.00 GiB for an array with shape (64, 4096, 4096) and data type float64",
                "array.astype(np.float32)   (or dtype=np.float32 where it is created)",
            ),
            (
                "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
                "docker run --shm-size=8g …   (or --ipc=host)",
            ),
        ] {
            assert_eq!(commands(text).first().map(String::as_str), Some(first), "{text}");
        }
    }

    #[test]
    fn a_process_that_the_kernel_killed_is_not_a_slurm_job() {
        let steps = commands(
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task=solver,pid=7\nOut of memory: Killed process 7 (solver) total-vm:9000000kB, anon-rss:20971520kB, file-rss:0kB",
        );
        assert!(steps.iter().all(|step| !step.contains("SBATCH") && !step.contains("docker")), "{steps:?}");
        assert!(steps.iter().any(|step| step.contains("fallocate -l 20G")), "{steps:?}");
    }

    #[test]
    fn workers_are_halved_where_the_text_shows_them() {
        let steps = commands(
            "python train.py --num_workers 16\nRuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.",
        );
        assert!(steps.contains(&"--num_workers 8".to_owned()), "{steps:?}");
    }
}
