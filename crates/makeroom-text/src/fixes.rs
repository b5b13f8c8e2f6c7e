//! The steps for each finding, and the attempts that cannot help.
//!
//! A program's own options come first ([`super::programs`]); here are the steps that hold for any program. A step
//! is given only where it can help: with settings that exist on the platform and in the version that wrote the
//! text, and that are not set already.

use std::cell::OnceCell;

use makeroom_core::{Bytes, Framework, SortCompact as _};
use makeroom_explain::advice::{self, Maker};
use makeroom_explain::thresholds::LARGEST_GPU;
use makeroom_explain::{Cause, Certainty, Finding, Fix};
use makeroom_search::contains_folded;

use crate::environment::{Device, System};
use crate::facts::{Facts, Resource};
use crate::fitting;
use crate::general_fixes::{MOST_CHUNKS, general};
use crate::holders::{can_make_room_itself, list_holders};
use crate::host_fixes;
use crate::judge::Account;
use crate::knobs;
use crate::phases;
use crate::programs::{self, Work};
use crate::settings::Settings;
use crate::situation::Situation;
use crate::smaller::{self, is_from_pytorch};
use crate::torch_fixes::allocator_first;

/// More steps than this are not read.
const MOST_FIXES: usize = 5;
/// A step that frees less than this is not worth a figure.
const LEAST_FREED: Bytes = Bytes::mib(64);

/// Fills in the steps of each finding.
pub(crate) fn attach(findings: &mut [Finding], situation: &Situation<'_>) {
    for finding in findings.iter_mut() {
        let is_open = matches!(finding.cause, Cause::Undetermined | Cause::None);
        if finding.fixes.is_empty() && !is_open {
            finding.fixes = for_cause(finding.cause, situation);
        } else if !is_open
            && situation.program.work == Work::Inference
            && !situation.program.owns(situation.facts)
        {
            // The compiler's advice is for the author of the program; its options are for the user.
            let own = programs::advise(situation, finding.cause);
            finding.fixes.splice(0..0, own.into_iter().take(2));
        }
        if finding.cause == Cause::LiveDataFillsDevice {
            programs::add_unified_memory(&mut finding.fixes, situation);
        }
        fitting::keep(&mut finding.fixes, situation);
        drop_useless(finding, situation);
        tidy(&mut finding.fixes);
    }
}

/// Takes out a step that the same answer says will not help.
fn drop_useless(finding: &mut Finding, situation: &Situation<'_>) {
    const RELEASE: &str = "torch.cuda.empty_cache()";
    let cannot_help =
        wont_help(finding.cause, situation).iter().any(|attempt| attempt.contains("empty_cache()"));
    if cannot_help {
        finding.fixes.retain(|fix| fix.command.as_deref().is_none_or(|command| command.trim() != RELEASE));
    }
}

/// The steps for a cause: the program's own and the general ones, in the order in which they help.
pub(crate) fn for_cause(cause: Cause, situation: &Situation<'_>) -> Vec<Fix> {
    let mut fixes = proposed(cause, situation);
    fitting::keep(&mut fixes, situation);
    if cause == Cause::Fragmentation && fixes.iter().all(|fix| fix.command.is_none()) {
        fixes.splice(0..0, smaller::less_data(situation));
    }
    if fixes.is_empty() && cause == Cause::NonFrameworkOverhead {
        // A context does not spill.
        fixes.extend(smaller::on_the_cpu(situation));
    }
    if fixes.is_empty() && cause == Cause::LiveDataFillsDevice {
        fixes.extend(smaller::around_the_gpu(situation));
    }
    if fixes.is_empty() && cause == Cause::HostMemory {
        fixes.push(host_fixes::less_at_once(situation));
    }
    fixes
}

/// The steps before those that do not fit are taken out.
fn proposed(cause: Cause, situation: &Situation<'_>) -> Vec<Fix> {
    let own = programs::advise(situation, cause);
    let mut own = phases::steps(situation, cause).into_iter().chain(own).collect::<Vec<_>>();
    add_shown(&mut own, situation, cause);
    match cause {
        // The memory is somewhere else; a program's own options only ask for less of the rest.
        Cause::OtherProcesses | Cause::HiddenHolder => {
            let mut fixes = general(cause, situation);
            if !own.is_empty() {
                fixes.extend(own);
            } else if can_make_room_itself(&situation.account) {
                fixes.extend(smaller::less_data(situation).into_iter().take(1));
            }
            fixes
        }
        // A user of a program cannot change how it allocates.
        Cause::NonFrameworkOverhead if !own.is_empty() => {
            let mut fixes = own;
            fixes.push(list_holders(situation));
            fixes
        }
        _ if own.is_empty() => general(cause, situation),
        Cause::Fragmentation => general(cause, situation).into_iter().chain(own).collect(),
        Cause::LiveDataFillsDevice => allocator_first(situation).into_iter().chain(own).collect(),
        // A request this large may be a mistake, which no option cures.
        Cause::RequestExceedsDevice if is_many_times_the_device(situation.facts) => {
            let is_application = situation.program.work == Work::Inference;
            let (first, then) = if is_application {
                (own.into_iter().take(2).collect(), with_commands(general(cause, situation)))
            } else {
                (general(cause, situation), own.into_iter().take(2).collect::<Vec<_>>())
            };
            first.into_iter().chain(then).collect()
        }
        Cause::RequestExceedsDevice => {
            own.into_iter().take(3).chain(with_commands(general(cause, situation))).collect()
        }
        // What the system can give comes after what the program can do without.
        Cause::HostMemory => {
            own.into_iter().take(3).chain(general(cause, situation).into_iter().take(2)).collect()
        }
        _ => own,
    }
}

/// Steps without an option are for programs of which nothing is known.
fn with_commands(mut fixes: Vec<Fix>) -> Vec<Fix> {
    fixes.retain(|fix| fix.command.is_some());
    fixes
}

/// Adds the setting that the text itself shows to the steps of a known program, behind the best of them.
fn add_shown(own: &mut Vec<Fix>, situation: &Situation<'_>, cause: Cause) {
    if own.is_empty() || !matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice) {
        return;
    }
    let name = |command: &str| {
        let end = command.find(['=', ':', ' ']).unwrap_or(command.len());
        command[..end].trim_start_matches('-').to_ascii_lowercase().replace('-', "_")
    };
    // All that the program's table has, also what it leaves out because the text shows the least value.
    let unset = Situation {
        facts: situation.facts,
        account: Account::new(situation.facts),
        context: situation.context,
        environment: situation.environment,
        settings: Settings::new(""),
        program: situation.program,
        language: situation.language,
        knobs: OnceCell::new(),
        device_tables: OnceCell::new(),
    };
    let known: Vec<String> = programs::advise(&unset, cause)
        .iter()
        .chain(own.iter())
        .filter_map(|fix| fix.command.as_deref())
        .map(|command| command.to_ascii_lowercase().replace('-', "_"))
        .collect();
    let is_new = |shown: &Fix| {
        let shown = shown.command.as_deref().map(name).unwrap_or_default();
        known.iter().all(|command| !command.contains(&shown))
    };
    let shown = knobs::steps(situation).into_iter().find(is_new);
    let place = own.len().min(1);
    own.splice(place..place, shown);
}

/// Whether a request is so much larger than the device that splitting the work does not help.
fn is_many_times_the_device(facts: &Facts) -> bool {
    let Some(request) = facts.request else { return false };
    facts.total.map_or(request >= LARGEST_GPU, |total| request.get() / total.get().max(1) >= MOST_CHUNKS)
}

/// Most effective first where that is known; no figure that means nothing; no step twice.
pub(crate) fn tidy(fixes: &mut Vec<Fix>) {
    for fix in fixes.iter_mut() {
        fix.frees = fix.frees.filter(|&bytes| bytes >= LEAST_FREED);
    }
    fixes.sort_compact_by_key(|fix| std::cmp::Reverse(fix.frees));
    let mut seen: Vec<Fix> = Vec::new();
    fixes.retain(|fix| {
        let is_new = seen.iter().all(|known| {
            known.action != fix.action && (fix.command.is_none() || known.command != fix.command)
        });
        seen.push(fix.clone());
        is_new
    });
    fixes.truncate(MOST_FIXES);
}

/// Attempts that cannot help here.
pub(crate) fn wont_help(cause: Cause, situation: &Situation<'_>) -> Vec<String> {
    let (facts, account) = (situation.facts, &situation.account);
    let mut attempts = Vec::new();
    if !facts.framework.is_torch() {
        return attempts;
    }
    match cause {
        Cause::Fragmentation => {
            attempts.push("empty_cache(), because live tensors sit between the free blocks and PyTorch already returned every whole segment".to_owned());
            if situation.is_expandable_on() {
                attempts.push("expandable_segments, because the log shows that it is already on".to_owned());
            }
        }
        Cause::LiveDataFillsDevice if situation.environment.maker != Maker::Apple => {
            if let Some(cached) = account.cached.filter(|&cached| {
                !account.shortage().is_some_and(|shortage| shortage.is_fragmented_in_text())
                    && account.missing().is_some_and(|missing| cached < missing)
            }) {
                let cached = advice::told_cached(cached);
                attempts.push(format!("empty_cache() or expandable_segments, because {cached}"));
            }
        }
        Cause::OtherProcesses | Cause::HiddenHolder if !can_make_room_itself(account) => {
            attempts.push(
                "a smaller batch or empty_cache(), because this process holds too little to make room"
                    .to_owned(),
            );
        }
        Cause::ArtificialLimit => {
            attempts.push(
                "stopping other processes, because the limit was reached, not the GPU's capacity".to_owned(),
            );
        }
        _ => {}
    }
    attempts
}

/// What would show more than the text does.
pub(crate) fn next(deciding: &Finding, situation: &Situation<'_>) -> Vec<Fix> {
    let facts = situation.facts;
    let mut next = Vec::new();
    let is_open = deciding.certainty <= Certainty::Possible;
    if is_open && is_recordable(situation) {
        next.push(advice::record_run());
    }
    let is_about_own_memory = matches!(
        deciding.cause,
        Cause::LiveDataFillsDevice
            | Cause::Fragmentation
            | Cause::Leak
            | Cause::ArtificialLimit
            | Cause::Undetermined
    );
    if is_from_pytorch(facts) && is_about_own_memory && situation.program.work != Work::Inference {
        next.push(advice::record_snapshot());
    }
    next
}

/// Whether `makeroom run` can record a program that writes this: one that failed for memory of an NVIDIA GPU, on Linux.
fn is_recordable(situation: &Situation<'_>) -> bool {
    let facts = situation.facts;
    facts.is_failure()
        && matches!(facts.resource, Resource::Device | Resource::Unknown)
        && situation.environment.maker == Maker::Nvidia
        && situation.environment.device == Device::Gpu
        && matches!(situation.environment.system, System::Linux | System::Wsl)
        && facts.framework != Framework::Host
        && !is_without_cuda(facts)
}

/// Whether the program allocates through OpenCL, Vulkan, Direct3D or Metal, which CUDA's variables do not reach.
pub(crate) fn is_without_cuda(facts: &Facts) -> bool {
    matches!(
        facts.framework,
        Framework::OpenCl
            | Framework::Vulkan
            | Framework::Direct3d
            | Framework::Metal
            | Framework::Hashcat
            | Framework::OpenVino
            | Framework::Unreal
            | Framework::Wgpu
    ) || contains_folded(&facts.quote, "vulkan")
}
