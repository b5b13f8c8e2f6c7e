//! Findings about a recorded process, as JSON. Field names are a contract; fields are only ever added.

use makeroom_core::identity::JobIdentity;
use makeroom_core::{Bytes, PendingFrees, ProcessEnd};
use makeroom_explain::{LeftKind, Leftover, LibraryHold, RunSummary, WaitingFrees};
use serde_json::{Value, json};

use crate::json::list;
use crate::run::UNKNOWN_PLACE;

/// The place of a process in a job: the known fields only.
fn job(job: &JobIdentity) -> Value {
    let mut fields: serde_json::Map<String, Value> = job
        .fields()
        .map(|(field, value)| {
            let number = value.parse::<u32>().ok().filter(|_| field.is_number());
            (field.name().to_owned(), number.map_or(Value::String(value), Value::from))
        })
        .collect();
    fields.insert("device_uuids".to_owned(), json!(job.device_uuids));
    fields.extend(job.began_us.map(|began_us| ("began_us".to_owned(), json!(began_us))));
    Value::Object(fields)
}

/// The process of an explanation.
pub(crate) fn run(run: &RunSummary) -> Value {
    json!({
        "program": run.program,
        "pid": run.pid,
        "job": run.job.is_of_job().then(|| job(&run.job)),
        "end": run.end.map(end),
        "peaks": list(&run.peaks, |(device, bytes)| json!({
            "device": device.0,
            "bytes": bytes.get(),
        })),
        "pinned_peak_bytes": run.pinned_peak.get(),
        "limit_bytes": run.limit.map(Bytes::get),
        "refusals": run.refusals,
        "pinned_refusals": run.pinned_refusals,
        "refused_contexts": run.refused_contexts.as_ref().map(|refused| json!({
            "count": refused.count,
            "device": refused.device.0,
            "site": refused.site,
            "free_bytes": refused.free.map(Bytes::get),
            "contexts": refused.contexts,
            "context_bytes": refused.context_bytes.get(),
            "held_bytes": refused.held.get(),
            "other_processes_bytes": refused.others.get(),
        })),
        "failed_launches": list(&run.failed_launches, |launch| json!({
            "kernel": launch.kernel,
            "count": launch.count,
            "error": launch.error,
            "error_name": launch.error_name,
            "shared_memory_bytes": launch.shared_memory.get(),
            "reason": launch.reason,
            "site": launch.site,
        })),
        "kernel_heap": run.kernel_heap.as_ref().map(|heap| json!({
            "limit_bytes": heap.limit.get(),
            "default": heap.is_default,
            "modules": heap.modules,
        })),
        "never_freed": list(&run.left, left),
        "held_by_libraries": list(&run.held_by_libraries, held_by_library),
        "kept_by_frameworks": list(&run.kept, |kept| json!({
            "device": kept.device.0,
            "framework": kept.by.to_string(),
            "live_bytes": kept.live.get(),
            "cached_bytes": kept.cached.get(),
        })),
        "expandable_segments": list(&run.expandable, |torch| json!({
            "device": torch.device.0,
            "on": torch.is_on,
            "peak_live_bytes": torch.peak_live.get(),
            "peak_reserved_bytes": torch.peak_reserved.get(),
            "native_reserved_bytes": torch.native_reserved.map(Bytes::get),
            "expandable_reserved_bytes": torch.expandable_reserved.map(Bytes::get),
            "without_other_settings_bytes": torch.plain_reserved.map(Bytes::get),
        })),
        "pages": list(&run.pages, |pages| json!({
            "device": pages.device.0,
            "peak_live_bytes": pages.peak_live,
            "peak_physical_bytes": pages.peak_physical,
            "peak_host_bytes": pages.peak_on_host,
            "peak_mapped_bytes": pages.peak_mapped,
            "moves": pages.moved,
            "waits": pages.waits,
            "inside_ns": pages.inside_ns,
            "reports": pages.reports,
        })),
        "pools": list(&run.pools, |pool| json!({
            "device": pool.device.0,
            "peak_live_bytes": pool.peak_live.get(),
            "peak_reserved_bytes": pool.peak_reserved.get(),
            "native_reserved_bytes": pool.native_reserved.map(Bytes::get),
            "beside_pytorch": pool.is_shared_with_torch,
            "spilled_peak_bytes": pool.spilled_peak.get(),
            "spilled_blocks": pool.spilled_blocks,
            "spilled_read_us": pool.spilled_read_us,
            "device_read_us": pool.device_read_us,
        })),
        "pending_frees": list(&run.pending, waiting),
        "contexts_never_destroyed": list(&run.contexts, |context| json!({
            "site": context.site,
            "count": context.count,
        })),
        "freed_with_contexts_bytes": run.freed_with_contexts.get(),
        "host_growth": run.host_growth.map(|growth| json!({
            "first_bytes": growth.first.get(),
            "last_bytes": growth.last.get(),
            "seconds": growth.seconds,
            "steady": growth.is_steady,
        })),
        "dropped_events": run.dropped,
        "recorded_seconds": run.recorded_us as f64 / 1e6,
        "complete": run.missing.is_none(),
    })
}

fn end(end: ProcessEnd) -> Value {
    match end {
        ProcessEnd::Exited(status) => json!({ "how": "exited", "status": status }),
        ProcessEnd::Replaced => json!({ "how": "replaced" }),
        ProcessEnd::Signalled(signal) => json!({ "how": "signalled", "signal": signal }),
        ProcessEnd::Detached => json!({ "how": "detached" }),
        ProcessEnd::Other => json!({ "how": "other" }),
    }
}

/// The kind of memory, and its device.
fn kind(kind: LeftKind) -> (&'static str, Option<u32>) {
    match kind {
        LeftKind::Device(device) => ("device", Some(device.0)),
        LeftKind::Pinned => ("pinned", None),
        LeftKind::Registered => ("registered", None),
    }
}

fn held_by_library(hold: &LibraryHold) -> Value {
    let (kind, device) = kind(hold.kind);
    json!({
        "library": hold.by.name(),
        "kind": kind,
        "device": device,
        "bytes": hold.bytes.get(),
        "allocations": hold.allocations,
    })
}

fn left(left: &Leftover) -> Value {
    let (kind, device) = kind(left.kind);
    json!({
        "kind": kind,
        "device": device,
        "bytes": left.bytes.get(),
        "allocations": left.allocations,
        "sites": list(&left.sites, |site| json!({
            "site": site.place.as_deref().unwrap_or(UNKNOWN_PLACE),
            "caller": site.caller,
            "through": site.through,
            "bytes": site.bytes.get(),
            "allocations": site.allocations,
        })),
    })
}

fn waiting(frees: &WaitingFrees) -> Value {
    let pending = |pending: PendingFrees| {
        json!({
            "bytes": pending.bytes.get(),
            "frees": pending.frees,
            "streams": pending.streams,
        })
    };
    json!({
        "device": frees.device.0,
        "at_end": pending(frees.at_end),
        "at_refusal": frees.at_refusal.map(pending),
        "asked_meanwhile": frees.asked.as_ref().map(|(asked, site)| json!({
            "bytes": asked.size.get(),
            "site": site,
            "pending": pending(asked.pending),
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_its_place_and_a_single_process_has_none() {
        let alone = JobIdentity { host: Some("node7".to_owned()), ..JobIdentity::default() };
        let rank = JobIdentity {
            rank: Some(3),
            world_size: Some(8),
            job_id: Some("4711".to_owned()),
            device_uuids: vec!["GPU-1".to_owned()],
            began_us: Some(9),
            ..alone.clone()
        };
        let shown = |job: JobIdentity| run(&RunSummary { job, ..RunSummary::default() })["job"].clone();
        assert_eq!(shown(alone), Value::Null);
        assert_eq!(
            shown(rank),
            json!({
                "rank": 3, "world_size": 8, "host": "node7", "job_id": "4711", "device_uuids": ["GPU-1"], "began_us": 9,
            })
        );
    }
}
