//! What may be the cause when the text does not decide: ranked hypotheses, each with one check that decides it and
//! the steps if it is true.

use super::facts::Resource;
use super::fixes;
use super::holders;
use super::situation::Situation;
use crate::advice::Maker;
use crate::text::environment::System;
use crate::{Cause, Certainty, Finding, Fix};

/// More hypotheses than this do not help.
const MOST: usize = 3;

/// Adds hypotheses to the findings of an open case. The format's own possible causes keep their place before the
/// general ones.
pub(crate) fn add(findings: &mut Vec<Finding>, situation: &Situation<'_>) {
    for (cause, summary) in general(situation) {
        let count = findings.iter().filter(|finding| finding.cause != Cause::Undetermined).count();
        if count >= MOST {
            break;
        }
        if findings.iter().all(|finding| finding.cause != cause) {
            findings.push(Finding {
                fixes: fixes::for_cause(cause, situation),
                ..Finding::new(cause, Certainty::Possible, summary)
            });
        }
    }
    findings.retain(|finding| finding.cause == Cause::Undetermined || !finding.fixes.is_empty());
    for finding in findings.iter_mut().filter(|finding| finding.certainty <= Certainty::Possible) {
        finding.check = check(finding.cause, situation);
        // A step that only repeats the check is not a fix.
        let checked = finding.check.as_ref().and_then(|check| check.command.clone());
        for fix in finding.fixes.iter_mut().filter(|fix| checked.is_some() && fix.command == checked) {
            *fix = Fix::new("stop the processes that are yours").command("kill PID");
        }
    }
}

/// The causes that fit any program, most frequent first.
fn general(situation: &Situation<'_>) -> Vec<(Cause, String)> {
    let facts = situation.facts;
    let program = situation.program.name;
    let mut causes = Vec::new();
    if let Some(request) =
        facts.request.filter(|&request| facts.total.is_none() && request >= makeroom_core::Bytes::gib(20))
    {
        causes.push((
            Cause::RequestExceedsDevice,
            format!("{request} in one piece is more than most GPUs have."),
        ));
    }
    match facts.resource {
        Resource::Host => causes.push((Cause::HostMemory, "The machine's memory ran out.".to_owned())),
        Resource::Kernel => {}
        Resource::Device | Resource::Unknown => {
            causes.push((
                Cause::LiveDataFillsDevice,
                format!("The memory that {program} needs does not fit this GPU."),
            ));
            causes.push((
                Cause::OtherProcesses,
                "Another process, or an earlier run that did not exit, holds the GPU.".to_owned(),
            ));
            if facts.resource == Resource::Unknown {
                causes
                    .push((Cause::HostMemory, "The machine's own memory ran out, not the GPU's.".to_owned()));
            }
        }
    }
    causes
}

/// The check that decides a hypothesis.
fn check(cause: Cause, situation: &Situation<'_>) -> Option<Fix> {
    let environment = situation.environment;
    let total = match environment.maker {
        Maker::Nvidia => "nvidia-smi --query-gpu=memory.used,memory.total --format=csv -l 1",
        Maker::Amd => "rocm-smi --showmeminfo vram",
        Maker::Intel => "xpu-smi dump -d 0 -m 18",
        Maker::Apple => "memory_pressure",
    };
    Some(match cause {
        Cause::LiveDataFillsDevice => {
            Fix::new("memory use climbs to the GPU's size while only this program runs").command(total)
        }
        Cause::RequestExceedsDevice => Fix::new("the GPU has less memory than the request").command(total),
        Cause::OtherProcesses | Cause::HiddenHolder => {
            let list = holders::list_holders(situation);
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
        Cause::Fragmentation => Fix::new("reserved memory is far above allocated memory at the failure")
            .command("print(torch.cuda.memory_summary())"),
        _ => return None,
    })
}
