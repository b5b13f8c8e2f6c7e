//! Every format of every real recording: sums must match, and a snapshot must survive a round trip.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use makeroom_core::{
    Action, Address, Bytes, DeviceIndex, DeviceTrace, Event, Frame, StreamId, Trace, TraceKind,
};
use makeroom_explain::{By, TraceQuestion, explain_trace, grouped};
use makeroom_export::{Form, TableKind, export, is_export};
use makeroom_trace::Input;
use serde_json::Value;

fn recordings() -> Vec<(PathBuf, Trace)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directories = [root.join("traces"), root.join("crates/makeroom-trace/tests/golden")];
    let mut paths: Vec<PathBuf> = directories
        .iter()
        .flat_map(|directory| fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "gz" || ending == "room"));
    paths.sort();
    assert!(paths.len() > 12, "{paths:?}");
    let open = |path: PathBuf| match makeroom_trace::open(&path).unwrap() {
        Input::Trace(trace) => (path, trace),
        Input::Text(_) => panic!("{} is a recording", path.display()),
    };
    paths.into_iter().map(open).collect()
}

fn written(trace: &Trace, form: Form) -> Vec<u8> {
    let mut bytes = Vec::new();
    export(trace, form, &mut bytes).unwrap();
    bytes
}

/// Also of an empty recording, and by a few kilobytes of each end.
#[test]
fn an_export_is_recognized_and_its_input_is_not() {
    let forms = [
        Form::Perfetto(None),
        Form::Speedscope(None),
        Form::Snapshot,
        Form::Parquet(TableKind::Allocations),
        Form::Parquet(TableKind::Events),
        Form::Csv(TableKind::Allocations),
        Form::Csv(TableKind::Events),
    ];
    let ends =
        |bytes: &[u8]| is_export(&bytes[..bytes.len().min(2048)], &bytes[bytes.len().saturating_sub(2048)..]);
    // How long a recording is makes no difference to its ends.
    for (path, trace) in recordings().into_iter().filter(|(_, trace)| trace.event_count() < 5_000) {
        for form in forms {
            let bytes = written(&trace, form);
            assert!(ends(&bytes), "{} {form:?}", path.display());
            assert!(!ends(&bytes[1..]), "{} {form:?}", path.display());
        }
        assert!(!ends(&fs::read(&path).unwrap()), "{}", path.display());
    }
    let empty = Trace::new(TraceKind::Room);
    assert!(forms.into_iter().all(|form| ends(&written(&empty, form))));
    assert!(!ends(b"") && !ends(b"PAR1"));
}

#[test]
fn a_snapshot_reads_back_as_what_it_was() {
    for (path, trace) in recordings() {
        let bytes = written(&trace, Form::Snapshot);
        let Input::Trace(again) = makeroom_trace::read(&bytes[..]).unwrap() else {
            panic!("{}", path.display())
        };
        let name = path.display();
        for device in &trace.devices {
            let found = again.devices.iter().find(|found| found.device == device.device);
            let Some(found) = found else {
                assert!(device.events.is_empty() && device.segments.is_empty(), "{name}");
                continue;
            };
            assert_eq!(found.events.len(), device.events.len(), "{name}");
            for (index, (one, other)) in device.events.iter().zip(found.events.iter()).enumerate() {
                let same = |event: makeroom_core::Event| {
                    (event.action, event.address, event.size, event.stream, event.time_us)
                };
                assert_eq!(same(one), same(other), "{name} event {index}");
                let frames = |trace: &Trace, stack| trace.stacks.frames_of(stack).len();
                assert_eq!(frames(&trace, one.stack), frames(&again, other.stack), "{name} event {index}");
                assert_eq!(device.events.pool(index), found.events.pool(index), "{name} event {index}");
            }
            assert_eq!(found.segments.len(), device.segments.len(), "{name}");
            for (one, other) in device.segments.iter().zip(&found.segments) {
                assert_eq!(
                    (one.address, one.size, one.is_small),
                    (other.address, other.size, other.is_small)
                );
                let same = |block: &makeroom_core::Block| (block.address, block.size, block.state);
                assert!(one.blocks.iter().map(same).eq(other.blocks.iter().map(same)), "{name}");
            }
        }
        assert_eq!(again.annotations, trace.annotations, "{name}");
        if trace.kind == TraceKind::TorchSnapshot {
            let verdict = |trace| explain_trace(trace, &TraceQuestion::default()).verdict;
            assert_eq!(verdict(&again).summary, verdict(&trace).summary, "{name}");
            assert_eq!(again.settings, trace.settings, "{name}");
        }
    }
}

/// The owner of a line must be preserved. For a compiled program, it follows from the file of its code.
#[test]
fn a_snapshot_of_a_compiled_program_names_its_own_lines() {
    let mut compared = 0;
    for (path, trace) in recordings() {
        let bytes = written(&trace, Form::Snapshot);
        let Input::Trace(again) = makeroom_trace::read(&bytes[..]).unwrap() else {
            panic!("{}", path.display())
        };
        let is_compiled = trace.process.as_ref().is_some_and(|process| !process.sees_tensors);
        let places = |trace| {
            let sites = explain_trace(trace, &TraceQuestion::default()).sites;
            sites.into_iter().map(|site| (site.place, site.is_own, site.through)).collect::<Vec<_>>()
        };
        let has_library = |stack| {
            let mut frames = trace.stacks.frames_of(stack).iter();
            frames.any(|&frame| !trace.stacks.name_text(trace.stacks.frame_at(frame).library).is_empty())
        };
        if is_compiled && trace.stacks.ids().any(has_library) {
            assert_eq!(places(&again), places(&trace), "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared > 0);
}

#[test]
fn profiles_add_up_to_what_is_live() {
    for (path, trace) in recordings() {
        let file: Value = serde_json::from_slice(&written(&trace, Form::Speedscope(None))).unwrap();
        let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
        for profile in file["profiles"].as_array().unwrap() {
            let weights = profile["weights"].as_array().unwrap();
            let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
            assert_eq!(sum, profile["endValue"].as_u64().unwrap(), "{}", path.display());
            let samples = profile["samples"].as_array().unwrap();
            assert_eq!(samples.len(), weights.len());
            let numbers = samples.iter().flat_map(|sample| sample.as_array().unwrap());
            assert!(numbers.into_iter().all(|number| number.as_u64().unwrap() < frames));
        }
    }
}

#[test]
fn slices_of_a_track_do_not_overlap_and_counters_reach_the_peak() {
    for (path, trace) in recordings() {
        let file: Value = serde_json::from_slice(&written(&trace, Form::Perfetto(None))).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        let number = |event: &Value, what: &str| event[what].as_u64().unwrap();
        let mut until = std::collections::HashMap::new();
        for slice in events.iter().filter(|event| event["ph"] == "X") {
            let end = until.entry((number(slice, "pid"), number(slice, "tid"))).or_insert(0);
            assert!(*end <= number(slice, "ts"), "{} {slice}", path.display());
            *end = number(slice, "ts") + number(slice, "dur");
        }
        for (index, device) in trace.devices.iter().enumerate() {
            let peak = makeroom_explain::Allocations::new(
                device,
                &makeroom_core::Start::new(device),
                trace.stacks.len(),
            );
            let is_live = |event: &&Value| {
                event["ph"] == "C" && event["name"] == "live" && number(event, "pid") == index as u64 + 1
            };
            let counted = events.iter().filter(is_live).map(|event| number(&event["args"], "bytes")).max();
            if let (Some(counted), true) = (counted, peak.peak.0 > 0) {
                assert_eq!(counted, peak.peak.1, "{}", path.display());
            }
        }
    }
}

#[test]
fn tables_have_a_row_for_each_event_and_each_allocation() {
    for (path, trace) in recordings() {
        let events = String::from_utf8(written(&trace, Form::Csv(TableKind::Events))).unwrap();
        let mut reader = csv::Reader::from_reader(events.as_bytes());
        let column = |reader: &mut csv::Reader<&[u8]>, name: &str| {
            reader.headers().unwrap().iter().position(|header| header == name).unwrap()
        };
        let live = column(&mut reader, "live_bytes");
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), trace.event_count(), "{}", path.display());
        let most: u64 = rows.iter().map(|row| row[live].parse().unwrap()).max().unwrap_or(0);
        let allocations = written(&trace, Form::Csv(TableKind::Allocations));
        let mut reader = csv::Reader::from_reader(&allocations[..]);
        let (bytes, at_peak) = (column(&mut reader, "bytes"), column(&mut reader, "live_at_peak"));
        let device = column(&mut reader, "device");
        let mut sums = std::collections::BTreeMap::new();
        for row in reader.records().map(Result::unwrap) {
            if &row[at_peak] == "true" {
                *sums.entry(row[device].to_owned()).or_insert(0) += row[bytes].parse::<u64>().unwrap();
            }
        }
        let highest = sums.values().copied().max().unwrap_or(0);
        assert!(highest >= most, "{}: {highest} {most}", path.display());
    }
}

#[test]
fn groups_add_up_to_what_is_live() {
    // The files of longer recordings take minutes to parse without optimizations.
    for (path, trace) in recordings().into_iter().filter(|(_, trace)| trace.event_count() < 20_000) {
        for by in [By::Kind, By::Stage, By::Line] {
            let file: Value = serde_json::from_slice(&written(&trace, Form::Perfetto(Some(by)))).unwrap();
            let named = |name: &str| {
                let events = file["traceEvents"].as_array().unwrap().iter();
                events.filter(|event| event["ph"] == "C" && event["name"] == name).collect::<Vec<_>>()
            };
            let sum = |event: &&Value| -> u64 {
                event["args"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum()
            };
            let live: Vec<u64> = named("live").iter().map(sum).collect();
            let groups: Vec<u64> = named(&format!("live by {}", by.id())).iter().map(sum).collect();
            assert_eq!(groups.iter().max(), live.iter().max(), "{} {by:?}", path.display());
        }
        let file: Value = serde_json::from_slice(&written(&trace, Form::Speedscope(Some(By::Kind)))).unwrap();
        let frames = file["shared"]["frames"].as_array().unwrap();
        for sample in
            file["profiles"].as_array().unwrap().iter().flat_map(|one| one["samples"].as_array().unwrap())
        {
            let outermost = sample[0].as_u64().unwrap() as usize;
            let name = frames[outermost]["name"].as_str().unwrap();
            assert!(makeroom_kind::Kind::from_id(name).is_some(), "{} {name}", path.display());
        }
    }
}

#[test]
fn allocations_have_the_kind_that_their_groups_have() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/kinds/adamw.pickle.gz");
    let Input::Trace(trace) = makeroom_trace::open(&path).unwrap() else { panic!() };
    let table = written(&trace, Form::Csv(TableKind::Allocations));
    let mut reader = csv::Reader::from_reader(&table[..]);
    let headers = reader.headers().unwrap().clone();
    let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
    let mut sums = std::collections::BTreeMap::new();
    for row in reader.records().map(Result::unwrap) {
        if &row[column("live_at_peak")] == "true" {
            *sums.entry(row[column("kind")].to_owned()).or_insert(0) +=
                row[column("bytes")].parse::<u64>().unwrap();
        }
        // A snapshot has no threads, and every allocation of a training run has a stage.
        assert_eq!(&row[column("thread")], "");
        assert_ne!(&row[column("stage")], "");
    }
    for group in grouped(&trace, None, By::Kind).unwrap().groups {
        assert_eq!(sums.get(&group.name), Some(&group.bytes.get()), "{}", group.name);
    }
}

#[test]
fn what_was_reserved_is_told_though_nothing_is_at_the_end() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/seed004.pickle.gz");
    let Input::Trace(mut trace) = makeroom_trace::open(&path).unwrap() else { panic!("it is a recording") };
    let most = |trace: &Trace| {
        let file: Value = serde_json::from_slice(&written(trace, Form::Perfetto(None))).unwrap();
        let events = file["traceEvents"].as_array().unwrap().clone();
        let reserved = events.iter().filter(|event| event["name"] == "reserved");
        reserved.map(|event| event["args"]["bytes"].as_u64().unwrap()).max()
    };
    // As if the program had ended normally: all segments were freed, and their list is empty.
    trace.devices[0].segments.clear();
    let most = most(&trace);
    assert!(most.is_some_and(|bytes| bytes > 300 << 20), "{most:?}");
}

/// One event on a device with this number, and as many more of one deep stack.
fn crowded(device: u32, frames: usize, events: u64) -> Trace {
    let mut trace = Trace::new(TraceKind::Room);
    let function = trace.stacks.name(&"f".repeat(100));
    let frame = trace.stacks.frame(Frame { function, line: 7, ..Frame::default() });
    let stack = trace.stacks.stack(&vec![frame; frames]);
    let mut found = DeviceTrace { device: DeviceIndex(device), ..DeviceTrace::default() };
    for number in 0..events {
        found.events.push(Event {
            action: Action::Alloc,
            address: Address(512 * number),
            size: Bytes::new(512),
            stream: StreamId(0),
            time_us: 0,
            stack,
        });
    }
    trace.devices.push(found);
    trace
}

#[test]
fn a_device_with_an_absurd_number_does_not_make_a_snapshot_large() {
    let bytes = written(&crowded(u32::MAX, 1, 1), Form::Snapshot);
    assert!(bytes.len() < 10_000, "{}", bytes.len());
    let Input::Trace(again) = makeroom_trace::read(&bytes[..]).unwrap() else { panic!("a snapshot") };
    assert_eq!(again.event_count(), 1);
}

#[test]
fn a_deep_stack_is_cut_where_rows_repeat_it() {
    let trace = crowded(0, 10_000, 100);
    for form in [Form::Csv(TableKind::Events), Form::Csv(TableKind::Allocations), Form::Perfetto(None)] {
        let bytes = written(&trace, form);
        assert!(bytes.len() < 100 * (9 << 10), "{form:?}: {}", bytes.len());
        assert!(String::from_utf8_lossy(&bytes).contains("…;"), "{form:?}");
    }
}
