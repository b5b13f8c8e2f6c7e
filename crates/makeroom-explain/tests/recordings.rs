//! Real recordings and what must be said of them.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use std::path::PathBuf;

use makeroom_core::{AllocatorSettings, Bytes, Frame, ProcessEnd, Trace};
use makeroom_explain::{Cause, Certainty, Explanation, LedgerLine, Room, Site, TraceQuestion, explain_trace};
use makeroom_trace::Input;

fn trace(name: &str) -> Trace {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(format!("{name}.pickle.gz"));
    match makeroom_trace::open(&path).unwrap() {
        Input::Trace(trace) => trace,
        Input::Text(_) => panic!("{name} is not a recording"),
    }
}

fn explain(name: &str, room: Room) -> Explanation {
    explain_trace(&trace(name), &TraceQuestion { room, device: None })
}

fn places(sites: &[Site]) -> Vec<&str> {
    sites.iter().flat_map(|site| [vec![site.place.as_str()], places(&site.callees)].concat()).collect()
}

/// Every byte of the total is on a line or unaccounted, and places hold no more than what is live.
fn assert_balanced(explanation: &Explanation) {
    let ledger = explanation.ledger.as_ref().unwrap();
    let listed: Bytes = ledger.lines().iter().map(LedgerLine::bytes).sum();
    if let Some(total) = ledger.total() {
        assert_eq!(ledger.unaccounted(), 0);
        assert_eq!(listed, total);
    }
    let live = ledger.lines()[0].bytes();
    let shown: Bytes = explanation.sites.iter().map(|site| site.bytes).sum();
    assert_eq!(shown + explanation.other_sites, live);
}

#[test]
fn fragmentation_is_named_with_the_lines_that_hold_the_memory() {
    let explanation = explain("oom_fragmented", Room::Limit(Bytes::gib(6)));
    assert_eq!(explanation.verdict.cause, Cause::Fragmentation);
    assert_eq!(explanation.verdict.certainty, Certainty::Certain);
    assert_balanced(&explanation);
    let places = places(&explanation.sites);
    for line in ["workloads.py:25 train_lm", "workloads.py:26 train_lm", "workloads.py:16 llm"] {
        assert!(places.contains(&line), "{line} is missing in {places:?}");
    }
    assert_eq!(explanation.request.unwrap().site.as_deref(), Some("workloads.py:25 train_lm"));
    assert!(explanation.causes[0].fixes[0].command.as_deref().unwrap().contains("expandable_segments:True"));
}

/// A recording that was cut off anywhere, also between two frames, as where a disk was full: it is never said that nothing
/// failed, since the end is not in it.
#[test]
fn a_recording_that_breaks_off_does_not_show_that_nothing_failed() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../makeroom-trace/tests/golden/solver.room");
    let whole = std::fs::read(path).unwrap();
    let (mut torn, mut clean) = (0, 0);
    for end in 100..whole.len() {
        let Ok(Input::Trace(trace)) = makeroom_trace::read(&whole[..end]) else { continue };
        let process = trace.process.as_ref().unwrap();
        if process.end.is_some() {
            continue;
        }
        let verdict = explain_trace(&trace, &TraceQuestion::default()).verdict;
        assert_ne!(verdict.cause, Cause::None, "{end}: {}", verdict.summary);
        if verdict.cause == Cause::Undetermined {
            let is_torn = !process.unread.is_zero();
            *(if is_torn { &mut torn } else { &mut clean }) += 1;
            assert_eq!(verdict.certainty, Certainty::Undetermined);
            assert!(verdict.summary.starts_with("The recording stops after "), "{}", verdict.summary);
            assert_eq!(verdict.summary.contains("of incomplete data"), is_torn, "{}", verdict.summary);
            assert!(verdict.summary.contains("Up to that point: "), "{}", verdict.summary);
        }
    }
    assert!(torn > 0 && clean > 0);
}

/// A recorder that failed says so at its end, and events may be lost in the middle: neither shows that nothing failed.
#[test]
fn a_recording_with_gaps_is_not_certain_that_nothing_failed() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../makeroom-trace/tests/golden/solver.room");
    let whole = std::fs::read(path).unwrap();
    let Ok(Input::Trace(mut trace)) = makeroom_trace::read(&whole[..]) else { panic!("it is a recording") };
    for device in &mut trace.devices {
        device.events = makeroom_core::Events::default();
    }
    let process = trace.process.as_mut().unwrap();
    *process = makeroom_core::ProcessRecord {
        identity: process.identity.clone(),
        end: Some(ProcessEnd::Exited(0)),
        recorded_us: 12_345_678,
        ..makeroom_core::ProcessRecord::default()
    };
    let verdict = |trace: &Trace| explain_trace(trace, &TraceQuestion::default()).verdict;
    assert_eq!(verdict(&trace).cause, Cause::None);
    assert_eq!(verdict(&trace).certainty, Certainty::Certain);
    trace.process.as_mut().unwrap().dropped = 3;
    assert_eq!(verdict(&trace).certainty, Certainty::Likely);
    assert!(verdict(&trace).summary.ends_with("3 events could not be recorded."));
    trace.process.as_mut().unwrap().end = Some(ProcessEnd::Detached);
    assert_eq!(verdict(&trace).cause, Cause::Undetermined);
    assert!(verdict(&trace).summary.starts_with("The recording stops after 12 s: the recorder failed"));
    trace.process.as_mut().unwrap().end = None;
    assert_eq!(verdict(&trace).cause, Cause::Undetermined);
}

#[test]
fn live_data_is_named_and_the_step_must_shrink() {
    let explanation = explain("oom_batch", Room::Limit(Bytes::gib(8)));
    assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice);
    assert_balanced(&explanation);
    let fixes = &explanation.causes[0].fixes;
    assert!(fixes.iter().any(|fix| fix.action.contains("reduce this step's memory")), "{fixes:?}");
}

#[test]
fn expandable_segments_are_not_advised_when_they_are_on() {
    let explanation = explain("oom_fragmented-expandable", Room::Limit(Bytes::gib(6)));
    let commands: Vec<&str> = explanation
        .causes
        .iter()
        .flat_map(|cause| cause.fixes.iter().filter_map(|fix| fix.command.as_deref()))
        .collect();
    assert!(!commands.iter().any(|command| command.contains("expandable_segments")), "{commands:?}");
}

/// A `.room` file has the settings as the user wrote them, and nothing else about the allocator.
#[test]
fn a_setting_that_was_on_is_not_advised_and_not_called_useless() {
    for name in ["oom_fragmented", "oom_batch"] {
        let mut trace = trace(name);
        let text = Some("max_split_size_mb:512, expandable_segments:True".to_owned());
        trace.settings = AllocatorSettings { text, ..AllocatorSettings::default() };
        let question = TraceQuestion { room: Room::Limit(Bytes::gib(6)), device: None };
        let explanation = explain_trace(&trace, &question);
        let fixes = explanation.causes.iter().flat_map(|cause| &cause.fixes);
        let commands: Vec<&str> = fixes.filter_map(|fix| fix.command.as_deref()).collect();
        assert!(!commands.iter().any(|command| command.contains("expandable_segments")), "{commands:?}");
        let mentions: Vec<&String> =
            explanation.wont_help.iter().filter(|line| line.contains("expandable_segments")).collect();
        assert!(mentions.iter().all(|line| line.contains("already on")), "{mentions:?}");
    }
}

#[test]
fn a_run_that_did_not_fail_says_what_filled_its_peak() {
    let explanation = explain("gpt2_varlen", Room::Unknown);
    assert_eq!(explanation.verdict.cause, Cause::None);
    assert_balanced(&explanation);
    let ledger = explanation.ledger.unwrap();
    assert_eq!(ledger.lines()[0].bytes(), Bytes::new(15_387_693_704));
    assert!(places(&explanation.sites).contains(&"workloads.py:25 train_lm"));
}

#[test]
fn a_limit_that_the_snapshot_does_not_hold_is_suspected() {
    let explanation = explain("oom_fragmented", Room::Unknown);
    assert_eq!(explanation.verdict.cause, Cause::ArtificialLimit);
    assert_eq!(explanation.verdict.certainty, Certainty::Likely);
    assert!(explanation.next.iter().any(|fix| fix.command.as_deref().unwrap_or("").contains("--card")));
}

#[test]
fn a_card_is_accounted_for_with_driver_and_context() {
    let explanation = explain("streams", Room::Card(Bytes::gib(24)));
    assert_balanced(&explanation);
    let ledger = explanation.ledger.unwrap();
    assert_eq!(ledger.total(), Some(Bytes::gib(24)));
    assert!(ledger.lines().iter().any(|line| line.what() == "context and code"));
    assert!(ledger.lines()[0].parts().iter().any(|part| part.what() == "freed, waiting for a stream"));
}

#[test]
fn private_pools_are_told_apart() {
    let explanation = explain("graphs", Room::Unknown);
    let ledger = explanation.ledger.unwrap();
    assert!(ledger.lines()[0].parts().iter().any(|part| part.what() == "in private pools"));
}

#[test]
fn a_recording_that_lost_its_beginning_says_so() {
    let explanation = explain("vit_varbatch-ring", Room::Unknown);
    assert_balanced(&explanation);
    assert!(explanation.notes.iter().any(|note| note.contains("started late")), "{:?}", explanation.notes);
}

#[test]
fn room_that_was_left_is_a_limit_and_not_fragmentation() {
    for name in ["oom_fragmented", "oom_batch"] {
        let explanation = explain(name, Room::Card(Bytes::gib(24)));
        assert_eq!(explanation.verdict.cause, Cause::ArtificialLimit, "{name}");
        assert_ne!(explanation.verdict.certainty, Certainty::Certain, "{name}");
    }
}

#[test]
fn a_limit_below_what_the_run_held_is_not_believed() {
    let explanation = explain("gpt2_varlen", Room::Limit(Bytes::gib(6)));
    assert_eq!(explanation.ledger.as_ref().unwrap().total(), None);
    assert!(explanation.notes[0].contains("so that limit is ignored here"), "{:?}", explanation.notes);
}

#[test]
fn what_fits_is_advised_and_not_called_useless() {
    let explanation = explain("oom_batch", Room::Limit(Bytes::gib(8)));
    assert_eq!(explanation.alternatives[1].fits, Some(true));
    let advised = |fix: &makeroom_explain::Fix| {
        fix.command.as_deref().is_some_and(|command| command.contains("expandable_segments"))
    };
    assert!(explanation.causes[0].fixes.iter().any(advised));
    assert!(!explanation.wont_help.iter().any(|line| line.contains("expandable_segments")));
}

/// Figures that were worked out from the file by an independent program.
#[test]
fn rounding_and_unused_pieces_are_right_to_the_byte() {
    for (name, room, rounding, unused, largest) in [
        ("oom_batch", Room::Limit(Bytes::gib(8)), 20.30, 234.31, "72.00 MiB"),
        ("oom_fragmented", Room::Limit(Bytes::gib(6)), 9.19, 330.60, "217.87 MiB"),
        ("gpt2_varlen", Room::Unknown, 10.27, 9824.88, "1.73 GiB"),
        ("graphs", Room::Unknown, 0.00, 23.96, "6.00 MiB"),
    ] {
        let ledger = explain(name, room).ledger.unwrap();
        let mebibytes = |what: &str| {
            let line = ledger.lines().iter().find(|line| line.what().starts_with(what)).unwrap();
            (line.bytes().get() as f64 / f64::from(1 << 20), line.remark().unwrap_or("").to_owned())
        };
        assert!((mebibytes("rounding").0 - rounding).abs() < 0.006, "{name}: {:?}", mebibytes("rounding"));
        assert!((mebibytes("unused").0 - unused).abs() < 0.006, "{name}: {:?}", mebibytes("unused"));
        assert!(mebibytes("unused").1.ends_with(largest), "{name}: {:?}", mebibytes("unused"));
    }
}

/// A recording of a loop that keeps something from every step, marked as a profiler or an optimizer marks it.
fn leaking(mark: impl Fn(u64) -> String) -> Trace {
    use makeroom_core::{
        Action, Address, Annotation, AnnotationStage, DeviceTrace, Event, StackId, StreamId, TraceKind,
    };
    let mut trace = Trace::new(TraceKind::TorchSnapshot);
    let (function, file) = (trace.stacks.name("step"), trace.stacks.name("train.py"));
    let frame = trace.stacks.frame(Frame { function, file, line: 7, ..Frame::default() });
    let stack = trace.stacks.stack(&[frame]);
    let mut device = DeviceTrace::default();
    let mut push = |action, address, size, time_us, stack| {
        let (address, size) = (Address(address), Bytes::mib(size));
        device.events.push(Event { action, address, size, stream: StreamId(0), time_us, stack });
    };
    push(Action::SegmentAlloc, 1 << 40, 8192, 1, StackId::NONE);
    for step in 0..40_u64 {
        let time = 1000 * (step + 1);
        trace.annotations.push(Annotation {
            name: mark(step),
            stage: AnnotationStage::Start,
            device: None,
            time_us: time,
        });
        let (kept, passing) = ((1 << 40) + (step << 28), (1 << 40) + (step << 28) + (1 << 27));
        push(Action::Alloc, kept, 100, time + 1, stack);
        push(Action::Alloc, passing, 50, time + 2, StackId::NONE);
        push(Action::FreeRequested, passing, 50, time + 3, StackId::NONE);
        push(Action::FreeCompleted, passing, 50, time + 4, StackId::NONE);
    }
    push(Action::OutOfMemory, 0, 4096, 50_000, stack);
    trace.devices.push(device);
    trace
}

#[test]
fn a_leak_is_named_with_its_line_whoever_marks_the_steps() {
    for mark in [|_| "Optimizer.step#AdamW.step".to_owned(), |step| format!("ProfilerStep#{step}")] {
        let explanation = explain_trace(&leaking(mark), &TraceQuestion::default());
        assert_eq!(explanation.verdict.cause, Cause::Leak);
        let growth = explanation.growth.unwrap();
        assert_eq!(growth.per_step, Bytes::mib(100));
        assert_eq!(growth.leaking[0].place, "train.py:7 step");
    }
}

#[test]
fn the_device_that_failed_first_is_explained() {
    let mut trace = leaking(|_| "Optimizer.step".to_owned());
    let mut earlier = trace.devices[0].clone();
    earlier.device = makeroom_core::DeviceIndex(1);
    earlier.events = makeroom_core::Events::default();
    let refusal = trace.devices[0].events.iter().last().unwrap();
    earlier.events.push(makeroom_core::Event { time_us: 5, ..refusal });
    trace.devices.push(earlier);
    let explanation = explain_trace(&trace, &TraceQuestion::default());
    assert_eq!(explanation.request.unwrap().device.map(|device| device.0), Some(1));
    assert!(explanation.notes.iter().any(|note| note.contains("more GPU")));
}

#[test]
fn a_stack_of_a_hundred_thousand_frames_is_answered() {
    let mut trace = leaking(|_| "Optimizer.step".to_owned());
    let function = trace.stacks.name(&"f".repeat(10_000));
    let file = trace.stacks.name("train.py");
    let frames: Vec<_> = (0..100_000)
        .map(|line| trace.stacks.frame(Frame { function, file, line, ..Frame::default() }))
        .collect();
    let stack = trace.stacks.stack(&frames);
    let event = trace.devices[0].events.get(1).unwrap();
    trace.devices[0].events.push(makeroom_core::Event {
        stack,
        address: makeroom_core::Address(77),
        ..event
    });
    let explanation = explain_trace(&trace, &TraceQuestion::default());
    assert!(!explanation.sites.is_empty());
}

/// Seven GiB of live tensors from one line, and one more that does not fit.
fn filled(function: &str, file: &str) -> Trace {
    use makeroom_core::{Action, Address, DeviceTrace, Event, StreamId, TraceKind};
    let mut trace = Trace::new(TraceKind::TorchSnapshot);
    let (function, file) = (trace.stacks.name(function), trace.stacks.name(file));
    let frame = trace.stacks.frame(Frame { function, file, line: 7, ..Frame::default() });
    let stack = trace.stacks.stack(&[frame]);
    let mut device = DeviceTrace::default();
    for number in 0..7_u64 {
        let (address, size) = (Address((1 << 40) + (number << 30)), Bytes::gib(1));
        for action in [Action::SegmentAlloc, Action::Alloc] {
            device.events.push(Event { action, address, size, stream: StreamId(0), time_us: number, stack });
        }
    }
    let (action, address, size) = (Action::OutOfMemory, Address(0), Bytes::gib(1));
    device.events.push(Event { action, address, size, stream: StreamId(0), time_us: 9, stack });
    trace.devices.push(device);
    trace
}

#[test]
fn advice_about_layers_needs_a_layer() {
    let cases = [
        ("load", "/home/me/load.py", false),
        ("forward", "/usr/lib/python3/site-packages/torch/nn/modules/linear.py", true),
        ("_call_impl", r"C:\venv\Lib\site-packages\torch\nn\modules\module.py", true),
        ("torch::autograd::Engine::thread_main", "??", true),
    ];
    for (function, file, has_a_model) in cases {
        let question = TraceQuestion { room: Room::Limit(Bytes::mib(7500)), device: None };
        let explanation = explain_trace(&filled(function, file), &question);
        assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice, "{file}");
        let fixes = &explanation.causes[0].fixes;
        let is_advised = fixes.iter().any(|fix| fix.action.contains("gradient checkpointing"));
        assert_eq!(is_advised, has_a_model, "{file}: {fixes:?}");
        assert!(!fixes.is_empty(), "{file}");
    }
}
