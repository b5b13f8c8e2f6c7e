//! Snapshots of makeroom's own pool, made up, and what must be said of them.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use makeroom_core::{Action, Address, Bytes, DeviceTrace, Event, StackId, StreamId, Trace, TraceKind};
use makeroom_explain::{Cause, Certainty, Explanation, LedgerLine, Room, TraceQuestion, explain_trace};

/// A pool with 200 MiB of segments, so much of them live, is refused 600 MiB on a device with so much left.
fn refused(limit: Bytes, live: Bytes, free: Bytes, room: Room) -> Explanation {
    let event = |time_us, action, address, size| Event {
        action,
        address: Address(address),
        size,
        stream: StreamId(0),
        time_us,
        stack: StackId::NONE,
    };
    let mut device = DeviceTrace::default();
    device.events.push(event(1, Action::SegmentMap, 1 << 40, Bytes::mib(200)));
    device.events.push(event(2, Action::Alloc, 1 << 40, live));
    device.events.push(event(3, Action::OutOfMemory, free.get(), Bytes::mib(600)));
    let mut trace = Trace { devices: vec![device], ..Trace::new(TraceKind::TorchSnapshot) };
    trace.settings.expandable_segments = Some(true);
    trace.settings.pool_limits = Some(vec![limit]);
    explain_trace(&trace, &TraceQuestion { room, device: None })
}

fn causes(explanation: &Explanation) -> Vec<Cause> {
    explanation.causes.iter().map(|finding| finding.cause).collect()
}

fn assert_no_word_of_pytorch(explanation: &Explanation) {
    let fixes = explanation.causes.iter().flat_map(|finding| &finding.fixes);
    let commands = fixes.filter_map(|fix| fix.command.as_deref());
    for text in commands.chain([explanation.verdict.summary.as_str()]) {
        assert!(!text.contains("PyTorch") && !text.contains("memory_fraction"), "{text}");
    }
}

#[test]
fn the_pools_own_limit_is_named() {
    let explanation = refused(Bytes::mib(512), Bytes::mib(50), Bytes::gib(139), Room::Unknown);
    assert_eq!(causes(&explanation)[..2], [Cause::ArtificialLimit, Cause::RequestExceedsDevice]);
    assert_eq!(explanation.verdict.certainty, Certainty::Certain);
    let summary = "600.00 MiB exceeded the pool's limit of 512.00 MiB, of which 200.00 MiB was already in use; the GPU had 139.00 GiB free.";
    assert_eq!(explanation.verdict.summary, summary);
    let command = explanation.causes[0].fixes[0].command.as_deref();
    assert_eq!(command, Some("makeroom_pool_set_limit(pool, 800ull << 20);"));
    let ledger = explanation.ledger.as_ref().unwrap();
    assert_eq!((ledger.total(), ledger.unaccounted()), (Some(Bytes::mib(512)), 0));
    assert_eq!(ledger.lines()[0].what(), "live memory");
    let untaken = ledger.lines().iter().find(|line| line.what() == "free").map(LedgerLine::bytes);
    assert_eq!(untaken, Some(Bytes::mib(312)));
    assert_no_word_of_pytorch(&explanation);
}

/// A request that would fit alone: what is live is told beside the limit.
#[test]
fn what_fills_the_limit_is_told_beside_it() {
    let explanation = refused(Bytes::mib(700), Bytes::mib(190), Bytes::gib(139), Room::Unknown);
    assert_eq!(causes(&explanation), [Cause::ArtificialLimit, Cause::LiveDataFillsDevice]);
    let summary = &explanation.causes[1].summary;
    assert!(summary.contains("does not fit in the pool's limit of 700.00 MiB"), "{summary}");
    assert_no_word_of_pytorch(&explanation);
}

#[test]
fn a_device_that_is_full_is_not_the_limits_fault() {
    let explanation = refused(Bytes::gib(4), Bytes::mib(190), Bytes::mib(100), Room::Unknown);
    assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice, "{}", explanation.verdict.summary);
    assert_no_word_of_pytorch(&explanation);
}

/// Without a limit in the snapshot nobody knows whose it was, and what the user says counts more than what it holds.
#[test]
fn a_limit_that_the_snapshot_does_not_hold_is_the_pools_too() {
    let explanation = refused(Bytes::ZERO, Bytes::mib(50), Bytes::gib(139), Room::Unknown);
    assert_eq!(explanation.verdict.cause, Cause::ArtificialLimit);
    assert!(
        explanation.verdict.summary.contains("the pool applied a limit that the snapshot does not contain")
    );
    assert_no_word_of_pytorch(&explanation);
    let named = refused(Bytes::mib(512), Bytes::mib(50), Bytes::gib(139), Room::Limit(Bytes::mib(650)));
    assert!(!named.verdict.summary.contains("own limit"), "{}", named.verdict.summary);
}
