//! `makeroom serve` on the software NVML: metrics that match `ps`, health, misbehaving clients, a collector.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod failures;
#[cfg(feature = "tls")]
mod tls;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::machine::{self, Machine};
use serde_json::Value;

/// A running server. Its test sends SIGTERM, on which it must exit.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(machine: &Machine, scenario: &str, words: &[&str]) -> Self {
        let mut command = machine.makeroom(scenario, &["serve", "--listen", "127.0.0.1:0"]);
        let mut child = command.args(words).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("makeroom: metrics at ").unwrap().split_once("://").unwrap().1;
        let address = address.strip_suffix("/metrics").unwrap().parse().unwrap();
        Self { child, address }
    }

    /// The status and the body of a response.
    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }

    fn ask(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").arg(self.child.id().to_string()).status();
        let status = self.child.wait().unwrap();
        if !std::thread::panicking() {
            assert_eq!(status.code(), Some(0), "it ends by itself when it is told to");
        }
    }
}

fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(series));
    let line = line.unwrap_or_else(|| panic!("{series} is not in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn metrics_hold_what_ps_says() {
    let mut machine = Machine::with("metrics", "devices=2,memory=8GiB");
    machine.hold(&["memory", "1024"]);
    let server = Server::start(&machine, "orphan=1:2GiB", &[]);
    let (status, text) = server.get("/metrics");
    assert_eq!(status, 200);
    let account = machine.account("orphan=1:2GiB");
    for device in account["devices"].as_array().unwrap() {
        let uuid = device["uuid"].as_str().unwrap();
        let index = device["device"].as_str().unwrap();
        let used = value(&text, &format!("DCGM_FI_DEV_FB_USED{{gpu=\"{index}\",UUID=\"{uuid}\""));
        assert!((used - device["used_bytes"].as_f64().unwrap() / 1_048_576.0).abs() < 0.001);
    }
    assert!((value(&text, "makeroom_up ") - 1.0).abs() < 0.001);
    assert!(text.contains("program=\"hold\""), "{text}");
    assert!(text.contains("makeroom_unlisted_bytes"), "{text}");
    assert_eq!(server.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(server.get("/nothing").0, 404);
    assert_eq!(
        server.ask("POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").0,
        405
    );
}

#[test]
fn it_listens_to_this_machine_alone_unless_told_otherwise() {
    let machine = Machine::new("loopback");
    let output = machine.makeroom("", &["serve", "--help"]).output().unwrap();
    assert!(machine::text(&output.stdout).contains("[default: 127.0.0.1:9401]"));
}

#[test]
fn a_driver_that_hangs_is_told_within_the_deadline_and_not_asked_twice() {
    let machine = Machine::new("hang");
    let server = Server::start(&machine, "hang=nvmlDeviceGetMemoryInfo_v2", &["--deadline", "0.5"]);
    for _ in 0..3 {
        let began = Instant::now();
        let (status, text) = server.get("/metrics");
        assert_eq!(status, 200);
        assert!(value(&text, "makeroom_up ") < 0.5);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    }
    let (status, text) = server.get("/healthz");
    assert_eq!(status, 503);
    assert!(text.contains("did not respond within"), "{text}");
}

#[test]
fn clients_that_say_nothing_stop_nobody() {
    let machine = Machine::new("silent");
    let server = Server::start(&machine, "", &[]);
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let mut half = TcpStream::connect(server.address).unwrap();
    half.write_all(b"GET /metr").unwrap();
    assert_eq!(server.get("/healthz").0, 200);
    drop(silent);
    assert_eq!(server.ask("nonsense\r\n\r\n").0, 400);
    assert_eq!(server.get("/metrics").0, 200);
}

#[test]
fn more_silent_clients_than_there_is_room_for_are_sent_away() {
    let machine = Machine::new("crowd");
    let server = Server::start(&machine, "", &[]);
    let silent: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let began = Instant::now();
    assert_eq!(server.get("/healthz").0, 200);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    drop(silent);
}

#[test]
fn a_collector_that_refuses_is_said_once() {
    let machine = Machine::new("no-collector");
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = machine.makeroom("", &["serve", "--listen", "127.0.0.1:0", "--interval", "0.1"]);
    command.args(["--otlp", &format!("http://{}", collector.local_addr().unwrap())]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..5 {
        receive(&collector, "503 Service Unavailable");
    }
    std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(said.matches("/v1/metrics: returned 503").count(), 1, "{said}");
}

/// Regression: 64 clients that never read blocked it forever.
#[test]
fn clients_that_never_read_stop_nobody() {
    let machine = Machine::new("never-read");
    let server = Server::start(&machine, "", &[]);
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2000);
    let never_read: Vec<TcpStream> = (0..70)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_nonblocking(true).unwrap();
            // As much as the socket buffers hold.
            let _ = stream.write(request.as_bytes());
            stream
        })
        .collect();
    let began = Instant::now();
    // A client that connects while all seats are taken may be turned away. It retries, as Prometheus does.
    let health = || {
        let mut stream = TcpStream::connect(server.address).ok()?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    };
    while health().is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody else is served");
    }
    drop(never_read);
}

#[test]
#[cfg(not(feature = "tls"))]
fn a_build_without_tls_says_so() {
    let machine = Machine::new("no-tls");
    let output = machine.makeroom("", &["serve", "--web-config", "web.yml"]).output().unwrap();
    let said = machine::text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("has no TLS")
            && said.contains("hint: build it with: cargo install --path crates/makeroom --features tls"),
        "{said}"
    );
}

#[test]
fn an_address_in_use_is_an_error() {
    let machine = Machine::new("in-use");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = machine.makeroom("", &["serve", "--listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = machine::text(&output.stderr);
    assert!(
        said.starts_with(&format!("error: {address}: ")) && said.contains("hint: try another address"),
        "{said}"
    );
}

#[test]
fn a_collector_gets_the_conventions_metrics() {
    let mut machine = Machine::new("collector");
    machine.hold(&["memory", "64"]);
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let _server = Server::start(&machine, "", &["--otlp", &endpoint, "--interval", "0.2"]);
    for _ in 0..2 {
        let (head, body) = receive(&collector, "200 OK");
        assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
        assert!(head.to_ascii_lowercase().contains("content-type: application/json"), "{head}");
        let metrics = &body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let names: Vec<&str> =
            metrics.as_array().unwrap().iter().map(|metric| metric["name"].as_str().unwrap()).collect();
        assert_eq!(names[..3], ["hw.gpu.memory.limit", "hw.gpu.memory.usage", "hw.gpu.memory.utilization"]);
        let limit = metrics[0]["sum"]["dataPoints"][0]["asInt"].as_str().unwrap();
        assert_eq!(limit.parse::<u64>().unwrap(), (8 << 30) + (256 << 20));
    }
}

/// One request to a collector, which it answers with a status: its head and its body.
fn receive(collector: &TcpListener, status: &str) -> (String, Value) {
    let (stream, _) = collector.accept().unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        if let Some((name, number)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = number.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    write!(reader.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}").unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}
