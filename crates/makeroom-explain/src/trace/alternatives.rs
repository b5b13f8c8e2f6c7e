//! What the same run would have needed under other settings, by running it.
//!
//! Only for runs that failed: there the question is asked, and there a recording is worth two more passes.

use makeroom_core::{Bytes, DeviceTrace, Start, Trace, TraceKind};
use makeroom_sim::{AllocatorSpec, Program, Settings, parse};

use crate::Alternative;

/// The setting that is tried against fragmentation.
const EXPANDABLE: &str = "expandable_segments:True";

/// Runs a failed recording again: as it was, without a limit, and with expandable segments where they were off.
pub(crate) fn alternatives(
    trace: &Trace,
    device: &DeviceTrace,
    start: &Start,
    limit: Option<Bytes>,
    hidden_limit: Option<(Bytes, Bytes)>,
) -> Vec<Alternative> {
    if trace.kind != TraceKind::TorchSnapshot || device.segments.is_empty() && start.segments.is_empty() {
        return Vec::new();
    }
    let program = Program::new(device, &trace.stacks, start);
    // What is older than the recording is placed by assumption, and so is what follows.
    let is_exact = program.older <= 1 && program.lost == 0;
    let recorded = Settings::recorded(&trace.settings);
    let was_expandable = recorded.expandable_segments;
    let mut alternatives = vec![Alternative {
        settings: None,
        needs: Bytes::new(AllocatorSpec::pytorch("recorded", recorded).run(&program, None).peak_reserved),
        fits: None,
        is_exact,
    }];
    if !was_expandable && let Ok(spec) = parse(&format!("pytorch:{EXPANDABLE}")) {
        let limited = limit.map(|limit| spec.run(&program, Some(limit.get())));
        let fits = limited.as_ref().map(|outcome| outcome.refusal.is_none());
        let outcome =
            limited.filter(|outcome| outcome.refusal.is_none()).unwrap_or_else(|| spec.run(&program, None));
        // A peak up to the lower bound of the hidden limit fits; whether a higher one fits is unknown.
        let fits_hidden =
            hidden_limit.and_then(|(least, _)| (outcome.peak_reserved <= least.get()).then_some(true));
        let fits = fits.or(fits_hidden);
        alternatives.push(Alternative {
            settings: Some(EXPANDABLE),
            needs: Bytes::new(outcome.peak_reserved),
            fits,
            is_exact,
        });
    }
    alternatives
}
