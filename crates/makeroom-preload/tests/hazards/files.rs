//! Where recordings go: closed descriptors, read-only directories, full disks.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use makeroom_trace::room::EventKind;

use crate::support::{Program, Recording, compile, everywhere, is_root, text};

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_files() {
    for program in everywhere("close_all.c") {
        let recording = program.check_one();
        recording.assert_complete();
        assert_eq!(recording.count(EventKind::DeviceAlloc), 2);
    }
}

/// Whatever happens to the program's descriptors, the recording is complete and the program exits normally.
#[test]
fn a_program_without_descriptors_is_recorded_to_its_end() {
    // They sleep most of the time.
    std::thread::scope(|scope| {
        for what in ["closefrom", "all", "limit", "chroot", "pipe"] {
            if what == "chroot" && !is_root() {
                eprintln!("skipped: only root can change its root");
                continue;
            }
            scope.spawn(move || {
                for program in everywhere("descriptors.c") {
                    is_recorded_without_descriptors(&program.argument(what), what);
                }
            });
        }
    });
}

/// The same if the kernel can only copy the descriptor table, or grants no private one.
#[test]
fn a_program_without_descriptors_is_recorded_where_the_kernel_helps_less() {
    let forbid = compile("forbid.c", "forbid", &[]).display().to_string();
    let forbid = &forbid;
    std::thread::scope(|scope| {
        for what in ["closefrom", "all", "limit", "pipe"] {
            scope.spawn(move || {
                for forbidden in ["close_range", "both"] {
                    let program = Program::new("descriptors.c").argument(what).under(&[forbid, forbidden]);
                    is_recorded_without_descriptors(&program, what);
                }
            });
        }
    });
}

fn is_recorded_without_descriptors(program: &Program, what: &str) {
    let began = Instant::now();
    let recording = program.check_one();
    assert!(began.elapsed() < Duration::from_secs(9), "{what}: {:?}", began.elapsed());
    let notes = recording.texts();
    assert_eq!(!notes.is_empty(), what == "limit", "{what}: {notes:?}");
    assert!(recording.dropped.is_empty() && recording.end.is_some(), "{what}");
    recording.assert_balanced();
    assert!(recording.count(EventKind::DeviceAlloc) >= 60, "{what}");
}

#[test]
fn a_directory_that_is_not_there() {
    for program in everywhere("plain.c") {
        says_that_nothing_is_recorded(program, Path::new("/proc/no/such/place.room"));
    }
}

#[test]
fn each_job_has_its_folder_and_each_rank_its_file() {
    let program = Program::new("plain.c")
        .variable("SLURM_JOB_ID", "4711")
        .variable("OMPI_COMM_WORLD_RANK", "3")
        .variable("OMPI_COMM_WORLD_SIZE", "8")
        .variable("OMPI_COMM_WORLD_LOCAL_RANK", "1")
        .variable("CUDA_VISIBLE_DEVICES", "0");
    let pattern = program.directory.join("jobs/%j/rank%r.room").display().to_string();
    let program = program.variable("MAKEROOM_FILE", &pattern);
    program.recorded();
    let recording = Recording::read(&program.directory.join("jobs/4711/rank3.room"));
    let job = &recording.job;
    assert_eq!((job.rank, job.world_size, job.local_rank), (Some(3), Some(8), Some(1)));
    assert_eq!((job.job_id.as_deref(), job.launcher.as_deref()), (Some("4711"), Some("openmpi")));
    assert_eq!(job.visible_devices.as_deref(), Some("0"));
}

#[test]
fn a_directory_that_can_only_be_read() {
    for program in everywhere("plain.c") {
        let directory = program.directory.join("read-only");
        fs::create_dir(&directory).unwrap();
        let mut permissions = fs::metadata(&directory).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&directory, permissions).unwrap();
        // Root can write anywhere, except on a read-only disk.
        if is_root() && !mount(&directory, "ro") {
            eprintln!("skipped: this root cannot mount a read-only disk");
            return;
        }
        says_that_nothing_is_recorded(program, &directory.join("run.room"));
        unmount(&directory);
    }
}

fn says_that_nothing_is_recorded(program: Program, file: &Path) {
    let program = program.variable("MAKEROOM_FILE", &file.display().to_string());
    let (alone, recorded) = (program.alone(), program.recorded());
    assert_eq!((alone.status, &alone.stdout), (recorded.status, &recorded.stdout));
    let notice = text(&recorded.stderr);
    assert!(notice.starts_with(&format!("makeroom: nothing is recorded: {}: ", file.display())), "{notice}");
    assert_eq!(notice.lines().count(), 1);
}

#[test]
fn a_full_disk_stops_the_recording_and_nothing_else() {
    for program in everywhere("threads.c") {
        let disk = program.directory.join("disk");
        fs::create_dir(&disk).unwrap();
        if !mount(&disk, "size=64k") {
            eprintln!("skipped: a tiny disk can only be mounted by root");
            return;
        }
        let file = disk.join("run.room");
        let program = program.variable("MAKEROOM_FILE", &file.display().to_string());
        let output = program.recorded();
        let recording = Recording::read(&file);
        unmount(&disk);
        says_that_recording_stopped(&output, "No space left on device");
        assert!(recording.end.is_none());
    }
}

/// The same without a separate disk: no file may grow beyond 64 KiB. The signal that comes with that error goes to
/// the writer, and ends nothing. (The software GPU has a larger file itself.)
#[test]
fn a_limit_on_the_size_of_files_stops_the_recording_and_nothing_else() {
    let program = Program::new("threads.c").under(&["sh", "-c", "ulimit -f 64; exec \"$0\" \"$@\""]);
    let output = program.recorded();
    says_that_recording_stopped(&output, "File too large");
    assert!(program.recordings().remove(0).end.is_none());
}

fn says_that_recording_stopped(output: &std::process::Output, reason: &str) {
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(text(&output.stdout), "done\n");
    let notice = text(&output.stderr);
    assert!(notice.starts_with("makeroom: recording stopped: "), "{notice}");
    assert!(notice.contains(reason), "{notice}");
    assert_eq!(notice.lines().count(), 1);
}

/// Mounts a tmpfs. Returns whether that was allowed.
fn mount(directory: &Path, option: &str) -> bool {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", option, "tmpfs"]).arg(directory).output();
    mounted.is_ok_and(|output| output.status.success())
}

fn unmount(directory: &Path) {
    let _ = Command::new("umount").arg(directory).output();
}
