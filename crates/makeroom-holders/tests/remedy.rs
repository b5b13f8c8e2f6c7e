//! Remedies: the command for each kind of manager, and which holders it ends.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::SystemTime;

use makeroom_core::Bytes;
use makeroom_holders::{
    Account, Belonging, Device, DeviceMemory, Driver, Finding, Holder, List, Process, Remedy, Stat, View,
    require,
};

const ALICE: u32 = 1000;

fn holder(pid: u32, gib: u64, belonging: Belonging) -> Holder {
    let process = Process {
        stat: Stat { pid, name: "python".into(), parent: 2, group: 3, session: 4, ..Stat::default() },
        command: vec!["python".into(), "train.py".into()],
        user: Some(ALICE),
        user_name: "alice".into(),
        belonging,
        ..Process::default()
    };
    Holder {
        pid,
        bytes: Some(Bytes::gib(gib)),
        lists: vec![List::Compute],
        process: Some(process),
        ..Holder::default()
    }
}

/// The remedies for this much memory on a full GPU, for `user`.
fn remedies(holders: Vec<Holder>, gib: u64, user: u32) -> Vec<Remedy> {
    let taken: Bytes = holders.iter().filter_map(|holder| holder.bytes).sum();
    let memory = DeviceMemory { total: taken, reserved: Bytes::ZERO, used: taken, free: Bytes::ZERO };
    let device = Device { memory: Some(memory), holders, ..Device::default() };
    let account = Account {
        taken: SystemTime::UNIX_EPOCH,
        host: String::new(),
        driver: Ok(Driver { version: String::new(), cuda: None }),
        devices: vec![device],
        users: Vec::new(),
        view: View { user, ..View::default() },
    };
    let requirement = require(&account, Bytes::gib(gib), None);
    assert!(!requirement.is_met());
    requirement.plan.unwrap().remedies
}

fn command(holder: Holder, user: u32) -> String {
    remedies(vec![holder], 1, user).remove(0).command
}

#[test]
fn whoever_runs_it_is_asked() {
    let container = |runtime| Belonging {
        container: Some("a".repeat(64)),
        runtime: Some(runtime),
        ..Belonging::default()
    };
    let job = Belonging { slurm_job: Some("88".into()), ..container("docker") };
    for (belonging, expected) in [
        (Belonging::default(), "kill 7".to_owned()),
        (job, "scancel 88".to_owned()),
        (container("docker"), format!("docker stop {}", "a".repeat(12))),
        (container("podman"), format!("podman stop {}", "a".repeat(12))),
        (container("containerd"), format!("crictl stop {}", "a".repeat(12))),
    ] {
        assert_eq!(command(holder(7, 2, belonging), ALICE), expected);
    }
    assert_eq!(command(holder(7, 2, Belonging::default()), 1), "sudo kill 7");
}

#[test]
fn a_unit_is_stopped_only_if_it_is_the_holders_own() {
    let of_unit = |unit: &str, is_its_unit, is_users_unit| {
        let belonging = Belonging { unit: Some(unit.into()), is_users_unit, ..Belonging::default() };
        let mut holder = holder(7, 2, belonging);
        holder.process.as_mut().unwrap().is_its_unit = is_its_unit;
        holder
    };
    assert_eq!(command(of_unit("ssh.service", false, false), ALICE), "kill 7", "a login is not the server");
    assert_eq!(command(of_unit("vllm.service", true, false), ALICE), "sudo systemctl stop vllm.service");
    assert_eq!(command(of_unit("vllm.service", true, false), 0), "systemctl stop vllm.service");
    assert_eq!(command(of_unit("a\\x2db.service", true, false), 0), "systemctl stop 'a\\x2db.service'");
    assert_eq!(
        command(of_unit("notebook.service", true, true), ALICE),
        "systemctl --user stop notebook.service"
    );
    assert_eq!(command(of_unit("notebook.service", true, true), 1), "sudo kill 7");
}

#[test]
fn a_container_goes_with_all_that_it_holds() {
    let pod = || Belonging {
        container: Some("b".repeat(64)),
        runtime: Some("containerd"),
        pod: Some("0a1b".into()),
        ..Belonging::default()
    };
    let holders = vec![holder(1, 3, Belonging::default()), holder(2, 2, pod()), holder(3, 2, pod())];
    let remedies = remedies(holders, 4, ALICE);
    assert_eq!(remedies.len(), 1, "{remedies:?}");
    assert_eq!((remedies[0].pids.as_slice(), remedies[0].frees), (&[2, 3][..], Bytes::gib(4)));
    assert!(remedies[0].loses.contains("and 1 more process"), "{}", remedies[0].loses);
    assert!(remedies[0].loses.contains("restarts it unless the pod is deleted"));
}

#[test]
fn several_that_one_parent_left_behind_are_leftovers_and_one_alone_is_not() {
    let orphan = |pid, gib| {
        let mut holder = holder(pid, gib, Belonging::default());
        holder.findings.push(Finding::Orphaned { group: Some(3) });
        holder
    };
    let own = || {
        let mut holder = holder(9, 2, Belonging::default());
        holder.process.as_mut().unwrap().stat.group = 9;
        holder
    };
    let of = |holders| -> Vec<u32> {
        remedies(holders, 2, ALICE).into_iter().flat_map(|remedy| remedy.pids).collect()
    };
    assert_eq!(of(vec![orphan(1, 3), own()]), [9], "the smaller one of two programs");
    assert_eq!(of(vec![orphan(1, 3), orphan(2, 3), own()]), [2], "a worker");
}
