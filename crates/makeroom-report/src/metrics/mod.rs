//! The account as metrics: for Prometheus, and for OpenTelemetry.
//!
//! The names and labels are those that dashboards already use: DCGM's for a device's memory, the semantic conventions'
//! for OpenTelemetry. The GPU's UUID is the key everywhere. Series are few: processes are folded by user, program and
//! what they belong to, the smallest into one, and nothing carries a process number or a call site.

mod otlp;
mod prometheus;

use std::collections::BTreeMap;

use makeroom_core::Bytes;
use makeroom_holders::{Account, Device, Holder};

pub use otlp::otlp_json;
pub use prometheus::prometheus_text;

/// Groups of holders of one device that get a series of their own.
const MOST_GROUPS: usize = 20;

/// Who holds memory, as a set of labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    user: String,
    program: String,
    container: String,
    pod: String,
    slurm_job: String,
}

impl Group {
    fn of(holder: &Holder) -> Self {
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

    /// As Prometheus has them. Not `pod` and `container`: those are names elsewhere, and these are identities.
    fn labels(&self) -> [(&'static str, &str); 5] {
        [
            ("user", &self.user),
            ("program", &self.program),
            ("container_id", &self.container),
            ("pod_uid", &self.pod),
            ("slurm_job", &self.slurm_job),
        ]
    }

    /// As OpenTelemetry's conventions name them, as far as they do.
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

/// The holders of a device folded into groups, most first; the smallest are one group, `other`.
fn groups(device: &Device) -> Vec<(Group, Bytes)> {
    let mut sums: BTreeMap<Group, Bytes> = BTreeMap::new();
    for holder in &device.holders {
        *sums.entry(Group::of(holder)).or_default() += holder.bytes.unwrap_or(Bytes::ZERO);
    }
    let mut groups: Vec<(Group, Bytes)> = sums.into_iter().collect();
    groups.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    if groups.len() > MOST_GROUPS {
        let rest: Bytes = groups.drain(MOST_GROUPS..).map(|(_, bytes)| bytes).sum();
        groups.push((Group { program: "other".to_owned(), ..Group::default() }, rest));
    }
    groups
}

/// Cards and, of divided ones, their parts.
fn devices(account: &Account) -> impl Iterator<Item = &Device> {
    account.devices.iter().flat_map(|device| std::iter::once(device).chain(&device.parts))
}

#[cfg(test)]
mod tests;
