//! Programs whose memory comes from makeroom's pool: the same output, and less taken from the device.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use makeroom_trace::room::EventKind;
use support::Program;

fn pooled(name: &str) -> Program {
    Program::with_missing(name).on_software_gpu().variable("MAKEROOM_POOL", "on")
}

#[test]
fn every_kind_of_call_is_answered_and_every_byte_is_its_own() {
    let recording = pooled("pool.c").check_one();
    recording.assert_complete();
    let created: u64 = recording.of(EventKind::PhysicalCreate).iter().map(|event| event.size.get()).sum();
    assert!(created > 0, "the pool took nothing from the device");
    let served = recording.count(EventKind::StreamAlloc) + recording.count(EventKind::DeviceAlloc);
    assert!(served > 2000, "{served} allocations");
    let refused = recording.of(EventKind::DeviceAlloc).iter().filter(|event| event.result == 2).count();
    assert_eq!(refused, 1);
}

#[test]
fn a_capture_goes_to_the_driver() {
    pooled("capture.c").check_one().assert_complete();
}

#[test]
fn threads_and_forks_are_as_without_the_pool() {
    for name in ["threads.c", "fork_child.c", "exits.c", "nulls.c"] {
        pooled(name).check();
    }
}

#[test]
fn a_context_of_the_programs_own_is_served_by_the_driver() {
    let recording = pooled("plain.c").check_one();
    assert_eq!(recording.count(EventKind::PhysicalCreate), 0);
}

#[test]
fn what_does_not_fit_goes_to_the_host() {
    let program =
        pooled("spill.c").variable("MAKEROOM_LIMIT", "1342177280").variable("MAKEROOM_SPILL", "1073741824");
    let recording = program.check_one();
    let (host, device): (Vec<_>, Vec<_>) =
        recording.of(EventKind::PhysicalCreate).into_iter().partition(|event| event.extra == 1);
    let bytes =
        |events: &[_]| events.iter().map(|event: &makeroom_trace::room::Event| event.size.get()).sum::<u64>();
    assert!(bytes(&host) > 100 << 20, "{} bytes on the host", bytes(&host));
    assert!(bytes(&device) < 1280 << 20, "{} bytes on the device", bytes(&device));
}
