//! Steps against memory that other processes hold: which ones to stop, which other device to use.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework, SortCompact as _};
use makeroom_explain::advice::{self, Maker};
use makeroom_explain::thresholds::CONTEXT_TYPICAL;
use makeroom_explain::{Cause, Fix};
use makeroom_search::{Regex, pattern};

use crate::environment::{Device, System};
use crate::figures::captured_number;
use crate::fixes::is_without_cuda;
use crate::judge::Account;
use crate::programs::{self, Work};
use crate::situation::Situation;

/// Only the largest of other processes are worth stopping.
const MOST_STOPPED: usize = 3;

/// The steps where the memory is elsewhere.
pub(crate) fn others(cause: Cause, situation: &Situation<'_>) -> Vec<Fix> {
    let account = &situation.account;
    let siblings = account.sibling_contexts();
    if account.are_ranks() || (!siblings.is_empty() && siblings.len() == account.others.len()) {
        return ranks_of(situation);
    }
    if account.share_a_launcher() {
        let numbers: Vec<String> = account.others.iter().map(|process| process.pid.to_string()).collect();
        let note = Fix::new(format!(
            "keep this job's workers off this GPU if they do not need it: processes {} have consecutive PIDs, so they probably belong to one job, and stopping one would end it",
            numbers.join(", ")
        ));
        return if situation.is_training() { ranks_of(situation) } else { vec![note] };
    }
    let mut others = account.others.clone();
    others.sort_compact_by_key(|process| std::cmp::Reverse(process.bytes));
    let mut fixes: Vec<Fix> = others
        .iter()
        .take(MOST_STOPPED)
        .map(|process| {
            Fix::new(format!("stop process {} if it is yours; its unsaved work is lost", process.pid))
                .command(format!("kill {}", process.pid))
                .frees(process.bytes)
        })
        .collect();
    if fixes.is_empty() {
        fixes.extend(listed_by_hand(situation));
    }
    let unlisted = account.unlisted().map(|unlisted| unlisted - CONTEXT_TYPICAL);
    if fixes.is_empty() {
        let mut see = if cause == Cause::HiddenHolder {
            advice::find_hidden_holders()
        } else {
            list_holders(situation)
        };
        see.frees = unlisted.filter(|bytes| !bytes.is_zero());
        fixes.push(see);
    }
    fixes.splice(0..0, second_framework(situation));
    if account.others.is_empty() {
        fixes.splice(0..0, programs::one_gpu_per_rank(situation));
    }
    fixes.extend(another_device(situation));
    fixes
}

/// Lines of a pasted process table: a process id and its memory.
static COPIED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^\W{0,4}(\d{3,8})[ \t|]+(\d{2,6}) ?MiB\W*$"));

/// Whether the text contains a pasted process list.
pub(crate) fn has_copied_list(situation: &Situation<'_>) -> bool {
    situation.account.others.is_empty()
        && situation.settings.parts().into_iter().any(|part| COPIED.is_match(part))
}

/// The largest processes of such lines.
fn listed_by_hand(situation: &Situation<'_>) -> Vec<Fix> {
    let mut processes: Vec<(Bytes, u64)> = situation
        .settings
        .parts()
        .into_iter()
        .flat_map(|part| COPIED.captures_iter(part))
        .take(64)
        .filter_map(|found| Some((Bytes::mib(captured_number(&found, 2)?), captured_number(&found, 1)?)))
        .collect();
    processes.sort_unstable_by(|a, b| b.cmp(a));
    processes
        .into_iter()
        .take(MOST_STOPPED)
        .map(|(bytes, pid)| {
            Fix::new(format!("stop process {pid} if it is yours; its unsaved work is lost"))
                .command(format!("kill {pid}"))
                .frees(bytes)
        })
        .collect()
}

/// Another framework in the same process takes most of the GPU when it starts.
fn second_framework(situation: &Situation<'_>) -> Option<Fix> {
    let settings = situation.settings;
    let is_tensorflow = situation.program.writes(Framework::TensorFlow);
    if !situation.facts.framework.is_torch() || !situation.account.others.is_empty() || is_tensorflow {
        return None;
    }
    let export = |assignment: &str| situation.environment.export(assignment);
    if ["jaxlib", "import jax", "jax/", "torch_xla", " xla ", "XLA_PYTHON"]
        .iter()
        .any(|mark| settings.mentions(mark))
    {
        return Some(
            Fix::new("keep XLA from preallocating GPU memory at startup, if it runs in this process too")
                .command(export("XLA_PYTHON_CLIENT_PREALLOCATE=false")),
        );
    }
    let is_tensorflow = ["import tensorflow", "tensorflow/"].iter().any(|mark| settings.mentions(mark));
    is_tensorflow.then(|| {
        Fix::new("keep TensorFlow from preallocating GPU memory at startup, if it runs in this process too")
            .command(export("TF_FORCE_GPU_ALLOW_GROWTH=true"))
    })
}

/// Another device, by number where a table in the text shows one with room.
fn another_device(situation: &Situation<'_>) -> Option<Fix> {
    let environment = situation.environment;
    // A desktop has one GPU for computing, a board none to choose from.
    let is_single = match situation.device_count() {
        Some(count) => count < 2,
        None => {
            matches!(environment.system, System::Windows | System::Wsl | System::Jetson)
                && situation.facts.device.is_none_or(|device| device.0 == 0)
        }
    };
    if !shows_several_devices(situation) {
        return None;
    }
    if is_without_cuda(situation.facts) || is_single || environment.device != Device::Gpu {
        return None;
    }
    let any = advice::another_device(environment.maker, situation.facts.device)?;
    let assignment = any.command.as_deref()?.strip_prefix("export ")?;
    let variable = assignment.split('=').next()?;
    if let Some((device, free)) = situation.emptier_device() {
        return Some(
            Fix::new(format!("or use GPU {device}, which has {free} free"))
                .command(environment.export(&format!("{variable}={device}"))),
        );
    }
    // Numbers in an error count the visible devices only.
    let visible = situation.settings.number(&[variable]).map(|device| device as u32);
    let command = match visible {
        Some(visible) => environment.export(&format!("{variable}={}", u32::from(visible == 0))),
        None => environment.export(assignment),
    };
    Some(Fix { command: Some(command), ..any })
}

/// A number of GPUs above one.
static SEVERAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:[2-9]|1\d|two|three|four|six|eight|several|multiple|both|other|all|dual)[ -]?(?:x ?)?(?:[\w-]+ ){0,3}(?:GPUs|graphics cards|cards)\b|\b[2-9] ?[x×*] ?(?:NVIDIA |RTX |GTX |Tesla |[AHVP]\d)|\bcuda:[1-9]|\bgpu:[1-9]|\bGPU ?[1-9]\b|_VISIBLE_DEVICES[=:] ?[\x22']?\d|\bmulti-?gpu\b|--gpus? [0-9]\b",
    )
});
/// The program uses all devices that it sees, so that none is left.
static USES_ALL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)_VISIBLE_DEVICES[=:] ?[\x22']?\d+,|tensor[-_]parallel|nproc[-_]per[-_]node|torchrun|local_rank|\bDataParallel|DistributedDataParallel|torch\.distributed|deepspeed|device_map|\[rank",
    )
});

/// Whether anything in the text shows a GPU besides those in use.
fn shows_several_devices(situation: &Situation<'_>) -> bool {
    let matches = |words: &Regex| situation.settings.parts().into_iter().any(|part| words.is_match(part));
    if situation.device_count().is_some_and(|count| count > 1) {
        return true;
    }
    (situation.facts.device.is_some_and(|device| device.0 > 0) || matches(&SEVERAL)) && !matches(&USES_ALL)
}

/// One device per rank: in the program's code where its reader wrote it, else in how the program is started.
fn ranks_of(situation: &Situation<'_>) -> Vec<Fix> {
    let held = situation.account.others_bytes();
    if situation.program.work != Work::Inference {
        return sibling_ranks(held);
    }
    let option = match situation.program {
        program if program.writes(Framework::TensorRtLlm) => "--tp_size 1",
        program if program.writes(Framework::Sglang) => "--tp-size 1",
        program if program.writes(Framework::LmDeploy) => "--tp 1",
        _ => "--tensor-parallel-size 1",
    };
    vec![
        Fix::new("make all GPUs visible to the program: its ranks share one GPU because no other is visible (`nvidia-smi -L` inside the container lists them)")
            .command("docker run --gpus all …   (outside a container: unset CUDA_VISIBLE_DEVICES)")
            .frees(held),
        Fix::new("or start only one rank, if there is only one GPU").command(option),
    ]
}

/// One device per rank.
pub(crate) fn sibling_ranks(held: Bytes) -> Vec<Fix> {
    vec![
        Fix::new("pin each rank to its own GPU before it touches CUDA")
            .command("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))")
            .frees(held),
        Fix::new("load checkpoints to the CPU: a checkpoint saved from GPU 0 reopens GPU 0 in every rank")
            .command("torch.load(path, map_location='cpu')"),
        Fix::new("or make only its own GPU visible to each process")
            .command("CUDA_VISIBLE_DEVICES=$LOCAL_RANK python …"),
    ]
}

/// The command that lists the holders of device memory on this system.
pub(crate) fn list_holders(situation: &Situation<'_>) -> Fix {
    let environment = situation.environment;
    match environment.device {
        Device::Gpu => {}
        Device::Tpu => {
            return Fix::new("list the processes that have the TPU open, and stop those that are yours")
                .command("sudo lsof -w /dev/accel*");
        }
        Device::Npu => {
            return Fix::new("list the processes that hold NPU memory, and stop those that are yours")
                .command("npu-smi info");
        }
    }
    // Programs on graphics interfaces run on any maker's GPU.
    if is_graphics(situation) {
        match environment.system {
            System::Windows => {
                return Fix::new(
                    "close the programs that hold GPU memory (Task Manager > Details > Select columns > Dedicated GPU memory)",
                );
            }
            System::Linux => {
                return Fix::new("list the processes that have a GPU open, and stop those that are yours")
                    .command("sudo fuser -v /dev/dri/* /dev/nvidia*");
            }
            _ => {}
        }
    }
    match (environment.system, environment.maker) {
        (System::Windows | System::Wsl, Maker::Nvidia) => Fix::new(
            "list the processes on the GPU and close the ones you do not need (browser, games, other Python)",
        )
        .command("nvidia-smi"),
        (System::Jetson, _) => {
            Fix::new("list the processes that share the board's memory").command("sudo tegrastats")
        }
        (System::Linux, Maker::Nvidia) if is_notebook(situation) => {
            Fix::new("restart the notebook's kernel: models from earlier cells stay on the GPU until you do")
                .command("Runtime > Restart session   (Jupyter: Kernel > Restart Kernel)")
        }
        _ => advice::list_holders(environment.maker),
    }
}

/// Whether the program draws through a graphics interface, and the text does not name an NVIDIA GPU's tools.
pub(crate) fn is_graphics(situation: &Situation<'_>) -> bool {
    [Framework::Vulkan, Framework::Direct3d, Framework::OpenGl, Framework::Unreal, Framework::Wgpu]
        .contains(&situation.facts.framework)
        && !situation.settings.mentions("nvidia-smi")
}

/// The command that shows whether the GPU is in use before the program starts.
pub(crate) fn list_to_check(situation: &Situation<'_>) -> Fix {
    let list = list_holders(situation);
    if situation.environment.system == System::Linux && is_notebook(situation) {
        return list.command("!nvidia-smi");
    }
    list
}

/// Whether the program runs in a notebook, where earlier cells may be the holder.
fn is_notebook(situation: &Situation<'_>) -> bool {
    ["ipykernel", "<ipython-input", "jupyter", "google.colab", "/content/", "kaggle/"]
        .iter()
        .any(|mark| situation.settings.mentions(mark))
}

/// Whether this process holds, or requests, enough that less of it would do.
pub(crate) fn can_make_room_itself(account: &Account<'_>) -> bool {
    let held = account.reserved.or(account.facts.live).unwrap_or(Bytes::ZERO);
    let free = account.facts.free.unwrap_or(Bytes::ZERO);
    let request = account.facts.request.unwrap_or(Bytes::MAX);
    account.missing().is_some_and(|missing| held >= missing) || free.share_of(request) >= 0.1
}

/// The same where the figures do not rule it out.
pub(crate) fn may_make_room_itself(account: &Account<'_>) -> bool {
    account.missing().is_none() || can_make_room_itself(account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::find;
    use crate::log::Log;

    fn steps(text: &str) -> Vec<Fix> {
        let log = Log::new(text);
        let found = find::failures(&log).unwrap();
        let context = Context::read(&log, found.index);
        let situation = Situation::new(&log, found.index, &found.first, &context);
        others(Cause::OtherProcesses, &situation)
    }

    fn error(pids: [u64; 4]) -> String {
        let [a, b, c, d] = pids;
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 39.38 GiB of which 30.00 MiB is free. Process {a} has 2.10 GiB memory in use. Process {b} has 30.20 GiB memory in use. Process {c} has 2.30 GiB memory in use. Process {d} has 2.30 GiB memory in use. Of the allocated memory 1.50 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
        )
    }

    #[test]
    fn workers_of_one_job_are_not_stopped() {
        let kills = |text: &str| {
            steps(text)
                .iter()
                .filter(|fix| fix.command.as_deref().is_some_and(|line| line.starts_with("kill")))
                .count()
        };
        assert_eq!(kills(&error([4100, 4201, 4202, 4203])), 0);
        assert!(kills(&error([4100, 5201, 6202, 7203])) > 0);
    }
}
