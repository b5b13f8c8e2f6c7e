//! Steps against running out of host memory, by operating system and by what ran out: shared memory, pinned
//! memory, the page file, a cgroup's limit, RAM itself.

use super::environment::System;
use super::situation::Situation;
use crate::Fix;
use crate::advice::Maker;

/// The steps for a text about host memory.
pub(crate) fn steps(situation: &Situation<'_>) -> Vec<Fix> {
    let quote = situation.facts.quote.as_str();
    let lower = quote.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| lower.contains(words));
    if says(&["/dev/shm", "shm_open", "shm-size", "nccl-shm", "torch_shm", "shared memory", "bus error"]) {
        return shared_memory();
    }
    if says(&["pinned", "cudahostalloc", "cudamallochost", "cuda_host", "page-locked"]) {
        return pinned(situation);
    }
    if says(&["java heap", "java.lang.outofmemory", "gc overhead"]) {
        return vec![
            Fix::new("raise the heap: to 8 GiB, or to what the machine can spare").command("-Xmx8g"),
            Fix::new("on Spark: raise the executor's memory and its overhead")
                .command("--executor-memory 8g --conf spark.executor.memoryOverhead=4g"),
        ];
    }
    if says(&["cc1plus", "nvcc", "cicc", "ninja", "g++", "clang", "rustc", "compiler"]) {
        return vec![
            Fix::new("compile with fewer parallel jobs")
                .command("MAX_JOBS=2 pip install …   (or: ninja -j2, make -j2)"),
            Fix::new("add swap for the build")
                .command("sudo fallocate -l 16G /swapfile && sudo mkswap /swapfile && sudo swapon /swapfile"),
        ];
    }
    if says(&["for an array", "arraymemoryerror"]) {
        return vec![
            Fix::new("halve the array: use float32 or int32 instead of 64 bits")
                .command("np.zeros(shape, dtype=np.float32)"),
            Fix::new("or keep it on disk and process it in chunks")
                .command("np.memmap(path, dtype=np.float32, mode='w+', shape=shape)"),
        ];
    }
    if super::fixes::is_without_cuda(situation.facts) {
        return vec![Fix::new(
            "close other programs, lower texture quality by one level, and update the graphics driver",
        )];
    }
    match situation.environment.system {
        System::Windows => windows(situation),
        System::MacOs => vec![
            Fix::new("close the largest programs (Activity Monitor, Memory tab): the GPU shares this memory"),
            fewer_workers(situation),
        ],
        System::Wsl => {
            let mut fixes = vec![
                Fix::new(
                    "give WSL more memory: set this in %UserProfile%\\.wslconfig, then run `wsl --shutdown`",
                )
                .command("[wsl2]\nmemory=24GB\nswap=32GB"),
            ];
            fixes.extend(linux(situation));
            fixes
        }
        System::Linux | System::Jetson => linux(situation),
    }
}

fn shared_memory() -> Vec<Fix> {
    vec![
        Fix::new("give the container more shared memory (the default is 64 MB)").command(
            "docker run --shm-size=8g …   (Kubernetes: an emptyDir with medium: Memory at /dev/shm)",
        ),
        Fix::new("or load data without worker processes").command("DataLoader(…, num_workers=0)"),
    ]
}

fn pinned(situation: &Situation<'_>) -> Vec<Fix> {
    let mut fixes = vec![
        Fix::new("pin less host memory: load without pinning").command("DataLoader(…, pin_memory=False)"),
        Fix::new("raise the limit on locked memory before the program starts").command("ulimit -l unlimited"),
    ];
    if situation.facts.framework == "tensorflow" {
        fixes.insert(
            0,
            Fix::new("raise TensorFlow's limit for its pinned pool (64 GiB by default)")
                .command(situation.environment.export("TF_CUDA_HOST_MEM_LIMIT_IN_MB=131072")),
        );
    }
    fixes
}

fn windows(situation: &Situation<'_>) -> Vec<Fix> {
    vec![
        Fix::new(
            "enlarge the page file to 64 GB or more: System > About > Advanced system settings > Performance > Advanced > Virtual memory",
        )
        .command("SystemPropertiesPerformance"),
        fewer_workers(situation),
        Fix::new("close other programs: each Python worker that imports CUDA commits 2 to 5 GB"),
    ]
}

fn linux(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    if settings.mentions("slurm") || settings.mentions("oom_kill") || settings.mentions("StepId") {
        fixes.push(Fix::new("request more memory from Slurm").command("#SBATCH --mem=64G"));
        fixes.push(Fix::new("see what the job used").command("sacct -j JOBID --format=MaxRSS,ReqMem,State"));
    }
    if ["OOMKilled", "kubectl", "kubelet", "kubepods"].iter().any(|mark| settings.mentions(mark)) {
        fixes.push(
            Fix::new("raise the container's memory limit").command("resources: {limits: {memory: 64Gi}}"),
        );
    }
    if settings.mentions("ray") && settings.mentions("node running low on memory") {
        fixes.push(
            Fix::new("run fewer tasks at once: reserve more CPUs or memory for each")
                .command("@ray.remote(num_cpus=4, memory=16 * 1024**3)"),
        );
    }
    if settings.mentions("cgroup") && fixes.is_empty() {
        fixes.push(Fix::new("raise the container's memory limit").command("docker run --memory=64g …"));
    }
    if situation.environment.maker == Maker::Nvidia && settings.mentions("zero_stage")
        || settings.mentions("cpu_offload")
    {
        fixes.push(
            Fix::new("offload less to the CPU: keep the optimizer on the GPU, or use NVMe")
                .command("\"offload_optimizer\": {\"device\": \"none\"}"),
        );
    }
    fixes.push(fewer_workers(situation));
    if fixes.len() < 3 {
        fixes
            .push(Fix::new("load weights and data without a second copy in RAM").command(
                "from_pretrained(…, low_cpu_mem_usage=True)   (data: np.load(path, mmap_mode='r'))",
            ));
    }
    let is_limited =
        ["slurm", "oomkilled", "kubectl", "cgroup", "PBS"].iter().any(|mark| settings.mentions(mark));
    if fixes.len() < 4 && !is_limited {
        fixes.push(
            Fix::new("add swap as a stopgap")
                .command("sudo fallocate -l 32G /swapfile && sudo chmod 600 /swapfile && sudo mkswap /swapfile && sudo swapon /swapfile"),
        );
    }
    fixes
}

fn fewer_workers(situation: &Situation<'_>) -> Fix {
    let workers = situation.settings.number(&["--num_workers", "num_workers", "--workers", "workers"]);
    match workers {
        Some(count) if count >= 2.0 => {
            let half = (count / 2.0) as u64;
            Fix::new(format!("halve the data-loader workers from {count} to {half}: each holds its own copy of the data set"))
                .command(format!("num_workers={half}"))
        }
        _ => Fix::new("load data with fewer worker processes: each holds its own copy of the data set")
            .command("num_workers=0"),
    }
}
