//! Recordings of whole processes, made up, and what must be said of them.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use makeroom_core::{
    Action, Address, Bytes, ContextRecord, DeviceIndex, DeviceSample, DeviceTrace, Event, Frame, NameId,
    PinnedBlock, ProcessEnd, ProcessRecord, StackId, Stacks, StreamId, Trace, TraceKind,
};
use makeroom_explain::{
    Cause, Explanation, LedgerLine, LeftKind, LibraryHold, RunSummary, TraceQuestion, explain_trace,
};

const CARD: Bytes = Bytes::gib(140);

fn event(time_us: u64, action: Action, address: u64, size: Bytes) -> Event {
    Event { action, address: Address(address), size, stream: StreamId(0), time_us, stack: StackId::NONE }
}

/// A process on a card that others use: its context was there at 10 µs.
fn process(free: &[(u64, Bytes)]) -> ProcessRecord {
    let device_samples = free
        .iter()
        .map(|&(time_us, free)| DeviceSample { time_us, device: DeviceIndex(0), free, total: CARD })
        .collect();
    let contexts = vec![ContextRecord { created_us: 10, ..ContextRecord::default() }];
    ProcessRecord { device_samples, contexts, sees_tensors: true, ..ProcessRecord::default() }
}

fn explain(process: ProcessRecord, events: &[Event]) -> Explanation {
    let mut device = DeviceTrace::default();
    for event in events {
        device.events.push(*event);
    }
    let trace = Trace { process: Some(process), devices: vec![device], ..Trace::new(TraceKind::Room) };
    explain_trace(&trace, &TraceQuestion::default())
}

/// PyTorch holds 12 GiB, 11 of them live, and is refused 2 GiB on a card with plenty left.
fn refused_below_the_limit(limit: Option<Bytes>, is_unasked: bool) -> Explanation {
    let free = Bytes::gib(60);
    let mut process = process(&[(5, free + Bytes::gib(14)), (20, free + Bytes::gib(13)), (60, free)]);
    process.limit = limit;
    if is_unasked {
        process.refused_unasked.push((DeviceIndex(0), 2));
    }
    let segment = event(30, Action::SegmentAlloc, 1 << 40, Bytes::gib(12));
    let tensor = event(31, Action::Alloc, 1 << 40, Bytes::gib(11));
    let refusal = event(60, Action::OutOfMemory, free.get(), Bytes::gib(2));
    explain(process, &[segment, tensor, refusal])
}

#[test]
fn frees_without_an_allocation_are_counted_in_whole_sentences() {
    let taken = event(30, Action::Alloc, 1 << 40, Bytes::mib(2));
    let freed = |time_us| event(time_us, Action::FreeCompleted, 1 << 40, Bytes::mib(2));
    let told = |events: &[Event]| explain(process(&[]), events).notes;
    assert_eq!(told(&[taken, freed(40), freed(41)]), ["1 free has no allocation in this recording"]);
    let twice = told(&[taken, freed(40), freed(41), freed(42)]);
    assert_eq!(twice, ["2 frees have no allocation in this recording"]);
}

fn commands(explanation: &Explanation) -> Vec<&str> {
    let fixes = explanation.causes.iter().flat_map(|cause| &cause.fixes);
    fixes.filter_map(|fix| fix.command.as_deref()).collect()
}

#[test]
fn a_refusal_that_the_device_did_not_make_is_the_limits_of_the_run() {
    // A context of 1 GiB, 12 of PyTorch and the request come to 15 GiB.
    let explanation = refused_below_the_limit(Some(Bytes::gib(16)), false);
    let verdict = &explanation.verdict;
    assert_eq!(verdict.cause, Cause::ArtificialLimit);
    assert!(verdict.summary.contains("refused by `makeroom run --limit`, not by the card"), "{verdict:?}");
    assert!(!verdict.summary.contains("PyTorch"), "{}", verdict.summary);
    assert_eq!(commands(&explanation), ["makeroom run --limit 18433MiB -- …"]);
    let ledger = explanation.ledger.unwrap();
    assert_eq!((ledger.total(), ledger.unaccounted()), (Some(Bytes::gib(16)), 0));
    let listed = |what: &str| ledger.lines().iter().find(|line| line.what() == what).map(LedgerLine::bytes);
    assert_eq!(listed("contexts"), Some(Bytes::gib(1)));
    assert_eq!(listed("counted beside it"), Some(Bytes::gib(1) + Bytes::new(1)));
}

/// What the limit counted for the context is a little more than was measured later: the limit is simply full.
#[test]
fn a_context_that_was_measured_differently_is_no_riddle() {
    let explanation = refused_below_the_limit(Some(Bytes::gib(15) + Bytes::mib(100)), false);
    assert_eq!(explanation.verdict.cause, Cause::Fragmentation, "{}", explanation.verdict.summary);
    assert!(explanation.causes.iter().any(|cause| cause.summary.contains("`makeroom run --limit` refused")));
}

/// A framework that refused without asking the driver has a limit of its own, with `--limit` and without.
#[test]
fn a_framework_that_asked_nobody_kept_to_its_own_limit() {
    for limit in [None, Some(Bytes::gib(16))] {
        let explanation = refused_below_the_limit(limit, true);
        assert_eq!(explanation.verdict.cause, Cause::ArtificialLimit);
        assert!(explanation.verdict.summary.contains("PyTorch kept to a limit"), "{limit:?}");
        assert!(commands(&explanation).iter().any(|command| command.contains("memory_fraction")));
    }
}

/// A stack of machine code, innermost first, below a line of Python.
fn stack(stacks: &mut Stacks, libraries: &[&str]) -> StackId {
    let function = stacks.name("+0x5b45ed");
    let frames: Vec<Frame> = libraries
        .iter()
        .map(|library| stacks.name(library))
        .map(|library| Frame { function, file: library, line: 0, library })
        .collect();
    let (function, file) = (stacks.name("main"), stacks.name("/home/anna/train.py"));
    let line = Frame { function, file, line: 34, library: NameId::default() };
    let frames: Vec<_> = frames.into_iter().chain([line]).map(|frame| stacks.frame(frame)).collect();
    stacks.stack(&frames)
}

/// What is said of a program that ended with 32 MiB of device memory asked for by each of these, and 4 pinned bytes.
fn left_by(askers: &[&[&str]]) -> Explanation {
    let mut trace = Trace::new(TraceKind::Room);
    let mut process = ProcessRecord { end: Some(ProcessEnd::Exited(0)), ..process(&[]) };
    let mut device = DeviceTrace::default();
    for (number, asker) in askers.iter().enumerate() {
        let stack = if asker.is_empty() { StackId::NONE } else { stack(&mut trace.stacks, asker) };
        let taken = event(20, Action::Alloc, (number as u64 + 1) << 32, Bytes::mib(32));
        device.events.push(Event { stack, ..taken });
        process.pinned.live.push(PinnedBlock { stack, size: Bytes::new(4), ..PinnedBlock::default() });
    }
    explain_trace(
        &Trace { process: Some(process), devices: vec![device], ..trace },
        &TraceQuestion::default(),
    )
}

fn run(explanation: &Explanation) -> &RunSummary {
    explanation.run.as_ref().unwrap()
}

#[test]
fn what_libraries_took_for_themselves_is_no_leak() {
    const CUBLAS: &str = "/opt/env/site-packages/nvidia/cublas/lib/libcublas.so.12";
    const TORCH: &str = "/opt/env/site-packages/torch/lib/libtorch_cuda.so";
    let explanation = left_by(&[&[CUBLAS, TORCH], &["/usr/local/cuda/lib64/libcudart.so.12", CUBLAS]]);
    assert_eq!(run(&explanation).left, []);
    let hold = |kind, bytes| LibraryHold { by: "cuBLAS", kind, bytes, allocations: 2 };
    let device = hold(LeftKind::Device(DeviceIndex(0)), Bytes::mib(64));
    assert_eq!(run(&explanation).held_by_libraries, [device, hold(LeftKind::Pinned, Bytes::new(8))]);
    assert_eq!(explanation.causes.len(), 1, "{:?}", explanation.causes);
    assert!(explanation.causes[0].fixes.is_empty() && !explanation.verdict.summary.contains("freed"));
}

/// The program's own code that calls a library's allocator or the runtime is the one to free it.
#[test]
fn what_the_program_took_is_a_leak_beside_what_libraries_took() {
    let own = ["/usr/local/cuda/lib64/libcudart.so.12", "/home/anna/build/solver.so"];
    let explanation =
        left_by(&[&["libcudnn_graph.so.9"], &own, &["libnppial.so.12", "/home/anna/solver.so"]]);
    assert_eq!(run(&explanation).left[0].bytes, Bytes::mib(64));
    assert_eq!(run(&explanation).held_by_libraries[0].by, "cuDNN");
    let leak = explanation.causes.iter().find(|cause| cause.cause == Cause::Leak).unwrap();
    assert!(leak.fixes[0].action.starts_with("free what +0x5b45ed in solver.so takes"), "{:?}", leak.fixes);
}

#[test]
fn without_stacks_nobody_is_told_to_free_what_an_unknown_place_takes() {
    let explanation = left_by(&[&[], &[]]);
    assert_eq!(run(&explanation).left[0].sites[0].place, None);
    let leak = explanation.causes.iter().find(|cause| cause.cause == Cause::Leak).unwrap();
    assert_eq!(leak.fixes.len(), 1);
    assert!(leak.fixes[0].action.starts_with("run it again with stacks"), "{:?}", leak.fixes);
}
