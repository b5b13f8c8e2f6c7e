//! The account as metrics: for Prometheus, and for OpenTelemetry.
//!
//! Names and labels are those that dashboards already use: DCGM's for device memory, and the semantic conventions for
//! OpenTelemetry. The GPU's UUID is the key everywhere. Cardinality is low: processes are grouped by user, program
//! and container or job, the smallest into one group, and no label contains a PID or a call site. Labels that users
//! choose, such as the names of programs, have a maximum length.

mod logs;
mod otlp;
mod prometheus;

use std::borrow::Cow;
use std::time::SystemTime;

use makeroom_core::{Bytes, SortCompact as _};
use makeroom_holders::{Account, Device, Holder, Process, Recorder, Tally};
use makeroom_ordered::OrderedMap;

pub use logs::{OomVerdict, otlp_logs_json};
pub use otlp::otlp_json;
pub use prometheus::{TextFormat, prometheus_text};

/// Maximum number of groups per device that get their own series.
const MOST_GROUPS: usize = 20;
/// Maximum length of a label that a user chooses.
const LONGEST_LABEL: usize = 100;

/// The recorded programs, and those that ran out of memory.
#[derive(Clone, Copy, Debug)]
pub struct RecordedPrograms<'read> {
    /// The recorders.
    pub recorders: &'read [Recorder],
    /// The programs that ran out of memory.
    pub tally: &'read Tally,
}

/// The labels of a group of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Group<'account> {
    user: Cow<'account, str>,
    program: Cow<'account, str>,
    container: Cow<'account, str>,
    pod: Cow<'account, str>,
    namespace: &'account str,
    pod_name: &'account str,
    slurm_job: Cow<'account, str>,
    ray_actor: Cow<'account, str>,
}

impl<'account> Group<'account> {
    fn of_holder(holder: &'account Holder) -> Self {
        let unseen = || Self { program: "unseen".into(), ..Self::default() };
        holder.process.as_ref().map_or_else(unseen, Self::of_process)
    }

    fn of_process(process: &'account Process) -> Self {
        let belonging = &process.belonging;
        Self {
            user: short(&*process.user_name),
            program: short(process.program()),
            container: short(belonging.short_container().unwrap_or_default()),
            pod: short(belonging.pod.as_deref().unwrap_or_default()),
            // Kubernetes' own limits apply to these two.
            namespace: &process.pod_name.namespace,
            pod_name: &process.pod_name.name,
            slurm_job: short(belonging.slurm_job.as_deref().unwrap_or_default()),
            ray_actor: short(process.ray_actor().unwrap_or_default()),
        }
    }

    /// The group of all that do not get their own series.
    fn other() -> Self {
        Self { program: "other".into(), ..Self::default() }
    }

    /// Labels for Prometheus. `namespace` and `pod` are names, as in other exporters; the others are IDs.
    fn labels(&self) -> [(&'static str, &str); 8] {
        [
            ("user", &self.user),
            ("program", &self.program),
            ("container_id", &self.container),
            ("pod_uid", &self.pod),
            ("namespace", self.namespace),
            ("pod", self.pod_name),
            ("slurm_job", &self.slurm_job),
            ("ray_actor", &self.ray_actor),
        ]
    }

    /// Attributes according to OpenTelemetry's conventions, where these exist.
    fn attributes(&self) -> [(&'static str, &str); 8] {
        [
            ("process.owner", &self.user),
            ("process.executable.name", &self.program),
            ("container.id", &self.container),
            ("k8s.pod.uid", &self.pod),
            ("k8s.namespace.name", self.namespace),
            ("k8s.pod.name", self.pod_name),
            ("slurm.job.id", &self.slurm_job),
            ("ray.actor.name", &self.ray_actor),
        ]
    }
}

/// The holders of a device in groups, largest first; the smallest are one group, `other`.
fn groups(device: &Device) -> Vec<(Group<'_>, Bytes)> {
    let mut sums: OrderedMap<Group<'_>, Bytes> = OrderedMap::new();
    for holder in &device.holders {
        *sums.entry(Group::of_holder(holder)).or_default() += holder.bytes.unwrap_or(Bytes::ZERO);
    }
    let mut groups: Vec<(Group<'_>, Bytes)> = sums.into_iter().collect();
    groups.sort_compact_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    if groups.len() > MOST_GROUPS {
        let rest: Bytes = groups.drain(MOST_GROUPS..).map(|(_, bytes)| bytes).sum();
        groups.push((Group::other(), rest));
    }
    groups
}

/// The beginning of a label.
fn short<'account>(label: impl Into<Cow<'account, str>>) -> Cow<'account, str> {
    let label = label.into();
    if label.len() <= LONGEST_LABEL || label.chars().count() <= LONGEST_LABEL {
        return label;
    }
    label.chars().take(LONGEST_LABEL - 1).chain(['…']).collect()
}

/// The recorders in groups: how many there are, and the oldest heartbeat. The largest groups come first, and the
/// smallest are one group.
fn recorder_groups(recorders: &[Recorder]) -> Vec<(Group<'_>, usize, SystemTime)> {
    let mut groups: OrderedMap<Group<'_>, (usize, SystemTime)> = OrderedMap::new();
    for recorder in recorders {
        let group = groups.entry(Group::of_process(&recorder.process)).or_insert((0, recorder.heartbeat));
        *group = (group.0 + 1, group.1.min(recorder.heartbeat));
    }
    let mut groups: Vec<_> = groups.into_iter().map(|(group, (count, beat))| (group, count, beat)).collect();
    groups.sort_compact_by_key(|&(_, count, _)| std::cmp::Reverse(count));
    let rest = groups.split_off(groups.len().min(MOST_GROUPS));
    if let Some(oldest) = rest.iter().map(|&(_, _, beat)| beat).min() {
        groups.push((Group::other(), rest.iter().map(|&(_, count, _)| count).sum(), oldest));
    }
    groups
}

/// The latest failures: the newest of each group and cause, newest first.
fn latest_failures(tally: &Tally, now: SystemTime) -> Vec<(Group<'_>, &'static str, SystemTime)> {
    let mut latest: Vec<(Group<'_>, &'static str, SystemTime)> = Vec::new();
    for failure in tally.latest(now) {
        let group = Group::of_process(&failure.process);
        let is_known = latest.iter().any(|(known, cause, _)| *known == group && *cause == failure.cause);
        if !is_known && latest.len() < MOST_GROUPS {
            latest.push((group, failure.cause, failure.at));
        }
    }
    latest
}

/// GPUs and their MIG instances.
fn devices(account: &Account) -> impl Iterator<Item = &Device> {
    account.devices.iter().flat_map(|device| std::iter::once(device).chain(&device.parts))
}

#[cfg(test)]
mod tests;
