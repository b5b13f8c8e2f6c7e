//! Replaying a recording takes at most 20 times the file and 100 MB, also where a file has an event in every three bytes.
//!
//! The test runs in its own process, because it measures the peak resident memory of the process.

use makeroom_core::{Address, Bytes, DeviceIndex};
use makeroom_sim::Comparing;
use makeroom_simcard::testing::in_own_process;
use makeroom_trace::Input;
use makeroom_trace::room::{
    Encoder, Event, EventKind, Header, LONGEST_PAYLOAD, ThreadNumber, beginning, seal,
};

const MOST_TIMES: u64 = 20;
const MOST_MORE: u64 = 100_000_000;
/// Large enough that the fixed part of the limit does not hide a few bytes per event.
const FILE: usize = 24 << 20;

/// A file whose events differ in nothing from the one before: the kind, no fields, no time.
fn dense(kinds: &[EventKind]) -> Vec<u8> {
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
    let first = Event { kind: kinds[0], address: Address(4096), size: Bytes::new(512), ..Event::default() };
    encoder.event(&first);
    let mut batch = encoder.bytes().to_vec();
    while batch.len() + 3 * kinds.len() < LONGEST_PAYLOAD / 4 {
        batch.extend(kinds.iter().flat_map(|kind| [0x80 | kind.number(), 0, 0]));
    }
    let mut file = beginning(&Header::default());
    while file.len() < FILE {
        assert!(seal(&batch, &mut file));
    }
    file
}

/// The most resident memory since it was last reset.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's own status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024
}

#[test]
fn dense_recordings_take_a_bounded_multiple_of_their_size() {
    use EventKind::{DeviceAlloc, DeviceFree};
    if !in_own_process("memory::dense_recordings_take_a_bounded_multiple_of_their_size") {
        return;
    }
    for kinds in [&[DeviceAlloc][..], &[DeviceAlloc, DeviceFree]] {
        let file = dense(kinds);
        std::fs::write("/proc/self/clear_refs", "5").expect("the peak is reset");
        let before = peak();
        let Input::Trace(trace) = makeroom_trace::read(&*file).expect("a recording") else {
            panic!("not a text");
        };
        let comparison = Comparing::default().run_last(trace, DeviceIndex(0), |_| ());
        assert!(comparison.is_some_and(|comparison| comparison.runs.len() > 3));
        let (taken, size) = (peak().saturating_sub(before), file.len() as u64);
        assert!(
            taken <= MOST_TIMES * size + MOST_MORE,
            "{kinds:?}: {taken} bytes for {size}, {:.1} times",
            taken as f64 / size as f64
        );
    }
}
