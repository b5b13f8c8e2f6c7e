//! Failures of a process that this test plays itself: its recording is a file that the test appends to.

use std::fs::{self, OpenOptions};
use std::io::Write as _;

use makeroom_core::Bytes;
use makeroom_trace::room::{Encoder, Event, Header, Record, ThreadNumber, beginning, seal};

use super::*;
use crate::processes::{OpenFiles, View};

fn own_stat() -> Stat {
    Stat::read(Path::new("/proc/self")).unwrap()
}

/// An account in which a process has this recording open.
fn account(path: &Path, stat: Stat) -> Account {
    let recording = Some((path.to_owned(), path.to_owned()));
    let files = OpenFiles { control: true, recording, ..OpenFiles::default() };
    Account {
        taken: SystemTime::now(),
        host: String::new(),
        driver: Ok(crate::account::Driver { version: String::new(), cuda: None }),
        devices: Vec::new(),
        users: vec![Process { stat, files, ..Process::default() }],
        view: View::default(),
    }
}

fn create(name: &str, pid: u32) -> PathBuf {
    let path = std::env::temp_dir().join(format!("makeroom-recorders-{name}-{}.room", std::process::id()));
    fs::write(&path, beginning(&Header { pid, ..Header::default() })).unwrap();
    path
}

fn fail(path: &Path, time_ns: u64) {
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
    encoder.record(&Record::Event(Event { time_ns, size: Bytes::new(1), result: 2, ..Event::default() }));
    let mut frame = Vec::new();
    assert!(seal(encoder.bytes(), &mut frame));
    OpenOptions::new().append(true).open(path).unwrap().write_all(&frame).unwrap();
}

/// Turns until the recordings are open.
fn open_all(recorders: &mut Recorders, account: &Account) {
    let ends = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(recorders.turn(account).is_empty());
        if recorders.followed.values().all(|followed| followed.is_confirmed) {
            return;
        }
        assert!(Instant::now() < ends, "the recording is not opened");
    }
}

/// Turns until something fails, for at most 20 seconds.
fn next_failure(recorders: &mut Recorders, account: &Account) -> Option<OutOfMemory> {
    let ends = Instant::now() + Duration::from_secs(20);
    while Instant::now() < ends {
        if let Some(failure) = recorders.turn(account).pop() {
            return Some(failure);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

#[test]
fn allocations_that_fail_together_are_one_failure() {
    let path = create("burst", std::process::id());
    let account = account(&path, own_stat());
    let mut recorders = Recorders::new("/proc".into());
    fail(&path, 1);
    open_all(&mut recorders, &account);
    let before = recorders.list()[0].heartbeat;
    fail(&path, 2);
    fail(&path, 3);
    let failure = next_failure(&mut recorders, &account).unwrap();
    assert_eq!(failure.allocations, 2, "the first was there before");
    assert!(recorders.list()[0].heartbeat > before);
    fail(&path, 4);
    assert!(recorders.turn(&account).is_empty(), "part of the same failure");
    fs::remove_file(path).unwrap();
}

#[test]
fn a_process_that_fails_and_ends_between_two_turns_is_counted() {
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let path = create("ended", child.id());
    let stat = Stat::read(&PathBuf::from(format!("/proc/{}", child.id()))).unwrap();
    let account = account(&path, stat);
    let mut recorders = Recorders::new("/proc".into());
    open_all(&mut recorders, &account);
    assert_eq!(recorders.list().len(), 1);
    fail(&path, 1);
    fs::remove_file(path).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let failure = next_failure(&mut recorders, &account).unwrap();
    assert_eq!(failure.allocations, 1);
    assert!(recorders.list().is_empty());
}

#[test]
fn a_process_that_reads_the_recording_of_another_one_is_not_recorded() {
    let path = create("foreign", u32::MAX);
    fail(&path, 1);
    let account = account(&path, own_stat());
    let mut recorders = Recorders { has_turned: true, ..Recorders::new("/proc".into()) };
    for _ in 0..20 {
        assert!(recorders.turn(&account).is_empty());
        assert!(recorders.list().is_empty());
    }
    fs::remove_file(path).unwrap();
}

#[test]
fn a_file_that_cannot_be_read_in_time_is_not_listed() {
    let path = create("late", std::process::id());
    let account = account(&path, own_stat());
    let mut recorders = Recorders::new("/proc".into());
    recorders.find(&account);
    let tails: Vec<_> = recorders.followed.values().map(|followed| Arc::clone(&followed.tail)).collect();
    let late = tails[0].lock().unwrap();
    assert!(recorders.turn(&account).is_empty());
    assert!(recorders.list().is_empty());
    drop(late);
    open_all(&mut recorders, &account);
    assert_eq!(recorders.list().len(), 1);
    fs::remove_file(path).unwrap();
}
