//! The self-contained report: below its size limit, complete for what it includes, and honest about what it leaves
//! out.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use flate2::read::GzDecoder;
use makeroom_core::{Action, Address, Bytes, DeviceTrace, Event, StackId, StreamId, Trace, TraceKind};
use makeroom_explain::TraceQuestion;
use makeroom_trace::Input;
use makeroom_view::{Layers, Opened, OpenedInput, Viewer, report};
use serde_json::Value;

fn opened(name: &str) -> Opened {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(name);
    let Input::Trace(trace) = makeroom_trace::open(&path).unwrap() else { panic!("{name} is a recording") };
    let input = OpenedInput::Trace(Box::new(trace));
    Opened { name: name.to_owned(), bytes: None, input, question: TraceQuestion::default() }
}

/// The responses in a file, by path.
fn answers(html: &str) -> BTreeMap<String, Value> {
    let (_, rest) =
        html.split_once("<script id=\"makeroom-data\" type=\"application/octet-stream\">").unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    let packed = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    let lines = text.lines().map(|line| line.split_once('\t').unwrap());
    lines.map(|(path, answer)| (path.to_owned(), serde_json::from_str(answer).unwrap())).collect()
}

#[test]
fn what_is_in_the_file_is_what_the_server_answers() {
    let viewer = Viewer::new(vec![opened("oom_fragmented.pickle.gz")]);
    let made = report(&viewer, true).unwrap();
    assert!(made.html.len() < 10_000_000, "{}", made.html.len());
    let answers = answers(&made.html);
    let inputs = &answers["/api/inputs"];
    assert_eq!(inputs["embedded"]["reduced"], serde_json::json!(made.reduced));
    assert_eq!(inputs["can_reload"], false);
    assert_eq!(answers["/api/0/0/whatif"]["state"], "done");
    let device = &inputs["inputs"][0]["devices"][0];
    for path in [
        "/api/0/stacks".to_owned(),
        "/api/0/0/sites".to_owned(),
        format!("/api/0/0/groups/kind/{}", device["start"]),
        format!("/api/0/0/moment/{}", device["start"]),
        format!("/api/0/0/live/{}", device["peak"]["event"]),
        format!("/api/0/0/allocations/{}", device["events"]),
        format!("/api/0/0/series/{}/0", device["levels"].as_u64().unwrap() - 1),
    ] {
        let live: Value = serde_json::from_slice(&viewer.answer(&path, "").unwrap()).unwrap();
        assert_eq!(answers[&path], live, "{path}");
    }
    // For each included moment, all three resources are included.
    let of = |what: &str| {
        let prefix = format!("/api/0/0/{what}/");
        answers
            .keys()
            .filter_map(move |path| path.strip_prefix(&prefix).map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("moment"), of("live"));
    assert_eq!(of("moment"), of("allocations"));
    assert!(of("moment").len() > 100, "{}", of("moment").len());
    let reduced = made.reduced.unwrap();
    assert!(reduced.contains(&format!("memory layout at {} of ", of("moment").len())), "{reduced}");
}

#[test]
fn a_file_has_the_layers_that_were_chosen() {
    let kinds = Layers::named("kind").unwrap();
    let viewer = Viewer::new(vec![opened("kinds/adamw.pickle.gz")]).with_layers(kinds);
    let answers = answers(&report(&viewer, false).unwrap().html);
    assert_eq!(answers["/api/inputs"]["layers"], "kind");
    let start = &answers["/api/inputs"]["inputs"][0]["devices"][0]["start"];
    for rest in [
        "sites".to_owned(),
        "series/0/0".to_owned(),
        format!("moment/{start}"),
        format!("live/{start}"),
        format!("allocations/{start}"),
    ] {
        let path = format!("/api/0/0/by/kind/{rest}");
        let live: Value = serde_json::from_slice(&viewer.answer(&path, "").unwrap()).unwrap();
        assert_eq!(answers[&path], live, "{path}");
        assert!(!answers.contains_key(&format!("/api/0/0/{rest}")), "{rest} by line takes space");
    }
}

#[test]
fn a_long_recording_is_reduced_and_says_so() {
    let viewer = Viewer::new(vec![opened("gpt2_varlen.pickle.gz"), opened("vit_varbatch-ring.pickle.gz")]);
    let made = report(&viewer, false).unwrap();
    assert!(made.html.len() < 10_000_000, "{}", made.html.len());
    let reduced = made.reduced.unwrap();
    assert!(reduced.contains("gpt2_varlen") && reduced.contains("10 MB"), "{reduced}");
    let answers = answers(&made.html);
    assert_eq!(answers["/api/0/0/whatif"]["state"], "idle");
    assert!(answers.contains_key("/api/1/0/sites"));
}

#[test]
fn a_short_recording_is_kept_whole() {
    let viewer = Viewer::new(vec![opened("graphs.pickle.gz")]);
    let made = report(&viewer, false).unwrap();
    let answers = answers(&made.html);
    let events = answers["/api/inputs"]["inputs"][0]["devices"][0]["events"].as_u64().unwrap();
    if events < 400 {
        assert_eq!(made.reduced, None);
        assert!((0..=events).all(|event| answers.contains_key(&format!("/api/0/0/moment/{event}"))));
    } else {
        assert!(answers.contains_key("/api/0/0/series/0/0"));
    }
}

/// More moments than the cursor can distinguish, and much less than 10 MB.
#[test]
fn a_file_with_room_left_is_not_called_reduced() {
    let mut trace = Trace::new(TraceKind::Room);
    let mut device = DeviceTrace::default();
    for index in 0..500 {
        device.events.push(Event {
            action: Action::Alloc,
            address: Address(index << 20),
            size: Bytes::mib(1),
            stream: StreamId(0),
            time_us: index,
            stack: StackId::NONE,
        });
    }
    trace.devices.push(device);
    let input = OpenedInput::Trace(Box::new(trace));
    let opened = Opened { name: "many".to_owned(), bytes: None, input, question: TraceQuestion::default() };
    let made = report(&Viewer::new(vec![opened]), false).unwrap();
    assert!(made.html.len() < 2_000_000, "{}", made.html.len());
    let left_out = made.reduced.unwrap();
    assert!(
        left_out.starts_with("This file contains the full timeline, and the memory layout at "),
        "{left_out}"
    );
    assert!(!left_out.contains("10 MB"), "{left_out}");
}

#[test]
fn verdicts_are_in_the_words_of_why() {
    let viewer = Viewer::new(vec![opened("graphs.pickle.gz"), opened("oom_batch.pickle.gz")]);
    let verdicts: Vec<&str> = viewer.verdicts().map(|(_, verdict)| verdict).collect();
    assert!(verdicts[0].starts_with("NOTHING FAILED: No allocation failed."), "{}", verdicts[0]);
    assert!(verdicts[1].starts_with("AN ARTIFICIAL LIMIT (likely): "), "{}", verdicts[1]);
}

#[test]
fn a_text_has_a_report_too() {
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
                24.00 GiB of which 1.00 GiB is free.";
    let input = OpenedInput::Text(text.to_owned());
    let opened = Opened { name: "log".to_owned(), bytes: None, input, question: TraceQuestion::default() };
    let made = report(&Viewer::new(vec![opened]), false).unwrap();
    let answers = answers(&made.html);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers["/api/inputs"]["inputs"][0]["why"]["request"]["bytes"], 2_147_483_648_u64);
    assert_eq!(made.reduced, None);
}
