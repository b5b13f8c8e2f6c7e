//! Processes that fork, exec, and change their user.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use makeroom_trace::room::{EndReason, EventKind};

use crate::support::{Program, compile, driver, everywhere, is_root, text};

/// The user that root switches to: `nobody`.
const OTHER_USER: u32 = 65534;

#[test]
fn forked_children_have_files_of_their_own() {
    let recordings = Program::new("fork_child.c").check();
    let sizes: Vec<Vec<u64>> = recordings
        .iter()
        .map(|recording| {
            recording.events_of(EventKind::DeviceAlloc).iter().map(|event| event.size.get()).collect()
        })
        .collect();
    assert_eq!(sizes, [vec![1 << 10], vec![2 << 10, 4 << 10], vec![3 << 10]]);
    for recording in &recordings {
        recording.assert_complete();
        recording.assert_balanced();
    }
    assert_eq!(recordings[0].end.unwrap().status, 5);
    assert_eq!(recordings[2].header.parent_pid, recordings[1].header.pid);
}

#[test]
fn a_fork_of_a_process_that_uses_cuda_has_no_driver_and_leaves_nothing() {
    let recordings = Program::new("fork_child.c").on_software_gpu().check();
    let sizes: Vec<Vec<u64>> = recordings
        .iter()
        .map(|recording| {
            recording.events_of(EventKind::DeviceAlloc).iter().map(|event| event.size.get()).collect()
        })
        .collect();
    assert_eq!(sizes, [vec![1 << 10], vec![2 << 10, 4 << 10]]);
    for recording in &recordings {
        recording.assert_complete();
        recording.assert_balanced();
    }
}

#[test]
fn executed_programs_have_files_of_their_own() {
    for program in everywhere("fork_exec.c") {
        let recordings = program.check();
        assert_eq!(recordings.len(), 3);
        assert_eq!(recordings[0].header.pid, recordings[2].header.pid);
        for recording in &recordings {
            recording.assert_complete();
            recording.assert_balanced();
        }
        assert_eq!(recordings[0].end.unwrap().reason, EndReason::Exec);
    }
}

#[test]
fn every_way_to_become_another_program_leaves_a_whole_recording() {
    let ways = ["execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat"];
    for way in ways {
        for program in everywhere("exec.c") {
            let recordings = program.argument(way).check();
            assert_eq!(recordings.len(), 2, "{way}");
            for recording in &recordings {
                recording.assert_complete();
                recording.assert_balanced();
            }
            assert_eq!(recordings[0].count(EventKind::DeviceAlloc), 21, "{way}");
            assert_eq!(recordings[0].end.unwrap().reason, EndReason::Exec, "{way}");
            assert_eq!(recordings[1].end.unwrap().reason, EndReason::Exit, "{way}");
        }
    }
}

#[test]
fn children_of_vfork_execute_while_their_parent_records() {
    for program in everywhere("vfork_exec.c") {
        let recording = program.check_one();
        recording.assert_complete();
        recording.assert_balanced();
        let rounds: usize = fs::read_to_string(program.directory.join("rounds")).unwrap().parse().unwrap();
        assert_eq!(recording.count(EventKind::DeviceAlloc), rounds);
    }
}

#[test]
fn spawned_children_do_not_disturb_their_parent() {
    for program in everywhere("spawn.c") {
        let recording = program.check_one();
        recording.assert_complete();
        assert_eq!(recording.count(EventKind::DeviceAlloc), 2);
    }
}

/// The loader ignores preloaded libraries in setuid programs: nothing is recorded, and nothing else changes.
#[test]
fn a_setuid_program_is_left_alone_by_the_loader() {
    if !is_root() {
        eprintln!("skipped: only root can make a program that runs with other rights");
        return;
    }
    // A setuid program finds its driver by its own rpath, not through the environment.
    let path = format!("-Wl,-rpath,{}", driver().display());
    let plain = compile("plain.c", "plain-setuid", &["-lcuda", &path]);
    let program = Program::other(&plain, "setuid");
    assert_eq!(program.check().len(), 1, "the program with its caller's rights");
    fs::remove_file(program.directory.join("run.room")).unwrap();
    std::os::unix::fs::chown(&plain, Some(OTHER_USER), None).unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o4755)).unwrap();
    let library = driver().join("libcuda.so.1");
    fs::set_permissions(&library, fs::Permissions::from_mode(0o755)).unwrap();
    open_way(&plain);
    open_way(&library);
    let output = program.recorded();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(program.recordings().is_empty());
}

/// Makes the directories above a file accessible to all users.
fn open_way(file: &Path) {
    for directory in
        file.ancestors().skip(1).take_while(|directory| directory.starts_with(env!("CARGO_TARGET_TMPDIR")))
    {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_process_that_gives_up_its_privileges_goes_on_recording() {
    if !is_root() {
        eprintln!("skipped: only root has privileges to give up");
        return;
    }
    for program in everywhere("privileges.c") {
        let recording = program.argument(&OTHER_USER.to_string()).check_one();
        recording.assert_complete();
        recording.assert_balanced();
        assert_eq!(recording.count(EventKind::DeviceAlloc), 21);
    }
}
