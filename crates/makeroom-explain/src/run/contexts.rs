//! Contexts that were never destroyed, and contexts that could not be created for lack of memory.

use makeroom_core::{Bytes, ProcessRecord, Trace};
use makeroom_ordered::OrderedMap;

use super::{LeftContext, RefusedContexts};
use crate::thresholds::CONTEXT_TYPICAL;
use crate::trace::{History, Measured, Places, taken_at};
use crate::{Cause, Certainty, Finding, advice};

/// Contexts that were never destroyed, by site.
pub(super) fn left(process: &ProcessRecord, places: Places<'_>) -> Vec<LeftContext> {
    let mut sites: OrderedMap<Option<String>, u64> = OrderedMap::new();
    for context in &process.contexts {
        if !context.is_primary && context.destroyed_us.is_none() {
            *sites.entry(places.site_of(context.stack)).or_default() += 1;
        }
    }
    sites.into_iter().map(|(site, count)| LeftContext { site, count }).collect()
}

/// Contexts that could not be created.
pub(super) fn refused(trace: &Trace, process: &ProcessRecord, places: Places<'_>) -> Option<RefusedContexts> {
    let first = process.refused_contexts.first()?;
    let device = trace.devices.iter().find(|device| device.device == first.device);
    let history = device.map(|device| History::new(device, &[])).unwrap_or_default();
    let held = device.map_or(Bytes::ZERO, |device| taken_at(device, &history.start, first.time_us));
    let nothing =
        makeroom_core::DeviceTrace { device: first.device, ..makeroom_core::DeviceTrace::default() };
    let measured = Measured::new(process, device.unwrap_or(&nothing), &history.start);
    let overhead = measured.at(first.time_us, &[], false).unwrap_or_default();
    Some(RefusedContexts {
        count: process.refused_contexts.len() as u64,
        device: first.device,
        bytes: first.size,
        site: places.site_of(first.stack),
        free: process.device_sample_near(first.device, first.time_us).map(|sample| sample.free),
        held,
        contexts: overhead.context_count as u64,
        context_bytes: overhead.contexts,
        others: overhead.others,
    })
}

/// Explains a context that could not be created. `limit`: set by `makeroom run --limit`.
pub(super) fn judge(refused: &RefusedContexts, limit: Option<Bytes>) -> Finding {
    let RefusedContexts { held, contexts, context_bytes, others, .. } = *refused;
    let site = refused.site.as_ref().map_or(String::new(), |site| format!(" at {site}"));
    let what = match refused.count {
        1 => format!("Creating a CUDA context on GPU {} failed{site}", refused.device),
        count => format!("Creating {count} CUDA contexts on GPU {} failed, the first{site}", refused.device),
    };
    let wanted = if refused.bytes.is_zero() { CONTEXT_TYPICAL } else { refused.bytes };
    let by_limit = limit.filter(|&limit| held + context_bytes + wanted > limit);
    let (cause, certainty, bytes, why, fixes) = if others > held + context_bytes && by_limit.is_none() {
        let why = format!("other processes held {others}");
        let fixes = vec![advice::list_holders(advice::Maker::Nvidia)];
        (Cause::OtherProcesses, Certainty::Likely, others, why, fixes)
    } else if contexts > 0 && context_bytes > held {
        let why = format!("the {contexts} other contexts of this process held {context_bytes}");
        let fixes = vec![advice::fewer_contexts()];
        (Cause::NonFrameworkOverhead, Certainty::Likely, context_bytes, why, fixes)
    } else if !held.is_zero() {
        let why = format!("this process held {held}");
        (Cause::LiveDataFillsDevice, Certainty::Likely, held, why, Vec::new())
    } else if let Some(limit) = by_limit {
        let why = "this process held nothing else".to_owned();
        (Cause::ArtificialLimit, Certainty::Certain, limit, why, Vec::new())
    } else {
        let why = "this process held nothing; other processes hold the GPU's memory, or the GPU is too small"
            .to_owned();
        let fixes = vec![advice::list_holders(advice::Maker::Nvidia)];
        (Cause::OtherProcesses, Certainty::Possible, wanted, why, fixes)
    };
    let why = by_limit.map_or(why.clone(), |limit| {
        format!("{why}, and `makeroom run --limit` allows {limit} in total, including contexts")
    });
    let summary = format!(
        "{what} because memory ran out: {why}. A context takes a few hundred megabytes before the program allocates anything."
    );
    let evidence = refused.free.map(|free| format!("{free} free according to the driver"));
    let evidence = evidence.into_iter().collect();
    Finding { evidence, fixes, ..Finding::new(cause, certainty, summary).bytes(bytes) }
}
