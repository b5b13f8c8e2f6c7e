//! Recordings of other users' processes, of any size and kind, and many of them, must not make `ps` slow.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use makeroom_core::Bytes;
use makeroom_trace::room::{Encoder, Event, Header, Record, ThreadNumber, beginning, seal};
use serde_json::Value;

use crate::support::machine::{Machine, json};

/// A recording of about 60 MiB with three bytes per event: the most work for its size.
fn dense_recording(path: &Path) {
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
    let event = Record::Event(Event { size: Bytes::new(512), ..Event::default() });
    while encoder.bytes().len() < 15 << 20 {
        encoder.record(&event);
    }
    let mut file = beginning(&Header::default());
    for _ in 0..4 {
        assert!(seal(encoder.bytes(), &mut file));
    }
    fs::write(path, file).unwrap();
}

/// Processes that each have these files open, and that the driver lists.
fn processes(machine: &mut Machine, files: &[&str], count: usize) -> String {
    let listed = (0..count).map(|number| {
        let file = files[number % files.len()];
        let script = format!("exec 9<>{file}; echo $$; exec sleep 600");
        let pid = machine.start(Command::new("bash").args(["-c", &script]), 1)[0];
        format!("hold=0:{pid}:16MiB")
    });
    listed.collect::<Vec<_>>().join(",")
}

/// The output of `ps`, and the shortest of three times.
fn timed(machine: &Machine, scenario: &str) -> (Value, Duration) {
    let mut least = Duration::MAX;
    let mut account = Value::Null;
    for _ in 0..3 {
        let began = Instant::now();
        account = json(&machine.makeroom(scenario, &["ps", "--json"]).output().unwrap());
        least = least.min(began.elapsed());
    }
    (account, least)
}

#[test]
fn a_hundred_hostile_recordings_delay_it_by_less_than_a_second() {
    let mut machine = Machine::new("hostile-recordings");
    let folder = machine.folder().to_owned();
    dense_recording(&folder.join("dense.room"));
    File::create(folder.join("endless.room")).unwrap().set_len(1 << 40).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("pipe.room")).status().unwrap().success());
    fs::write(folder.join("plain"), "").unwrap();

    let mut honest = machine.makeroom("", &["run", "-o", "honest.room", "--", "./hold", "recorded", "64"]);
    let honest = machine.start(&mut honest, 1)[0];
    let harmless = processes(&mut machine, &["plain"], 100);
    let (_, before) = timed(&machine, &harmless);
    let hostile = processes(&mut machine, &["dense.room", "endless.room", "pipe.room"], 100);
    let (account, after) = timed(&machine, &hostile);

    let holders = account["devices"][0]["holders"].as_array().unwrap();
    let has_recording = |holder: &&Value| holder["recording"].is_object();
    // 34 dense ones and the honest one; of the others, those for which a busy machine leaves no time to look.
    let count = holders.iter().filter(has_recording).count();
    assert!((35..=101).contains(&count), "{count}");
    let holder = holders.iter().find(|holder| holder["pid"] == honest).unwrap();
    assert_eq!(holder["recording"]["live_bytes"], 64 << 20, "the small one is still read: {holder:#}");
    println!("{before:?} without and {after:?} with 100 hostile recordings");
    assert!(after < before + Duration::from_secs(1), "{before:?} without, {after:?} with them");
}

/// Only a recording is recommended to `why`, which would wait for a pipe, whatever has such a name.
#[test]
fn a_file_with_the_name_of_a_recording_need_not_be_one() {
    let mut machine = Machine::new("named-recordings");
    let folder = machine.folder().to_owned();
    let whole = beginning(&Header::default());
    fs::write(folder.join("whole.room"), &whole).unwrap();
    fs::write(folder.join("notes.room"), "minutes of the meeting").unwrap();
    fs::write(folder.join("short.room"), &whole[..4]).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("pipe.room")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/null", folder.join("device.room")).unwrap();
    let files = ["whole.room", "notes.room", "short.room", "pipe.room", "device.room"];
    let scenario = processes(&mut machine, &files, files.len());
    // A file that cannot be opened within 20 ms keeps its name, so a busy machine gets several attempts.
    let mut shown = String::new();
    let is_advised = (0..10).any(|_| {
        let output = machine.makeroom(&scenario, &["ps"]).env("COLUMNS", "200").output().unwrap();
        shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut advised = shown.lines().filter(|line| line.contains("makeroom why"));
        advised.next().is_some_and(|line| line.contains("whole.room")) && advised.next().is_none()
    });
    assert!(is_advised, "{shown}");
}
