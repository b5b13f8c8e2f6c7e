//! Kinds of memory and their rules in words, and live memory in groups.

use std::fmt::Write as _;

use makeroom_core::{Bytes, TraceKind};
use makeroom_explain::{By, Group, GroupGrowth, Grouped, GrowingLine, rate};
use makeroom_kind::{Certainty, Kind, Rule};
use serde_json::{Value, json};

use crate::bars::bar;
use crate::json::list;
use crate::text::{DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::{clip, clip_place};

/// Maximum length of a bar.
const BAR_COLUMNS: usize = 12;
/// Groups that are shown without `--verbose`.
const MOST_GROUPS: usize = 15;
/// Growing groups that are shown.
const MOST_GROWING: usize = 5;
/// Widest name of a group.
const NAME_COLUMNS: usize = 44;

/// The name of a kind.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Parameters => "parameters",
        Kind::Gradients => "gradients",
        Kind::OptimizerState => "optimizer state",
        Kind::Activations => "activations",
        Kind::Inputs => "inputs",
        Kind::KvCache => "KV cache",
        Kind::Workspaces => "workspaces",
        Kind::GraphPools => "CUDA-graph pools",
        Kind::Temporaries => "temporaries",
        Kind::FrameworkCache => "framework cache",
        Kind::Unknown => "unknown",
    }
}

/// The name of a kind by its ID.
#[must_use]
pub fn kind_words(id: &str) -> &str {
    match Kind::from_id(id) {
        Some(kind) => kind_name(kind),
        None => id,
    }
}

fn certainty(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Certain => "certain",
        Certainty::Likely => "likely",
        Certainty::Possible => "possible",
    }
}

/// Why memory has its kind.
#[must_use]
pub fn rule_words(rule: Rule) -> String {
    let words = match rule {
        Rule::ModuleStack => "allocated while a module was built, moved or loaded",
        Rule::GatheredParameters => "gathered from FSDP shards",
        Rule::SizeOfGradient => "allocated before the first step, same sizes as the gradients",
        Rule::KeptFromStart => "allocated at the start and kept",
        Rule::OutlivedBackward => "outlived the backward pass, same sizes as parameters",
        Rule::OutlivedBackwardOtherSize => "outlived the backward pass",
        Rule::FreedByZeroGrad => "freed by zero_grad",
        Rule::GradientBucket => "distributed gradient buckets",
        Rule::SizeOfParameter => "allocated in an unfinished backward pass, same sizes as parameters",
        Rule::OptimizerStack => "allocated by the optimizer and kept",
        Rule::OptimizerPhase => "allocated in the optimizer's step and kept",
        Rule::RepeatsParameters => "same sizes as the parameters",
        Rule::SavedForBackward => "freed by the backward pass",
        Rule::ForwardOutput => "from the forward pass, kept through the backward pass",
        Rule::ForwardStack => "from the forward pass",
        Rule::Recomputed => "recomputed by a checkpoint",
        Rule::LikeEarlier => "same as in earlier steps",
        Rule::BetweenSteps => "allocated between steps",
        Rule::BeforeFirstStep => "allocated by the program before the first step",
        Rule::DataLoader => "allocated by a data loader",
        Rule::CacheStack => "allocated by a framework's cache",
        Rule::GrowsPerToken => "grows by the same amount with every token",
        Rule::EqualBlocks => "equal blocks, allocated before the first token",
        Rule::CublasWorkspace => "size of PyTorch's cuBLAS workspace, never freed",
        Rule::WithinConvolution => "allocated and freed within a convolution (cuDNN)",
        Rule::PrivatePool => "in a CUDA graph's private pool",
        Rule::FreedInForward => "freed before the backward pass",
        Rule::FreedInBackward => "freed in the same backward pass",
        Rule::FreedInOptimizer => "freed in the same optimizer step",
        Rule::FreedInLoading => "freed before the first step",
        Rule::FreedAgain => "freed soon after",
        Rule::AllocatorStack => "held by another framework's allocator",
        Rule::NoRule => "no rule applies",
        Rule::LibraryStack(library) => return format!("allocated by {library}"),
    };
    words.to_owned()
}

/// Live memory in groups, for a terminal of `columns` columns.
pub fn grouped_text(grouped: &Grouped, columns: usize, is_verbose: bool) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    let moment = if grouped.is_failure { "when the allocation failed" } else { "at the peak" };
    let _ = writeln!(
        out,
        "\n{MARGIN}{TITLE}Live memory by {}, {moment}: {} on GPU {}{TITLE:#}",
        grouped.by.id(),
        grouped.live,
        grouped.device
    );
    let most = if is_verbose { usize::MAX } else { MOST_GROUPS };
    let (shown, hidden) = grouped.groups.split_at(grouped.groups.len().min(most));
    let name = |group: &Group| match grouped.by {
        By::Kind => kind_words(&group.name).to_owned(),
        _ => group.name.clone(),
    };
    let widest = shown.iter().map(|group| name(group).chars().count()).max().unwrap_or(0);
    let width = widest.min(NAME_COLUMNS.min(columns / 2));
    for group in shown {
        let drawn = bar(group.bytes.share_of(grouped.live), BAR_COLUMNS);
        let used = MARGIN.len() * 2 + width + 2 + 10 + 2 + BAR_COLUMNS + 2;
        let remark = clip(&remark(grouped.by, group), columns.saturating_sub(used));
        let name = clip_place(&name(group), width);
        let size = group.bytes.to_string();
        let row = format!(
            "{MARGIN}{MARGIN}{name:<width$}  {size:>10}  {drawn:<BAR_COLUMNS$}  {DIM}{remark}{DIM:#}"
        );
        let _ = writeln!(out, "{}", row.trim_end());
    }
    if !hidden.is_empty() {
        let bytes: Bytes = hidden.iter().map(|group| group.bytes).sum();
        let _ = writeln!(out, "{MARGIN}{MARGIN}{DIM}{bytes} in {} more (--verbose){DIM:#}", hidden.len());
    }
    growing(&mut out, grouped, columns);
    if !grouped.is_recorded {
        let _ = writeln!(out, "\n{MARGIN}hint: {}", grouped_hint(grouped.by, grouped.source));
    }
    out
}

/// The groups that grow from step to step over the run.
fn growing(out: &mut String, grouped: &Grouped, columns: usize) {
    let Some(growing) = grouped.growing.as_ref().filter(|_| !grouped.growth.is_empty()) else { return };
    let pace = match growing.parts {
        Some(parts) => format!(
            "over {} of {parts} equal intervals of the recording, {} per interval",
            growing.steps,
            Bytes::new(growing.bytes.get() / growing.steps.max(1) as u64)
        ),
        None => format!(
            "over {} steps, {} (step: {})",
            growing.steps,
            rate(growing.bytes, growing.steps),
            growing.measured_by
        ),
    };
    let _ = writeln!(out, "\n{MARGIN}{TITLE}Growing memory{TITLE:#}, {pace}");
    let name = |group: &GroupGrowth| match grouped.by {
        By::Kind => kind_words(&group.name).to_owned(),
        _ => group.name.clone(),
    };
    let shown = || grouped.growth.iter().take(MOST_GROWING);
    let widest = shown().map(|group| name(group).chars().count()).max().unwrap_or(0);
    let width = widest.min(NAME_COLUMNS.min(columns / 2));
    for group in shown() {
        let remark = group.line.as_ref().map_or(String::new(), |line| growing_remark(grouped.by, line));
        let left = columns.saturating_sub(MARGIN.len() * 2 + width + 2 + 11 + 2);
        let (name, size) = (clip_place(&name(group), width), format!("+{}", group.bytes));
        let row =
            format!("{MARGIN}{MARGIN}{name:<width$}  {size:>11}  {DIM}{}{DIM:#}", clip_place(&remark, left));
        let _ = writeln!(out, "{}", row.trim_end());
    }
}

/// Of a line its kind, of other groups the line; and the object that keeps the memory.
fn growing_remark(by: By, line: &GrowingLine) -> String {
    let what = match (&line.place, by) {
        (Some(place), By::Kind) => place.clone(),
        (Some(place), By::Module | By::Stage | By::Thread | By::Stream | By::Process) => {
            format!("{place}, {}", kind_name(line.kind))
        }
        _ => kind_name(line.kind).to_owned(),
    };
    line.keeper.as_ref().map_or(what.clone(), |keeper| format!("{what}, kept by {keeper}"))
}

/// Of a kind its main rule, of other groups their kinds.
fn remark(by: By, group: &Group) -> String {
    if by == By::Kind {
        let Some(&(rule, _)) = group.rules.first() else { return String::new() };
        return format!("{} ({})", rule_words(rule), certainty(rule.certainty()));
    }
    let kinds = group.kinds.iter().take(2).map(|&(kind, _)| kind_name(kind));
    kinds.collect::<Vec<_>>().join(", ")
}

/// What to do if the recording lacks what the groups need.
pub(crate) fn grouped_hint(by: By, source: TraceKind) -> &'static str {
    match (by, source) {
        (By::Kind, TraceKind::RmmLog) => {
            "an RMM log has only sizes and addresses; record the program with `makeroom run`"
        }
        (By::Kind, _) => "no rule applies to this memory; record whole training steps, with stacks",
        (By::Line | By::Module, TraceKind::TorchSnapshot) => {
            "the snapshot has no stacks; torch.cuda.memory._record_memory_history() records them"
        }
        (By::Line | By::Module, TraceKind::Room) => {
            "the recording has no stacks; run `makeroom run` without --no-stacks"
        }
        (By::Line | By::Module, _) => "this format has no stacks; `makeroom run` records them",
        (By::Stage, _) => {
            "the recording has no labels, scopes or training steps; torch.profiler.record_function marks a scope"
        }
        (By::Thread, _) => "this format does not record threads; `makeroom run` does",
        (By::Stream, _) => "this format does not record streams; `makeroom run` does",
        (By::Process, _) => "this format does not name its process; `makeroom run` records it",
    }
}

/// Live memory in groups as JSON.
pub fn grouped_json(grouped: &Grouped) -> Value {
    let rule = |&(rule, bytes): &(Rule, Bytes)| {
        let library = if let Rule::LibraryStack(library) = rule { Some(library.name()) } else { None };
        json!({
            "rule": rule.id(), "library": library, "certainty": certainty(rule.certainty()), "bytes": bytes.get()
        })
    };
    let group = |group: &Group| {
        json!({
            "name": group.name,
            "bytes": group.bytes.get(),
            "blocks": group.blocks,
            "kinds": list(&group.kinds, |(kind, bytes)| json!({"kind": kind.id(), "bytes": bytes.get()})),
            "rules": list(&group.rules, rule),
        })
    };
    let growth = |group: &GroupGrowth| {
        let line = group.line.as_ref();
        json!({
            "name": group.name,
            "bytes": group.bytes.get(),
            "place": line.and_then(|line| line.place.as_deref()),
            "kind": line.map(|line| line.kind.id()),
            "keeper": line.and_then(|line| line.keeper.as_deref()),
        })
    };
    json!({
        "by": grouped.by.id(),
        "device": grouped.device.0,
        "moment": if grouped.is_failure { "failure" } else { "peak" },
        "events": grouped.events,
        "live_bytes": grouped.live.get(),
        "recorded": grouped.is_recorded,
        "hint": (!grouped.is_recorded).then(|| grouped_hint(grouped.by, grouped.source)),
        "groups": list(&grouped.groups, group),
        "growth": grouped.growing.as_ref().map(|growing| json!({
            "steps": growing.steps,
            "intervals": growing.parts,
            "step": growing.measured_by,
            "bytes": growing.bytes.get(),
            "bytes_per_step": growing.bytes.get() as f64 / growing.steps.max(1) as f64,
            "groups": list(&grouped.growth, growth),
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_rule_has_words() {
        for kind in Kind::ALL {
            assert_eq!(kind_words(kind.id()), kind_name(kind));
        }
        let mut words: Vec<String> = Rule::ALL.iter().map(|&rule| rule_words(rule)).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Rule::ALL.len());
    }
}
