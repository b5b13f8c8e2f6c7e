//! Several processes share the GPUs; NVML lists them; dead processes hold nothing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};

use common::{command, compile, run, stage};
use makeroom_simcard::testing::Stage;

const CARD: &str = "memory=1GiB,context=100MiB,reserve=24MiB";

/// A process that holds memory until its end is requested, and its output.
struct Holder {
    child: Child,
    said: String,
}

impl Holder {
    fn start(stage: &Stage, program: &Path, mebibytes: u64) -> Self {
        let mut child = command(stage, program, CARD)
            .arg(mebibytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        Self { child, said: said.trim().to_owned() }
    }

    fn end(mut self) {
        self.child.stdin.take().unwrap().flush().unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}

#[test]
fn processes_share_a_card_and_the_dead_hold_nothing() {
    let stage = stage("processes");
    let holder = compile(&stage, "holder", &[]);
    let first = Holder::start(&stage, &holder, 500);
    assert_eq!(first.said, "context 0 memory 0 free 424 of 1024");
    let second = Holder::start(&stage, &holder, 300);
    assert_eq!(second.said, "context 0 memory 0 free 24 of 1024");
    let third = Holder::start(&stage, &holder, 10);
    assert_eq!(
        third.said, "context 2 memory 201 free 0 of 0",
        "no room for a context: nothing was asked of a card"
    );
    third.end();
    first.kill();
    let fourth = Holder::start(&stage, &holder, 500);
    assert_eq!(fourth.said, "context 0 memory 0 free 24 of 1024", "what the killed one held can be taken");
    second.end();
    fourth.end();
    let fifth = Holder::start(&stage, &holder, 900);
    assert_eq!(fifth.said, "context 0 memory 0 free 24 of 1024");
    fifth.end();
}

#[test]
fn management_lists_who_holds_what() {
    let stage = stage("management");
    let (holder, listing) = (compile(&stage, "holder", &[]), compile(&stage, "listing", &[]));
    let empty = run(&stage, &listing, CARD);
    assert!(empty.contains("processes 0: 0\nwithout room 0 needs 0\n"), "{empty}");
    let first = Holder::start(&stage, &holder, 200);
    let second = Holder::start(&stage, &holder, 300);
    let said = run(&stage, &listing, CARD);
    let expected = format!(
        "before the start 1\nstart 0\ndevices 1\nhandle 0, not there 2\nname makeroom simulated GPU 0\n\
         uuid GPU-6d616b65-726f-6f6d-2073-696d67707530\nby uuid 0, short buffer 7\n\
         first form: total 1048 free 324 used 724\nsecond form: total 1048 reserved 24 free 324 used 700\n\
         processes 0: 2\nprocess {} holds 300\nprocess {} holds 400\nwithout room 7 needs 2\ngraphics 0: 0\n\
         words Insufficient Size\nend 0, twice 1\ndriver's functions here 0\n",
        first.child.id(),
        second.child.id()
    );
    assert_eq!(said, expected);
    first.kill();
    assert!(run(&stage, &listing, CARD).contains("processes 0: 1\n"));
    second.end();
}

#[test]
fn machines_of_other_sizes_are_other_machines() {
    let stage = stage("machines");
    let (holder, listing) = (compile(&stage, "holder", &[]), compile(&stage, "listing", &[]));
    let held = Holder::start(&stage, &holder, 200);
    let other = run(&stage, &listing, "memory=2GiB");
    assert!(other.contains("free 2048"), "{other}");
    held.end();
}
