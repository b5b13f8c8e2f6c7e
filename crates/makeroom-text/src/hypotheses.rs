//! What may be the cause when the text does not decide: ranked hypotheses, each with one check that decides it and
//! the steps if it is true.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::advice::{self, Maker};
use makeroom_explain::library::is_library_file;
use makeroom_explain::{Cause, Certainty, Finding, Fix};
use makeroom_search::{Regex, pattern};

use crate::environment::{Device, System};
use crate::facts::Resource;
use crate::fixes;
use crate::holders;
use crate::situation::Situation;

/// More hypotheses than this do not help.
const MOST: usize = 3;
/// The steps of the first hypothesis, and of each further one: an answer is read on one screen.
const MOST_STEPS: [usize; 3] = [4, 2, 2];
/// A request this small fails on a GPU that is full already.
const SMALL: Bytes = Bytes::mib(256);

/// Words of texts about GPUs.
const DEVICE_WORDS: [&str; 10] =
    ["cuda", "gpu", "vram", "torch", "tensorflow", "rocm", "nvidia", "vulkan", "webgl", "device"];
/// Words of programs that the system or a scheduler ends.
const HOST_WORDS: [&str; 9] =
    ["code 137", "Code:    137", "(137)", "SIGKILL", "OOMKill", "kubernetes", "container", " RAM", "swap"];
/// Adds hypotheses to the findings of an open case. The format's own possible causes keep their place before the
/// general ones.
pub(crate) fn add(findings: &mut Vec<Finding>, situation: &Situation<'_>) {
    // A process that was killed in a text about no GPU did not run out of GPU memory.
    let is_killed = situation.facts.resource == Resource::Unknown
        && HOST_WORDS.iter().any(|words| situation.settings.mentions(words));
    let is_host = (is_killed || findings.first().is_some_and(|finding| finding.cause == Cause::HostMemory))
        && !DEVICE_WORDS.iter().any(|words| situation.settings.mentions(words));
    for (cause, summary) in general(situation) {
        if situation.facts.ruled_out.contains(&cause) {
            continue;
        }
        if is_host && cause != Cause::HostMemory {
            continue;
        }
        let count = findings.iter().filter(|finding| finding.cause != Cause::Undetermined).count();
        // A leak comes in addition: it is the other reading of the same program's memory.
        let most = MOST + usize::from(situation.context.is_late_told);
        if count >= most {
            break;
        }
        if findings.iter().all(|finding| finding.cause != cause) {
            let mut steps = fixes::for_cause(cause, situation);
            let environment = situation.environment;
            if steps.is_empty()
                && cause == Cause::OtherProcesses
                && (environment.system, environment.maker, environment.device)
                    == (System::Linux, Maker::Nvidia, Device::Gpu)
            {
                steps.push(advice::find_hidden_holders());
            }
            findings.push(Finding { fixes: steps, ..Finding::new(cause, Certainty::Possible, summary) });
        }
    }
    if is_full_before(situation) {
        others_first(findings, situation);
    }
    shorten(findings);
    for finding in findings.iter_mut().filter(|finding| finding.certainty <= Certainty::Possible) {
        finding.check = check(finding.cause, situation);
        // A step that only repeats the check is not a fix.
        let checked = finding.check.as_ref().and_then(|check| check.command.clone());
        if checked.is_some() && finding.fixes.iter().any(|fix| fix.command == checked) {
            finding.fixes.retain(|fix| fix.command != checked);
            finding.fixes.extend(stop_earlier_run(situation));
        }
    }
    findings.retain(|finding| {
        finding.cause == Cause::Undetermined || !finding.fixes.is_empty() || finding.check.is_some()
    });
}

/// The script that a command line or the outermost frame of a traceback starts.
static SCRIPT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"\bpython3? (?:-\w+ )*([\w./~-]*[\w-]{3,40}\.py)\b|File "([^"\n]{1,200}\.py)", line \d+, in <module>"#,
    )
});

/// How to end an earlier run of the same program, where the text names it: what the check lists has no number yet.
fn stop_earlier_run(situation: &Situation<'_>) -> Option<Fix> {
    if !matches!(situation.environment.system, System::Linux | System::Wsl | System::Jetson)
        || situation.environment.is_hosted
    {
        return None;
    }
    let script = situation.settings.parts().into_iter().find_map(|part| {
        let scripts = SCRIPT.captures_iter(part).filter_map(|found| found.get(1).or_else(|| found.get(2)));
        let own = scripts.map(|script| script.as_str()).find(|script| !is_library_file(script))?;
        own.rsplit('/').next()
    })?;
    Some(
        Fix::new("stop an earlier run that did not exit, if the check shows one")
            .command(format!("pkill -f {script}")),
    )
}

/// Leaves each hypothesis the steps that none before it has, as many as are read.
fn shorten(findings: &mut [Finding]) {
    let mut said: Vec<Fix> = Vec::new();
    let open = findings.iter_mut().filter(|finding| finding.cause != Cause::Undetermined);
    for (place, finding) in open.enumerate() {
        fixes::tidy(&mut finding.fixes);
        let is_new =
            |fix: &Fix| said.iter().all(|known| known.command.is_none() || known.command != fix.command);
        // The only step of a hypothesis stays, so that it has one.
        if finding.fixes.iter().any(is_new) {
            finding.fixes.retain(is_new);
        }
        finding.fixes.truncate(MOST_STEPS.get(place).copied().unwrap_or(1));
        said.extend(finding.fixes.iter().cloned());
    }
}

/// The causes that fit any program, most frequent first.
fn general(situation: &Situation<'_>) -> Vec<(Cause, String)> {
    let facts = situation.facts;
    let program = situation.program.name;
    let device = situation.environment.device.name();
    let mut causes = Vec::new();
    if let Some(request) =
        facts.request.filter(|&request| facts.total.is_none() && request >= makeroom_core::Bytes::gib(20))
    {
        causes.push((
            Cause::RequestExceedsDevice,
            format!("A single allocation of {request} is more than most GPUs have."),
        ));
    }
    match facts.resource {
        Resource::Host => causes.push((Cause::HostMemory, "The machine ran out of memory.".to_owned())),
        Resource::Kernel => {}
        Resource::Device | Resource::Unknown => {
            if situation.account.is_contradictory() && situation.environment.system == System::Windows {
                causes.push((
                    Cause::HostMemory,
                    "Windows backs GPU memory with RAM and the page file; when both are full, allocations fail no matter how much GPU memory is free.".to_owned(),
                ));
            }
            let own =
                (Cause::LiveDataFillsDevice, format!("This {device} has less memory than {program} needs."));
            let others = (
                Cause::OtherProcesses,
                format!("Another process, or an earlier run that did not exit, holds the {device}'s memory."),
            );
            let leak = (situation.context.is_late_told && facts.resource != Resource::Host).then(|| {
                (
                    Cause::Leak,
                    "The log says that the program ran for a while first: something from every step may stay alive."
                        .to_owned(),
                )
            });
            if is_full_before(situation) {
                causes.extend([others, own]);
                causes.extend(leak);
            } else {
                causes.push(own);
                causes.extend(leak);
                causes.push(others);
            }
            if facts.resource == Resource::Unknown {
                causes.push((Cause::HostMemory, "The machine ran out of memory, not the GPU.".to_owned()));
            }
        }
    }
    causes
}

/// Calls with which a program starts, before it has anything on the GPU.
const FIRST_CALLS: [&str; 7] = [
    "require 'cutorch'",
    "StreamCreate",
    "cudaSetDevice",
    "cuInit",
    "CtxCreate",
    "init_cublas",
    "could not set stack limit",
];
/// XLA's pool is as large as the GPU allows: a request below this finds it full already.
const SMALL_IN_POOL: Bytes = Bytes::mib(64);

/// Whether the GPU, or the framework's pool on it, was already full when the program made its first large request.
fn is_full_before(situation: &Situation<'_>) -> bool {
    let facts = situation.facts;
    let is_first_call = facts.request.is_none() && is_first_call(situation);
    let is_tiny = facts.framework == Framework::Jax
        && facts.live.is_none()
        && facts.request.is_some_and(|request| request < SMALL_IN_POOL);
    is_small(situation)
        || is_first_call
        || is_tiny
        || holders::has_copied_list(situation)
        || is_left_over(situation)
}

/// A person reports that memory stays in use after the program has stopped.
static LEFT_OVER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:need|have|has|had|must) to (?:log ?out|re-?login|reboot|restart (?:the |my )?(?:machine|computer|pc|server|system))\b|\b(?:after|until|unless|only) (?:a |i |we |you )?(?:log(?:ging)? ?out|reboot\w*|restart\w* (?:the |my )?(?:machine|computer|pc|server|system))\b|\bmemory (?:is|was) (?:still )?not (?:released|freed) after\b[^.\n]{0,40}\b(?:kill|stop|exit|interrupt|ctrl)",
    )
});

fn is_left_over(situation: &Situation<'_>) -> bool {
    situation.settings.parts().into_iter().any(|part| LEFT_OVER.is_match(part))
}

fn is_first_call(situation: &Situation<'_>) -> bool {
    // llama.cpp prints the model's figures as soon as it has opened the file.
    let is_before_the_model =
        situation.settings.mentions("main: seed") && !situation.settings.mentions("llama_model_load");
    // ONNX Runtime makes these calls for each session, while other sessions already hold memory.
    let is_alone = situation.facts.framework != Framework::OnnxRuntime;
    is_before_the_model || is_alone && FIRST_CALLS.iter().any(|call| situation.settings.mentions(call))
}

/// Moves the other holders of the GPU before the program's own memory, with the step that shows it one GPU only.
fn others_first(findings: &mut [Finding], situation: &Situation<'_>) {
    let place = |cause| findings.iter().position(|finding| finding.cause == cause);
    let (others, own) = (place(Cause::OtherProcesses), place(Cause::LiveDataFillsDevice));
    let Some(mut others) = others else { return };
    if let Some(own) = own.filter(|&own| own < others && own > 0) {
        findings[own..=others].rotate_right(1);
        others = own;
    }
    let is_cuda = situation.environment.maker == Maker::Nvidia && !fixes::is_without_cuda(situation.facts);
    if is_first_call(situation) && is_cuda && !situation.settings.mentions("CUDA_VISIBLE_DEVICES=") {
        let one = Fix::new(
            "make only one GPU visible to the program: it opens all GPUs that it sees, and another one may be full",
        )
        .command(situation.environment.export("CUDA_VISIBLE_DEVICES=0"));
        let fixes = &mut findings[others].fixes;
        fixes.insert(fixes.len().min(1), one);
        // Nothing of the program's own is on the GPU yet.
        fixes.truncate(2);
    }
}

/// Whether a request is so small that the GPU was full before it, and the text does not show by what. A program
/// that fills the GPU itself fails at such a request too, but then it has asked for more before.
fn is_small(situation: &Situation<'_>) -> bool {
    let facts = situation.facts;
    let is_known = facts.live.is_some_and(|live| !live.is_zero()) || facts.reserved.is_some();
    facts.request.is_some_and(|request| request < SMALL) && !is_known && situation.is_at_start()
}

/// The check for a program on a graphics interface, which runs on any maker's GPU.
fn check_graphics(cause: Cause, system: System) -> Option<Fix> {
    let is_own = matches!(cause, Cause::LiveDataFillsDevice | Cause::Leak);
    match system {
        System::Windows if is_own => {
            Some(Fix::new("Task Manager > Performance > GPU shows dedicated memory at its limit"))
        }
        System::Linux if is_own => Some(
            Fix::new("the heap's usage reaches its budget with only this program running")
                .command("vulkaninfo | grep -iE 'heap|budget|usage'"),
        ),
        _ => None,
    }
}

/// The check that decides a hypothesis.
fn check(cause: Cause, situation: &Situation<'_>) -> Option<Fix> {
    let environment = situation.environment;
    if holders::is_graphics(situation)
        && let Some(check) = check_graphics(cause, environment.system)
    {
        return Some(check);
    }
    let total = match environment.maker {
        _ if environment.device == Device::Tpu => "tpu-info",
        _ if environment.device == Device::Npu => "npu-smi info",
        Maker::Nvidia => "nvidia-smi --query-gpu=memory.used,memory.total --format=csv -l 1",
        Maker::Amd => "rocm-smi --showmeminfo vram",
        Maker::Intel => "xpu-smi dump -d 0 -m 18",
        Maker::Apple => "memory_pressure",
    };
    Some(match cause {
        Cause::LiveDataFillsDevice => {
            let device = environment.device.name();
            Fix::new(format!("memory use climbs to the {device}'s capacity with only this program running"))
                .command(total)
        }
        Cause::RequestExceedsDevice => Fix::new("the GPU has less memory than the request").command(total),
        Cause::OtherProcesses | Cause::HiddenHolder => {
            let list = holders::list_to_check(situation);
            Fix { action: "memory is in use before this program starts".to_owned(), ..list }
        }
        Cause::HostMemory => match environment.system {
            System::Windows => Fix::new("Task Manager > Performance > Memory shows Committed at its limit"),
            System::MacOs => Fix::new("Activity Monitor shows memory pressure in red"),
            _ => Fix::new("the kernel log names the process")
                .command("sudo dmesg -T | grep -iE 'oom|killed process'"),
        },
        Cause::Preallocation
        | Cause::NonFrameworkOverhead
        | Cause::CacheHeldByFramework
        | Cause::ArtificialLimit => {
            Fix::new("memory use jumps to nearly the whole GPU when the framework starts").command(total)
        }
        Cause::Leak => Fix::new("memory in use grows while the work per step stays the same").command(total),
        Cause::Fragmentation => Fix::new("reserved memory is far above allocated memory at the failure")
            .command("print(torch.cuda.memory_summary())"),
        _ => return None,
    })
}
