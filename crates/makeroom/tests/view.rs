//! `makeroom view` and `makeroom export` as users run them: files that change and vanish, two viewers, a report, and
//! rejected requests.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use makeroom_simcard::testing;
use serde_json::Value;

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(name)
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("view").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn makeroom() -> Command {
    let mut command = testing::plain(env!("CARGO_BIN_EXE_makeroom"));
    command
        .env_remove("BROWSER")
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .env_remove("WSL_DISTRO_NAME");
    command
}

/// A running viewer.
struct Viewer {
    child: Child,
    port: u16,
    /// The prefix of all request paths.
    token: String,
    said: Vec<String>,
}

impl Viewer {
    fn start(arguments: &[&str]) -> Self {
        let mut command = makeroom();
        command.arg("view").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self::of(command, b"")
    }

    fn of(mut command: Command, input: &[u8]) -> Self {
        let mut child = command.spawn().unwrap();
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input).unwrap();
        }
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut viewer = Self { child, port: 0, token: String::new(), said: Vec::new() };
        for line in stdout.lines() {
            let line = line.unwrap();
            viewer.said.push(line.clone());
            if let Some(rest) = line.strip_prefix("http://127.0.0.1:") {
                let (port, token) = rest.trim_end_matches('/').split_once('/').unwrap();
                viewer.port = port.parse().unwrap();
                viewer.token = format!("/{token}");
                return viewer;
            }
        }
        panic!("no address: {:?}", viewer.said);
    }

    fn ask(&self, method: &str, path: &str) -> (u16, Vec<u8>) {
        let (status, _, body) = ask(self.port, method, &format!("{}{path}", self.token));
        (status, body)
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path);
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }
}

/// The status, the head and the body of a response.
fn ask(port: u16, method: &str, path: &str) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    (head[9..12].parse().unwrap(), head, answer[end + 4..].to_vec())
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn printed(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_verdict_comes_first_and_two_viewers_answer_at_once() {
    let path = trace("oom_batch.pickle.gz");
    let one = Viewer::start(&["--no-browser", path.to_str().unwrap()]);
    let other = Viewer::start(&[
        "--no-browser",
        path.to_str().unwrap(),
        trace("seed001.pickle.gz").to_str().unwrap(),
    ]);
    assert_ne!(one.port, other.port);
    assert!(one.said[0].starts_with("oom_batch.pickle.gz: "), "{:?}", one.said);
    assert_eq!(other.said.len(), 3, "{:?}", other.said);
    let why = makeroom().args(["why", "--json"]).arg(&path).output().unwrap();
    let why: Value = serde_json::from_slice(&why.stdout).unwrap();
    assert_eq!(one.get("/api/inputs")["inputs"][0]["why"], why);
    assert_eq!(other.get("/api/inputs")["inputs"].as_array().unwrap().len(), 2);
    std::thread::scope(|scope| {
        for viewer in [&one, &other, &one, &other] {
            scope.spawn(move || {
                for event in 0..20 {
                    assert_eq!(viewer.get(&format!("/api/0/0/moment/{event}"))["event"], event);
                }
            });
        }
    });
    let (status, page) = one.ask("GET", "/");
    assert_eq!(status, 200);
    assert!(page.len() < 1_000_000 && page.starts_with(b"<!doctype html>"), "{}", page.len());
}

#[test]
fn a_request_without_the_token_gets_nothing() {
    let path = trace("seed001.pickle.gz");
    let one = Viewer::start(&["--no-browser", path.to_str().unwrap()]);
    let other = Viewer::start(&["--no-browser", path.to_str().unwrap()]);
    assert!(one.token.len() == 33 && one.token != other.token, "{} {}", one.token, other.token);
    for path in ["/", "/api/inputs", "/api/0/0/sites", &format!("{}/api/inputs", other.token)] {
        assert_eq!(ask(one.port, "GET", path).0, 403, "{path}");
    }
    assert_eq!(ask(one.port, "POST", "/api/reload").0, 403);
}

/// Other users can read a browser's arguments, so these must be useless to them.
#[test]
fn a_browser_is_started_with_an_address_that_works_once() {
    let folder = folder("browser");
    let (browser, arguments) = (folder.join("browser"), folder.join("arguments"));
    fs::write(
        &browser,
        format!("#!/bin/sh\nprintf %s \"$1\" > {0}.new && mv {0}.new {0}\n", arguments.display()),
    )
    .unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = makeroom();
    command.arg("view").arg(trace("seed001.pickle.gz")).env("BROWSER", &browser);
    // If xdg-open is installed, it starts $BROWSER; otherwise this link takes its place.
    symlink(&browser, folder.join("xdg-open")).unwrap();
    let search = std::env::var_os("PATH").unwrap();
    let search = [folder.clone()].into_iter().chain(std::env::split_paths(&search));
    command.env("PATH", std::env::join_paths(search).unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let viewer = Viewer::of(command, b"");
    let end = Instant::now() + Duration::from_secs(30);
    while !arguments.exists() {
        assert!(Instant::now() < end, "no browser was started");
        std::thread::sleep(Duration::from_millis(10));
    }
    let url = fs::read_to_string(&arguments).unwrap();
    assert!(!url.contains(&viewer.token), "{url}");
    let path = url.strip_prefix(&format!("http://127.0.0.1:{}", viewer.port)).unwrap();
    let (status, head, _) = ask(viewer.port, "GET", path);
    assert_eq!(status, 303);
    assert!(head.contains(&format!("location: {}/\r\n", viewer.token)), "{head}");
    assert_eq!(ask(viewer.port, "GET", path).0, 403, "it works once");
}

#[test]
fn a_file_that_changes_is_read_again_and_one_that_is_gone_stays_shown() {
    let folder = folder("changes");
    let path = folder.join("run.pickle.gz");
    fs::copy(trace("seed001.pickle.gz"), &path).unwrap();
    let viewer = Viewer::start(&["--no-browser", path.to_str().unwrap()]);
    let state = || {
        let inputs = viewer.get("/api/inputs");
        assert_eq!(inputs["can_reload"], true);
        let input = &inputs["inputs"][0];
        (input["changed"].clone(), input["vanished"].clone(), input["devices"][0]["events"].clone())
    };
    let (changed, vanished, events) = state();
    assert_eq!((changed, vanished), (Value::Bool(false), Value::Bool(false)));
    fs::copy(trace("seed004.pickle.gz"), &path).unwrap();
    assert_eq!(state(), (Value::Bool(true), Value::Bool(false), events.clone()));
    assert_eq!(viewer.ask("POST", "/api/reload").0, 200);
    let (changed, _, now) = state();
    assert_eq!(changed, Value::Bool(false));
    assert_ne!(now, events);
    // Truncated, like a file that is still being written: the previous content stays.
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let (status, refused) = viewer.ask("POST", "/api/reload");
    assert_eq!(status, 409, "{}", String::from_utf8_lossy(&refused));
    assert_eq!(state(), (Value::Bool(true), Value::Bool(false), now.clone()));
    fs::remove_file(&path).unwrap();
    assert_eq!(state(), (Value::Bool(true), Value::Bool(true), now));
    assert_eq!(viewer.ask("POST", "/api/reload").0, 409);
    assert_eq!(viewer.ask("GET", "/api/0/0/moment/1").0, 200);
}

#[test]
fn standard_input_and_texts_are_shown_too() {
    let mut command = makeroom();
    command
        .args(["view", "--no-browser", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let viewer = Viewer::of(command, b"CUDA out of memory. Tried to allocate 2.00 GiB");
    let inputs = viewer.get("/api/inputs");
    assert_eq!(
        (&inputs["can_reload"], &inputs["inputs"][0]["kind"]),
        (&Value::Bool(false), &Value::from("text"))
    );
    assert_eq!(viewer.ask("GET", "/api/0/0/sites").0, 404);
    assert_eq!(viewer.ask("POST", "/api/reload").0, 409);
}

#[test]
fn a_report_is_one_file_and_says_what_it_left_out() {
    let folder = folder("report");
    let path = folder.join("report.html");
    let output =
        makeroom().arg("view").arg(trace("gpt2_varlen.pickle.gz")).arg("-o").arg(&path).output().unwrap();
    let (said, remarked) = printed(&output);
    assert!(output.status.success(), "{remarked}");
    assert!(said.starts_with("gpt2_varlen.pickle.gz: NOTHING FAILED: "), "{said}");
    assert!(
        remarked.contains("report.html (") && remarked.contains("reduced to stay below 10 MB"),
        "{remarked}"
    );
    let html = fs::read_to_string(&path).unwrap();
    assert!(html.len() < 10_000_000 && html.contains("Content-Security-Policy"), "{}", html.len());
}

/// If a report is below the size limit, omissions are not because of its size.
#[test]
fn a_report_that_is_small_is_not_called_reduced() {
    let path = folder("small").join("report.html");
    let output =
        makeroom().arg("view").arg(trace("oom_batch.pickle.gz")).arg("-o").arg(&path).output().unwrap();
    let (said, remarked) = printed(&output);
    assert!(said.starts_with("oom_batch.pickle.gz: AN ARTIFICIAL LIMIT (likely): "), "{said}");
    assert!(
        remarked.contains("This file contains the full timeline, and the memory layout at "),
        "{remarked}"
    );
    assert!(!remarked.contains("10 MB"), "{remarked}");
    assert!(fs::metadata(&path).unwrap().len() < 9_000_000);
}

#[test]
fn what_cannot_be_served_or_written_says_why() {
    let path = trace("seed001.pickle.gz");
    let one = Viewer::start(&["--no-browser", path.to_str().unwrap()]);
    let port = one.port.to_string();
    let output = makeroom().args(["view", "--no-browser", "--port", &port]).arg(&path).output().unwrap();
    let (_, remarked) = printed(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(remarked.contains("hint: omit --port"), "{remarked}");
    let output = makeroom().arg("view").arg(&path).args(["-o", "/nowhere/report.html"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(printed(&output).1.contains("/nowhere/report.html"), "{:?}", printed(&output));
    let output = makeroom().args(["export", "/etc/hostname", "--to", "csv"]).output().unwrap();
    assert!(printed(&output).1.contains("this is text, not a recording"), "{:?}", printed(&output));
    let output =
        makeroom().arg("export").arg(&path).args(["--to", "parquet", "-o", "/nowhere/x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_export_goes_to_a_file_or_a_pipe_and_a_reader_may_leave() {
    let folder = folder("export");
    let path = trace("oom_batch.pickle.gz");
    for (form, opening) in [
        ("perfetto", &b"{\"displayTimeUnit\""[..]),
        ("speedscope", b"{\"$schema\""),
        ("snapshot", b"\x80\x04"),
        ("parquet", b"PAR1"),
        ("csv", b"device,allocation,"),
    ] {
        let file = folder.join(form);
        let output =
            makeroom().arg("export").arg(&path).args(["--to", form, "-o"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{:?}", printed(&output));
        let written = fs::read(&file).unwrap();
        assert!(written.starts_with(opening), "{form}");
        let piped = makeroom().arg("export").arg(&path).args(["--to", form]).output().unwrap();
        assert!(piped.stdout == written, "{form}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 5, "no draft is left");
    let script = "\"$0\" export \"$1\" --to csv --table events | head -n 1";
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", script, env!("CARGO_BIN_EXE_makeroom")])
        .arg(&path)
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{:?}", printed(&output));
}

#[test]
fn a_result_never_takes_the_place_of_its_input_or_of_a_device() {
    let folder = folder("places");
    let recording = folder.join("run.pickle.gz");
    fs::copy(trace("seed001.pickle.gz"), &recording).unwrap();
    let before = fs::read(&recording).unwrap();
    let link = folder.join("link.pickle.gz");
    std::os::unix::fs::symlink(&recording, &link).unwrap();
    for onto in [&recording, &link] {
        for arguments in [&["view"][..], &["export", "--to", "csv"]] {
            let output = makeroom().args(arguments).arg(&recording).arg("-o").arg(onto).output().unwrap();
            let (_, said) = printed(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(
                said.contains("is the input: it would be overwritten") && said.contains("hint: "),
                "{said}"
            );
            assert_eq!(fs::read(&recording).unwrap(), before);
        }
    }
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for arguments in [&["view"][..], &["export", "--to", "csv"]] {
        let mut reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
        // Read at once: a page is larger than what a pipe holds.
        let mut stdout = reader.stdout.take().unwrap();
        let content = std::thread::spawn(move || {
            let mut read = Vec::new();
            stdout.read_to_end(&mut read).map(|_| read)
        });
        let output = makeroom().args(arguments).arg(&recording).arg("-o").arg(&pipe).output().unwrap();
        assert!(output.status.success(), "{}", printed(&output).1);
        let read = content.join().unwrap().unwrap();
        reader.wait().unwrap();
        assert!(read.len() > 10_000, "{}", read.len());
        assert!(!fs::metadata(&pipe).unwrap().is_file(), "the pipe is still one");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "no draft is left");
}
