//! Tests with hostile and broken libraries, made of stub functions: every function fails or is missing, lists grow, strings
//! are unterminated, counts are absurd. `tests/software.rs` uses a well-behaved library.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::ffi::c_char;

use crate::abi::{AccountingStats, Handle, LongProcessInfo, NOT_AVAILABLE, PciInfo, ProcessInfo};
use crate::raw::Functions;
use crate::{Code, ComputeMode, Device, Error, Library, List, Process, Result};

/// The return code of [`Functions::failing`].
pub(crate) const FAILURE: u32 = 4;

thread_local! {
    /// Calls of the stub under test.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// Initializations minus shutdowns.
    static STARTED: Cell<i32> = const { Cell::new(0) };
}

extern "C" fn init() -> u32 {
    STARTED.set(STARTED.get() + 1);
    0
}

extern "C" fn shutdown() -> u32 {
    STARTED.set(STARTED.get() - 1);
    0
}

/// A library with these functions, except that initialization and shutdown always work.
fn library(functions: Functions) -> Library {
    let functions = Functions { init: Some(init), shutdown: Some(shutdown), ..functions };
    Library::start(functions, libloading::os::unix::Library::this().into()).unwrap()
}

/// The errors of all queries.
fn errors(library: &Library) -> Vec<Error> {
    let device = Device::new(library, 1);
    let errors = [
        library.driver_version().err(),
        library.cuda_version().err(),
        library.device_count().err(),
        library.device(0).err(),
        device.name().err(),
        device.uuid().err(),
        device.memory().err(),
        device.bus_id().err(),
        device.minor_number().err(),
        device.is_display_active().err(),
        device.is_persistent().err(),
        device.compute_mode().err(),
        device.is_accounting().err(),
        device.peak_memory(1).err(),
        device.is_mig_enabled().err(),
        device.mig_device_count().err(),
        device.mig_device(0).err(),
        device.processes(List::Compute).err(),
        device.processes(List::Graphics).err(),
        device.processes(List::Mps).err(),
    ];
    errors.into_iter().map(Option::unwrap).collect()
}

#[test]
fn every_failure_has_its_function_and_code() {
    let error = Library::start(Functions::failing(), libloading::os::unix::Library::this().into());
    let code = Code(FAILURE);
    assert_eq!(error.unwrap_err(), Error::Failed { function: "nvmlInit_v2", code });
    let library = library(Functions::failing());
    let errors = errors(&library);
    let of_drivers_before_510 = |name: &str| name.ends_with("Processes_v2");
    let expected = Functions::NAMES.iter().filter(|name| !of_drivers_before_510(name)).skip(2);
    let expected: Vec<Error> = expected.map(|function| Error::Failed { function, code }).collect();
    assert_eq!(errors, expected);
    assert!(errors.iter().all(|error| error.code() == Some(Code::NO_PERMISSION) && !error.is_unsupported()));
    assert!(errors[0].to_string().contains("permission"), "{}", errors[0]);
}

#[test]
fn every_missing_function_is_named() {
    let file = || libloading::os::unix::Library::this().into();
    let error = Library::start(Functions::default(), file()).unwrap_err();
    assert_eq!(error, Error::Missing { function: "nvmlInit_v2" });
    let library = library(Functions::default());
    for error in errors(&library) {
        let Error::Missing { function } = error else { panic!("{error}") };
        assert!(Functions::NAMES.contains(&function) && error.is_unsupported(), "{function}");
        assert_eq!(error.to_string(), format!("NVML does not have {function}"));
    }
}

#[test]
fn a_library_is_shut_down_once() {
    let first = library(Functions::default());
    assert_eq!(STARTED.get(), 1);
    drop(first);
    assert_eq!(STARTED.get(), 0);
    // A library that failed to initialize is not shut down.
    let functions = Functions { shutdown: Some(shutdown), ..Functions::failing() };
    Library::start(functions, libloading::os::unix::Library::this().into()).unwrap_err();
    assert_eq!(STARTED.get(), 0);
}

/// The process that stubs write at a position.
fn info(position: u32) -> ProcessInfo {
    ProcessInfo {
        pid: 100 + position,
        used_memory: if position == 1 { NOT_AVAILABLE } else { u64::from(position) << 20 },
        gpu_instance: u32::MAX,
        compute_instance: u32::MAX,
    }
}

/// The processes in the first `count` entries.
fn expected(count: u32) -> Vec<Process> {
    let expected = |position| Process {
        pid: 100 + position,
        used_memory: (position != 1).then_some(u64::from(position) << 20),
    };
    (0..count).map(expected).collect()
}

/// Writes a list of `length` entries, as NVML does.
unsafe fn fill<T>(length: u32, count: *mut u32, entries: *mut ProcessInfo, entry: fn(u32) -> T) -> u32 {
    // SAFETY: the count is valid.
    let room = unsafe { count.replace(length) };
    if room < length {
        return Code::INSUFFICIENT_SIZE.0;
    }
    for position in 0..length {
        // SAFETY: the buffer has room for this many entries of either length.
        unsafe { entries.cast::<T>().add(position as usize).write(entry(position)) };
    }
    0
}

/// A list that grows in each of the first five calls.
unsafe extern "C" fn growing(_: Handle, count: *mut u32, entries: *mut ProcessInfo) -> u32 {
    CALLS.set(CALLS.get() + 1);
    // SAFETY: guaranteed by the caller.
    unsafe { fill(40 * CALLS.get().min(5), count, entries, info) }
}

unsafe extern "C" fn always_growing(_: Handle, count: *mut u32, _: *mut ProcessInfo) -> u32 {
    CALLS.set(CALLS.get() + 1);
    // SAFETY: the count is valid.
    unsafe { *count += 1 };
    Code::INSUFFICIENT_SIZE.0
}

#[test]
fn a_growing_list_is_read_again() {
    let library = library(Functions { compute_processes_v3: Some(growing), ..Functions::default() });
    let device = Device::new(&library, 1);
    assert_eq!(device.processes(List::Compute).unwrap(), expected(200));
    assert_eq!(CALLS.get(), 6);
    // A list that never stops growing is an error.
    CALLS.set(0);
    let library = self::library(Functions { mps_processes_v3: Some(always_growing), ..library.functions });
    let error = Device::new(&library, 1).processes(List::Mps).unwrap_err();
    assert_eq!((error.code(), CALLS.get()), (Some(Code::INSUFFICIENT_SIZE), 8));
}

unsafe extern "C" fn three(_: Handle, count: *mut u32, entries: *mut ProcessInfo) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { fill(3, count, entries, info) }
}

#[test]
fn an_older_version_serves_where_the_newest_is_missing() {
    let library = library(Functions { graphics_processes_v2: Some(three), ..Functions::default() });
    let device = Device::new(&library, 1);
    assert_eq!(device.processes(List::Graphics).unwrap(), expected(3));
    assert_eq!(
        device.processes(List::Compute),
        Err(Error::Missing { function: "nvmlDeviceGetComputeRunningProcesses_v2" })
    );
}

unsafe extern "C" fn thirty_two_long(_: Handle, count: *mut u32, entries: *mut ProcessInfo) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { fill(32, count, entries, |at| LongProcessInfo { common: info(at), protected_memory: 7 }) }
}

unsafe fn write_text(text: &str, place: *mut c_char, length: u32) -> u32 {
    assert!(text.len() < length as usize);
    for (offset, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: the buffer has room for this many bytes.
        unsafe { place.add(offset).write(c_char::from_ne_bytes([byte])) };
    }
    0
}

unsafe extern "C" fn version_of_long_entries(text: *mut c_char, length: u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { write_text("535.86.10", text, length) }
}

unsafe extern "C" fn version_after_them(text: *mut c_char, length: u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { write_text("535.98", text, length) }
}

#[test]
fn long_entries_are_read_in_the_drivers_that_write_them() {
    let functions = Functions {
        driver_version: Some(version_of_long_entries),
        compute_processes_v3: Some(thirty_two_long),
        graphics_processes_v2: Some(three),
        ..Functions::default()
    };
    let long = library(functions);
    assert_eq!(Device::new(&long, 1).processes(List::Compute).unwrap(), expected(32));
    assert_eq!(Device::new(&long, 1).processes(List::Graphics).unwrap(), expected(3));
    // The buffer has room for long entries even if the driver is not known to write them.
    let unknown = library(Functions { driver_version: Some(version_after_them), ..functions });
    let processes = Device::new(&unknown, 1).processes(List::Compute).unwrap();
    assert_eq!((processes.len(), processes[0]), (32, expected(1)[0]));
}

unsafe extern "C" fn too_many(_: Handle, count: *mut u32, _: *mut ProcessInfo) -> u32 {
    // SAFETY: the count is valid.
    unsafe { *count = u32::MAX };
    Code::INSUFFICIENT_SIZE.0
}

unsafe extern "C" fn more_than_fit(_: Handle, count: *mut u32, _: *mut ProcessInfo) -> u32 {
    // SAFETY: the count is valid.
    unsafe { *count = u32::MAX };
    0
}

unsafe extern "C" fn largest(count: *mut u32) -> u32 {
    // SAFETY: the count is valid.
    unsafe { *count = u32::MAX };
    0
}

unsafe extern "C" fn largest_of_device(_: Handle, number: *mut u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { largest(number) }
}

#[test]
fn counts_are_bounded() {
    let library = library(Functions {
        device_count: Some(largest),
        mig_device_count: Some(largest_of_device),
        compute_processes_v3: Some(too_many),
        graphics_processes_v3: Some(more_than_fit),
        ..Functions::default()
    });
    let device = Device::new(&library, 1);
    let too_many = |what, limit| Error::TooMany { what, count: u32::MAX, limit };
    assert_eq!(library.device_count(), Err(too_many("GPUs", 1024)));
    assert_eq!(device.mig_device_count(), Err(too_many("MIG instances", 256)));
    let error = device.processes(List::Compute).unwrap_err();
    assert_eq!(error.to_string(), "NVML reported 4294967295 processes, more than 65536");
    // Unwritten entries are zero, and there are no more entries than the buffer holds.
    let processes = device.processes(List::Graphics).unwrap();
    assert_eq!((processes.len(), processes[31]), (32, Process { pid: 0, used_memory: Some(0) }));
}

#[test]
fn a_value_without_a_meaning_is_an_error() {
    let wrong = Some(largest_of_device as unsafe extern "C" fn(Handle, *mut u32) -> u32);
    let library = library(Functions {
        compute_mode: wrong,
        display_active: wrong,
        persistence_mode: wrong,
        accounting_mode: wrong,
        ..Functions::default()
    });
    let device = Device::new(&library, 1);
    let unknown = |what| Error::UnknownValue { what, value: u32::MAX };
    assert_eq!(device.compute_mode(), Err(unknown("compute mode")));
    assert_eq!(device.is_display_active(), Err(unknown("display state")));
    assert_eq!(device.is_persistent(), Err(unknown("persistence mode")));
    assert_eq!(device.is_accounting(), Err(unknown("accounting mode")));
}

unsafe extern "C" fn two(_: Handle, number: *mut u32) -> u32 {
    // SAFETY: the number is valid.
    unsafe { *number = 2 };
    0
}

unsafe extern "C" fn no_peak(_: Handle, _: u32, stats: *mut AccountingStats) -> u32 {
    // SAFETY: the structure is valid.
    unsafe { (*stats).peak_memory = NOT_AVAILABLE };
    0
}

#[test]
fn what_nvml_does_not_know_is_none() {
    let library = library(Functions {
        compute_mode: Some(two),
        accounting_stats: Some(no_peak),
        ..Functions::default()
    });
    let device = Device::new(&library, 1);
    assert_eq!(device.compute_mode(), Ok(ComputeMode::Prohibited));
    assert_eq!(device.peak_memory(1), Ok(None));
}

unsafe extern "C" fn without_end(_: Handle, text: *mut c_char, length: u32) -> u32 {
    // SAFETY: the buffer has that length.
    unsafe { text.cast::<u8>().write_bytes(b'x', length as usize) };
    0
}

unsafe extern "C" fn not_text(_: Handle, text: *mut c_char, length: u32) -> u32 {
    // SAFETY: the buffer has that length.
    unsafe { text.cast::<u8>().write_bytes(0xff, length as usize) };
    0
}

unsafe extern "C" fn place_without_end(_: Handle, place: *mut PciInfo) -> u32 {
    // SAFETY: the structure is valid.
    unsafe { (*place).bus_id = [b'0'; 32] };
    0
}

#[test]
fn a_text_ends_with_its_buffer() {
    let library = library(Functions {
        name: Some(without_end),
        uuid: Some(not_text),
        pci_info: Some(place_without_end),
        ..Functions::default()
    });
    let device = Device::new(&library, 1);
    assert_eq!(device.name(), Ok("x".repeat(96)));
    assert_eq!(device.uuid(), Err(Error::NotUtf8));
    assert_eq!(device.bus_id(), Ok("0".repeat(32)));
}

#[test]
fn an_unknown_code_is_a_number() {
    let texts = [Code::GPU_IS_LOST, Code(22), Code(25)].map(|code| code.to_string());
    assert!(texts[0].starts_with("device fell off the bus") && texts[1].ends_with("ECC is enabled"));
    assert_eq!(texts[2], "error code 25");
}

#[test]
fn a_file_that_is_not_nvml_is_an_error() {
    let missing: Result<Library> = Library::open("libno-such-library.so.1");
    let error = missing.unwrap_err();
    assert!(
        matches!(&error, Error::NotLoaded { reason } if reason.starts_with("libno-such-library.so.1: ")),
        "{error}"
    );
    assert_eq!(Library::open("libc.so.6").unwrap_err(), Error::Missing { function: "nvmlInit_v2" });
}
