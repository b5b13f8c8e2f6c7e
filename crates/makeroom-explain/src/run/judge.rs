//! Turns the facts about a process into causes in addition to those of a failed allocation, or into the verdict if no
//! allocation failed.

use makeroom_core::Bytes;

use super::{LaunchFailure, LeftKind, Missing, RunSummary};
use crate::advice::{check_kernel_malloc, host_memory_in_pieces, raise_kernel_heap, record_with_stacks};
use crate::{Cause, Certainty, Explanation, Finding, Fix, Verdict};

/// Adds the findings of the summary to an explanation.
pub(crate) fn judge(explanation: &mut Explanation, summary: &RunSummary) {
    judge_failures(explanation, summary);
    judge_remarks(explanation, summary);
}

/// Failures, which can be reported at any time.
pub(crate) fn judge_failures(explanation: &mut Explanation, summary: &RunSummary) {
    let mut failures = Vec::new();
    let refused = summary.refused_contexts.as_ref();
    failures.extend(refused.map(|refused| super::contexts::judge(refused, summary.limit)));
    failures.extend(pinned_refused(summary));
    failures.extend(launch_failed(summary));
    let decides = explanation.verdict.cause == Cause::None;
    if decides && let Some(first) = failures.first() {
        explanation.causes.retain(|finding| finding.cause != Cause::None);
        explanation.verdict =
            Verdict { cause: first.cause, certainty: first.certainty, summary: first.summary.clone() };
        explanation.causes.splice(0..0, failures);
    } else {
        explanation.causes.extend(failures);
    }
}

/// A recording that does not show how its process ended cannot prove that nothing failed. The same applies in part to
/// one with missing events.
pub(crate) fn judge_missing(explanation: &mut Explanation, summary: &RunSummary) {
    let Some(missing) = summary.missing else {
        judge_dropped(explanation, summary.dropped);
        return;
    };
    let seconds = seconds(summary.recorded_us);
    let stop = match missing {
        Missing::End => format!(
            "The recording stops after {seconds} and has no end: the process was killed, or it kept running and could no longer be recorded."
        ),
        Missing::Torn(bytes) => format!(
            "The recording stops after {seconds} and ends with {bytes} of incomplete data, as happens after a kill or on a full disk."
        ),
        Missing::Rest => {
            format!(
                "The recording stops after {seconds}: the recorder failed, and the program continued without it."
            )
        }
    };
    if explanation.verdict.cause != Cause::None {
        // A damaged end already has a note.
        if !matches!(missing, Missing::Torn(_)) {
            explanation.notes.push(stop);
        }
        return;
    }
    let summary = format!(
        "{stop} Whether anything failed after that is unknown. Up to that point: {}",
        explanation.verdict.summary
    );
    explanation.causes.retain(|finding| finding.cause != Cause::None);
    let (cause, certainty) = (Cause::Undetermined, Certainty::Undetermined);
    explanation.verdict = Verdict { cause, certainty, summary: summary.clone() };
    explanation.causes.insert(0, finding(cause, certainty, None, summary, Vec::new()));
    explanation.next.push(
        Fix::new("record the whole run again, on a disk with room for the file").command("makeroom run -- …"),
    );
}

/// A failure may be among the lost events.
fn judge_dropped(explanation: &mut Explanation, dropped: u64) {
    if dropped == 0 || explanation.verdict.cause != Cause::None {
        return;
    }
    let missing = format!(" {} could not be recorded.", count(dropped, "event"));
    explanation.verdict.certainty = Certainty::Likely;
    explanation.verdict.summary.push_str(&missing);
    for finding in explanation.causes.iter_mut().filter(|finding| finding.cause == Cause::None) {
        finding.certainty = Certainty::Likely;
        finding.evidence.push(missing.trim().to_owned());
    }
}

/// A duration, with useful precision.
fn seconds(microseconds: u64) -> String {
    let seconds = microseconds as f64 / 1e6;
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

/// Findings that require that the process has ended.
fn judge_remarks(explanation: &mut Explanation, summary: &RunSummary) {
    let mut remarks: Vec<Finding> = Vec::new();
    remarks.extend(kernel_heap(summary));
    remarks.extend(host_growth(summary));
    // A program that ran out of memory often exits without cleaning up.
    remarks.extend(never_freed(summary).filter(|_| summary.refusals == 0));
    if explanation.verdict.cause == Cause::None {
        for remark in &remarks {
            explanation.verdict.summary.push(' ');
            explanation.verdict.summary.push_str(&remark.summary);
        }
        if let Some(nothing) = explanation.causes.iter_mut().find(|finding| finding.cause == Cause::None) {
            nothing.fixes.splice(0..0, remarks.iter().flat_map(|remark| remark.fixes.clone()));
        }
    }
    let is_known = |remark: &Finding| explanation.causes.iter().any(|known| known.cause == remark.cause);
    remarks.retain(|remark| !is_known(remark));
    explanation.causes.extend(remarks);
}

fn finding(
    cause: Cause,
    certainty: Certainty,
    bytes: Option<Bytes>,
    summary: String,
    fixes: Vec<Fix>,
) -> Finding {
    Finding { bytes, fixes, ..Finding::new(cause, certainty, summary) }
}

fn pinned_refused(summary: &RunSummary) -> Option<Finding> {
    if summary.pinned_refusals == 0 {
        return None;
    }
    let pinned = Some(summary.pinned_peak).filter(|bytes| !bytes.is_zero());
    let text = format!(
        "{} for pinned host memory failed, the largest for {}{}.",
        count(summary.pinned_refusals, "request"),
        summary.largest_pinned_refused,
        pinned.map_or(String::new(), |bytes| format!("; peak pinned memory was {bytes}"))
    );
    let bytes = Some(summary.largest_pinned_refused);
    Some(finding(Cause::HostMemory, Certainty::Certain, bytes, text, vec![host_memory_in_pieces()]))
}

fn launch_failed(summary: &RunSummary) -> Option<Finding> {
    let launch = summary.failed_launches.iter().max_by_key(|launch| launch.is_for_resources)?;
    let kernel = launch.kernel.as_deref().unwrap_or("a kernel");
    let times = if launch.count == 1 { String::new() } else { format!(", {} times", launch.count) };
    let site = launch.site.as_ref().map_or(String::new(), |site| format!(" at {site}"));
    let text = format!(
        "{kernel} failed to launch{site}{times}: {} (error {}, {}). Code that does not check the launch continues with stale results.",
        launch.reason, launch.error, launch.error_name
    );
    let (cause, certainty) = match launch {
        LaunchFailure { is_for_resources: false, .. } => (Cause::Undetermined, Certainty::Undetermined),
        LaunchFailure { is_certain: true, .. } => (Cause::SharedMemoryOrKernelResource, Certainty::Certain),
        _ => (Cause::SharedMemoryOrKernelResource, Certainty::Likely),
    };
    let bytes = Some(launch.shared_memory).filter(|bytes| !bytes.is_zero());
    let mut finding = finding(cause, certainty, bytes, text, fixes_of(launch));
    finding.evidence.extend(launch.site.iter().map(|site| format!("launched at {site}")));
    finding.evidence.push(count(launch.count, "launch") + " failed");
    Some(finding)
}

fn fixes_of(launch: &LaunchFailure) -> Vec<Fix> {
    let mut fixes = Vec::new();
    if launch.is_for_resources {
        fixes.push(Fix::new(if launch.shared_memory.is_zero() {
            "launch it with fewer threads per block, or limit its registers (__launch_bounds__)"
        } else {
            "use smaller tiles that fit in shared memory, and launch more blocks"
        }));
        if !launch.is_certain && !launch.shared_memory.is_zero() {
            fixes.push(Fix::new("raise the kernel's shared memory limit before launching it").command(
                format!(
                    "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, {});",
                    launch.shared_memory.get()
                ),
            ));
        }
    }
    fixes.push(
        Fix::new("check the result of every launch")
            .command("if (cudaError_t error = cudaGetLastError()) { … }"),
    );
    fixes
}

fn kernel_heap(summary: &RunSummary) -> Option<Finding> {
    let heap = summary.kernel_heap.as_ref()?;
    let text = format!(
        "Kernels in {} call malloc or new; they share an in-kernel heap of {}{}. When it is full, malloc returns NULL inside the kernel, and no error is reported.",
        count(heap.modules, "module"),
        heap.limit,
        if heap.is_default { ", the default" } else { "" }
    );
    // A program that sets the size knows how much its kernels need.
    let fixes = vec![if heap.is_default { raise_kernel_heap() } else { check_kernel_malloc() }];
    Some(finding(Cause::SharedMemoryOrKernelResource, Certainty::Possible, Some(heap.limit), text, fixes))
}

fn host_growth(summary: &RunSummary) -> Option<Finding> {
    let growth = summary.host_growth?;
    let text = format!(
        "The process's host memory grew from {} to {} in {} s.",
        growth.first, growth.last, growth.seconds
    );
    let fixes = vec![Fix::new(
        "look for host buffers that are never freed, and for lists and queues that only grow: makeroom sees only the total, not the callers",
    )];
    Some(finding(Cause::HostMemory, Certainty::Possible, Some(growth.last - growth.first), text, fixes))
}

/// Memory that a program which exited by itself did not free.
fn never_freed(summary: &RunSummary) -> Option<Finding> {
    if !summary.has_exited() || summary.left.is_empty() {
        return None;
    }
    let sum = |is_meant: fn(LeftKind) -> bool| -> Bytes {
        summary.left.iter().filter(|left| is_meant(left.kind)).map(|left| left.bytes).sum()
    };
    let device = sum(|kind| matches!(kind, LeftKind::Device(_)));
    let host = sum(|kind| !matches!(kind, LeftKind::Device(_)));
    let what = match (device.is_zero(), host.is_zero()) {
        (false, false) => format!("{device} of device memory and {host} of pinned memory were"),
        (true, _) => format!("{host} of pinned memory was"),
        (_, true) => format!("{device} of device memory was"),
    };
    let text = format!("{what} never freed; the driver released it at exit.");
    let mut sites = summary.left.iter().flat_map(|left| &left.sites);
    let fix = sites.find_map(|site| {
        let caller = site.caller.as_ref().map_or(String::new(), |caller| format!(" (called from {caller})"));
        let action = format!("free the memory allocated at {}{caller} on every path", site.place.as_ref()?);
        Some(Fix::new(action).frees(site.bytes))
    });
    let fixes = vec![fix.unwrap_or_else(record_with_stacks)];
    Some(finding(Cause::Leak, Certainty::Possible, Some(device + host), text, fixes))
}

/// A number with its noun.
fn count(number: u64, noun: &str) -> String {
    match (number, noun) {
        (1, noun) => format!("1 {noun}"),
        (number, "launch") => format!("{number} launches"),
        (number, noun) => format!("{number} {noun}s"),
    }
}
