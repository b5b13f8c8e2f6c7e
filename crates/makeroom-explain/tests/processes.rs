//! Recordings of whole processes, made up, and what must be said of them.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use makeroom_core::{
    Action, Address, Bytes, ContextRecord, DeviceIndex, DeviceSample, DeviceTrace, Event, Frame, Library,
    NameId, PagesUse, PinnedBlock, PoolUse, ProcessEnd, ProcessRecord, Ranges, StackId, Stacks, StreamId,
    Trace, TraceKind,
};
use makeroom_explain::{
    Cause, Certainty, Explanation, LedgerLine, LeftKind, LibraryHold, Room, RunSummary, TraceQuestion,
    explain_trace,
};

const CARD: Bytes = Bytes::gib(140);

fn event(time_us: u64, action: Action, address: u64, size: Bytes) -> Event {
    Event { action, address: Address(address), size, stream: StreamId(0), time_us, stack: StackId::NONE }
}

/// A process on a card that others use: its context was there at 10 µs.
fn process(free: &[(u64, Bytes)]) -> ProcessRecord {
    let device_samples = free
        .iter()
        .map(|&(time_us, free)| DeviceSample {
            time_us,
            device: DeviceIndex(0),
            free,
            total: CARD,
            events_before: None,
            thread: None,
        })
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

/// Under paging, memory that is free and pages without a block do not make a failure one of fragmentation, and PyTorch set no
/// limit: paging guarantees memory for all that PyTorch has reserved.
#[test]
fn virtual_slack_is_not_fragmentation() {
    let mut pieces = vec![];
    for piece in 0..60 {
        pieces.push(event(30, Action::SegmentMap, (1 << 40) + piece * Bytes::gib(1).get(), Bytes::gib(1)));
        pieces.push(event(31, Action::Alloc, (1 << 40) + piece * Bytes::gib(1).get(), Bytes::mib(800)));
    }
    let failed = pieces.len();
    pieces.push(event(60, Action::OutOfMemory, Bytes::gib(10).get(), Bytes::gib(2)));
    for is_unasked in [false, true] {
        let free = [(5, Bytes::gib(74)), (20, Bytes::gib(73)), (60, Bytes::gib(10))];
        let mut process = process(&free);
        if is_unasked {
            process.refused_unasked.push((DeviceIndex(0), failed));
        }
        let plain = explain(process.clone(), &pieces);
        assert_ne!(plain.verdict.cause, Cause::LiveDataFillsDevice, "{}", plain.verdict.summary);
        process.pages.push(PagesUse { peak_mapped: Bytes::gib(73).get(), ..PagesUse::default() });
        let paged = explain(process, &pieces);
        assert_eq!(paged.verdict.cause, Cause::LiveDataFillsDevice, "{}", paged.verdict.summary);
        let is_wrong = |cause| matches!(cause, Cause::Fragmentation | Cause::ArtificialLimit);
        assert!(!paged.causes.iter().any(|finding| is_wrong(finding.cause)), "{:?}", paged.causes);
        assert!(commands(&paged).iter().any(|command| command.contains("--pool --spill")));
        let ledger = format!("{:?}", paged.ledger);
        assert!(!ledger.contains("fragmented"), "{ledger}");
    }
}

/// PyTorch keeps its tensors until exit, also in pages, which count as the pool's: they are not leaks.
#[test]
fn paged_tensors_that_are_live_at_exit_are_kept_by_the_pool() {
    let mut process = process(&[]);
    process.end = Some(ProcessEnd::Exited(0));
    let mut ranges = Ranges::default();
    ranges.insert(1 << 40, Bytes::gib(1).get());
    process.pools.push(PoolUse { ranges, ..PoolUse::default() });
    process.pages.push(PagesUse { peak_mapped: Bytes::gib(2).get(), ..PagesUse::default() });
    let page = event(30, Action::SegmentMap, 1 << 40, Bytes::gib(1));
    let tensor = event(31, Action::Alloc, 1 << 40, Bytes::mib(800));
    let run = explain(process, &[page, tensor]).run.unwrap();
    assert!(run.left.is_empty(), "{:?}", run.left);
    assert!(!run.kept.is_empty());
}

#[test]
fn frees_without_an_allocation_are_counted_in_whole_sentences() {
    let taken = event(30, Action::Alloc, 1 << 40, Bytes::mib(2));
    let freed = |time_us| event(time_us, Action::FreeCompleted, 1 << 40, Bytes::mib(2));
    let told = |events: &[Event]| explain(process(&[]), events).notes;
    assert_eq!(told(&[taken, freed(40), freed(41)]), ["1 free has no matching allocation in this recording"]);
    let twice = told(&[taken, freed(40), freed(41), freed(42)]);
    assert_eq!(twice, ["2 frees have no matching allocation in this recording"]);
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
    assert!(verdict.summary.contains("failed because of `makeroom run --limit`, not the GPU"), "{verdict:?}");
    assert!(!verdict.summary.contains("PyTorch"), "{}", verdict.summary);
    assert_eq!(commands(&explanation), ["makeroom run … --limit 18433MiB -- …"]);
    let ledger = explanation.ledger.unwrap();
    assert_eq!((ledger.total(), ledger.unaccounted()), (Some(Bytes::gib(16)), 0));
    let listed = |what: &str| ledger.lines().iter().find(|line| line.what() == what).map(LedgerLine::bytes);
    assert_eq!(listed("context and code"), Some(Bytes::gib(1)));
    assert_eq!(listed("other counted memory"), Some(Bytes::gib(1) + Bytes::new(1)));
}

/// A program without PyTorch held 7 GiB when 1 GiB more was refused, whatever its user believes.
#[test]
fn a_limit_below_what_the_run_held_is_not_used() {
    let mut device = DeviceTrace::default();
    for number in 0..7 {
        device.events.push(event(30 + number, Action::Alloc, (1 + number) << 40, Bytes::gib(1)));
    }
    device.events.push(event(60, Action::OutOfMemory, 0, Bytes::gib(1)));
    let process = ProcessRecord { sees_tensors: false, ..process(&[]) };
    let trace = Trace { process: Some(process), devices: vec![device], ..Trace::new(TraceKind::Room) };
    let asked = |room| explain_trace(&trace, &TraceQuestion { room, device: None });
    let wants_size = |explanation: &Explanation| {
        explanation.next.iter().any(|fix| fix.command.as_deref().unwrap_or("").contains("--card SIZE"))
    };
    assert!(wants_size(&asked(Room::Unknown)));
    for room in [Room::Limit(Bytes::gib(2)), Room::Card(Bytes::gib(3))] {
        let explanation = asked(room);
        assert!(
            explanation.notes[0].starts_with("the run held up to 7.00 GiB, more than "),
            "{:?}",
            explanation.notes
        );
        assert!(!wants_size(&explanation), "{:?}", explanation.next);
        let ledger = explanation.ledger.unwrap();
        assert_eq!((ledger.total(), ledger.unaccounted()), (None, 0));
    }
    let enough = asked(Room::Limit(Bytes::gib(7)));
    assert_eq!(enough.ledger.unwrap().total(), Some(Bytes::gib(7)));
}

/// What the limit counted for the context is a little more than was measured later: the limit is simply full.
#[test]
fn a_context_that_was_measured_differently_is_no_riddle() {
    let explanation = refused_below_the_limit(Some(Bytes::gib(15) + Bytes::mib(100)), false);
    assert_eq!(explanation.verdict.cause, Cause::Fragmentation, "{}", explanation.verdict.summary);
    assert!(
        explanation
            .causes
            .iter()
            .any(|cause| cause.summary.contains("set by `makeroom run --limit` was reached"))
    );
}

/// A framework that refused without asking the driver has a limit of its own, with `--limit` and without.
#[test]
fn a_framework_that_asked_nobody_kept_to_its_own_limit() {
    for limit in [None, Some(Bytes::gib(16))] {
        let explanation = refused_below_the_limit(limit, true);
        assert_eq!(explanation.verdict.cause, Cause::ArtificialLimit);
        assert!(explanation.verdict.summary.contains("PyTorch applied a limit"), "{limit:?}");
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
    let hold = |kind, bytes| LibraryHold { by: Library::CuBlas, kind, bytes, allocations: 2 };
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
    assert_eq!(run(&explanation).held_by_libraries[0].by, Library::CuDnn);
    let leak = explanation.causes.iter().find(|cause| cause.cause == Cause::Leak).unwrap();
    assert!(
        leak.fixes[0].action.starts_with("free the memory allocated at +0x5b45ed in solver.so"),
        "{:?}",
        leak.fixes
    );
}

#[test]
fn without_stacks_nobody_is_told_to_free_what_an_unknown_place_takes() {
    let explanation = left_by(&[&[], &[]]);
    assert_eq!(run(&explanation).left[0].sites[0].place, None);
    let leak = explanation.causes.iter().find(|cause| cause.cause == Cause::Leak).unwrap();
    assert_eq!(leak.fixes.len(), 1);
    assert!(leak.fixes[0].action.starts_with("record again with stacks"), "{:?}", leak.fixes);
}

/// A program without PyTorch that takes and gives back `passing` blocks in each round, and keeps what `kept` says of them,
/// until it is refused memory.
fn looping(rounds: u64, passing: u64, kept: impl Fn(u64) -> Option<Bytes>) -> Explanation {
    let mut events = Vec::new();
    for round in 0..rounds {
        for number in 0..passing {
            let address = (1 << 40) + (number << 30);
            let size = Bytes::mib(64 + number);
            events.push(event(10 * round, Action::Alloc, address, size));
            events.push(event(10 * round + 1, Action::FreeRequested, address, size));
            events.push(event(10 * round + 2, Action::FreeCompleted, address, size));
        }
        if let Some(size) = kept(round) {
            events.push(event(10 * round + 3, Action::Alloc, (2 << 40) + (round << 30), size));
        }
    }
    events.push(event(10 * rounds, Action::OutOfMemory, 0, Bytes::mib(128)));
    explain(ProcessRecord { sees_tensors: false, ..process(&[]) }, &events)
}

#[test]
fn rounds_are_told_by_what_is_kept_of_each() {
    let explanation = looping(40, 1, |_| Some(Bytes::mib(32)));
    let growth = explanation.growth.unwrap();
    assert_eq!(
        (growth.parts, growth.per_step, growth.measured_by.as_str()),
        (None, Bytes::mib(32), "each 32.00 MiB request")
    );
    let leak = explanation.causes.iter().find(|finding| finding.cause == Cause::Leak).unwrap();
    assert!(leak.summary.contains("32.00 MiB per step, until"), "{}", leak.summary);
    assert_eq!(
        (leak.certainty, explanation.verdict.cause),
        (Certainty::Possible, Cause::LiveDataFillsDevice)
    );
    // More than a model has layers.
    let explanation = looping(140, 1, |_| Some(Bytes::mib(32)));
    assert_eq!((explanation.verdict.cause, explanation.verdict.certainty), (Cause::Leak, Certainty::Likely));
    // Kept before the work begins: weights.
    let explanation = looping(80, 1, |round| (round < 20).then_some(Bytes::mib(32)));
    assert_eq!(explanation.growth, None);
}

/// Sizes that differ tell no rounds: then it is the recording that is divided, and nobody calls its parts steps.
#[test]
fn parts_of_a_recording_are_not_called_steps() {
    let explanation = looping(200, 1, |round| Some(Bytes::mib(16 + round % 5)));
    let growth = explanation.growth.as_ref().unwrap();
    assert_eq!((growth.parts, growth.steps), (Some(24), 17));
    let summary = &explanation.verdict.summary;
    assert_eq!(explanation.verdict.cause, Cause::Leak);
    assert!(summary.contains("over 17 of 24 equal intervals of the recording"), "{summary}");
    assert!(
        summary.contains(" per interval, until an allocation of 128.00 MiB failed")
            && !summary.contains("step"),
        "{summary}"
    );
}

/// A few long rounds decide as much as many short ones.
#[test]
fn a_few_rounds_decide_only_where_much_comes_and_goes() {
    for (passing, certainty) in [(1, Certainty::Possible), (8, Certainty::Likely)] {
        let explanation = looping(12, passing, |_| Some(Bytes::mib(32)));
        let leak = explanation.causes.iter().find(|finding| finding.cause == Cause::Leak).unwrap();
        assert_eq!(leak.certainty, certainty, "{}", leak.summary);
        assert_eq!(explanation.causes[0].cause == Cause::Leak, certainty == Certainty::Likely);
    }
}
