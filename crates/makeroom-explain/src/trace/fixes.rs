//! What to do about a finding in a recording, with figures from the recording itself.

use std::collections::HashSet;

use makeroom_core::{Bytes, Holder, SortCompact as _, Trace, TraceKind};
use makeroom_sim::Settings;

use super::source::holder;
use super::verdict::Refusal;
use crate::advice::{self, Maker};
use crate::health::Waste;
use crate::{Alternative, Cause, Finding, Fix, Growth};

/// What was allocated in the step that failed, and what was there before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSplit {
    /// Live bytes that are older than the step: model, optimizer, caches.
    pub(crate) lasting: Bytes,
    /// Live bytes that the step itself made: they grow with the batch.
    pub(crate) growing: Bytes,
}

/// Fills in the fixes of each finding.
pub(crate) fn attach(
    findings: &mut [Finding],
    trace: &Trace,
    refusal: &Refusal<'_>,
    split: Option<StepSplit>,
    alternatives: &[Alternative],
) {
    for finding in findings {
        finding.fixes = match finding.cause {
            Cause::Fragmentation => fragmentation(trace, refusal, alternatives),
            Cause::LiveDataFillsDevice => {
                let mut fixes = live_data(trace, refusal, split, alternatives);
                let missing = fixes.first().and_then(|fix| fix.frees).filter(|bytes| !bytes.is_zero());
                if refusal.is_paged() {
                    // Enough may be free: then no amount is missing, only the guarantee.
                    fixes.retain(|fix| missing.is_some() || fix.frees.is_none_or(|bytes| !bytes.is_zero()));
                    fixes.insert(0, spill_pages(refusal));
                }
                if refusal.limit_of_run().is_some() {
                    let raise = raise_limit_of_run(refusal);
                    fixes.insert(
                        0,
                        missing.map_or(raise.clone(), |missing| Fix {
                            action: format!(
                                "raise --limit by at least {missing}, if the GPU has it; later allocations may need more"
                            ),
                            frees: Some(missing),
                            ..raise
                        }),
                    );
                }
                fixes
            }
            Cause::RequestExceedsDevice => vec![pieces(refusal)],
            Cause::ArtificialLimit if refusal.limit_of_run().is_some() => vec![raise_limit_of_run(refusal)],
            Cause::ArtificialLimit if refusal.pool_limit.is_some() => vec![raise_limit_of_pool(refusal)],
            Cause::ArtificialLimit if refusal.holder == Holder::Pool => Vec::new(),
            Cause::OtherProcesses => {
                let another = advice::another_device(Maker::Nvidia, None);
                [Some(advice::list_holders(Maker::Nvidia)), another].into_iter().flatten().collect()
            }
            Cause::CacheHeldByFramework => cache(refusal),
            Cause::NonFrameworkOverhead if finding.bytes == Some(refusal.further_contexts()) => {
                vec![advice::fewer_contexts().frees(refusal.further_contexts())]
            }
            Cause::ArtificialLimit => vec![
                Fix::new("pass the limit that was set, to see what filled it").command(
                    refusal
                        .hidden_limit()
                        .map_or("makeroom why --memory SIZE …".to_owned(), |(least, _)| {
                            format!("makeroom why --memory {}MiB …", least.get().div_ceil(1 << 20))
                        }),
                ),
                Fix::new("raise the limit, or remove the call that sets it")
                    .command("torch.cuda.set_per_process_memory_fraction(1.0)")
                    .frees(finding.bytes.unwrap_or(Bytes::ZERO)),
            ],
            Cause::NonFrameworkOverhead => vec![
                Fix::new(
                    "capture fewer CUDA graphs, or let them share one pool: torch.cuda.graph(g, pool=…)",
                )
                .frees(refusal.pieces.private_reserved),
            ],
            Cause::Leak => leak(trace, refusal.growth),
            _ => Vec::new(),
        };
        finding.fixes.sort_compact_by_key(|fix| std::cmp::Reverse(fix.frees));
        // A limit may be there on purpose: a setting that fits in it comes first.
        if finding.cause == Cause::ArtificialLimit && refusal.hidden_limit().is_some() {
            let fitting = expandable_that_fits(alternatives);
            let fitting = fitting.or_else(|| expandable_that_may_fit(alternatives, refusal.hidden_limit()));
            finding.fixes.splice(0..0, fitting);
        }
    }
}

/// The limit with which the refused request would have fit.
fn raise_limit_of_run(refusal: &Refusal<'_>) -> Fix {
    let wanted = refusal.wants() + refusal.contexts() + refusal.counted_beyond();
    let spare = if refusal.counted_beyond().is_zero() { Bytes::ZERO } else { refusal.driver_request() };
    let mebibytes = (wanted + spare).get().div_ceil(1 << 20);
    Fix::new("raise --limit, if the GPU has the memory")
        .command(format!("makeroom run … --limit {mebibytes}MiB -- …"))
}

/// A quota of host memory lets PyTorch reserve more than the GPU has; paging uses it only if all of it is live at once.
fn spill_pages(refusal: &Refusal<'_>) -> Fix {
    let gibibytes = refusal.driver_request().get().div_ceil(1 << 30).max(2);
    Fix::new("let PyTorch reserve more memory than the GPU has: paging spills to host memory only when the GPU is full")
        .command(format!("makeroom run --pool --spill {gibibytes}GiB -- …"))
}

/// The limit of makeroom's own pool with which the refused request would have fit.
fn raise_limit_of_pool(refusal: &Refusal<'_>) -> Fix {
    let mebibytes = (refusal.held() + refusal.event.size).get().div_ceil(1 << 20);
    Fix::new("raise the pool's limit (in Rust: Pool::set_limit, in Python: use_pool)")
        .command(format!("makeroom_pool_set_limit(pool, {mebibytes}ull << 20);"))
}

/// Memory that the pools of this process keep.
fn cache(refusal: &Refusal<'_>) -> Vec<Fix> {
    let process_overhead = refusal.process_overhead.unwrap_or_default();
    let mut fixes = Vec::new();
    if !process_overhead.pending.bytes.is_zero() {
        fixes.push(advice::wait_for_streams().frees(process_overhead.pending.bytes));
    }
    if refusal.is_of_other && !refusal.pieces.releasable.is_zero() {
        fixes.push(advice::empty_own_cache().frees(refusal.pieces.releasable));
    }
    if let Some((_, bytes)) = process_overhead.other_framework {
        fixes.push(advice::empty_other_cache().frees(bytes));
    }
    fixes
}

/// Whether the recorded program ran with expandable segments.
fn was_expandable(trace: &Trace) -> bool {
    Settings::recorded(&trace.settings).expandable_segments
}

fn fragmentation(trace: &Trace, refusal: &Refusal<'_>, alternatives: &[Alternative]) -> Vec<Fix> {
    let mut fixes = Vec::new();
    if !was_expandable(trace) && refusal.has_segments {
        let tried = alternatives.iter().find(|alternative| alternative.settings.is_some());
        fixes.push(expandable_that_fits(alternatives).unwrap_or_else(|| {
            let mut fix = advice::expandable_segments();
            if let Some(Alternative { fits: Some(false), needs, .. }) = tried {
                fix.action =
                    format!("{}; not enough on its own: the run would then need {needs}", fix.action);
            }
            fix
        }));
    }
    fixes.push(Fix::new("use fewer different sizes: pad batches to a few fixed lengths or image sizes"));
    fixes
}

fn live_data(
    trace: &Trace,
    refusal: &Refusal<'_>,
    split: Option<StepSplit>,
    alternatives: &[Alternative],
) -> Vec<Fix> {
    let mut fixes = Vec::new();
    fixes.extend(expandable_that_fits(alternatives));
    let request = refusal.event.size;
    let missing = refusal.untaken().map(|untaken| request - untaken.min(request));
    if holder(trace) != Holder::PyTorch {
        const ACTION: &str =
            "free buffers before allocating the next ones, or process the data in smaller chunks";
        let fix = missing.map_or(Fix::new(ACTION), |missing| shortfall(ACTION, missing));
        return vec![fix];
    }
    fixes.extend(match split.zip(refusal.room.limit()) {
        Some((split, limit)) => smaller_step(trace, split, limit, request, missing),
        None => missing.map(|missing| {
            shortfall("reduce the batch size, the sequence length or the image size", missing)
        }),
    });
    if may_have_a_model(trace) {
        fixes.push(advice::checkpointing());
        fixes.push(advice::half_precision(Maker::Nvidia));
    }
    fixes
}

/// Whether advice about layers can help: false if stacks were recorded and none of them is in a layer or in autograd.
fn may_have_a_model(trace: &Trace) -> bool {
    let stacks = &trace.stacks;
    let contains = |name, parts: &[&str]| {
        let text = stacks.name_text(name);
        parts.iter().any(|part| text.contains(part))
    };
    let frames = stacks.frames();
    // Many frames share few names.
    let files: HashSet<_> = frames.iter().map(|frame| frame.file).collect();
    let functions: HashSet<_> = frames.iter().map(|frame| frame.function).collect();
    let of_layers = ["torch/nn/", "torch\\nn\\", "torch/autograd/", "torch\\autograd\\", "torch/optim/"];
    let of_calls = ["torch::nn::", "torch::autograd::", "forward", "backward"];
    frames.is_empty()
        || files.into_iter().any(|file| contains(file, &of_layers))
        || functions.into_iter().any(|function| contains(function, &of_calls))
}

/// A fix that has to free at least the shortfall.
fn shortfall(action: &str, missing: Bytes) -> Fix {
    Fix::new(format!("{action}, to free at least {missing}")).frees(missing)
}

/// By how much what the step makes must shrink; nothing where what is older already fills the limit.
fn smaller_step(
    trace: &Trace,
    split: StepSplit,
    limit: Bytes,
    request: Bytes,
    missing: Option<Bytes>,
) -> Option<Fix> {
    let growing = split.growing + request;
    let room = limit - split.lasting;
    // Live bytes alone may fit; what must go is what the allocator could not serve.
    let target = room.min(growing - missing.unwrap_or(Bytes::ZERO).min(growing));
    if target.is_zero() {
        return None;
    }
    let factor = target.share_of(growing);
    let batch =
        trace.annotations.iter().rev().find_map(|annotation| crate::batch::batch_in(&annotation.name));
    let batch = match batch {
        Some(batch) if batch > 1 => {
            format!(": batch size {} instead of {batch}", ((batch as f64 * factor).floor() as u64).max(1))
        }
        _ => String::new(),
    };
    let action = format!(
        "reduce this step's memory ({growing}, including the request) by {}, at least {:.0} %: smaller batch, shorter sequences or smaller images{batch}",
        growing - target,
        (100.0 - 100.0 * factor).ceil()
    );
    Some(Fix::new(action).frees(growing - target))
}

/// Expandable segments, where running the recording with them shows that they suffice.
fn expandable_that_fits(alternatives: &[Alternative]) -> Option<Fix> {
    let fitting = alternatives.iter().find(|alternative| alternative.fits == Some(true))?;
    let mut fix = advice::expandable_segments();
    fix.action = format!(
        "{}: the recorded run, including the failed request, then peaks at {} and fits",
        fix.action, fitting.needs
    );
    let recorded = alternatives.iter().find(|alternative| alternative.settings.is_none())?;
    Some(fix.frees(recorded.needs - fitting.needs))
}

/// Expandable segments, if the replay with them peaks below the upper bound of the hidden limit.
fn expandable_that_may_fit(alternatives: &[Alternative], limit: Option<(Bytes, Bytes)>) -> Option<Fix> {
    let (_, most) = limit?;
    let tried = alternatives.iter().find(|alternative| alternative.settings.is_some())?;
    let mut fix = advice::expandable_segments();
    fix.action = format!(
        "{}: the recorded run, including the failed request, then peaks at {}, which fits unless the limit is lower",
        fix.action, tried.needs
    );
    (tried.needs < most).then_some(fix)
}

fn pieces(refusal: &Refusal<'_>) -> Fix {
    let request = refusal.event.size.get();
    match refusal.room.limit().filter(|limit| !limit.is_zero()) {
        Some(limit) => Fix::new(format!(
            "split the allocation into at least {} parts, or spread it across that many GPUs",
            request.div_ceil(limit.get())
        )),
        None => Fix::new("split the allocation into smaller ones"),
    }
}

/// What to do about memory that grows: the line that allocates it first.
pub(crate) fn leak(trace: &Trace, growth: Option<&Growth>) -> Vec<Fix> {
    let mut fixes = Vec::new();
    if let Some(growth) = growth {
        if !growth.is_in_steps {
            return fixes;
        }
        let has_stacks = trace.stacks.frame_count() > 0;
        match trace.kind {
            TraceKind::Room if !has_stacks => fixes.push(advice::record_with_stacks()),
            TraceKind::TorchSnapshot if !has_stacks => fixes.push(advice::record_snapshot()),
            _ => {}
        }
        fixes.extend(growth.main_line().or(growth.leaking.first()).filter(|_| has_stacks).map(|site| {
            let caller =
                site.caller.as_ref().map_or(String::new(), |caller| format!(" (called from {caller})"));
            let when = if growth.parts.is_some() { "" } else { " after every step" };
            Fix::new(format!("find what keeps the memory allocated at {} alive{when}{caller}", site.place))
                .frees(site.bytes)
        }));
    }
    fixes.extend(leak_in_general(trace));
    fixes
}

/// What helps against leaks of this kind of program.
fn leak_in_general(trace: &Trace) -> Vec<Fix> {
    if holder(trace) == Holder::PyTorch { advice::leak() } else { vec![advice::leak_without_tensors()] }
}

/// What to do about wasted memory in a run that did not fail.
pub(crate) fn waste(trace: &Trace, waste: Option<Waste>) -> Vec<Fix> {
    match (waste, holder(trace)) {
        (Some(Waste::Waiting(bytes, _)), Holder::PyTorch) => vec![advice::avoid_record_stream().frees(bytes)],
        (Some(Waste::Waiting(bytes, _)), _) => vec![advice::wait_for_streams().frees(bytes)],
        (Some(Waste::Unused(..)), Holder::PyTorch) => vec![advice::tune()],
        (Some(Waste::Unused(..)) | None, _) => Vec::new(),
    }
}

/// The size of the device or the limit completes the breakdown.
pub(crate) fn say_the_room(kind: TraceKind) -> Fix {
    let what = match kind {
        TraceKind::TorchSnapshot => "a snapshot",
        TraceKind::RmmLog => "an RMM log",
        TraceKind::JaxProfile => "a memory profile",
        TraceKind::Room => "this recording",
    };
    Fix::new(format!(
        "{what} does not contain the size of the GPU or a limit; pass one to account for all memory"
    ))
    .command("makeroom why --card SIZE …   (or --memory SIZE if the program set a limit)")
}

/// Things people try that cannot help here.
pub(crate) fn wont_help(
    cause: Cause,
    trace: &Trace,
    refusal: &Refusal<'_>,
    split: Option<StepSplit>,
    alternatives: &[Alternative],
) -> Vec<String> {
    let mut wont_help = Vec::new();
    if !refusal.has_segments {
        return wont_help;
    }
    let is_expandable = was_expandable(trace);
    match cause {
        Cause::Fragmentation => {
            wont_help.push("empty_cache(), because live tensors sit between the free blocks".to_owned());
            if is_expandable {
                wont_help.push("expandable_segments, which was already on".to_owned());
            }
        }
        Cause::LiveDataFillsDevice => {
            let cached = advice::told_cached(refusal.pieces.cached());
            let would_fit = alternatives.iter().any(|alternative| alternative.fits == Some(true));
            wont_help.push(match (is_expandable, would_fit) {
                (true, _) => {
                    format!("empty_cache() ({cached}) or expandable_segments (already on)")
                }
                (false, true) => {
                    format!("empty_cache(), because {cached}, between live tensors")
                }
                (false, false) => {
                    format!("empty_cache() or expandable_segments, because {cached}")
                }
            });
            if let Some((split, limit)) = split.zip(refusal.room.limit())
                && split.lasting >= limit
            {
                wont_help.push(format!(
                    "a smaller batch, because memory from before the failing step ({}) already fills the {limit}",
                    split.lasting
                ));
            }
        }
        Cause::Leak => {
            wont_help.push("a smaller batch, which only delays the failure".to_owned());
        }
        _ => {}
    }
    wont_help
}
