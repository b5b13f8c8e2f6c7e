//! The arithmetic of causes: one function per cause, each a definition in figures.
//!
//! A rule answers only when the figures it needs are there. Nothing here knows a wording.

use makeroom_core::Bytes;

use super::account::{Account, CONTEXT_CEILING, CONTEXT_TYPICAL, FRAGMENTATION_SLACK};
use crate::text::facts::Allocator;
use crate::{Cause, Certainty, Finding};

/// A request beyond this is no request for memory: no machine has a pebibyte.
const ABSURD: Bytes = Bytes::gib(1 << 20);
/// A request this many times the device's memory is a wrong shape rather than a large batch.
const ABSURD_FACTOR: f64 = 1024.0;

fn finding(cause: Cause, certainty: Certainty, bytes: Option<Bytes>, summary: String) -> Finding {
    Finding { cause, certainty, bytes, summary, evidence: Vec::new(), fixes: Vec::new() }
}

/// An absurd request: wrap-around or a wrong shape.
pub(super) fn integer_or_shape_bug(account: &Account<'_>) -> Option<Finding> {
    let request = account.facts.request?;
    let is_beyond_device = account.facts.total.is_some_and(|total| request > total.scaled(ABSURD_FACTOR));
    if request < ABSURD && !is_beyond_device {
        return None;
    }
    let certainty = if request >= ABSURD { Certainty::Certain } else { Certainty::Likely };
    let summary =
        format!("{request} was asked for. No GPU has that: a size wrapped around or a shape is wrong.");
    Some(finding(Cause::IntegerOrShapeBug, certainty, Some(request), summary))
}

/// The request is larger than the device, or than all that could ever be free for this process.
pub(super) fn request_exceeds_device(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let request = facts.request?;
    if let Some(total) = facts.total.filter(|&total| request > total) {
        let summary = format!("{request} was asked for in one piece; the whole device has {total}.");
        return Some(finding(
            Cause::RequestExceedsDevice,
            Certainty::Certain,
            Some(request - total),
            summary,
        ));
    }
    let free = facts.free?;
    let reachable = free + account.reserved?;
    let others = account.others_bytes().max(account.unlisted()?.saturating_sub(CONTEXT_CEILING));
    if request <= reachable || reachable + others >= request {
        return None;
    }
    let summary = format!(
        "{request} was asked for in one piece; free memory and all that this process has reserved come to {reachable}."
    );
    Some(finding(Cause::RequestExceedsDevice, Certainty::Certain, Some(request - reachable), summary))
}

/// A limit refuses although the device has room.
pub(super) fn artificial_limit(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let limit = facts.limit?;
    if facts.total.is_some_and(|total| limit >= total) {
        return None;
    }
    let held = account.reserved.or(facts.live);
    match (facts.free, facts.request) {
        (Some(free), Some(request)) if free >= request => {
            let summary = format!(
                "{request} was refused by a limit of {limit} that the program was given; the device had {free} free."
            );
            Some(finding(Cause::ArtificialLimit, Certainty::Certain, Some(free), summary))
        }
        (Some(_), Some(_)) => None,
        (_, request) => {
            let held = held?;
            let is_reached = held + request.unwrap_or(Bytes::ZERO) > limit || held.share_of(limit) >= 0.95;
            let summary = format!("{held} of the {limit} that the program may use were taken.");
            is_reached.then(|| finding(Cause::ArtificialLimit, Certainty::Likely, Some(limit), summary))
        }
    }
}

/// Other processes hold what is missing.
pub(super) fn other_processes(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let (missing, total) = (account.missing()?, facts.total?);
    if account.is_own_process_unclear {
        return None;
    }
    let listed = account.others_bytes();
    if listed >= missing && listed.share_of(total) >= 0.05 {
        let who = match account.others.as_slice() {
            [one] => format!("process {} holds {listed}", one.pid),
            many => format!("{} other processes hold {listed}", many.len()),
        };
        let summary = format!("{missing} was missing; {who} of this GPU's {total}.");
        // Where this program holds more than the others, making room on either side helps.
        let is_own_larger = account.reserved.is_some_and(|reserved| reserved > listed);
        let certainty = if is_own_larger { Certainty::Likely } else { Certainty::Certain };
        return Some(finding(Cause::OtherProcesses, certainty, Some(listed), summary));
    }
    let unlisted = account.unlisted()?;
    // What the framework does not count holds this process's own context too, where the text does not give it.
    let context = if account.own.is_some() { Bytes::ZERO } else { CONTEXT_TYPICAL };
    let is_enough = unlisted >= CONTEXT_CEILING && unlisted - context >= missing;
    if !is_enough || unlisted.share_of(total) < 0.1 {
        return None;
    }
    // With cudaMallocAsync the text has no figure for what the pool keeps: it may be the pool's own.
    let certainty =
        if facts.allocator == Allocator::TorchAsync { Certainty::Possible } else { Certainty::Likely };
    let summary = format!(
        "{unlisted} of this GPU's {total} is held outside what this process reserved, more than one context takes; {missing} was missing."
    );
    Some(finding(Cause::OtherProcesses, certainty, Some(unlisted), summary))
}

/// Enough is unused, but in pieces.
pub(super) fn fragmentation(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let (request, cached, reserved) = (facts.request?, account.cached?, account.reserved?);
    let free = facts.free.unwrap_or(Bytes::ZERO);
    if free + cached < request || account.slack()? < FRAGMENTATION_SLACK {
        return None;
    }
    // PyTorch gives every whole unused segment back before it fails, so what is still unused then sits in
    // segments with live neighbours.
    let certainty = match facts.allocator {
        Allocator::Torch | Allocator::TorchWithoutExpandable if facts.free.is_some() => Certainty::Certain,
        _ => Certainty::Likely,
    };
    let largest = facts.largest_free.map_or(String::new(), |largest| format!(" (the largest: {largest})"));
    let summary = format!(
        "{request} was refused while {cached} of the {reserved} that the framework holds lay unused, in pieces too small for it{largest}."
    );
    Some(finding(Cause::Fragmentation, certainty, Some(cached), summary))
}

/// What is live leaves no room for the request.
pub(super) fn live_data_fills_device(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let (request, live) = (facts.request?, facts.live?);
    let Some(total) = facts.total else {
        if live.is_zero() {
            return None;
        }
        let summary =
            format!("{live} was in use when {request} was refused; the text does not give the card's size.");
        return Some(finding(Cause::LiveDataFillsDevice, Certainty::Possible, Some(live), summary));
    };
    let summary =
        format!("{live} is live; with the {request} asked for it does not fit the device's {total}.");
    if live + request > total {
        return Some(finding(Cause::LiveDataFillsDevice, Certainty::Certain, Some(live), summary));
    }
    let free = facts.free?;
    let cached = account.cached.unwrap_or(Bytes::ZERO);
    let is_full = free < request || free.share_of(total) < 0.02;
    let is_cache_useless =
        free + cached < request || account.slack().is_none_or(|slack| slack < FRAGMENTATION_SLACK);
    // A program that holds little cannot be what fills the card.
    let is_main_holder = live.share_of(total) >= 0.4 || live >= account.unlisted().unwrap_or(Bytes::ZERO);
    if !is_full || !is_cache_useless || account.is_own_process_unclear || live.is_zero() || !is_main_holder {
        return None;
    }
    let summary = if free < request {
        format!(
            "{live} of the device's {total} is live and {free} is free; the {request} asked for does not fit beside it."
        )
    } else {
        format!(
            "{live} of the device's {total} is live; the {free} left is too little for the driver to serve {request} from."
        )
    };
    Some(finding(Cause::LiveDataFillsDevice, Certainty::Likely, Some(live), summary))
}

/// Private pools of CUDA graphs, or contexts and libraries, hold what is missing.
pub(super) fn non_framework_overhead(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let missing = account.missing()?;
    if let (Some(pools), Some(live)) = (facts.private_pools, facts.live)
        && pools.share_of(live) >= 0.5
        && pools >= missing
    {
        let summary =
            format!("{pools} of the {live} that is live belongs to private pools: CUDA graphs keep it.");
        return Some(finding(Cause::NonFrameworkOverhead, Certainty::Likely, Some(pools), summary));
    }
    let total = facts.total?;
    if let Some(overhead) = account.overhead()
        && overhead >= CONTEXT_CEILING
        && overhead - CONTEXT_TYPICAL >= missing
        && overhead.share_of(total) >= 0.1
    {
        let summary = format!(
            "{overhead} of this process's memory is not the framework's: libraries (NCCL, cuBLAS, a second framework), contexts, or direct CUDA calls."
        );
        return Some(finding(Cause::NonFrameworkOverhead, Certainty::Likely, Some(overhead), summary));
    }
    let unlisted = account.unlisted()?;
    if unlisted <= CONTEXT_CEILING && unlisted.share_of(total) > 1.0 / 3.0 && unlisted >= missing {
        let summary = format!(
            "{unlisted} of this card's {total} is the driver's context and code; {missing} was missing."
        );
        return Some(finding(Cause::NonFrameworkOverhead, Certainty::Likely, Some(unlisted), summary));
    }
    None
}

/// The driver refuses although it had room.
pub(super) fn contradiction(account: &Account<'_>) -> Option<Finding> {
    if !account.is_contradictory() {
        return None;
    }
    let (request, free) = (account.facts.request?, account.facts.free?);
    let summary = format!(
        "{request} was refused although {free} was free by the driver's own count. The text does not say why: memory that another process took and gave back in between, a limit set from outside (a container, vGPU, MIG), or a failure that is not about size."
    );
    Some(finding(Cause::Undetermined, Certainty::Undetermined, None, summary))
}

/// The card is full and the text does not say of what.
pub(super) fn full_for_unknown_reason(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let (request, total, free) = (facts.request?, facts.total?, facts.free?);
    if facts.live.is_some_and(|live| !live.is_zero()) || free >= request {
        return None;
    }
    let used = total - free;
    let summary = format!(
        "{request} was refused with {free} of {total} free; the text does not say who holds the other {used}."
    );
    let cause = if account.is_own_process_unclear { Cause::Undetermined } else { Cause::LiveDataFillsDevice };
    let certainty =
        if account.is_own_process_unclear { Certainty::Undetermined } else { Certainty::Possible };
    Some(finding(cause, certainty, Some(used), summary))
}

/// A single request failed in a program that held nothing.
pub(super) fn first_request_too_large(account: &Account<'_>) -> Option<Finding> {
    let facts = account.facts;
    let request = facts.request?;
    if facts.total.is_some() || facts.live.is_none_or(|live| !live.is_zero()) {
        return None;
    }
    let summary = format!(
        "{request} was refused while the program held nothing: larger than what the device has, or than what others left."
    );
    Some(finding(Cause::RequestExceedsDevice, Certainty::Possible, Some(request), summary))
}
