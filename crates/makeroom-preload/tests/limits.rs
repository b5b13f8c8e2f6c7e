//! `MAKEROOM_LIMIT`: a smaller card, to the megabyte.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::support::{Program, text};
use makeroom_trace::room::EventKind;

#[test]
fn a_limit_makes_the_card_smaller() {
    let program = Program::new("limit.c").variable("MAKEROOM_LIMIT", &(64 << 20).to_string());
    let output = program.recorded();
    assert_eq!(text(&output.stdout), "64 64\n6 blocks, 4 left\n0 2\n");
    let recording = program.recordings().remove(0);
    recording.assert_complete();
    let results: Vec<_> =
        recording.events_of(EventKind::DeviceAlloc).iter().map(|event| event.result).collect();
    assert_eq!(results, [0, 0, 0, 0, 0, 0, 2, 0, 2]);
    assert_eq!(recording.limit, Some(64 << 20));
}

#[test]
fn the_allocators_settings_are_recorded_and_other_variables_are_not() {
    let settings = "max_split_size_mb:64";
    let program = Program::new("limit.c").variable("PYTORCH_ALLOC_CONF", settings);
    let program = program.variable("API_TOKEN", "secret");
    program.recorded();
    let recording = program.recordings().remove(0);
    recording.assert_complete();
    assert_eq!(recording.variables, [("PYTORCH_ALLOC_CONF".to_owned(), settings.to_owned())].into());
}

/// The software GPU's context takes 512 of 640 MiB: 128 are left, and a second context does not fit.
#[test]
fn contexts_count_and_everything_comes_back() {
    let program = Program::with_missing("limits.c").on_software_gpu();
    let program = program.variable("MAKEROOM_LIMIT", &(640 << 20).to_string());
    let output = program.recorded();
    let expected = "\
640
context: 128 of 640
second context: 2
refused: 128 of 640
block: 64 of 640
too large: 2
pitched and freed: 128 of 640
array: 112 of 640
deep array: 96 of 640
stream-ordered: 96 of 640
mapped twice: 112 of 640
released and mapped: 112 of 640
unmapped: 128 of 640
held: 32 of 640
another context: 128 of 640
released once: 64 of 640
reset: 128 of 640
";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let recording = program.recordings().remove(0);
    recording.assert_complete();
    let refused: Vec<_> = recording
        .events
        .iter()
        .filter(|(_, event)| event.result == 2)
        .map(|(_, event)| (event.kind, event.size.get()))
        .collect();
    assert_eq!(refused, [(EventKind::ContextCreate, 512 << 20), (EventKind::DeviceAlloc, (64 << 20) + 1)]);
}

/// Without a limit NVML is neither opened nor replaced, and all figures are the card's.
#[test]
fn without_a_limit_nothing_is_different() {
    Program::with_missing("limits.c").on_software_gpu().check_one().assert_complete();
}

#[test]
fn a_limit_is_for_each_device() {
    let program = Program::with_missing("two_devices.c").on_software_gpu();
    let program = program
        .variable("MAKEROOM_SIMGPU", "devices=2,memory=2GiB,context=256MiB")
        .variable("MAKEROOM_LIMIT", &(1_u64 << 30).to_string());
    assert_eq!(text(&program.recorded().stdout), "768 768\n0 0 2\n768 256\n");
}

/// On a shared card another process allocates while the context is created, which takes half a second here. Only the
/// context counts against the limit, or, if the driver does not list this process, the largest context.
#[test]
fn what_a_neighbour_takes_is_not_the_contexts() {
    for (mode, expected) in [("listed", "512 of 1024\n"), ("hidden", "497 of 1024\n")] {
        let program = Program::new("neighbour.c").on_software_gpu().argument(mode);
        let program = program
            .variable("MAKEROOM_SIMGPU", "memory=64GiB,slow=cuCtxCreate_v2:1:500")
            .variable("MAKEROOM_LIMIT", &(1_u64 << 30).to_string());
        let output = program.recorded();
        assert_eq!(text(&output.stdout), expected, "{mode}: {}", text(&output.stderr));
    }
}
