//! Recorded programs that run out of memory while `serve` runs: counters, owners, heartbeats, and logs.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Server, receive};
use crate::support::machine::Machine;

const COUNTED: &str = "makeroom_oom_total{Hostname=";

/// The failures of one cause.
fn count(text: &str, cause: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(COUNTED) && line.contains(&format!("\"{cause}\"")));
    line.unwrap_or_else(|| panic!("{cause} is not in\n{text}")).rsplit(' ').next().unwrap().parse().unwrap()
}

/// A recorded program that fails when it gets a line. Servers see the programs of other tests too, so each has its own name.
fn failing(machine: &mut Machine, name: &str, words: &[&str]) -> impl FnOnce() + use<> {
    let program = format!("./{name}");
    std::fs::copy(machine.folder().join("hold"), machine.folder().join(name)).unwrap();
    let mut command =
        machine.makeroom("", &["run", "--no-status", "-o", "it.room", "--", &program, "fails", "64"]);
    let (input, mut fail) = std::io::pipe().unwrap();
    machine.start(command.args(words).stdin(input).stderr(Stdio::null()), 1);
    move || fail.write_all(b"\n").unwrap()
}

/// The value of a metric for a program, if it is there.
fn of_program(text: &str, metric: &str, program: &str) -> Option<f64> {
    let label = format!("program=\"{program}\"");
    let line = text.lines().find(|line| line.starts_with(metric) && line.contains(&label))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The metrics, once they contain something.
fn metrics_with(server: &Server, is_there: impl Fn(&str) -> bool) -> String {
    let ends = Instant::now() + Duration::from_secs(60);
    loop {
        let text = server.get("/metrics").1;
        if is_there(&text) {
            return text;
        }
        assert!(Instant::now() < ends, "not in\n{text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_program_that_fails_and_exits_is_counted_with_its_cause_and_sent_as_a_log() {
    let mut machine = Machine::new("oom");
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let server = Server::start(&machine, "", &["--otlp", &endpoint, "--interval", "0.3"]);
    // The collector is down at first; verdicts wait for it.
    let logs = std::thread::spawn(move || {
        let mut rejected = 0;
        loop {
            let (head, body) =
                receive(&collector, if rejected < 3 { "503 Service Unavailable" } else { "200 OK" });
            rejected += 1;
            if head.starts_with("POST /v1/logs ") && rejected > 3 {
                let records =
                    body["resourceLogs"][0]["scopeLogs"][0]["logRecords"].as_array().unwrap().clone();
                let mut own =
                    records.into_iter().filter(|record| record.to_string().contains("fails-and-exits"));
                if let Some(record) = own.next() {
                    return record;
                }
            }
        }
    });
    assert!(count(&server.get("/metrics").1, "request_exceeds_device") < 0.5, "a counter starts at 0");
    let fail = failing(&mut machine, "fails-and-exits", &["and exits"]);
    let has_recorder = |text: &str| of_program(text, "makeroom_recorders{", "fails-and-exits").is_some();
    let text = metrics_with(&server, has_recorder);
    assert!(of_program(&text, "makeroom_recorders{", "fails-and-exits").is_some_and(|count| count > 0.5));
    fail();
    let failure = "makeroom_last_oom_timestamp_seconds{";
    let text = metrics_with(&server, |text| of_program(text, failure, "fails-and-exits").is_some());
    let lines = || text.lines().filter(|line| line.starts_with(failure) && line.contains("fails-and-exits"));
    assert!(lines().all(|line| line.contains("cause=\"request_exceeds_device\"")), "{text}");
    assert!(count(&text, "request_exceeds_device") > 0.5, "{text}");
    metrics_with(&server, |text| !has_recorder(text));
    let record: Value = logs.join().unwrap();
    let body = record["body"]["stringValue"].as_str().unwrap();
    assert!(body.starts_with("REQUEST EXCEEDS THE DEVICE: "), "{body}");
}

#[test]
fn failures_before_the_start_and_retries_do_not_count_again() {
    let mut machine = Machine::new("oom-old");
    let fail = failing(&mut machine, "failed-before", &[]);
    fail();
    let ends = Instant::now() + Duration::from_secs(60);
    while !machine.folder().join("failed").exists() {
        assert!(Instant::now() < ends, "it does not fail");
    }
    let server = Server::start(&machine, "", &[]);
    let beat =
        |text: &str| of_program(text, "makeroom_recorder_heartbeat_timestamp_seconds{", "failed-before");
    let first = beat(&metrics_with(&server, |text| beat(text).is_some())).unwrap();
    // The recorder writes every second although the program does nothing.
    let text = metrics_with(&server, |text| beat(text).is_some_and(|now| now > first + 3.0));
    assert_eq!(of_program(&text, "makeroom_last_oom_timestamp_seconds{", "failed-before"), None, "{text}");
}

/// A recording that a user made up counts as what it is, and does not make the server slow.
#[test]
fn hostile_recordings_neither_stop_the_server_nor_make_up_causes() {
    let mut machine = Machine::new("oom-hostile");
    let folder = machine.folder().to_owned();
    let garbage: Vec<u8> =
        makeroom_trace::room::MAGIC.into_iter().chain((0..1 << 20).map(|number: u32| number as u8)).collect();
    std::fs::write(folder.join("garbage.room"), garbage).unwrap();
    std::fs::File::create(folder.join("endless.room")).unwrap().set_len(1 << 40).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("pipe.room")).status().unwrap().success());
    let listed: Vec<String> = (0..100)
        .map(|number| {
            let file = ["garbage.room", "endless.room", "pipe.room"][number % 3];
            let script = format!("exec 9<>{file}; echo $$; exec -a 'x\"}} 1{number}' sleep 600");
            let pid = machine.start(Command::new("bash").args(["-c", &script]), 1)[0];
            format!("hold=0:{pid}:16MiB")
        })
        .collect();
    let server = Server::start(&machine, &listed.join(","), &[]);
    for _ in 0..5 {
        let began = Instant::now();
        let (status, text) = server.get("/metrics");
        assert_eq!(status, 200);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let is_recorder =
            |line: &&str| line.starts_with("makeroom_recorders{") && line.contains("program=\"x");
        assert_eq!(text.lines().find(is_recorder), None, "{text}");
        assert!(text.lines().all(|line| !line.starts_with('x')), "{text}");
        std::thread::sleep(Duration::from_millis(300));
    }
}
