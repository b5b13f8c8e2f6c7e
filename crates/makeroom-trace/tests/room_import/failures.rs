//! Failed allocations: what counts as one, and the free memory at that time.

use makeroom_core::{Action, Address, Bytes, DeviceIndex};
use makeroom_trace::room::{Encoder, Event, EventKind, StackNumber, ThreadNumber};

use super::recording::{NCCL, PYTHON, Recording, TORCH, actions, by, event, refused};

#[test]
fn a_limit_of_the_recorder_is_kept() {
    let mut recording = Recording::new();
    let mut encoder = Encoder::new(ThreadNumber(0), Vec::new());
    encoder.limit(Bytes::gib(8));
    recording.batch(encoder);
    assert_eq!(recording.read().process.unwrap().limit, Some(Bytes::gib(8)));
}

#[test]
fn a_refusal_has_the_free_memory_that_was_sampled_closest() {
    let refusal = refused(event(EventKind::DeviceAlloc, 0, 999));
    let trace = Recording::new()
        .free(5, 5000)
        .free(1_000, 300)
        .events(7, 990, &[event(EventKind::DeviceAlloc, 64, 1), refusal])
        .read();
    assert_eq!(actions(&trace), [(Action::Alloc, 64, 1), (Action::OutOfMemory, 300, 999)]);
    let unknown = Recording::new().events(7, 10, &[refusal]).read();
    assert_eq!(unknown.devices[0].events.get(0).unwrap().device_free(), None);
}

#[test]
fn only_the_last_answer_to_a_request_counts() {
    use EventKind::{DeviceAlloc, DeviceFree, TensorAlloc};
    let segment = by(TORCH, event(DeviceAlloc, 0x10_0000, 0x10_0000));
    let tensor = by(PYTHON, event(TensorAlloc, 0x10_0000, 0x8_0000));
    let first = Recording::new().events(7, 0, &[segment, tensor]);
    // The cache is freed, and the retry succeeds.
    let served = Event { address: Address(0x40_0000), ..segment };
    let again = Event { address: Address(0x40_0000), ..tensor };
    let trace = Recording { file: first.file.clone() }
        .events(7, 10, &[refused(segment), event(DeviceFree, 0x10_0000, 0), served, again])
        .read();
    assert!(!actions(&trace).iter().any(|&(action, ..)| action == Action::OutOfMemory));
    assert_eq!(trace.process.as_ref().unwrap().refused_then_served, 1);
    assert_eq!(trace.notes, [""; 0]);

    // The retry fails, and PyTorch reports the failure: only PyTorch's counts.
    let trace = Recording { file: first.file.clone() }
        .events(7, 10, &[refused(segment), refused(segment), refused(tensor)])
        .read();
    assert_eq!(actions(&trace)[2..], [(Action::OutOfMemory, u64::MAX, 0x8_0000)]);
    assert_eq!(trace.process.unwrap().refused_unasked, []);

    // PyTorch fails without calling the driver.
    let trace = Recording { file: first.file.clone() }.events(7, 10, &[refused(tensor)]).read();
    assert_eq!(trace.process.unwrap().refused_unasked, [(DeviceIndex(0), 2)]);

    // An allocation of another thread is not a retry.
    let trace =
        Recording { file: first.file }.events(7, 10, &[refused(segment)]).events(8, 20, &[tensor]).read();
    assert_eq!(actions(&trace)[2].0, Action::OutOfMemory);
}

#[test]
fn a_framework_that_asks_through_another_library_gives_up_once() {
    use EventKind::{DeviceAlloc, TensorAlloc};
    let (segment, tensor) = (event(DeviceAlloc, 0, 0x20_0000), event(TensorAlloc, 0, 0x18_0000));
    let given_up = [refused(by(NCCL, segment)), refused(by(PYTHON, tensor))];
    let trace = Recording::new().events(7, 10, &given_up).read();
    assert_eq!(actions(&trace).len(), 1);
    assert_eq!(actions(&trace)[0].2, 0x18_0000);
    // A library's own failed request is unrelated to the tensor after it.
    let large = refused(by(NCCL, event(DeviceAlloc, 0, 1 << 30)));
    let trace = Recording::new().events(7, 10, &[large, refused(by(PYTHON, tensor))]).read();
    assert_eq!(actions(&trace).len(), 2);
    let served = by(PYTHON, event(TensorAlloc, 0x10_0000, 0x18_0000));
    let trace = Recording::new().events(7, 10, &[refused(by(NCCL, segment)), served]).read();
    assert_eq!(actions(&trace).len(), 2);
}

#[test]
fn a_program_that_asks_in_a_loop_is_refused_each_time() {
    let request = refused(by(NCCL, event(EventKind::DeviceAlloc, 0, 0x20_0000)));
    let trace = Recording::new().events(7, 10, &[request; 3]).read();
    assert_eq!(actions(&trace).len(), 3);
    // A program that frees memory in between retries the same request.
    let held = by(NCCL, event(EventKind::DeviceAlloc, 0x10_0000, 64));
    let makes_room = [held, request, event(EventKind::DeviceFree, 0x10_0000, 0), request];
    let trace = Recording::new().events(7, 10, &makes_room).read();
    let refusals = actions(&trace).into_iter().filter(|&(action, ..)| action == Action::OutOfMemory);
    assert_eq!(refusals.count(), 1);
}

#[test]
fn other_failures_and_undefined_stacks_are_noted() {
    let invalid = Event { result: 201, ..event(EventKind::DeviceAlloc, 0, 5) };
    let lost = by(StackNumber(77), event(EventKind::DeviceAlloc, 64, 5));
    let trace = Recording::new().events(7, 10, &[invalid, lost]).read();
    assert_eq!(actions(&trace), [(Action::Alloc, 64, 5)]);
    assert_eq!(
        trace.notes,
        [
            "events whose stack is missing from the file: 1",
            "calls that failed for reasons other than memory: 1; the first: device_alloc with error 201",
        ]
    );
}
