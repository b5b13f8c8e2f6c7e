//! Findings about a recorded process, in a line or two each, for `makeroom why` and for the end of `makeroom run`.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use makeroom_core::{Bytes, Library, ProcessEnd};
use makeroom_explain::{
    Cause, Explanation, Fix, LaunchFailure, LeftKind, Leftover, RunSummary, WaitingFrees,
};

use crate::incomplete::{self, EarlyStop};
use crate::savings;
use crate::text::{COMMAND, DIM, LEAST_COLUMNS, MARGIN, TITLE, title};
use crate::wrap::{clip, wrap};

/// The text for memory without a stack.
pub(crate) const UNKNOWN_PLACE: &str = "an unknown line";
/// Maximum number of sites with memory that was never freed.
const MOST_SITES: usize = 5;
/// Maximum number of kernels that failed to launch.
const MOST_LAUNCHES: usize = 3;
/// Maximum number of fixes at the end of a run.
const MOST_FIXES: usize = 2;

/// Smaller peaks of pinned memory are not reported: PyTorch pins a few bytes itself.
const LEAST_PINNED: Bytes = Bytes::mib(1);

/// The summary of a process that has ended. `file` is its recording, `stop` what the recorder reported if that ends early,
/// and `explained` the cause that was explained on the screen when the failure happened: it is not explained again.
pub fn run_summary_text(
    explanation: &Explanation,
    file: &str,
    stop: Option<&EarlyStop>,
    explained: Option<Cause>,
    columns: usize,
) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    let Some(run) = &explanation.run else { return out };
    let _ = writeln!(out, "{TITLE}makeroom{TITLE:#}: {}", headline(run));
    let verdict = &explanation.verdict;
    // A missing end has lines of its own.
    let is_open_for_missing = run.missing.is_some() && run.is_without_failure();
    let is_explained = explained == Some(verdict.cause);
    let is_healthy = verdict.cause == Cause::None && run.is_clean() && run.has_exited();
    if verdict.cause != Cause::None && !is_open_for_missing {
        let style = if verdict.cause == Cause::Undetermined { AnsiColor::Yellow } else { AnsiColor::Red };
        let style = style.on_default().bold();
        let certainty = verdict.told_certainty().map_or(String::new(), |certainty| format!(" ({certainty})"));
        let title = title(explanation);
        if is_explained {
            let is_host = verdict.cause == Cause::HostMemory;
            let refusals = if is_host { run.pinned_refusals } else { run.refusals };
            let failed = count(refusals.max(1), "allocation");
            let _ = writeln!(out, "{MARGIN}{failed} failed: {style}{title}{style:#}, as explained above");
        } else {
            let _ = writeln!(out, "{MARGIN}{style}{title}{style:#}{certainty}");
            paragraph(&mut out, &verdict.summary, columns);
        }
    }
    if is_healthy {
        healthy(&mut out, run, columns);
    } else {
        findings(&mut out, explanation, run, is_explained, columns);
    }
    if run.dropped > 0 {
        let _ = writeln!(out, "{MARGIN}missing from the recording: {}", count(run.dropped, "event"));
    }
    for remark in &run.remarks {
        let _ = writeln!(out, "{MARGIN}note: {remark}");
    }
    incomplete::lines(&mut out, run, stop, columns);
    if !is_explained {
        what_to_do(&mut out, explanation, columns);
    }
    let (to_do, command) = if is_healthy || is_explained { ("look at", "view") } else { ("explain", "why") };
    let _ = writeln!(
        out,
        "{MARGIN}recording saved; to {to_do} it: {COMMAND}makeroom {command} {file}{COMMAND:#}"
    );
    out
}

/// The line for a program without GPU allocations.
pub fn nothing_recorded_text(program: &str) -> String {
    format!("{TITLE}makeroom{TITLE:#}: no GPU allocation was seen in {program}; nothing was recorded\n")
}

/// The line for a program whose environment turns the recorder off.
pub fn switched_off_text(program: &str) -> String {
    format!(
        "{TITLE}makeroom{TITLE:#}: nothing was recorded: MAKEROOM=off turns the recorder off in {program}\n\nhint: {COMMAND}unset MAKEROOM{COMMAND:#}\n"
    )
}

/// The line for a program whose recorder could not write.
pub fn unrecorded_text(reason: &str) -> String {
    format!(
        "{TITLE}makeroom{TITLE:#}: nothing was recorded: {reason}\n\nhint: use a file that the program can write: -o PATH\n"
    )
}

/// The line for a process whose recorder could not write, if other processes were recorded.
pub fn process_unrecorded_text(process: u32, reason: &str) -> String {
    format!("{TITLE}makeroom{TITLE:#}: PID {process} was not recorded: {reason}\n")
}

/// The line for a process that is still running after the program has ended.
pub fn still_recorded_text(program: &str, process: u32, file: &str) -> String {
    format!("{TITLE}makeroom{TITLE:#}: {program} (PID {process}) is still running and recording to {file}\n")
}

/// The line for a program that runs without the recorder because of this sanitizer.
pub fn sanitized_text(program: &str, sanitizer: &str) -> String {
    format!(
        "{TITLE}makeroom{TITLE:#}: {program} uses {sanitizer}, which conflicts with the recorder: it runs without recording\n"
    )
}

/// The line for a child process that runs without the recorder because of this sanitizer. `is_alone`: nothing else was
/// recorded either.
pub fn sanitized_child_text(program: &str, sanitizer: &str, is_alone: bool) -> String {
    let what = if is_alone { "nothing" } else { "that program" };
    let end = if is_alone { "recorded" } else { "not recorded" };
    format!(
        "{TITLE}makeroom{TITLE:#}: {program} started a program that uses {sanitizer}, which conflicts with the recorder: {what} was {end}\n"
    )
}

/// The line for a run whose file another run is using; `name` is the file it uses instead.
pub fn stepped_aside_text(taken: &str, name: &str) -> String {
    format!("{TITLE}makeroom{TITLE:#}: another run is recording to {taken}; recording to {name} instead\n")
}

/// The line after the last failed allocation that is shown.
pub fn further_refusals_text() -> String {
    format!("{TITLE}makeroom{TITLE:#}: later failures are not shown; the recording contains all of them\n")
}

/// The line for a program that runs without the recorder.
pub fn unprepared_text(program: &str, reason: &str) -> String {
    format!("{TITLE}makeroom{TITLE:#}: {program} runs without recording: {reason}\n")
}

/// The line above the explanation of a failed allocation while the program continues.
pub fn refused_text(bytes: Bytes, device: Option<u32>, rank: Option<&str>) -> String {
    let what = match device {
        Some(device) => format!("allocation of {bytes} failed on GPU {device}"),
        None => format!("allocation of {bytes} of pinned host memory failed"),
    };
    let rank = rank.map_or(String::new(), |rank| format!("{rank}: "));
    format!("{TITLE}makeroom{TITLE:#}: {rank}{what}\n")
}

/// The lines between the peak and the recording of a run without failures: notable facts, or that there are none.
fn healthy(out: &mut String, run: &RunSummary, columns: usize) {
    let gains = savings::lines(run);
    let kept = kept_until_exit(run);
    match (gains.as_slice(), kept.is_empty()) {
        ([], true) if run.freed_with_contexts.is_zero() => {
            paragraph(out, "no allocation failed, and all memory was freed", columns);
        }
        ([], true) => {
            let bytes = run.freed_with_contexts;
            let text = format!("no allocation failed; {bytes} was freed only when its context was destroyed");
            return paragraph(out, &text, columns);
        }
        ([], false) => {
            let kept = kept.join(", ");
            paragraph(
                out,
                &format!("no allocation failed; kept until exit, which is normal: {kept}"),
                columns,
            );
        }
        ([gain], _) => paragraph(out, &format!("no allocation failed; {gain}"), columns),
        (gains, _) => {
            paragraph(out, "no allocation failed", columns);
            for gain in gains {
                paragraph(out, gain, columns);
            }
        }
    }
    if !run.freed_with_contexts.is_zero() {
        freed_with_contexts(out, run);
    }
}

/// Memory that frameworks and libraries keep until exit, each with its size.
fn kept_until_exit(run: &RunSummary) -> Vec<String> {
    let kept = run
        .kept
        .iter()
        .map(|kept| format!("{} {} ({} cached)", kept.by, kept.live + kept.cached, kept.cached));
    let libraries = library_holds(run).into_iter().map(|(library, holds)| format!("{library} {holds}"));
    kept.chain(libraries).collect()
}

fn freed_with_contexts(out: &mut String, run: &RunSummary) {
    let _ = writeln!(out, "{MARGIN}not freed before its context was destroyed: {}", run.freed_with_contexts);
}

/// The section of an explanation about the process.
pub(crate) fn section(out: &mut String, explanation: &Explanation, columns: usize) {
    let Some(run) = &explanation.run else { return };
    let mut lines = String::new();
    findings(&mut lines, explanation, run, false, columns);
    if !lines.is_empty() {
        let _ =
            writeln!(out, "\n{MARGIN}{TITLE}The process{TITLE:#}, {} {}{}", run.program, run.pid, rank(run));
        out.push_str(&lines);
    }
}

fn headline(run: &RunSummary) -> String {
    let peaks: Vec<String> = run
        .peaks
        .iter()
        .map(|(device, bytes)| match run.peaks.len() {
            1 => format!("{bytes} of GPU memory"),
            _ => format!("{bytes} on GPU {device}"),
        })
        .collect();
    let peaks = if peaks.is_empty() { "no GPU memory".to_owned() } else { peaks.join(", ") };
    let pinned = if run.pinned_peak < LEAST_PINNED {
        String::new()
    } else {
        format!(" and {} of pinned host memory", run.pinned_peak)
    };
    // Contexts belong to the driver: `nvidia-smi` counts them.
    let contexts = match run.limit {
        Some(limit) => format!(" (excluding CUDA contexts; --limit {limit} includes them)"),
        None if run.peaks.is_empty() => String::new(),
        None => " (excluding CUDA contexts)".to_owned(),
    };
    format!("{} (PID {}{}) used up to {peaks}{contexts}{pinned}", run.program, run.pid, rank(run))
}

/// The rank, to follow the PID.
fn rank(run: &RunSummary) -> String {
    run.job.name().map_or(String::new(), |name| format!(", {name}"))
}

fn findings(
    out: &mut String,
    explanation: &Explanation,
    run: &RunSummary,
    is_explained: bool,
    columns: usize,
) {
    if run.refusals > 0 && !is_explained {
        let _ = writeln!(out, "{MARGIN}failed: {}", count(run.refusals, "allocation"));
    }
    if run.pinned_refusals > 0 && explanation.verdict.cause != Cause::HostMemory {
        let _ = writeln!(
            out,
            "{MARGIN}failed: {} of pinned memory, the largest of {}",
            count(run.pinned_refusals, "allocation"),
            run.largest_pinned_refused
        );
    }
    if let Some(refused) = run.refused_contexts.as_ref().filter(|_| run.refusals > 0) {
        let site = refused.site.as_ref().map_or(String::new(), |site| format!(", at {site}"));
        let _ = writeln!(out, "{MARGIN}failed: {}{site}", count(refused.count, "context"));
    }
    // A single failed launch is already the verdict.
    let is_told =
        run.failed_launches.len() == 1 && run.refusals == 0 && explanation.verdict.cause != Cause::None;
    for launch in run.failed_launches.iter().take(MOST_LAUNCHES).filter(|_| !is_told) {
        paragraph(out, &failed_launch(launch), columns);
    }
    let more = run.failed_launches.len().saturating_sub(MOST_LAUNCHES);
    if more > 0 {
        let _ = writeln!(out, "{MARGIN}failed to launch: {}", count(more as u64, "other kernel"));
    }
    if let Some(heap) = &run.kernel_heap {
        let set = if heap.is_default { "the default" } else { "set by the program" };
        let text = format!(
            "device-side malloc: kernels in {} share a heap of {}, {set}. When it is full, malloc returns NULL without an error",
            count(heap.modules, "module"),
            heap.limit
        );
        paragraph(out, &text, columns);
    }
    for left in &run.left {
        never_freed(out, left, run, columns);
    }
    held_by_libraries(out, run);
    for kept in run.kept.iter().filter(|kept| !kept.live.is_zero()) {
        let _ = writeln!(
            out,
            "{MARGIN}kept until exit by {} (normal): {} live, {} cached",
            kept.by, kept.live, kept.cached
        );
    }
    for gain in savings::lines(run) {
        paragraph(out, &gain, columns);
    }
    for pending in &run.pending {
        paragraph(out, &waiting(pending), columns);
    }
    for context in run.contexts.iter().filter(|_| run.missing.is_none()) {
        let site = context.site.as_ref().map_or(String::new(), |site| format!(", created at {site}"));
        let _ = writeln!(out, "{MARGIN}never destroyed: {}{site}", count(context.count, "context"));
    }
    if !run.freed_with_contexts.is_zero() {
        freed_with_contexts(out, run);
    }
    if let Some(growth) = &run.host_growth {
        let limit = growth.limit.map_or(String::new(), |limit| format!(", of the {limit} that it may use"));
        let text = format!(
            "host memory: the process grew from {} to {} in {} s{}{limit}",
            growth.first,
            growth.last,
            growth.seconds,
            if growth.is_steady { ", steadily" } else { "" }
        );
        paragraph(out, &text, columns);
    }
}

fn failed_launch(launch: &LaunchFailure) -> String {
    let kernel = launch.kernel.as_deref().unwrap_or("a kernel");
    let times = if launch.count == 1 { String::new() } else { format!(", {} times", launch.count) };
    let site = launch.site.as_ref().map_or(String::new(), |site| format!(", at {site}"));
    format!(
        "failed to launch: {kernel}{times}{site}: {} (error {}, {})",
        launch.reason, launch.error, launch.error_name
    )
}

fn never_freed(out: &mut String, left: &Leftover, run: &RunSummary, columns: usize) {
    let what = match left.kind {
        LeftKind::Device(device) if run.peaks.len() > 1 => format!("memory of GPU {device}"),
        LeftKind::Device(_) => "GPU memory".to_owned(),
        LeftKind::Pinned => "pinned memory".to_owned(),
        LeftKind::Registered => "registered host memory".to_owned(),
    };
    let end = match run.end {
        Some(ProcessEnd::Exited(_)) => ", released by the driver at exit",
        Some(ProcessEnd::Replaced) => ", when it called exec",
        Some(ProcessEnd::Signalled(_)) => ", when a signal killed it",
        _ => "",
    };
    // The time after the recording stopped is unknown.
    let state = if run.missing.is_some() { "live when the recording stops" } else { "never freed" };
    let allocations = count(left.allocations, "allocation");
    let _ = writeln!(out, "{MARGIN}{state}: {} of {what} in {allocations}{end}", left.bytes);
    for site in left.sites.iter().take(MOST_SITES) {
        let through = site.through.as_ref().map_or(String::new(), |through| format!("  via {through}"));
        let caller = site.caller.as_ref().map_or(String::new(), |caller| format!(", called by {caller}"));
        let place = site.place.as_deref().unwrap_or(UNKNOWN_PLACE);
        let place = format!("{} × {place}{caller}", site.allocations);
        let place = clip(&place, columns.saturating_sub(20));
        let room = columns.saturating_sub(20 + place.chars().count());
        let through = if room < 12 { String::new() } else { clip(&through, room) };
        let _ = writeln!(out, "    {:>12}  {place}{DIM}{through}{DIM:#}", site.bytes.to_string());
    }
    let more = left.sites.len().saturating_sub(MOST_SITES);
    if more > 0 {
        let shown: Bytes = left.sites.iter().take(MOST_SITES).map(|site| site.bytes).sum();
        let rest = (left.bytes - shown).to_string();
        let _ = writeln!(out, "    {rest:>12}  {}", count(more as u64, "other line"));
    }
}

/// A line for each library.
fn held_by_libraries(out: &mut String, run: &RunSummary) {
    for (library, holds) in library_holds(run) {
        let _ = writeln!(out, "{MARGIN}kept until exit by {library} (normal): {holds}");
    }
}

/// Each library with all the memory it holds, by size.
fn library_holds(run: &RunSummary) -> Vec<(Library, String)> {
    let mut libraries: Vec<Library> = Vec::new();
    for hold in &run.held_by_libraries {
        if !libraries.contains(&hold.by) {
            libraries.push(hold.by);
        }
    }
    let holds_of = |library: Library| {
        let holds = run.held_by_libraries.iter().filter(|hold| hold.by == library);
        let holds: Vec<String> = holds
            .map(|hold| match hold.kind {
                LeftKind::Device(device) if run.peaks.len() > 1 => {
                    format!("{} on GPU {device}", hold.bytes)
                }
                LeftKind::Device(_) => hold.bytes.to_string(),
                LeftKind::Pinned | LeftKind::Registered => format!("{} pinned", hold.bytes),
            })
            .collect();
        (library, holds.join(" and "))
    };
    libraries.into_iter().map(holds_of).collect()
}

fn waiting(pending: &WaitingFrees) -> String {
    let frees = |bytes: Bytes, frees: u64, streams: u64| {
        format!("{bytes} in {} on {}", count(frees, "free"), count(streams, "stream"))
    };
    let mut text = String::from("freed with cudaFreeAsync, completion not confirmed (not a leak): ");
    let asked = pending.asked.as_ref().filter(|(asked, _)| asked.pending.bytes >= pending.at_end.bytes);
    if let Some((asked, site)) = asked {
        let then = asked.pending;
        let site = site.as_ref().map_or(String::new(), |site| format!(" at {site}"));
        let _ = write!(
            text,
            "{}, when {} was allocated outside of the driver's pools{site}",
            frees(then.bytes, then.frees, then.streams),
            asked.size
        );
    } else {
        let end = pending.at_end;
        let _ = write!(text, "{} at the end", frees(end.bytes, end.frees, end.streams));
    }
    if let Some(refused) = pending.at_refusal {
        let _ = write!(text, "; {} at the first failed allocation", refused.bytes);
    }
    text
}

fn what_to_do(out: &mut String, explanation: &Explanation, columns: usize) {
    let mut fixes: Vec<&Fix> = explanation.causes.iter().flat_map(|finding| &finding.fixes).collect();
    fixes.dedup_by_key(|fix| &fix.action);
    for fix in fixes.into_iter().take(MOST_FIXES) {
        paragraph(out, &format!("fix: {}", fix.action), columns);
        if let Some(command) = &fix.command {
            let _ = writeln!(out, "{MARGIN}  {COMMAND}{command}{COMMAND:#}");
        }
    }
}

pub(crate) fn paragraph(out: &mut String, text: &str, columns: usize) {
    for (index, line) in wrap(text, columns - 4).iter().enumerate() {
        let indent = if index == 0 { "" } else { "  " };
        let _ = writeln!(out, "{MARGIN}{indent}{line}");
    }
}

/// A number with its noun, in the plural if needed.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
