//! The account as text: the verdict, then one table per GPU, the largest process first.

use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use makeroom_core::{Bytes, SortCompact as _};
use makeroom_holders::{Account, Device, DeviceMemory, Holder, Problem, Process, Requirement, UnlistedCause};

use super::by_need;
use super::verdict::{likely_cause, verdict};
use crate::bars::bar;
use crate::text::{COMMAND, DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::{clip, wrap};

const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Columns of a bar.
const BAR_COLUMNS: usize = 14;
/// Holders shown without `--all`: at most this many of one GPU,
const MOST_HOLDERS: usize = 12;
/// about this many of all GPUs together,
const MOST_ROWS: usize = 24;
/// and at least this many of each.
const LEAST_HOLDERS: usize = 3;
/// Maximum number of causes per device.
const MOST_CAUSES: usize = 3;

/// The account as text. `shows_all` lists every holder.
pub fn ps_text(
    account: &Account,
    requirement: Option<&Requirement>,
    shows_all: bool,
    columns: usize,
) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::from("\n");
    for line in verdict(account, requirement) {
        paragraph_at(&mut out, &line.text, columns, if line.is_warning { WARNING } else { TITLE });
    }
    let devices = by_need(account);
    let most = (MOST_ROWS / devices.len().max(1)).clamp(LEAST_HOLDERS, MOST_HOLDERS);
    for device in devices {
        device_text(&mut out, device, if shows_all { usize::MAX } else { most }, columns);
    }
    if let Some(requirement) = requirement {
        plan_text(&mut out, account, requirement, columns);
    }
    out
}

/// The processes that use the driver, for when it cannot be queried.
pub fn users_text(account: &Account, columns: usize) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    if account.users.is_empty() {
        let _ = writeln!(out, "\n{MARGIN}no process visible from here has the driver's files open");
        return out;
    }
    let _ = writeln!(out, "\n{MARGIN}{TITLE}processes with the driver's files open{TITLE:#}");
    for process in &account.users {
        let state = match process.stat.state {
            makeroom_holders::State::Alive => "",
            makeroom_holders::State::Uninterruptible => "state D, cannot be killed  ",
            makeroom_holders::State::Stopped => "stopped  ",
            makeroom_holders::State::Zombie => "zombie  ",
        };
        let line = format!(
            "{:>9}  {:<10} {:>10}  {state}{}",
            process.stat.pid,
            clip(&process.user_name, 10),
            age(process.age),
            process.command_line()
        );
        let _ = writeln!(out, "{MARGIN}{}", clip(&line, columns - 2));
    }
    out
}

fn device_text(out: &mut String, device: &Device, most: usize, columns: usize) {
    let kind = if device.label.part.is_some() { "MIG instance" } else { "GPU" };
    let _ = write!(out, "\n{MARGIN}{TITLE}{kind} {}{TITLE:#}", device.label);
    for name in [&device.name, &device.uuid] {
        if !name.is_empty() {
            let _ = write!(out, ", {name}");
        }
    }
    let is_idle = device.holders.is_empty() && !device.unlisted.matters() && !device.is_divided;
    match device.memory {
        Some(memory) if is_idle => {
            let _ = writeln!(out, "\n{MARGIN}  {} of {} free, no processes", memory.free, memory.total);
        }
        Some(memory) => {
            let _ = writeln!(out);
            account_text(out, device, memory, most, columns);
        }
        None => {
            let _ = writeln!(out);
        }
    }
    problems_text(out, device, columns);
    for group in &device.idle {
        let text = format!(
            "{} idle {} of process {}: {}. Workers that only load data need no GPU: start them before using CUDA, or with CUDA_VISIBLE_DEVICES=\"\"",
            group.pids.len(),
            if group.pids.len() == 1 { "context" } else { "contexts" },
            group.parent,
            group.bytes
        );
        paragraph(out, &text, columns, Style::new());
    }
    if device.unlisted.matters() || !device.unlisted.causes.is_empty() {
        unlisted_text(out, device, columns);
    }
    for part in &device.parts {
        device_text(out, part, most, columns);
    }
}

/// Queries that failed, one line per reason; memory comes first.
fn problems_text(out: &mut String, device: &Device, columns: usize) {
    let mut rest: Vec<&Problem> = device.problems.iter().collect();
    rest.sort_compact_by_key(|problem| problem.what != "memory");
    while let Some(&first) = rest.first() {
        let (alike, others): (Vec<&Problem>, Vec<&Problem>) =
            rest.iter().partition(|problem| problem.answer == first.answer);
        let what: Vec<&str> = alike.iter().map(|problem| problem.what.as_str()).collect();
        let text = format!("could not read {}: {}", what.join(", "), first.answer);
        paragraph(out, &text, columns, WARNING);
        for line in wrap(&first.hint(device.label.card), columns - 8) {
            let _ = writeln!(out, "{MARGIN}    {COMMAND}{line}{COMMAND:#}");
        }
        rest = others;
    }
}

struct ProcessRow {
    pid: String,
    bytes: Option<Bytes>,
    shown: String,
    user: String,
    age: String,
    what: String,
    notes: Vec<String>,
}

fn account_text(out: &mut String, device: &Device, memory: DeviceMemory, most: usize, columns: usize) {
    let mut rows: Vec<ProcessRow> = device.holders.iter().take(most).map(row).collect();
    if device.holders.len() > most {
        let rest = &device.holders[most..];
        let bytes = rest.iter().filter_map(|holder| holder.bytes).sum();
        rows.push(line(bytes, &format!("{} more processes (--all shows them)", rest.len())));
    }
    let unlisted = device.unlisted.bytes;
    if unlisted != 0 {
        let mut row = line(Bytes::new(unlisted.unsigned_abs()), "no listed process");
        if unlisted < 0 {
            row.shown.insert(0, '−');
            row.bytes = None;
        }
        rows.push(row);
    }
    rows.push(line(memory.reserved, "reserved by the driver"));
    rows.push(line(memory.free, "free"));
    rows.push(ProcessRow { bytes: None, ..line(memory.total, "total") });
    let width =
        |of: fn(&ProcessRow) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (pid, size) = (width(|row| &row.pid).max(7), width(|row| &row.shown));
    let (user, age) = (width(|row| &row.user).clamp(4, 12), width(|row| &row.age).max(3));
    let heading = format!(
        "  {:>pid$}  {:>size$}  {:<BAR_COLUMNS$}  {:<user$}  {:>age$}  command",
        "process", "memory", "", "user", "age"
    );
    let _ = writeln!(out, "{MARGIN}{DIM}{heading}{DIM:#}");
    for row in rows {
        let drawn = row.bytes.map_or(String::new(), |bytes| bar(bytes.share_of(memory.total), BAR_COLUMNS));
        let text = format!(
            "  {:>pid$}  {:>size$}  {drawn:<BAR_COLUMNS$}  {:<user$}  {:>age$}  {}",
            row.pid,
            row.shown,
            clip(&row.user, user),
            row.age,
            row.what
        );
        let _ = writeln!(out, "{MARGIN}{}", clip(text.trim_end(), columns - 2));
        if !row.notes.is_empty() {
            let indent = pid + 4;
            let notes = clip(&row.notes.join(" · "), columns.saturating_sub(indent + 4));
            let _ = writeln!(out, "{MARGIN}{:indent$}{DIM}{notes}{DIM:#}", "");
        }
    }
}

fn row(holder: &Holder) -> ProcessRow {
    let process = holder.process.as_ref();
    let mut notes: Vec<String> = holder.findings.iter().map(makeroom_holders::Finding::words).collect();
    if let Some(process) = process {
        notes.extend(belonging(process));
    }
    if let Some(peak) = holder.peak {
        notes.push(format!("peak {peak}"));
    }
    if let Some(recording) = &holder.recording {
        let live = recording.live.map_or(String::new(), |live| format!("allocated {live} itself, "));
        notes.push(format!("{live}makeroom why {}", recording.shown_name()));
    }
    ProcessRow {
        pid: holder.pid.to_string(),
        bytes: holder.bytes,
        shown: holder.bytes.map_or("?".to_owned(), |bytes| bytes.to_string()),
        user: process.map_or(String::new(), |process| process.user_name.clone()),
        age: process.map_or(String::new(), |process| age(process.age)),
        what: process.map_or(String::new(), Process::command_line),
        notes,
    }
}

/// The container, pod, job or unit of a process.
pub(crate) fn belonging(process: &Process) -> Vec<String> {
    let belonging = &process.belonging;
    let mut words = Vec::new();
    if let Some(job) = &belonging.slurm_job {
        words.push(format!("Slurm job {job}"));
    }
    if let Some(pod) = &belonging.pod {
        words.push(format!("pod {pod}"));
    }
    if let (Some(container), Some(runtime)) = (belonging.short_container(), belonging.runtime) {
        words.push(format!("{runtime} {container}"));
    } else if let Some(unit) = &belonging.unit {
        words.push(unit.clone());
    }
    words
}

fn line(bytes: Bytes, what: &str) -> ProcessRow {
    ProcessRow {
        pid: String::new(),
        bytes: Some(bytes),
        shown: bytes.to_string(),
        user: String::new(),
        age: String::new(),
        what: what.to_owned(),
        notes: Vec::new(),
    }
}

/// A duration in one unit, or in two if the second matters.
fn age(age: Option<Duration>) -> String {
    let Some(seconds) = age.map(|age| age.as_secs()) else { return String::new() };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {:02} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

fn unlisted_text(out: &mut String, device: &Device, columns: usize) {
    let bytes = Bytes::new(device.unlisted.bytes.unsigned_abs());
    let causes = &device.unlisted.causes;
    let Some(first) = causes.first() else {
        let text = format!("{bytes} is in use by an unknown process");
        paragraph(out, &text, columns, WARNING);
        return;
    };
    let title = if device.unlisted.bytes < 0 {
        format!("processes report {bytes} more than the GPU has in use; {}", likely_cause(first))
    } else {
        format!("{bytes} without a listed owner; {}", likely_cause(first))
    };
    paragraph(out, &title, columns, WARNING);
    cause_text(out, first, columns);
    for cause in causes.iter().skip(1).take(MOST_CAUSES - 1) {
        paragraph(out, &likely_cause(cause), columns, Style::new());
        cause_text(out, cause, columns);
    }
}

fn cause_text(out: &mut String, cause: &UnlistedCause, columns: usize) {
    const MOST_EVIDENCE: usize = 4;
    for evidence in cause.evidence.iter().take(MOST_EVIDENCE) {
        for line in wrap(evidence, columns - 8) {
            let _ = writeln!(out, "{MARGIN}    {line}");
        }
    }
    if cause.evidence.len() > MOST_EVIDENCE {
        let _ = writeln!(out, "{MARGIN}    and {} more", cause.evidence.len() - MOST_EVIDENCE);
    }
    for line in wrap(&cause.fix, columns - 8) {
        let _ = writeln!(out, "{MARGIN}    {COMMAND}{line}{COMMAND:#}");
    }
}

/// Which processes to stop to get a size that is not free.
fn plan_text(out: &mut String, account: &Account, requirement: &Requirement, columns: usize) {
    if requirement.is_met() || requirement.best.is_none() {
        return;
    }
    let _ = writeln!(out);
    let Some(plan) = &requirement.plan else {
        let text = "Stopping every process that can be stopped from here would not free enough.";
        paragraph_at(out, text, columns, Style::new());
        if account.devices.iter().any(|device| device.unlisted.matters()) {
            let text = "This does not include memory without a listed owner (see above).";
            paragraph_at(out, text, columns, Style::new());
        }
        return;
    };
    let _ = writeln!(
        out,
        "{MARGIN}To free enough on GPU {}, run these commands (makeroom does not):",
        plan.device
    );
    for remedy in &plan.remedies {
        let _ = writeln!(out, "{MARGIN}  {COMMAND}{}{COMMAND:#}  frees {}", remedy.command, remedy.frees);
        for line in wrap(&format!("lost: {}", remedy.loses), columns - 8) {
            let _ = writeln!(out, "{MARGIN}    {DIM}{line}{DIM:#}");
        }
    }
    let _ = writeln!(out, "{MARGIN}Then {} is free.", plan.free_then);
}

fn paragraph(out: &mut String, text: &str, columns: usize, style: Style) {
    for line in wrap(text, columns - 6) {
        let _ = writeln!(out, "{MARGIN}  {style}{line}{style:#}");
    }
}

fn paragraph_at(out: &mut String, text: &str, columns: usize, style: Style) {
    for line in wrap(text, columns - 2) {
        let _ = writeln!(out, "{MARGIN}{style}{line}{style:#}");
    }
}
