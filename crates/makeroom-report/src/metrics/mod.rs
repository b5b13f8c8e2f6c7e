//! The account as metrics: for Prometheus, and for OpenTelemetry.
//!
//! Names and labels are those that dashboards already use: DCGM's for device memory, and the semantic conventions for
//! OpenTelemetry. The GPU's UUID is the key everywhere. Cardinality is low: processes are grouped by user, program
//! and container or job, the smallest into one group, and no label contains a PID or a call site.

mod otlp;
mod prometheus;

use std::collections::BTreeMap;

use makeroom_core::{Bytes, SortCompact as _};
use makeroom_holders::{Account, Device, Holder};

pub use otlp::otlp_json;
pub use prometheus::prometheus_text;

/// Maximum number of groups per device that get their own series.
const MOST_GROUPS: usize = 20;

/// The labels of a group of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    user: String,
    program: String,
    container: String,
    pod: String,
    slurm_job: String,
}

impl Group {
    fn of_holder(holder: &Holder) -> Self {
        let Some(process) = &holder.process else {
            return Self { program: "unseen".to_owned(), ..Self::default() };
        };
        let belonging = &process.belonging;
        Self {
            user: process.user_name.clone(),
            program: process.program(),
            container: belonging.short_container().unwrap_or_default().to_owned(),
            pod: belonging.pod.clone().unwrap_or_default(),
            slurm_job: belonging.slurm_job.clone().unwrap_or_default(),
        }
    }

    /// Labels for Prometheus. Not `pod` and `container`: elsewhere those are names, and these are IDs.
    fn labels(&self) -> [(&'static str, &str); 5] {
        [
            ("user", &self.user),
            ("program", &self.program),
            ("container_id", &self.container),
            ("pod_uid", &self.pod),
            ("slurm_job", &self.slurm_job),
        ]
    }

    /// Attributes according to OpenTelemetry's conventions, where these exist.
    fn attributes(&self) -> [(&'static str, &str); 5] {
        [
            ("process.owner", &self.user),
            ("process.executable.name", &self.program),
            ("container.id", &self.container),
            ("k8s.pod.uid", &self.pod),
            ("slurm.job.id", &self.slurm_job),
        ]
    }
}

/// The holders of a device in groups, largest first; the smallest are one group, `other`.
fn groups(device: &Device) -> Vec<(Group, Bytes)> {
    let mut sums: BTreeMap<Group, Bytes> = BTreeMap::new();
    for holder in &device.holders {
        *sums.entry(Group::of_holder(holder)).or_default() += holder.bytes.unwrap_or(Bytes::ZERO);
    }
    let mut groups: Vec<(Group, Bytes)> = sums.into_iter().collect();
    groups.sort_compact_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    if groups.len() > MOST_GROUPS {
        let rest: Bytes = groups.drain(MOST_GROUPS..).map(|(_, bytes)| bytes).sum();
        groups.push((Group { program: "other".to_owned(), ..Group::default() }, rest));
    }
    groups
}

/// GPUs and their MIG instances.
fn devices(account: &Account) -> impl Iterator<Item = &Device> {
    account.devices.iter().flat_map(|device| std::iter::once(device).chain(&device.parts))
}

#[cfg(test)]
mod tests;
