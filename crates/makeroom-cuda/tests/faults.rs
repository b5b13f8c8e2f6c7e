//! Every function of the table is called once, and fails once in turn: the error names it, nothing panics, and
//! everything allocated before is freed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::ffi::CStr;
use std::ptr::NonNull;

use common::{Gpu, gpu};
use makeroom_core::Bytes;
use makeroom_cuda::raw::NAMES;
use makeroom_cuda::{
    Access, AddressRange, Attribute, CaptureMode, CaptureModeGuard, CaptureStatus, DeviceMemory, Driver,
    Error, Event, EventKind, Granularity, Launch, Limit, Location, MemoryPool, Module, PhysicalMemory,
    PinnedKind, PinnedMemory, PoolAttribute, RegisteredMemory, Result, Stream, StreamKind,
};

const SIZE: Bytes = Bytes::mib(4);

fn devices_and_contexts(driver: &'static Driver) -> Result<()> {
    driver.start()?;
    assert!(driver.version()? >= 12000);
    assert_eq!(driver.devices()?, 2);
    let device = driver.device(1)?;
    assert!(!device.name()?.is_empty());
    assert_eq!(device.total_memory()?, Bytes::gib(1));
    assert_eq!(device.attribute(Attribute::VirtualMemory)?, 1);
    device.check_reach(0)?;
    let before = driver.current_context()?;
    let context = device.create_context()?;
    assert_eq!(driver.current_device()?, 1);
    // SAFETY: nothing was created in it.
    unsafe { context.end() }?;
    let primary = device.retain_primary()?;
    let entered = primary.enter()?;
    primary.make_current()?;
    assert_eq!(driver.current_context()?, Some(primary.handle()));
    driver.set_limit(Limit::Heap, Bytes::mib(16))?;
    assert_eq!(driver.limit(Limit::Heap)?, Bytes::mib(16));
    driver.synchronize()?;
    entered.leave()?;
    assert_eq!(driver.current_context()?, before);
    // SAFETY: nothing was created in it.
    unsafe { primary.end() }
}

fn asked_while_capturing(stream: &Stream) -> Result<()> {
    assert!(stream.is_capturing()?);
    assert!(matches!(stream.capture()?, CaptureStatus::Active(_)));
    Ok(())
}

fn streams_and_events(driver: &'static Driver) -> Result<()> {
    let stream = Stream::create(driver, StreamKind::NonBlocking)?;
    let start = Event::create(driver, EventKind::Timing)?;
    let end = Event::create(driver, EventKind::Timing)?;
    start.record(&stream)?;
    end.record(&stream)?;
    stream.wait(&end)?;
    end.synchronize()?;
    let primary = driver.device(0)?.retain_primary()?;
    let recorded = primary.enter().and_then(|_entered| {
        let event = Event::create(driver, EventKind::NoTiming)?;
        event.record_context(&primary)?;
        event.synchronize()?;
        event.destroy()
    });
    // SAFETY: nothing created in it is used anymore, and the tests hold another reference.
    unsafe { primary.end() }?;
    recorded?;
    stream.synchronize()?;
    assert!(end.is_done()? && stream.is_done()?);
    assert!(end.milliseconds_since(&start)? >= 0.0);
    stream.begin_capture(CaptureMode::Global)?;
    let asked = asked_while_capturing(&stream);
    // A capture left open would make the next calls fail.
    stream.discard_capture().inspect_err(|_| drop(stream.discard_capture()))?;
    asked?;
    drop(CaptureModeGuard::relaxed(driver)?);
    end.destroy()?;
    start.destroy()?;
    stream.destroy()
}

fn memory_and_pools(driver: &'static Driver) -> Result<()> {
    let device = driver.device(0)?;
    let stream = Stream::create(driver, StreamKind::Blocking)?;
    let memory = DeviceMemory::allocate(driver, SIZE)?;
    memory.region().fill(7)?;
    memory.region().fill_on(8, &stream)?;
    memory.free()?;
    let ordered = DeviceMemory::allocate_on(&stream, SIZE)?;
    ordered.free_on(&stream)?;
    let pool = MemoryPool::create(driver, device.location())?;
    let first = device.default_pool()?;
    assert_eq!(device.current_pool()?.handle(), first.handle());
    device.set_current_pool(&pool)?;
    let restored = device.set_current_pool(&first);
    pool.set_attribute(PoolAttribute::ReleaseThreshold, 1 << 20)?;
    let from_pool = DeviceMemory::allocate_from(&pool, &stream, SIZE)?;
    assert_eq!(pool.figures()?.used, SIZE);
    from_pool.free_on(&stream)?;
    stream.synchronize()?;
    pool.trim_to(Bytes::ZERO)?;
    pool.destroy()?;
    assert!(driver.memory()?.free > Bytes::ZERO);
    restored
}

fn virtual_memory(driver: &'static Driver) -> Result<()> {
    let here = Location::device(0);
    let grain = driver.granularity_at(here, Granularity::Minimum)?;
    let range = AddressRange::reserve(driver, grain + grain, grain)?;
    let memory = PhysicalMemory::create(driver, here, grain)?;
    range.map(grain, &memory)?;
    let mapped = || {
        range.set_access(grain, grain, &[(here, Access::ReadWrite)])?;
        range.access(grain, here)
    };
    let access = mapped();
    range.unmap(grain, grain)?;
    memory.release()?;
    range.free()?;
    assert_eq!(access?, Access::ReadWrite);
    Ok(())
}

fn host_memory_and_copies(driver: &'static Driver) -> Result<()> {
    let stream = Stream::create(driver, StreamKind::NonBlocking)?;
    let mut pinned = PinnedMemory::allocate(driver, Bytes::kib(64), PinnedKind::Mapped)?;
    assert_ne!(pinned.device_address()?.0, 0);
    // If unpinning fails the memory stays pinned, so its addresses must not be reused.
    let own = Box::leak(vec![0; 1 << 16].into_boxed_slice());
    let mut registered = RegisteredMemory::register(driver, own, PinnedKind::Portable)?;
    let (one, other) = (DeviceMemory::allocate(driver, SIZE)?, DeviceMemory::allocate(driver, SIZE)?);
    pinned.fill(42);
    // SAFETY: the stream is synchronized before the memory is accessed.
    unsafe { one.region().write_on(&pinned, &stream) }?;
    other.region().copy_from_on(one.region(), &stream)?;
    // SAFETY: as above.
    unsafe { other.region().read_on(&mut registered, &stream) }?;
    stream.synchronize()?;
    assert!(registered.iter().all(|byte| *byte == 42));
    one.region().write(&[43; 512])?;
    other.region().copy_from(one.region())?;
    other.region().read(&mut registered)?;
    assert_eq!((registered[511], registered[512]), (43, 42));
    registered.unregister()?;
    pinned.free()
}

fn code(driver: &'static Driver) -> Result<()> {
    let stream = Stream::default_of(driver);
    let module = Module::load_text(driver, c".version 7.0\n.target sm_52\n.address_size 64\n")?;
    let launch = Launch { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0 };
    // SAFETY: the software GPU runs no kernel.
    unsafe { module.function(c"kernel")?.launch(launch, &stream, &mut []) }?;
    module.unload()
}

fn everything(driver: &'static Driver) -> Result<()> {
    devices_and_contexts(driver)?;
    streams_and_events(driver)?;
    memory_and_pools(driver)?;
    virtual_memory(driver)?;
    host_memory_and_copies(driver)?;
    code(driver)
}

/// Calls that release something: if one fails, its resource stays allocated.
fn gives_back(function: &str) -> bool {
    ["Free", "Destroy", "Release", "Unmap", "Unregister", "Unload", "Trim", "Pop", "EndCapture"]
        .iter()
        .any(|part| function.contains(part))
}

fn fail_in_turn(gpu: &Gpu, function: &'static str) {
    gpu.make_current();
    let before = gpu.driver.memory().unwrap();
    let error = if function.ends_with("Query") { 1 } else { 2 };
    gpu.fail_nth(function, 1, error);
    let answer = everything(gpu.driver);
    let Err(Error::Refused(refusal)) = answer else { panic!("{function}: {answer:?}") };
    assert_eq!((refusal.function, refusal.code.0), (function, error));
    assert!(refusal.name.is_some(), "{function}");
    if gives_back(function) {
        return;
    }
    gpu.make_current();
    gpu.driver.synchronize().unwrap();
    gpu.driver.device(0).unwrap().default_pool().unwrap().trim_to(Bytes::ZERO).unwrap();
    assert_eq!(before.free, gpu.driver.memory().unwrap().free, "{function} leaks");
}

#[test]
fn every_call_is_made_and_every_failure_is_told() {
    let gpu = gpu("faults");
    everything(gpu.driver).unwrap();
    let of_errors = ["cuGetErrorName", "cuGetErrorString"];
    for function in NAMES.iter().filter(|function| !of_errors.contains(function)) {
        fail_in_turn(&gpu, function);
    }
    // Only errors use these two functions, and an error without a name is still an error.
    gpu.fail_nth("cuGetErrorName", 1, 2);
    gpu.fail_nth("cuMemAlloc_v2", 1, 2);
    let error = DeviceMemory::allocate(gpu.driver, SIZE).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cuMemAlloc_v2 of 4.00 MiB failed with 2; {} of 1.00 GiB free",
            gpu.driver.memory().unwrap().free
        )
    );
    gpu.fail_nth("cuGetErrorString", 1, 2);
    assert_eq!(gpu.driver.describe(makeroom_cuda::Code::NOT_READY), (Some("CUDA_ERROR_NOT_READY"), None));
    let (name, words) = gpu.driver.describe(makeroom_cuda::Code::NOT_READY);
    assert_eq!((name, words), (Some("CUDA_ERROR_NOT_READY"), Some("device not ready")));
}

#[test]
fn an_old_driver_lacks_functions_and_says_so() {
    let gpu = gpu("faults");
    let missing = ["cuMemCreate", "cuMemAllocAsync"];
    let driver = gpu.resolve(|name: &CStr| !missing.contains(&name.to_str().unwrap()));
    assert!(driver.has("cuMemAlloc_v2") && !driver.has("cuMemCreate") && !driver.has("cuNothing"));
    let error = PhysicalMemory::create(driver, Location::device(0), Bytes::mib(2)).unwrap_err();
    assert_eq!(error, Error::Missing { function: "cuMemCreate" });
    assert_eq!(error.to_string(), "the CUDA driver does not have cuMemCreate");
    assert!(error.hint().is_some_and(|hint| hint.contains("update")));
    let error = DeviceMemory::allocate_on(&Stream::default_of(driver), SIZE).unwrap_err();
    assert_eq!(error, Error::Missing { function: "cuMemAllocAsync" });
    DeviceMemory::allocate(driver, SIZE).unwrap().free().unwrap();
}

#[test]
fn what_is_no_driver_is_none() {
    // SAFETY: no function is found.
    let nothing = unsafe { Driver::resolve(|_: &CStr| None::<NonNull<std::ffi::c_void>>) };
    assert_eq!(nothing.unwrap_err(), Error::Missing { function: "cuInit" });
    let error = Driver::open("libno-such-driver.so.1").unwrap_err();
    assert!(
        matches!(&error, Error::NotLoaded { reason } if reason.contains("libno-such-driver.so.1")),
        "{error}"
    );
    // A library that exists but is not a driver.
    assert_eq!(Driver::open("libc.so.6").unwrap_err(), Error::Missing { function: "cuInit" });
}
