//! The rows of a process in a log, and the kind of failure that its text shows.

use makeroom_core::Bytes;
use makeroom_core::identity::{JobField, JobIdentity, ProcessEvent, ReportedProcess};
use makeroom_explain::{Cause, Explanation, LedgerLine};
use makeroom_ordered::{OrderedMap, OrderedSet};
use makeroom_text::TextReader;

use super::log_text::{Label, RankText};
use super::{MOST_FIXES, Source, first_fixes};
use crate::tables::{
    CAUGHT, DeviceRow, End, FailureKind, FailureRow, KilledProcess, RecordingKind, RecordingRow, Rows,
};

/// Other processes on a GPU that are kept.
const MOST_OTHERS: usize = 64;

/// What the whole log contains.
pub(super) struct Found<'log> {
    source: &'log Source,
    /// Whether it names a process.
    has_ranks: bool,
    /// The pods whose ranks it names.
    pods: OrderedSet<String>,
    /// Whether it is, or contains, a log of the kernel.
    is_of_kernel: bool,
    /// Whether a launcher reports how ranks ended.
    has_list: bool,
}

impl<'log> Found<'log> {
    pub(super) fn new(
        source: &'log Source,
        ranks: &OrderedMap<Label, RankText>,
        reported: &[ReportedProcess],
        has_list: bool,
    ) -> Self {
        let is_rank = |label: &Label| matches!(label, Label::Rank(_) | Label::LocalRank(..));
        let pods = ranks.iter().filter(|(label, _)| is_rank(label));
        Self {
            source,
            has_ranks: ranks.keys().any(|label| *label != Label::None),
            pods: pods.filter_map(|(_, text)| text.identity.pod.clone()).collect(),
            is_of_kernel: reported.iter().any(|reported| reported.event == ProcessEvent::KilledForMemory),
            has_list,
        }
    }

    /// Whether lines with this label can be those of a launcher: other lines name ranks.
    fn is_launcher(&self, label: &Label) -> bool {
        match label {
            Label::None => self.has_ranks,
            Label::Pod(pod) => self.pods.contains(pod),
            _ => false,
        }
    }
}

/// Failures of processes that are known only by their PID: those of the log, or of other files.
pub(super) fn report_processes(reported: &[ReportedProcess], recording: &str, rows: &mut Rows) {
    rows.failures.extend(reported.iter().map(|reported| {
        let (kind, killed) = match reported.event {
            ProcessEvent::KilledForMemory => {
                let ReportedProcess { program, cgroup, host, .. } = reported.clone();
                (FailureKind::HostMemory, Some(KilledProcess { program, cgroup, host }))
            }
            ProcessEvent::AskedToEnd => (FailureKind::Terminated, None),
        };
        FailureRow { pid: Some(reported.pid), killed, ..FailureRow::new(recording.to_owned(), kind) }
    }));
}

/// Adds the rows of a process.
pub(super) fn row_of(label: &Label, mut text: RankText, found: &Found<'_>, rows: &mut Rows) {
    let explanation = text.reader.take().map(TextReader::finish);
    let own = explanation.as_ref().and_then(failure_kind);
    let is_launcher = found.is_launcher(label);
    // The launcher repeats the signals of the ranks that it lists.
    if (is_launcher || *label == Label::None) && found.has_list {
        text.kinds.retain(|kind| !matches!(kind, FailureKind::Killed | FailureKind::Terminated));
    }
    // The kernel's log is not about itself.
    let is_kernels = found.is_of_kernel && *label == Label::None;
    let own = own.filter(|&kind| !(is_kernels && kind == FailureKind::HostMemory));
    let error = text.errors.finish().filter(|_| own.is_none());
    text.kinds.extend(error.as_ref().map(|(kind, _)| *kind));
    let has_failed = own.is_some() || text.end.is_some() || !text.kinds.is_empty();
    // The launcher's own lines are not a process.
    if is_launcher && !has_failed {
        return;
    }
    // A worker that prints nothing about a failure is one of many, such as Ray's own.
    if matches!(label, Label::Process(..)) && !has_failed {
        return;
    }
    let is_own = matches!(label, Label::Rank(rank) if found.source.identity.rank == Some(*rank));
    let process = label.words().filter(|_| !is_own);
    let recording = RecordingRow::name(&found.source.name, process.as_deref());
    if let Some(host) = text.host.take().filter(|_| text.identity.host.is_none()) {
        text.identity.set(JobField::Host, &host);
    }
    let identity = text.identity.or(&found.source.identity);
    for &kind in text.kinds.iter().chain(own.as_ref()) {
        let request = explanation.as_ref().filter(|_| Some(kind) == own);
        let request = request.and_then(|explanation| explanation.request.as_ref());
        let failure = FailureRow {
            device: request.and_then(|request| request.device).map(|device| device.0),
            requested_bytes: request.and_then(|request| request.bytes).map(Bytes::get),
            free_bytes: explanation.as_ref().filter(|_| Some(kind) == own).and_then(free),
            place: request.and_then(|request| request.site.clone()),
            line: text.memory_line.filter(|_| Some(kind) == own).or(text.end_line),
            others: explanation.as_ref().filter(|_| Some(kind) == own).map_or_else(Vec::new, other_processes),
            ..FailureRow::new(recording.clone(), kind)
        };
        if kind == FailureKind::CollectiveTimeout && !text.collectives.is_empty() {
            let collectives = std::mem::take(&mut text.collectives).into_iter();
            rows.failures
                .extend(collectives.map(|one| FailureRow { collective: Some(one), ..failure.clone() }));
        } else {
            rows.failures.push(failure);
        }
    }
    // The program handled it.
    let is_handled = |explanation: &&Explanation| explanation.verdict.cause == Cause::None;
    let handled = explanation.as_ref().filter(is_handled).filter(|_| *label != Label::None);
    if let Some(ledger) = handled.and_then(|explanation| explanation.ledger.as_ref()) {
        rows.failures.push(FailureRow {
            device: ledger.device().map(|device| device.0),
            later_allocations: CAUGHT,
            ..FailureRow::new(recording.clone(), FailureKind::DeviceMemory)
        });
    }
    let end = text.end.unwrap_or(End::Unknown);
    let recording = row(recording, &identity, end, explanation.as_ref());
    let (is_first_failure, ended_line) = (text.is_first, text.end_line);
    rows.recordings.push(RecordingRow {
        process,
        pid: text.pid,
        is_first_failure,
        ended_line,
        error: error.map(|(_, error)| error),
        ..recording
    });
}

/// Free memory of the GPU.
fn free(explanation: &Explanation) -> Option<u64> {
    let lines = explanation.ledger.as_ref()?.lines();
    lines.iter().find(|line| line.what() == "free").map(|line| line.bytes().get())
}

/// The other processes on the GPU that the message lists: PID and memory.
fn other_processes(explanation: &Explanation) -> Vec<(u32, u64)> {
    let lines = explanation.ledger.as_ref().map_or(&[][..], |ledger| ledger.lines());
    let process = |line: &LedgerLine| {
        let pid = line.what().strip_prefix("process ")?.parse().ok()?;
        Some((pid, line.bytes().get()))
    };
    lines.iter().filter_map(process).take(MOST_OTHERS).collect()
}

/// The kind of failure that an explanation stands for.
fn failure_kind(explanation: &Explanation) -> Option<FailureKind> {
    match explanation.verdict.cause {
        Cause::None => None,
        Cause::HostMemory => Some(FailureKind::HostMemory),
        // The message is not about memory, or does not say which.
        Cause::Undetermined
            if explanation
                .request
                .as_ref()
                .is_none_or(|request| request.bytes.is_none() && request.device.is_none()) =>
        {
            None
        }
        _ => Some(FailureKind::DeviceMemory),
    }
}

/// The row of a process of which a log is known.
fn row(
    recording: String,
    identity: &JobIdentity,
    end: End,
    explanation: Option<&Explanation>,
) -> RecordingRow {
    let ledger = explanation.and_then(|explanation| explanation.ledger.as_ref());
    let device = explanation.and_then(|explanation| explanation.request.as_ref()?.device);
    let device = device.map(|device| DeviceRow {
        device: device.0,
        total_bytes: ledger.and_then(makeroom_explain::Ledger::total).map(Bytes::get),
        is_used: true,
        ..DeviceRow::default()
    });
    let fixes = explanation.map_or(&[][..], first_fixes);
    RecordingRow {
        recording,
        process: None,
        kind: RecordingKind::Log,
        rank: identity.rank,
        local_rank: identity.local_rank,
        world_size: identity.world_size,
        host: identity.node.clone().or_else(|| identity.host.clone()),
        pod: identity.pod.clone(),
        node_rank: identity.node_rank,
        job: identity.job_id.clone(),
        attempt: identity.attempt,
        replica: identity.part(),
        run: None,
        pid: None,
        parent_pid: None,
        program: None,
        model: None,
        framework: explanation.and_then(|explanation| explanation.input.framework.id()).map(str::to_owned),
        launcher: identity.launcher.clone(),
        began_us: None,
        ended_us: None,
        silence_us: None,
        end,
        ended_line: None,
        torn_bytes: 0,
        events: 0,
        is_incomplete: false,
        devices: device.into_iter().collect(),
        host_peak_bytes: None,
        cgroup_bytes: None,
        cgroup_limit_bytes: None,
        is_first_failure: false,
        error: None,
        cause: explanation.map_or("none", |explanation| explanation.verdict.cause.name()).to_owned(),
        certainty: explanation
            .map_or("certain", |explanation| explanation.verdict.certainty.name())
            .to_owned(),
        summary: explanation.map_or_else(String::new, |explanation| explanation.verdict.summary.clone()),
        fixes: fixes.iter().take(MOST_FIXES).map(|fix| (fix.action.clone(), fix.command.clone())).collect(),
    }
}
