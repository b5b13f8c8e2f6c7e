//! Limits on host memory that schedulers and containers set: which option raises them, and to what.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::Fix;
use makeroom_search::{Regex, pattern};

use super::{gigabytes, needed};
use crate::figures::{binary_size, captured_number};
use crate::situation::Situation;

/// A limit as command lines, manifests and schedulers write it.
static SET: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?ix)
        --mem(?:-per-cpu|-per-gpu|ory|ory-limit)?[=\ ](?P<a>\d+)(?P<au>[KMGT]?)
      | \b(?:h_vmem|s_vmem|mem|vmem|pmem)=(?P<b>\d+)(?P<bu>[KMGT])B?
      | \bmemory(?:\ limit)?(?:\ (?:to|was|is|of))?[*]{0,2}:?[*]{0,2}\s*["'`]?(?P<c>\d+)(?P<cu>[KMGT])i
      | \bmemory\ limit\b[^.\n\d]{0,40}(?P<g>\d+)(?P<gu>[KMGT])i
      | \bReqMem\S*\s*[=:]\s*(?P<d>\d+)(?P<du>[KMGT])
      | \bmemory:\ usage\ \d+kB,\ limit\ (?P<e>\d+)(?P<eu>k)B
      | \bexceeded\ (?:job|step)?\ ?memory\ limit\ \((?:\d+)\ >\ (?P<f>\d+)\)
        "#,
    )
});
/// A limit that a person raises: "6Gi -> 10Gi", "from 512Mi to 2Gi".
static RAISED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(\d+)([KMGT])i?B?[`*\x22']{0,3} ?(?:→|->|=>|to) ?[`*\x22']{0,3}(\d+)([KMGT])i?B?\b")
});
/// What a scheduler says that the job used and was allowed: Slurm in KB, Torque in MB.
static USED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)limit \((\d{2,9}) ?> ?(\d{2,9})\)"));
static PBS_USED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)mem (\d+)([kmg])b exceeded limit (\d+)([kmg])b"));

/// The options of whichever limits the text shows; nothing where there is none.
pub(super) fn steps(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let says = |marks: &[&str]| marks.iter().any(|mark| settings.mentions(mark));
    let present = present(situation);
    let aim = aim(situation, present);
    let from = present.map_or(String::new(), |limit| format!(" from {limit}"));
    let now = present.map_or(String::new(), |limit| format!(" (now {limit})"));
    let mut fixes = Vec::new();
    if says(&["snakemake", "mem_mb="]) {
        let now = situation.settings.number(&["mem_mb"]).filter(|now| (100.0..1e8).contains(now));
        let (from, to) = match now {
            Some(now) => (format!(" from {now} MB"), (now * 2.0) as u64),
            None => (from.clone(), aim * 1000),
        };
        return vec![
            Fix::new(format!("raise the rule's memory request{from} in its `resources:` section or on the command line"))
                .command(format!("snakemake --set-resources RULE:mem_mb={to}   (rule: mem_mb=lambda wildcards, attempt: {} * attempt, with --retries 3)", to / 2)),
        ];
    }
    if says(&["nextflow", "N E X T F L O W", "nf-core"]) {
        return vec![
            Fix::new(format!("raise the process's memory request{from} in nextflow.config"))
                .command(format!("process {{ withName: 'PROCESS' {{ memory = {{ {aim}.GB * task.attempt }}; errorStrategy = 'retry'; maxRetries = 2 }} }}")),
        ];
    }
    if says(&["TERM_MEMLIMIT", "bsub", "LSBATCH", "LSF"]) {
        fixes.push(
            Fix::new(format!("request more memory from LSF{now}"))
                .command(format!("bsub -M {aim}GB -R \"rusage[mem={aim}GB]\" …")),
        );
    } else if is_slurm(situation) {
        fixes.push(
            Fix::new(format!("request more memory from Slurm{now}")).command(format!("#SBATCH --mem={aim}G")),
        );
    } else if says(&["PBS", "qsub", "torque", "moab", "MEM usage hard limit"]) {
        let aim =
            used(situation).map_or(aim * 1024, |used| used.scaled(1.25).get().div_ceil(100 << 20) * 100);
        fixes.push(
            Fix::new(format!("request more memory from PBS{now}")).command(format!("#PBS -l mem={aim}mb")),
        );
    } else if says(&["h_vmem", "Grid Engine", "qrsh"]) {
        fixes.push(
            Fix::new(format!("request more memory per slot from Grid Engine{now}"))
                .command(format!("#$ -l h_vmem={aim}G")),
        );
    }
    fixes.extend(kubernetes(situation, aim, present));
    // An exit code and the word "container" alone do not show which runtime set the limit.
    let is_in_cgroup = says(&["memory cgroup", "mem_cgroup", "CONSTRAINT_MEMCG", "docker", "container"])
        && !says(&["CONSTRAINT_NONE", "global_oom"]);
    if fixes.is_empty() && is_in_cgroup {
        fixes.push(
            Fix::new(format!(
                "raise the container's memory limit{from} (Docker Desktop: Settings > Resources > Memory)"
            ))
            .command(format!("docker run --memory={}g …", container_aim(situation, aim, present))),
        );
    }
    if fixes.is_empty()
        && says(&["##[error]", "GitHub Actions", "actions/runner", "Process completed with exit code 137"])
    {
        fixes.push(
            Fix::new(
                "run the job on a larger runner, or with fewer parallel jobs: the standard runner has 16 GB",
            )
            .command("runs-on: ubuntu-latest-16-cores   (or: make -j2, pytest -n 2)"),
        );
    }
    if fixes.is_empty() && says(&["ulimit -v", "RLIMIT_AS", "address space"]) {
        fixes.push(Fix::new("lift the limit on address space").command("ulimit -v unlimited"));
    }
    if fixes.is_empty() && says(&["google.colab", "colab", "/content/"]) {
        fixes.push(
            Fix::new("choose a runtime with more RAM")
                .command("Runtime > Change runtime type > Runtime shape = High-RAM"),
        );
    }
    fixes
}

/// Whether the text is about a Slurm job.
pub(super) fn is_slurm(situation: &Situation<'_>) -> bool {
    ["slurm", "srun:", "srun ", "sbatch", "StepId=", "salloc", "sacct", "MaxRSS", "ReqMem", "#SBATCH"]
        .iter()
        .any(|mark| situation.settings.mentions(mark))
}

/// Whether the text is about a pod of Kubernetes.
pub(super) fn is_pod(situation: &Situation<'_>) -> bool {
    POD.iter().any(|words| situation.settings.mentions(words))
}

/// Words of a pod.
const POD: &[&str] = &[
    "OOMKill",
    "OOM Killed\",",
    "CrashLoopBackOff",
    "lastFailureInfo",
    "lastState",
    "kubectl",
    "kubelet",
    "kubepods",
    "kubernetes",
    "restartCount",
    "argo/",
    " pods ",
    " pod ",
    "pod/",
    "minikube",
    "k8s",
    "Last State:",
    "version.Info{Major",
    "openshift",
    "helm ",
    "eksctl",
    "gke-",
];

/// The limit of a pod, and of the machine that a local cluster runs on.
fn kubernetes(situation: &Situation<'_>, aim: u64, present: Option<Bytes>) -> Vec<Fix> {
    if !is_pod(situation) {
        return Vec::new();
    }
    let from = present.map_or(String::new(), |limit| format!(" from {limit}"));
    let limit = container_aim(situation, aim, present);
    let mut fixes = vec![
        Fix::new(format!("raise the container's memory limit{from}"))
            .command(format!("resources: {{limits: {{memory: {limit}Gi}}}}")),
    ];
    if situation.settings.mentions("minikube") {
        fixes.push(Fix::new("give minikube's node more memory").command("minikube start --memory=8192"));
    }
    fixes
}

/// The limit that the text itself raises to, in gibibytes.
fn raised(situation: &Situation<'_>) -> Option<u64> {
    let lines = situation.settings.parts().into_iter().flat_map(str::lines);
    lines.filter(|line| line.contains("imit") || line.contains("emory")).take(200).find_map(|line| {
        let found = RAISED.captures(line)?;
        let (from, to) = (binary_size(&found[1], &found[2])?, binary_size(&found[3], &found[4])?);
        (to > from && to <= Bytes::gib(4096)).then(|| to.get().div_ceil(1 << 30).max(1))
    })
}

/// The limit of a service without a GPU, in gibibytes, where the text shows none.
const SMALL_CONTAINER: u64 = 8;

/// The limit of a container, in gibibytes: services without a GPU have less than jobs with one.
fn container_aim(situation: &Situation<'_>, aim: u64, present: Option<Bytes>) -> u64 {
    let has_gpu = ["gpu", "cuda", "torch", "nvidia"].iter().any(|words| situation.settings.mentions(words));
    if let Some(raised) = raised(situation) {
        return raised;
    }
    match present {
        // A container this small does not hold the model.
        Some(limit) if limit < Bytes::gib(2) => limit.scaled(4.0).get().div_ceil(1 << 30),
        None if !has_gpu && needed(situation).is_none() => SMALL_CONTAINER,
        _ => aim,
    }
}

/// The limit that the text shows.
fn present(situation: &Situation<'_>) -> Option<Bytes> {
    let stated = || {
        situation.settings.parts().iter().find_map(|part| {
            let found = SET.captures(part)?;
            let (number, unit) = ["a", "b", "c", "d", "e", "g"]
                .iter()
                .find_map(|group| Some((found.name(group)?, found.name(&format!("{group}u"))?)))?;
            // A number alone is in mebibytes, as Slurm has it.
            let unit = if unit.as_str().is_empty() { "M" } else { unit.as_str() };
            binary_size(number.as_str(), unit)
        })
    };
    situation.facts.limit.or_else(stated).filter(|limit| (Bytes::mib(64)..=Bytes::gib(8192)).contains(limit))
}

/// What the job used, where the scheduler says so.
fn used(situation: &Situation<'_>) -> Option<Bytes> {
    situation.settings.parts().iter().find_map(|part| {
        let is_slurm = ["slurm", "srun:"].iter().any(|mark| situation.settings.mentions(mark));
        let in_megabytes = || {
            let used: u64 = captured_number(&USED.captures(part)?, 1)?;
            Some(if is_slurm { Bytes::kib(used) } else { Bytes::mib(used) })
        };
        let with_unit = || {
            let found = PBS_USED.captures(part)?;
            binary_size(&found[1], &found[2])
        };
        in_megabytes().or_else(with_unit)
    })
}

/// Smaller values are not a plausible memory limit for a GPU program.
const LEAST_LIMIT: Bytes = Bytes::gib(4);

/// The limit to request, in gibibytes: half as much again as was used, or twice the present limit.
fn aim(situation: &Situation<'_>, present: Option<Bytes>) -> u64 {
    let from_use = used(situation).or_else(|| needed(situation)).map(|used| used.scaled(1.5));
    // A limit of hundreds of gigabytes is not doubled by many machines.
    let from_limit = present.map(|limit| limit.scaled(if limit >= Bytes::gib(256) { 1.25 } else { 2.0 }));
    // What a killed process held is below the limit that killed it.
    let aim = match (from_use, from_limit) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    // A larger machine does not exist: the figures are not what they seem.
    aim.filter(|&aim| aim <= Bytes::gib(4096)).map_or(64, |aim| gigabytes(aim.max(LEAST_LIMIT)))
}
