//! Tests all queries on the software NVML. Its structures are declared separately, so a field at the wrong offset has a
//! wrong value here.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use makeroom_nvml::{Code, ComputeMode, Error, Library, List, Memory, Process};
use makeroom_simcard::testing::built;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Three GPUs of 8 GiB. The first has a process in each list and drives a display; the second has three MIG instances; the
/// third is lost.
const MACHINE: &str = "devices=3,memory=8GiB,reserve=256MiB";
const SCENARIO: &str = "driver=580.1.2,cuda=13010,hold=0:41:2GiB,hold=0:42:1GiB,list=42:graphics,hold=0:43:3MiB,\
    list=43:mps,hold=0:44:1MiB,blind=44,display=0,minor=0:5,mode=3,persistence=on,accounting=41:3GiB,mig=1:3,\
    hold=1/2:45:7MiB,lost=2";

/// The software NVML, for one test at a time: it counts its users per process.
fn library() -> (MutexGuard<'static, ()>, Library) {
    static LOCK: OnceLock<Mutex<()>> = OnceLock::new();
    let lock = LOCK.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvml");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        // SAFETY: every test calls this function first and waits, so no other thread reads the environment.
        unsafe {
            std::env::set_var("MAKEROOM_SIMGPU", MACHINE);
            std::env::set_var("MAKEROOM_SIMGPU_DIR", directory);
            std::env::set_var("MAKEROOM_SIMNVML", SCENARIO);
        }
        Mutex::new(())
    });
    let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    (guard, Library::open(built("libmakeroom_simnvml.so")).unwrap())
}

fn process(pid: u32, bytes: u64) -> Process {
    Process { pid, used_memory: Some(bytes) }
}

#[test]
fn versions_and_gpus() {
    let (_guard, library) = library();
    assert_eq!(library.driver_version().unwrap(), "580.1.2");
    assert_eq!(library.cuda_version(), Ok(13010));
    assert_eq!(library.device_count(), Ok(3));
    assert_eq!(library.device(3).unwrap_err().code(), Some(Code::INVALID_ARGUMENT));
}

#[test]
fn properties_of_a_gpu() {
    let (_guard, library) = library();
    let device = library.device(0).unwrap();
    assert!(!device.name().unwrap().is_empty());
    assert!(device.uuid().unwrap().starts_with("GPU-"));
    assert_eq!(device.bus_id().unwrap(), "00000000:01:00.0");
    assert_eq!(device.minor_number(), Ok(5));
    assert_eq!(device.compute_mode(), Ok(ComputeMode::ExclusiveProcess));
    assert_eq!((device.is_display_active(), device.is_persistent()), (Ok(true), Ok(true)));
    assert_eq!((device.is_accounting(), device.is_mig_enabled()), (Ok(true), Ok(false)));
    let used = 3 * GIB + 4 * MIB;
    let memory = Memory { total: 8 * GIB + 256 * MIB, reserved: 256 * MIB, used, free: 8 * GIB - used };
    assert_eq!(device.memory(), Ok(memory));
    assert_eq!(library.device(1).unwrap().is_display_active(), Ok(false));
}

#[test]
fn lists_of_processes() {
    let (_guard, library) = library();
    let device = library.device(0).unwrap();
    let unknown = Process { pid: 44, used_memory: None };
    assert_eq!(device.processes(List::Compute), Ok(vec![process(41, 2 * GIB), unknown]));
    assert_eq!(device.processes(List::Graphics), Ok(vec![process(42, GIB)]));
    assert_eq!(device.processes(List::Mps), Ok(vec![process(43, 3 * MIB)]));
    assert_eq!(device.peak_memory(41), Ok(Some(3 * GIB)));
    assert_eq!(device.peak_memory(42).unwrap_err().code(), Some(Code::NOT_FOUND));
    assert_eq!(library.device(1).unwrap().processes(List::Graphics), Ok(vec![]));
}

#[test]
fn mig_instances() {
    let (_guard, library) = library();
    let device = library.device(1).unwrap();
    assert_eq!((device.is_mig_enabled(), device.mig_device_count()), (Ok(true), Ok(7)));
    let part = device.mig_device(2).unwrap();
    assert!(part.uuid().unwrap().starts_with("MIG-"));
    assert_eq!(part.memory().unwrap().used, 7 * MIB);
    assert_eq!(part.processes(List::Compute), Ok(vec![process(45, 7 * MIB)]));
    assert_eq!(device.mig_device(3).unwrap_err().code(), Some(Code::NOT_FOUND));
}

#[test]
fn a_lost_gpu_does_not_affect_the_others() {
    let (_guard, library) = library();
    let error = library.device(2).unwrap().memory().unwrap_err();
    let lost = Error::Failed { function: "nvmlDeviceGetMemoryInfo_v2", code: Code::GPU_IS_LOST };
    assert_eq!(error, lost);
    assert!(library.device(0).unwrap().memory().is_ok());
}

#[test]
fn it_can_be_opened_again() {
    let (_guard, first) = library();
    drop(first);
    let again = Library::open(built("libmakeroom_simnvml.so")).unwrap();
    assert_eq!(again.device_count(), Ok(3));
}
