//! Access control, rejected requests, and hostile recordings and queries.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use makeroom_core::{
    Action, Address, Bytes, DeviceIndex, DeviceTrace, Event, Frame, StackId, StreamId, Trace, TraceKind,
};
use makeroom_explain::TraceQuestion;
use makeroom_view::{Access, Change, Host, Opened, OpenedInput, Refusal, Viewer, report, respond};
use serde_json::Value;

const PORT: u16 = 4711;
const TOKEN: &str = "00c0ffee";
const SCRIPT: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";

struct Inputs {
    viewer: Arc<Viewer>,
    changes: Mutex<Vec<Change>>,
}

impl Host for Inputs {
    fn viewer(&self) -> Arc<Viewer> {
        Arc::clone(&self.viewer)
    }
    fn changes(&self) -> Vec<Change> {
        self.changes.lock().unwrap().clone()
    }
    fn can_reload(&self) -> bool {
        true
    }
    fn reload(&self) -> Result<(), Refusal> {
        Err(Refusal::new(409, "it is gone", "bring it back"))
    }
}

/// Allocations whose function, file and library have this name.
fn recording(name: &str, events: usize) -> Trace {
    let mut trace = Trace::new(TraceKind::TorchSnapshot);
    let name = trace.stacks.name(name);
    let frame = trace.stacks.frame(Frame { function: name, file: name, line: 7, ..Frame::default() });
    let stack = trace.stacks.stack(&[frame]);
    let mut device = DeviceTrace { device: DeviceIndex(0), ..DeviceTrace::default() };
    for index in 0..events as u64 {
        device.events.push(Event {
            action: if index % 3 == 2 { Action::FreeCompleted } else { Action::Alloc },
            address: Address(4096 * (1 + index - u64::from(index % 3 == 2))),
            size: Bytes::new(1000 + index),
            stream: StreamId(u64::MAX),
            time_us: 5 + index,
            stack: if index.is_multiple_of(7) { StackId::NONE } else { stack },
        });
    }
    trace.devices.push(device);
    trace
}

fn host_of(trace: Trace) -> Inputs {
    let input = OpenedInput::Trace(Box::new(trace));
    let name = format!("{SCRIPT}.pickle");
    let opened = Opened { name, bytes: Some(9), input, question: TraceQuestion::default() };
    Inputs { viewer: Arc::new(Viewer::new(vec![opened])), changes: Mutex::new(vec![Change::Same]) }
}

fn host() -> Inputs {
    host_of(recording("forward", 100))
}

/// Sends a request with the token.
fn ask(host: &Inputs, method: &str, path: &str, headers: &[(&str, &str)]) -> Response<Vec<u8>> {
    ask_at(host, method, &format!("/{TOKEN}{path}"), headers)
}

fn ask_at(host: &Inputs, method: &str, path: &str, headers: &[(&str, &str)]) -> Response<Vec<u8>> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    respond(host, &request.body(()).unwrap(), &Access::new(PORT, TOKEN.to_owned()))
}

fn get(host: &Inputs, path: &str) -> (u16, Value) {
    let response = ask(host, "GET", path, &[("host", "127.0.0.1:4711")]);
    (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
}

#[test]
fn only_this_machine_by_its_own_names_may_ask() {
    let host = host();
    for (name, status) in [
        ("127.0.0.1:4711", 200),
        ("localhost:4711", 200),
        ("LOCALHOST:4711", 200),
        ("[::1]:4711", 200),
        ("127.0.0.1", 403),
        ("127.0.0.1:80", 403),
        ("evil.example:4711", 403),
        ("localhost.evil.example:4711", 403),
        ("127.0.0.1:4711.evil.example", 403),
        ("user@127.0.0.1:4711", 403),
        ("", 403),
    ] {
        for path in ["/", "/healthz", "/api/inputs", "/api/0/0/sites"] {
            let response = ask(&host, "GET", path, &[("host", name)]);
            assert_eq!(response.status().as_u16(), status, "{name} {path}");
        }
    }
    assert_eq!(ask(&host, "GET", "/", &[]).status().as_u16(), 403);
    let twice = [("host", "127.0.0.1:4711"), ("host", "evil.example")];
    assert_eq!(ask(&host, "GET", "/", &twice).status().as_u16(), 403);
}

/// Other users of the machine can reach the port too.
#[test]
fn only_requests_with_the_token_are_served() {
    let host = host();
    let local = ("host", "127.0.0.1:4711");
    for path in ["/", "/api/inputs", "/api/0/0/sites", "/api/0/0/allocations/5?token=00c0ffee"] {
        for before in ["", "/", "/00c0ffe", "/00c0ffef", "/00C0FFEE", "/00c0ffee0", "/?token=00c0ffee"] {
            let response = ask_at(&host, "GET", &format!("{before}{path}"), &[local]);
            assert_eq!(response.status().as_u16(), 403, "{before}{path}");
            assert!(!response.headers().contains_key("makeroom-reading"), "{before}{path}");
            let told: Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(told["error"], "access token missing or wrong");
        }
        assert_eq!(
            ask(&host, "GET", path, &[local]).status().as_u16(),
            if path.contains('?') { 400 } else { 200 }
        );
    }
    assert_eq!(ask_at(&host, "POST", "/api/reload", &[local]).status().as_u16(), 403);
    assert_eq!(ask_at(&host, "GET", "/healthz", &[local]).status().as_u16(), 200);
    let page = ask_at(&host, "GET", "/", &[local, ("accept", "text/html,application/xhtml+xml,*/*;q=0.8")]);
    assert_eq!(
        (page.status().as_u16(), &page.headers()["content-type"]),
        (403, &"text/html; charset=utf-8".parse().unwrap())
    );
    let page = String::from_utf8(page.into_body()).unwrap();
    assert!(page.contains("Open the full address that <code>makeroom view</code> printed"), "{page}");
    let redirected = ask_at(&host, "GET", "/00c0ffee", &[local]);
    assert_eq!(
        (redirected.status().as_u16(), &redirected.headers()["location"]),
        (308, &"/00c0ffee/".parse().unwrap())
    );
}

#[test]
fn other_sites_are_refused() {
    let host = host();
    for (header, value, status) in [
        ("origin", "http://127.0.0.1:4711", 200),
        ("origin", "http://localhost:4711", 200),
        ("origin", "https://127.0.0.1:4711", 403),
        ("origin", "http://127.0.0.1:9999", 403),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "none", 200),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "cross-site", 403),
    ] {
        for (method, path) in [("GET", "/api/inputs"), ("POST", "/api/0/0/whatif")] {
            let headers = [("host", "127.0.0.1:4711"), (header, value)];
            assert_eq!(ask(&host, method, path, &headers).status().as_u16(), status, "{header}: {value}");
        }
    }
}

#[test]
fn every_response_says_what_a_browser_may_do_with_it() {
    let host = host();
    for path in ["/", "/api/inputs", "/api/9/9", "/healthz"] {
        let response = ask(&host, "GET", path, &[("host", "127.0.0.1:4711")]);
        let header = |name: &str| response.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert!(header("content-security-policy").starts_with("default-src 'none'"));
        assert!(!header("content-security-policy").contains("script-src 'unsafe"));
    }
}

#[test]
fn questions_that_cannot_be_followed_say_why() {
    let host = host();
    for (path, status) in [
        ("/api", 404),
        ("/api/1/0/sites", 404),
        ("/api/0/1/sites", 404),
        ("/api/0/0/nothing", 404),
        ("/api/0/0/moment/101", 404),
        ("/api/0/0/moment/-1", 404),
        ("/api/0/0/moment/99999999999999999999", 404),
        ("/api/0/0/moment/5/segment/0x0", 404),
        ("/api/0/0/moment/5/segment/zero", 404),
        ("/api/0/0/series/9/0", 404),
        ("/api/0/0/series/0/1", 404),
        ("/api/0/0/series/0/18446744073709551615", 404),
        ("/api/0/0/allocations/5?sort=name", 400),
        ("/api/0/0/allocations/5?limit=-1", 400),
        ("/api/0/0/allocations/5?what=7", 400),
        ("/report.html?by=nothing", 400),
        ("/../../etc/passwd", 404),
        ("/api/0/0/live/%2e%2e", 404),
    ] {
        let (answered, body) = get(&host, path);
        assert_eq!(answered, status, "{path}: {body}");
        assert!(body["error"].is_string() && body["hint"].is_string(), "{path}: {body}");
    }
    let response = ask(&host, "DELETE", "/", &[("host", "127.0.0.1:4711")]);
    assert_eq!(
        (response.status().as_u16(), response.headers()["allow"].to_str().unwrap()),
        (405, "GET, HEAD, POST")
    );
    let response = ask(&host, "POST", "/api/0/0/sites", &[("host", "127.0.0.1:4711")]);
    assert_eq!(response.status().as_u16(), 404);
}

#[test]
fn rows_are_sorted_filtered_and_cut_into_pages() {
    let host = host_of(recording("forward", 3000));
    let rows = |query: &str| get(&host, &format!("/api/0/0/allocations/3000?{query}")).1;
    let sizes = |value: &Value| -> Vec<u64> {
        value["rows"].as_array().unwrap().iter().map(|row| row["requested"].as_u64().unwrap()).collect()
    };
    let all = rows("");
    assert_eq!((all["total"].as_u64().unwrap(), sizes(&all).len()), (1000, 500));
    assert!(sizes(&all).is_sorted_by(|one, next| one >= next));
    let small = rows("order=asc&limit=10&offset=5");
    assert_eq!(sizes(&small).len(), 10);
    assert!(sizes(&small).is_sorted());
    assert_eq!(sizes(&rows("limit=5000")).len(), 1000);
    assert_eq!(rows("offset=5000")["rows"].as_array().unwrap().len(), 0);
    let matching = rows("filter=FORWARD");
    let others = rows("filter=no%20stack");
    let sum = |value: &Value, what: &str| value[what].as_u64().unwrap();
    assert!(sum(&matching, "total") > 0 && sum(&others, "total") > 0);
    assert_eq!(sum(&matching, "total") + sum(&others, "total"), 1000);
    assert_eq!(sum(&matching, "bytes") + sum(&others, "bytes"), sum(&all, "bytes"));
    let by_age = rows("sort=age&order=desc");
    let born = |row: &Value| row["from"].as_u64().unwrap();
    assert!(born(&by_age["rows"][0]) < born(&by_age["rows"][1]), "the oldest first");
    let address = all["rows"][0]["address"].as_str().unwrap().to_owned();
    assert_eq!(sum(&rows(&format!("filter={address}")), "total"), 1);
}

#[test]
fn what_became_of_the_file_is_told_and_a_failed_reading_changes_nothing() {
    let host = host();
    let told = || {
        let inputs = get(&host, "/api/inputs").1;
        let input = &inputs["inputs"][0];
        (input["changed"].as_bool().unwrap(), input["vanished"].as_bool().unwrap())
    };
    assert_eq!(told(), (false, false));
    *host.changes.lock().unwrap() = vec![Change::Changed];
    assert_eq!(told(), (true, false));
    *host.changes.lock().unwrap() = vec![Change::Vanished];
    assert_eq!(told(), (true, true));
    let response = ask(&host, "POST", "/api/reload", &[("host", "localhost:4711")]);
    assert_eq!(response.status().as_u16(), 409);
    assert_eq!(get(&host, "/api/0/0/sites").0, 200);
}

#[test]
fn answers_of_two_readings_are_told_apart() {
    let reading = |host: &Inputs, path: &str| {
        let response = ask(host, "GET", path, &[("host", "localhost:4711")]);
        response.headers().get("makeroom-reading").map(|value| value.to_str().unwrap().to_owned())
    };
    let (one, other) = (host(), host());
    let first = reading(&one, "/api/inputs");
    assert!(first.is_some());
    assert_eq!(reading(&one, "/api/0/0/sites"), first);
    assert_ne!(reading(&other, "/api/inputs"), first);
    assert_eq!(reading(&one, "/api/0/0/nothing"), None, "what was not answered is of no reading");
}

#[test]
fn the_what_if_runs_beside_and_comes_to_its_end() {
    let host = host();
    assert_eq!(get(&host, "/api/0/0/whatif").1["state"], "idle");
    let started = ask(&host, "POST", "/api/0/0/whatif", &[("host", "localhost:4711")]);
    assert_eq!(started.status().as_u16(), 200);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let answer = get(&host, "/api/0/0/whatif").1;
        if answer["state"] == "done" {
            assert_eq!(answer["done"], answer["of"]);
            let rows = answer["rows"].as_array().unwrap();
            assert!(rows.iter().any(|row| row["allocator"] == "ideal"), "{rows:?}");
            break;
        }
        assert_eq!(answer["state"], "running");
        assert!(std::time::Instant::now() < deadline, "{answer}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn hostile_names_stay_text_and_short() {
    let long = "x".repeat(10_000_000);
    for name in [SCRIPT, &long, "\u{202e}\u{0}\u{1b}[31m\"'`{{7*7}}"] {
        let host = host_of(recording(name, 60));
        for path in [
            "/api/0/0/sites",
            "/api/0/stacks",
            "/api/0/0/series/0/0",
            "/api/0/0/allocations/60",
            "/api/inputs",
        ] {
            let response = ask(&host, "GET", path, &[("host", "127.0.0.1:4711")]);
            assert_eq!(response.headers()["content-type"], "application/json", "{path}");
            assert!(response.body().len() < 200_000, "{path}: {}", response.body().len());
            serde_json::from_slice::<Value>(response.body()).unwrap();
        }
        let html = report(&host.viewer, false).unwrap().html;
        assert!(
            !html.contains(SCRIPT) && !html.contains("onerror=alert(2)"),
            "the report holds it as data only"
        );
        assert!(html.len() < 1_000_000, "{}", html.len());
    }
}

#[test]
fn sizes_without_end_and_frees_without_beginning_are_answered() {
    let mut trace = recording("forward", 0);
    let events = &mut trace.devices[0].events;
    let actions = [
        Action::Alloc,
        Action::SegmentFree,
        Action::FreeCompleted,
        Action::SegmentAlloc,
        Action::Alloc,
        Action::SegmentUnmap,
        Action::FreeRequested,
        Action::SegmentMap,
        Action::OutOfMemory,
        Action::Alloc,
    ];
    for (index, action) in actions.into_iter().cycle().take(400).enumerate() {
        let index = index as u64;
        events.push(Event {
            action,
            address: Address(if index.is_multiple_of(5) {
                u64::MAX - index
            } else {
                (index * 7919) % 50 * 512
            }),
            size: Bytes::new(if index.is_multiple_of(11) { u64::MAX } else { index * 1000 }),
            stream: StreamId(index % 3),
            time_us: 0,
            stack: StackId::NONE,
        });
    }
    let host = host_of(trace);
    assert_eq!(get(&host, "/api/inputs").0, 200);
    for position in 0..=400 {
        for what in ["moment", "live", "allocations"] {
            assert_eq!(get(&host, &format!("/api/0/0/{what}/{position}")).0, 200);
        }
    }
    for by in ["line", "frame", "file", "kind", "stage", "size", "allocation"] {
        assert_eq!(get(&host, &format!("/api/0/0/by/{by}/series/0/0")).0, 200, "{by}");
    }
    assert!(report(&host.viewer, true).is_ok());
}

#[test]
fn too_many_blocks_are_merged_and_sums_stay() {
    let mut trace = recording("forward", 0);
    let event = |action, address, size| Event {
        action,
        address: Address(address),
        size: Bytes::new(size),
        stream: StreamId(0),
        time_us: 1,
        stack: StackId::NONE,
    };
    let (base, blocks) = (1 << 30, 50_000_u64);
    let device = &mut trace.devices[0];
    device.events.push(event(Action::SegmentAlloc, base, blocks * 1024));
    for number in 0..blocks {
        device.events.push(event(Action::Alloc, base + number * 1024, 512));
    }
    // Far away and outside segments: driver blocks with gaps between them.
    for number in 0..10 {
        device.events.push(event(Action::Alloc, (1 << 40) + number * 4096, 1024));
    }
    let host = host_of(trace);
    let moment = get(&host, &format!("/api/0/0/moment/{}", blocks + 11)).1;
    let segments = moment["segments"].as_array().unwrap();
    let rows: usize = segments.iter().map(|segment| segment["blocks"].as_array().unwrap().len()).sum();
    assert!(rows <= 20_000, "{rows}");
    let number = |value: &Value| value.as_u64().unwrap();
    assert_eq!(number(&moment["live"]), blocks * 512 + 10 * 1024);
    assert_eq!(number(&moment["reserved"]), blocks * 1024 + 10 * 1024);
    let large = &segments[0];
    assert_eq!((&large["merged"], number(&large["live"])), (&Value::Bool(true), blocks * 512));
    let merged = large["blocks"].as_array().unwrap();
    assert_eq!(merged.iter().map(|row| number(&row[1])).sum::<u64>(), number(&large["size"]));
    let whole = merged.iter().filter(|row| number(&row[2]) == 3);
    assert!(whole.into_iter().all(|row| (400..=1000).contains(&number(&row[3]))), "{:?}", merged.first());
    let driver = &segments[1];
    assert_eq!((&driver["kind"], number(&driver["reserved"])), (&Value::from("driver"), 10 * 1024));
    assert_eq!(number(&driver["size"]), 9 * 4096 + 1024);
    let path = format!("/api/0/0/moment/{}/segment/{}", blocks + 11, large["address"].as_str().unwrap());
    let one = get(&host, &path).1;
    assert!(one["segments"][0]["blocks"].as_array().unwrap().len() <= 20_000);
}
