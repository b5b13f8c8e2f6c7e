//! The causes that a text's figures show, worded: one function per cause. What a cause is, in figures, is defined
//! in [`makeroom_explain::thresholds`].
//!
//! A rule answers only when the figures it needs are there. Nothing here knows a wording.

use makeroom_core::{Bytes, Framework};
use makeroom_explain::advice::Maker;
use makeroom_explain::thresholds::{
    ABSURD, ABSURD_ON_HOST, CONTEXT_CEILING, CONTEXT_TYPICAL, Shortage, private_pools_decide,
};
use makeroom_explain::{Cause, Certainty, Finding};

use super::account::Account;
use crate::facts::{Allocator, Facts, Resource};

/// Other processes decide from this share of the device.
const OTHERS_SHARE: f64 = 0.05;
/// Memory that the text attributes to no process decides from this share of the device.
const UNLISTED_SHARE: f64 = 0.1;
/// A device with less than this share free is full.
const FULL: f64 = 0.02;
/// On Windows the driver lets no process have the whole card: with nothing at all left, up to this share of it belongs
/// to the desktop and to the driver's own reserve.
const WINDOWS_RESERVE: f64 = 0.25;
/// Where the free memory is unknown, a program that holds this share fills the device.
const NEARLY_ALL: f64 = 0.9;
/// A program that holds less than this share does not fill the device by itself.
const MAIN_HOLDER: f64 = 0.4;

/// An absurd request: a size that overflowed, or a wrong shape.
pub(super) fn integer_or_shape_bug(account: &Account<'_>) -> Option<Finding> {
    let shortage = account.shortage()?;
    let request = shortage.request;
    let certainty = if request >= ABSURD { Certainty::Certain } else { Certainty::Likely };
    let summary =
        format!("The request is {request}. No GPU has that much: a size overflowed or a shape is wrong.");
    shortage.is_absurd().then(|| Finding::new(Cause::IntegerOrShapeBug, certainty, summary).bytes(request))
}

/// A single host allocation larger than nearly every machine's memory. Adding memory does not help.
pub(super) fn absurd_host_request(facts: &Facts) -> Option<Finding> {
    let request = facts
        .request
        .filter(|&request| facts.resource == Resource::Host && (ABSURD_ON_HOST..ABSURD).contains(&request))?;
    let summary = format!(
        "A single request for {request} of host memory is more than any machine has: a shape, count or extent in the input is probably wrong."
    );
    Some(Finding::new(Cause::IntegerOrShapeBug, Certainty::Likely, summary).bytes(request))
}

/// The request alone is larger than the device; without the device's size, larger than any GPU.
pub(super) fn request_exceeds_device(account: &Account<'_>) -> Vec<Finding> {
    let Some(shortage) = account.shortage().filter(Shortage::exceeds_device) else {
        return Vec::new();
    };
    let request = shortage.request;
    if let Some(total) = shortage.total {
        let usable = total - shortage.context;
        let summary = if request > total {
            format!("A single allocation of {request} was requested; the whole GPU has {total}.")
        } else {
            format!(
                "A single allocation of {request} was requested; the GPU has {total}, of which {usable} is left after the context."
            )
        };
        return vec![
            Finding::new(Cause::RequestExceedsDevice, Certainty::Certain, summary).bytes(request - usable),
        ];
    }
    let summary =
        format!("A single allocation of {request} was requested, more than the largest GPU on sale has.");
    let bug = "A wrong shape or an integer overflow can also produce such a request.";
    vec![
        Finding::new(Cause::RequestExceedsDevice, Certainty::Likely, summary).bytes(request),
        Finding::new(Cause::IntegerOrShapeBug, Certainty::Possible, bug).bytes(request),
    ]
}

/// A limit fails the request although the device has room.
pub(super) fn artificial_limit(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let limit = facts.limit?;
    if facts.total.is_some_and(|total| limit >= total) {
        return None;
    }
    let held = account.reserved.or(facts.live);
    match (facts.free, facts.request) {
        (Some(free), Some(request)) if free >= request => {
            let summary =
                format!("{request} failed at the program's own limit of {limit}; the GPU had {free} free.");
            Some(Finding::new(Cause::ArtificialLimit, Certainty::Certain, summary).bytes(free))
        }
        (Some(_), Some(_)) => None,
        (_, request) => {
            let held = held?;
            let is_reached = held + request.unwrap_or(Bytes::ZERO) > limit || held.share_of(limit) >= 0.95;
            let summary = format!("The program holds {held} of the {limit} that its limit allows.");
            is_reached.then(|| Finding::new(Cause::ArtificialLimit, Certainty::Likely, summary).bytes(limit))
        }
    }
}

/// Other processes hold the missing bytes.
pub(super) fn other_processes(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let (missing, total) = (account.missing()?, facts.total?);
    if account.is_own_process_unclear {
        return None;
    }
    if let Some(finding) = sibling_ranks(account, missing) {
        return Some(finding);
    }
    let listed = account.others_bytes();
    if listed >= missing && listed.share_of(total) >= OTHERS_SHARE {
        let who = match account.others.as_slice() {
            [one] => format!("process {} holds {listed}", one.pid),
            many if account.are_ranks() => format!(
                "{} processes that look like ranks of the same job (consecutive PIDs or equal sizes) hold {listed}",
                many.len()
            ),
            many => format!("{} other processes hold {listed}", many.len()),
        };
        let summary =
            format!("The request needs {missing} more than is available; {who} of this GPU's {total}.");
        // Where this program holds more than the others, freeing memory on either side helps.
        let is_own_larger = account.reserved.is_some_and(|reserved| reserved > listed);
        let certainty =
            if is_own_larger || account.are_ranks() { Certainty::Likely } else { Certainty::Certain };
        return Some(Finding::new(Cause::OtherProcesses, certainty, summary).bytes(listed));
    }
    let unlisted = account.unlisted()?;
    // Memory that the framework does not count includes this process's own context, where the text does not give it.
    let context = if account.own.is_some() { Bytes::ZERO } else { CONTEXT_TYPICAL };
    let is_enough = unlisted >= CONTEXT_CEILING && unlisted - context >= missing;
    let is_reserve = facts.allocator != Allocator::TorchAsync
        && facts.free.is_some_and(Bytes::is_zero)
        && unlisted.share_of(total) <= WINDOWS_RESERVE;
    if !is_enough || is_reserve || unlisted.share_of(total) < UNLISTED_SHARE {
        return None;
    }
    // With cudaMallocAsync the text has no figure for the pool's cache: the memory may be the pool's own.
    let certainty =
        if facts.allocator == Allocator::TorchAsync { Certainty::Possible } else { Certainty::Likely };
    let summary = format!(
        "{unlisted} of this GPU's {total} is held outside this process's allocator, more than one context needs; the request needs {missing} more than is available."
    );
    Some(Finding::new(Cause::OtherProcesses, certainty, summary).bytes(unlisted))
}

/// Ranks of the same job each opened a context on this GPU.
fn sibling_ranks(account: &Account<'_>, missing: Bytes) -> Option<Finding> {
    let siblings = account.sibling_contexts();
    let held: Bytes = siblings.iter().map(|process| process.bytes).sum();
    // Beside a larger stranger the contexts are not the point.
    let is_all = siblings.len() == account.others.len();
    if !is_all || siblings.is_empty() || held < missing {
        return None;
    }
    let summary = format!(
        "{} other processes hold {held} of this GPU in equal parts, each the size of a CUDA context: these look like ranks of the same job that opened this GPU in addition to their own.",
        siblings.len()
    );
    Some(Finding::new(Cause::OtherProcesses, Certainty::Likely, summary).bytes(held))
}

/// Enough memory is cached, but in pieces.
pub(super) fn fragmentation(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let (request, cached, reserved) = (facts.request?, account.cached?, account.reserved?);
    if !account.shortage()?.is_fragmented_in_text() {
        return None;
    }
    let shortage = account.shortage()?;
    if !shortage.is_cache_enough() {
        let free = facts.free.unwrap_or(Bytes::ZERO);
        let summary = format!(
            "{request} failed although {free} is free and {cached} is cached, which together exceed the request: the cache is in pieces that cannot be returned to the driver."
        );
        return Some(Finding::new(Cause::Fragmentation, Certainty::Likely, summary).bytes(cached));
    }
    // PyTorch returns every whole unused segment before it fails, so the rest of the cache then sits in segments
    // with live neighbors.
    let certainty = match facts.allocator {
        Allocator::Torch | Allocator::TorchWithoutExpandable if facts.free.is_some() => Certainty::Certain,
        _ => Certainty::Likely,
    };
    let largest =
        facts.largest_free.map_or(String::new(), |largest| format!(" (the largest free block is {largest})"));
    let summary = format!(
        "{request} failed although the framework has {cached} of its {reserved} cached: the cache is in pieces, none of them large enough{largest}."
    );
    Some(Finding::new(Cause::Fragmentation, certainty, summary).bytes(cached))
}

/// Live memory leaves no room for the request.
pub(super) fn live_data_fills_device(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let (shortage, live) = (account.shortage()?, facts.live?);
    let (request, total) = (shortage.request, shortage.total?);
    // On Apple's GPUs the total is the limit that PyTorch sets itself.
    let whole = if facts.framework == Framework::PyTorchMps { "PyTorch's limit of" } else { "the GPU's" };
    if account.is_oversubscribed() && live > total {
        let wrapped = if facts.is_free_wrapped {
            " The free-memory figure in the log underflowed, so no memory was free."
        } else {
            ""
        };
        let summary = format!(
            "{live} is live on a GPU with {total}: the driver placed the rest in system memory, and {request} more did not fit there either.{wrapped}"
        );
        return Some(Finding::new(Cause::LiveDataFillsDevice, Certainty::Certain, summary).bytes(live));
    }
    if shortage.live_exceeds_device() {
        let summary =
            format!("{live} is live; together with the {request} request, that exceeds {whole} {total}.");
        return Some(Finding::new(Cause::LiveDataFillsDevice, Certainty::Certain, summary).bytes(live));
    }
    let Some(free) = facts.free else {
        let summary = format!("{live} of {whole} {total} is live, which leaves no room for {request}.");
        return (live.share_of(total) >= NEARLY_ALL && account.others.is_empty())
            .then(|| Finding::new(Cause::LiveDataFillsDevice, Certainty::Likely, summary).bytes(live));
    };
    let is_full = free <= request || free.share_of(total) < FULL;
    // A program that holds little cannot be what fills the device.
    let is_main_holder =
        live.share_of(total) >= MAIN_HOLDER || live >= account.unlisted().unwrap_or(Bytes::ZERO);
    if !is_full
        || shortage.is_fragmented_in_text()
        || account.is_own_process_unclear
        || live.is_zero()
        || !is_main_holder
    {
        return None;
    }
    let summary = if free < request {
        format!("{live} of {whole} {total} is live and {free} is free; {request} does not fit.")
    } else {
        format!(
            "{live} of {whole} {total} is live; the remaining {free} is too little for the driver to serve {request}."
        )
    };
    Some(Finding::new(Cause::LiveDataFillsDevice, Certainty::Likely, summary).bytes(live))
}

/// Private pools of CUDA graphs, or contexts and libraries, hold the missing bytes.
pub(super) fn non_framework_overhead(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let missing = account.missing()?;
    if let (Some(pools), Some(live)) = (facts.private_pools, facts.live)
        && private_pools_decide(pools, live, missing)
    {
        let summary =
            format!("{pools} of the {live} of live memory belongs to private pools, which CUDA graphs keep.");
        return Some(Finding::new(Cause::NonFrameworkOverhead, Certainty::Likely, summary).bytes(pools));
    }
    let total = facts.total?;
    // On Apple's GPUs Metal's own buffers grow with the tensors: they decide only where they are the larger part.
    let is_metal = facts.framework == Framework::PyTorchMps;
    if let Some(overhead) = account.overhead()
        && overhead >= CONTEXT_CEILING
        && (!is_metal || facts.live.is_some_and(|live| overhead > live))
        && overhead - CONTEXT_TYPICAL >= missing
        && overhead.share_of(total) >= UNLISTED_SHARE
    {
        let what = match Maker::of_framework(facts.framework) {
            Maker::Nvidia => "libraries (NCCL, cuBLAS, a second framework), contexts, or direct allocations",
            Maker::Amd => "libraries (RCCL, rocBLAS, a second framework), contexts, or direct allocations",
            Maker::Intel => "libraries (oneCCL, oneDNN, a second framework), contexts, or direct allocations",
            Maker::Apple => "Metal's and MPSGraph's own buffers",
        };
        let summary = format!("{overhead} of this process's memory is outside the framework: {what}.");
        return Some(Finding::new(Cause::NonFrameworkOverhead, Certainty::Likely, summary).bytes(overhead));
    }
    let unlisted = account.unlisted()?;
    if unlisted <= CONTEXT_CEILING && unlisted.share_of(total) > 1.0 / 3.0 && unlisted >= missing {
        let summary = format!(
            "The CUDA context and code take {unlisted} of this GPU's {total}; the request needs {missing} more than is available."
        );
        return Some(Finding::new(Cause::NonFrameworkOverhead, Certainty::Likely, summary).bytes(unlisted));
    }
    None
}

/// The request failed although the driver had room.
pub(super) fn contradiction(account: &Account<'_>) -> Option<Finding> {
    if !account.is_contradictory() {
        return None;
    }
    let (request, free) = (account.facts.request?, account.facts.free?);
    let limits = match Maker::of_framework(account.facts.framework) {
        Maker::Nvidia => "container, MIG, driver",
        Maker::Amd => "container, partition, driver",
        Maker::Intel => "container, driver",
        Maker::Apple => "Metal's on one buffer, or the system's on wired memory",
    };
    let summary = format!(
        "{request} failed although the log reports {free} free, so size alone does not explain it: another process may have held the memory for a moment, a limit may apply ({limits}), or the failure is not about memory."
    );
    Some(Finding::new(Cause::Undetermined, Certainty::Undetermined, summary))
}

/// The device is full and the text does not say of what.
pub(super) fn full_for_unknown_reason(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let (request, total, free) = (facts.request?, facts.total?, facts.free?);
    if facts.live.is_some_and(|live| !live.is_zero()) || free >= request {
        return None;
    }
    let used = total - free;
    let summary = format!(
        "{request} failed with {free} of {total} free; the log does not show what holds the other {used}."
    );
    Some(Finding::new(Cause::Undetermined, Certainty::Undetermined, summary).bytes(used))
}
