//! What an error text says, before anything is concluded from it.
//!
//! A family of formats only reads: it fills [`Facts`] and draws no conclusion from figures. Where the format
//! itself decides the cause (a CPU allocator's error is about host memory, whatever its figures), it adds a
//! [`Statement`]. Arithmetic is done in one place, by the judge.

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::thresholds::{ABSURD, LARGEST_GPU};
use makeroom_explain::{Cause, Certainty, Fix};

use crate::log::Passage;

/// The kind of memory a text is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The text does not say.
    #[default]
    Unknown,
    /// Device memory.
    Device,
    /// Ordinary or pinned host memory, shared memory of the operating system, the paging file.
    Host,
    /// What a kernel launch needs: shared memory, registers, in-kernel heap.
    Kernel,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Something failed.
    #[default]
    Failure,
    /// The writer says that it went on without the memory; decides only when nothing failed.
    Warning,
    /// No failure at all: a table of who holds what.
    Observation,
}

/// A process with device memory, as a text lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedProcess {
    /// Its number, perhaps in another namespace.
    pub(crate) pid: u64,
    /// What it holds.
    pub(crate) bytes: Bytes,
    /// Its name, where the text has one.
    pub(crate) name: Option<String>,
}

/// A conclusion that the format itself carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// The cause it states.
    pub(crate) cause: Cause,
    /// How sure that is.
    pub(crate) certainty: Certainty,
    /// One or two sentences for the reader, with the figures.
    pub(crate) summary: String,
    /// The bytes the cause stands for, where the text says.
    pub(crate) bytes: Option<Bytes>,
    /// What helps with the writer's own options, the best first; empty where the cause alone decides what helps.
    pub(crate) fixes: Vec<Fix>,
    /// A possible cause that these words nearly always mean: it is named as the verdict, as *possible*.
    pub(crate) leads: bool,
}

impl Statement {
    /// A conclusion that the format itself carries.
    pub(crate) fn new(cause: Cause, certainty: Certainty, summary: impl Into<String>) -> Self {
        Self { cause, certainty, summary: summary.into(), bytes: None, fixes: Vec::new(), leads: false }
    }

    /// The cause that these words nearly always mean, though they do not prove it.
    pub(crate) fn leading(cause: Cause, summary: impl Into<String>) -> Self {
        Self { leads: true, ..Self::new(cause, Certainty::Possible, summary) }
    }

    /// What helps with the writer's own options, instead of what helps in general.
    pub(crate) fn mended_by(mut self, fixes: Vec<Fix>) -> Self {
        self.fixes = fixes;
        self
    }
}

/// Which allocator wrote a text, where that decides what helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Allocator {
    /// Not known.
    #[default]
    Unknown,
    /// PyTorch's caching allocator, in a version without expandable segments (before 2.1).
    TorchWithoutExpandable,
    /// PyTorch's caching allocator.
    Torch,
    /// PyTorch on `cudaMallocAsync`.
    TorchAsync,
    /// The allocator of TensorFlow and XLA.
    Bfc,
    /// Any other allocator.
    Other,
}

/// Everything one error text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The framework that wrote it.
    pub(crate) framework: Framework,
    /// The allocator that wrote it.
    pub(crate) allocator: Allocator,
    /// The line of the input it stands on, counted from 1.
    pub(crate) line: usize,
    /// The writer's own words: the line itself.
    pub(crate) quote: String,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// What kind of memory ran out.
    pub(crate) resource: Resource,
    /// The device.
    pub(crate) device: Option<DeviceIndex>,
    /// What was asked for.
    pub(crate) request: Option<Bytes>,
    /// The device's memory.
    pub(crate) total: Option<Bytes>,
    /// A person tells the device's memory, in round figures and perhaps of another one.
    pub(crate) is_total_told: bool,
    /// What the driver had free.
    pub(crate) free: Option<Bytes>,
    /// What the framework's program holds.
    pub(crate) live: Option<Bytes>,
    /// Memory that the framework caches.
    pub(crate) cached: Option<Bytes>,
    /// What the framework took from the driver: live + cached.
    pub(crate) reserved: Option<Bytes>,
    /// The part of `live` in private pools.
    pub(crate) private_pools: Option<Bytes>,
    /// A limit below the device's memory that the framework keeps to.
    pub(crate) limit: Option<Bytes>,
    /// All that this process holds on the device.
    pub(crate) this_process: Option<Bytes>,
    /// Processes listed by number.
    pub(crate) processes: Vec<ListedProcess>,
    /// The program's line where it failed, `file:line`.
    pub(crate) site: Option<String>,
    /// The batch size the text mentions.
    pub(crate) batch: Option<u64>,
    /// What the format itself decides.
    pub(crate) statements: Vec<Statement>,
    /// Figures next to the failure that do not decide the cause by themselves, one sentence each.
    pub(crate) evidence: Vec<String>,
    /// What the text says the largest free piece is.
    pub(crate) largest_free: Option<Bytes>,
    /// The figure for free memory underflowed; `free` is zero instead.
    pub(crate) is_free_wrapped: bool,
    /// Causes that the text excludes: they are not offered as possible ones.
    pub(crate) ruled_out: Vec<Cause>,
    /// What a warning means in the program's own terms, for a text in which nothing failed.
    pub(crate) aftermath: Option<Statement>,
}

impl Facts {
    /// The beginning of a reading: who wrote the anchor's line, where it stands, and what it is about.
    pub(crate) fn new(framework: Framework, resource: Resource, passage: &Passage<'_>) -> Self {
        Self {
            framework,
            allocator: Allocator::Other,
            line: passage.line_number,
            quote: passage.line().to_owned(),
            resource,
            ..Self::default()
        }
    }

    /// The framework's id; empty if unknown.
    #[cfg(test)]
    pub(crate) fn framework_id(&self) -> &'static str {
        self.framework.id().unwrap_or_default()
    }

    /// Adds a conclusion that the format itself carries.
    pub(crate) fn state(&mut self, cause: Cause, certainty: Certainty, summary: impl Into<String>) {
        self.statements.push(Statement::new(cause, certainty, summary));
    }

    /// Adds the cause that these words nearly always mean, though they do not prove it.
    pub(crate) fn lead(&mut self, cause: Cause, summary: impl Into<String>) {
        self.statements.push(Statement::leading(cause, summary));
    }

    /// Whether something failed.
    pub(crate) fn is_failure(&self) -> bool {
        self.severity == Severity::Failure
    }

    /// How much the text says: between two readings of one failure, the one that knows more is kept.
    pub(crate) fn weight(&self) -> usize {
        let figures = [
            self.request,
            self.total,
            self.free,
            self.live,
            self.cached,
            self.reserved,
            self.private_pools,
            self.limit,
            self.this_process,
        ];
        let statements: usize = self
            .statements
            .iter()
            .map(|stated| if stated.certainty >= Certainty::Likely { 4 } else { 1 })
            .sum();
        figures.iter().flatten().count() + self.processes.len() + statements
    }

    /// The same without figures that nothing can have. A free counter that underflowed means that nothing is free: drivers of integrated GPUs and of ROCm report
    /// 2⁶⁴ bytes less a little where more is in use than there is.
    pub(crate) fn without_wrapped_figures(mut self) -> Self {
        let is_wrapped = self.free.is_some_and(|free| free >= ABSURD);
        if is_wrapped {
            self.free = Some(Bytes::ZERO);
            self.is_free_wrapped = true;
            self.evidence
                .push("The free-memory figure in the log underflowed, so no memory was free".to_owned());
        }
        // A counter of live memory above any GPU's size is wrong, so it is not live data that fills the device.
        if self.resource == Resource::Device
            && self.total.is_none()
            && let Some(live) = self.live.filter(|&live| live > LARGEST_GPU.scaled(4.0))
        {
            self.live = None;
            self.statements.retain(|stated| stated.cause != Cause::LiveDataFillsDevice);
            self.evidence.push(format!(
                "The log's figure for memory in use, {live}, is more than any GPU has: the counter is wrong"
            ));
            self.state(
                Cause::IntegerOrShapeBug,
                Certainty::Possible,
                "The counter of memory in use is wrong: a size may have overflowed, or frees may not be counted.",
            );
        }
        // Windows and WSL do not report what a process holds; PyTorch then prints the counter that was never set.
        // In some containers the driver reports 0 bytes for a process that holds tensors.
        let live = self.live.unwrap_or(Bytes::ZERO);
        self.this_process = self.this_process.filter(|&bytes| bytes < ABSURD && bytes >= live);
        self.processes.retain(|process| process.bytes < ABSURD);
        self
    }

    /// What the framework took from the driver, computed where it is not printed.
    pub(crate) fn reserved_bytes(&self) -> Option<Bytes> {
        self.reserved.or_else(|| Some(self.live? + self.cached?))
    }

    /// What the framework holds unused, computed where it is not printed.
    pub(crate) fn cached_bytes(&self) -> Option<Bytes> {
        self.cached.or_else(|| Some(self.reserved? - self.live?))
    }
}
