//! Checks of the host: limits on pinned and shared memory, and the driver's device files.

use makeroom_core::Bytes;

use super::{Check, Surroundings, Verdict};

/// With less, workers that pass tensors through shared memory soon fail. Docker's default is 64 MiB.
const LEAST_SHARED: Bytes = Bytes::gib(1);
/// A smaller limit on locked memory is the system's default, not a deliberate choice.
const LEAST_LOCKED: Bytes = Bytes::gib(1);

pub(super) fn check(surroundings: &Surroundings, has_driver: bool) -> Vec<Check> {
    let mut checks: Vec<Check> =
        [locked(surroundings), group(surroundings), shared(surroundings)].into_iter().flatten().collect();
    if has_driver {
        checks.extend(files(surroundings));
    }
    checks
}

/// The limit on locked memory. It affects RDMA network cards; the driver's own pinning is not subject to it.
fn locked(surroundings: &Surroundings) -> Option<Check> {
    let limits = surroundings.read_proc("self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let soft = line.split_ascii_whitespace().next()?;
    let Ok(bytes) = soft.parse::<u64>() else {
        return Some(Check::new("locked_memory", Verdict::Good, "no limit on locked memory"));
    };
    let bytes = Bytes::new(bytes);
    if bytes >= LEAST_LOCKED {
        return Some(Check::new("locked_memory", Verdict::Good, format!("locked memory limit: {bytes}")));
    }
    let found = format!(
        "locked memory limit: {bytes}; cudaHostAlloc is not affected, but RDMA is (NCCL over InfiniBand or RoCE fails with `ibv_reg_mr`)"
    );
    let fix = "ulimit -l unlimited; in a container: docker run --ulimit memlock=-1";
    Some(Check::new("locked_memory", Verdict::Note, found).fix(fix))
}

/// The cgroup's memory limit. Pinned memory counts toward it and cannot be swapped out.
fn group(surroundings: &Surroundings) -> Option<Check> {
    let limit = group_limit(surroundings)?;
    let found = format!(
        "this cgroup is limited to {limit} of host memory, including pinned memory: beyond that, the OOM killer kills the process without a CUDA error"
    );
    let fix = "raise the limit (docker run --memory, resources.limits.memory, sbatch --mem), or pin less memory: fewer workers, a smaller prefetch_factor";
    Some(Check::new("host_memory", Verdict::Note, found).fix(fix))
}

/// The lowest limit of this process's cgroup and its ancestors; `None` if unlimited.
fn group_limit(surroundings: &Surroundings) -> Option<Bytes> {
    let groups = surroundings.read_proc("self/cgroup")?;
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (directory, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container, the path is the host's, and the mount point is the group itself.
        let mut below = path.trim_matches('/');
        loop {
            let text = surroundings.read(&format!("{directory}/{below}/{file}"));
            limits.extend(text.and_then(|text| text.trim().parse::<u64>().ok()));
            match below.rsplit_once('/') {
                Some((above, _)) => below = above,
                None if below.is_empty() => break,
                None => below = "",
            }
        }
    }
    // cgroup v1 represents "no limit" as a number close to 2⁶³.
    limits.into_iter().filter(|limit| *limit < 1 << 60).min().map(Bytes::new)
}

/// Size and free space of `/dev/shm`.
fn shared(surroundings: &Surroundings) -> Option<Check> {
    let status = rustix::fs::statvfs(surroundings.path("dev/shm")).ok()?;
    let (size, free) =
        (Bytes::new(status.f_blocks * status.f_frsize), Bytes::new(status.f_bavail * status.f_frsize));
    if free >= LEAST_SHARED {
        return Some(Check::new(
            "shared_memory",
            Verdict::Good,
            format!("/dev/shm has {free} free of {size}"),
        ));
    }
    let found = format!(
        "/dev/shm has {free} free of {size}: data-loader workers pass batches through it and can crash with `Bus error`"
    );
    let fix = "docker run --shm-size=8g or --ipc=host; in Kubernetes: an emptyDir with medium: Memory, mounted at /dev/shm";
    Some(Check::new("shared_memory", Verdict::Warning, found).fix(fix))
}

/// The driver's device files that CUDA opens.
fn files(surroundings: &Surroundings) -> Option<Check> {
    let is_there = |name: &str| surroundings.path("dev").join(name).exists();
    if !is_there("nvidiactl") {
        // WSL has a driver without these files.
        return None;
    }
    if !is_there("nvidia-uvm") {
        let found =
            "/dev/nvidia-uvm is missing: CUDA fails with `unknown error` (999) although nvidia-smi works";
        let fix = "sudo nvidia-modprobe -u -c=0; in a container, start it with the NVIDIA runtime";
        return Some(Check::new("device_files", Verdict::Problem, found).fix(fix));
    }
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    let closed = ["nvidiactl", "nvidia-uvm"]
        .into_iter()
        .find(|name| rustix::fs::access(surroundings.path("dev").join(name), access).is_err());
    Some(match closed {
        None => Check::new("device_files", Verdict::Good, "the driver's device files are accessible"),
        Some(name) => {
            let found = format!("this user cannot open /dev/{name}: CUDA finds no GPU");
            let fix = "join the group that owns it (ls -l /dev/nvidia*, often `video`), or pass it to the container";
            Check::new("device_files", Verdict::Problem, found).fix(fix)
        }
    })
}
