//! Behavior of the wrappers on the software GPU, beyond forwarding calls.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::gpu;
use makeroom_core::Bytes;
use makeroom_cuda::{
    Access, AddressRange, AllocationProperties, CaptureMode, CaptureModeGuard, CaptureStatus, Code,
    DeviceMemory, Error, Event, EventKind, Location, PhysicalMemory, PinnedKind, PinnedMemory, PoolAttribute,
    Stream, StreamKind,
};

#[test]
fn memory_comes_back_when_it_is_dropped_and_stays_when_it_is_forgotten() {
    let gpu = gpu("behaviour");
    let before = gpu.driver.memory().unwrap().free;
    let memory = DeviceMemory::allocate(gpu.driver, Bytes::mib(64)).unwrap();
    assert_eq!(gpu.driver.memory().unwrap().free, before.saturating_sub(Bytes::mib(64)));
    drop(memory);
    assert_eq!(gpu.driver.memory().unwrap().free, before);
    let address = DeviceMemory::allocate(gpu.driver, Bytes::mib(2)).unwrap().into_address();
    assert_eq!(gpu.driver.memory().unwrap().free, before.saturating_sub(Bytes::mib(2)));
    // SAFETY: given up one line above.
    unsafe { DeviceMemory::from_address(gpu.driver, address, Bytes::mib(2)) }.free().unwrap();
    assert_eq!(gpu.driver.memory().unwrap().free, before);
}

#[test]
fn running_out_says_what_was_asked_and_what_was_there() {
    let gpu = gpu("behaviour");
    let error = DeviceMemory::allocate(gpu.driver, Bytes::gib(2)).unwrap_err();
    assert!(error.is_out_of_memory());
    let free = gpu.driver.memory().unwrap().free;
    assert_eq!(
        error.to_string(),
        format!(
            "cuMemAlloc_v2 of 2.00 GiB failed with 2 (CUDA_ERROR_OUT_OF_MEMORY); {free} of 1.00 GiB free"
        )
    );
    let Error::Refused(refusal) = error else { panic!("{error}") };
    assert_eq!((refusal.requested, refusal.free), (Some(Bytes::gib(2)), Some(free)));
}

#[test]
fn a_free_waits_for_its_stream() {
    let gpu = gpu("behaviour");
    let pool = gpu.driver.device(0).unwrap().current_pool().unwrap();
    let (busy, other) = (
        Stream::create(gpu.driver, StreamKind::NonBlocking).unwrap(),
        Stream::create(gpu.driver, StreamKind::NonBlocking).unwrap(),
    );
    let memory = DeviceMemory::allocate_on(&busy, Bytes::mib(32)).unwrap();
    gpu.keep_busy(busy.handle(), 1_000_000);
    let event = Event::create(gpu.driver, EventKind::NoTiming).unwrap();
    memory.free_on(&busy).unwrap();
    event.record(&busy).unwrap();
    assert!(!event.is_done().unwrap() && !busy.is_done().unwrap());
    let second = DeviceMemory::allocate_on(&other, Bytes::mib(32)).unwrap();
    assert_eq!(pool.figures().unwrap().reserved, Bytes::mib(64));
    gpu.advance(1_000_000);
    assert!(event.is_done().unwrap());
    second.free_on(&other).unwrap();
    other.synchronize().unwrap();
    busy.synchronize().unwrap();
    pool.trim_to(Bytes::ZERO).unwrap();
    assert_eq!(pool.figures().unwrap().reserved, Bytes::ZERO);
}

#[test]
fn switches_and_sizes_of_a_pool_are_read_as_they_were_written() {
    let gpu = gpu("behaviour");
    let pool = makeroom_cuda::MemoryPool::create(gpu.driver, Location::device(1)).unwrap();
    for value in [0, 1] {
        pool.set_attribute(PoolAttribute::Opportunistic, value).unwrap();
        assert_eq!(pool.attribute(PoolAttribute::Opportunistic).unwrap(), value);
    }
    pool.set_attribute(PoolAttribute::ReleaseThreshold, u64::MAX).unwrap();
    assert_eq!(pool.attribute(PoolAttribute::ReleaseThreshold).unwrap(), u64::MAX);
}

#[test]
fn a_captured_stream_says_so_and_a_guard_keeps_the_capture_whole() {
    let gpu = gpu("behaviour");
    let stream = Stream::create(gpu.driver, StreamKind::NonBlocking).unwrap();
    assert_eq!(stream.capture().unwrap(), CaptureStatus::None);
    stream.begin_capture(CaptureMode::Global).unwrap();
    {
        let _guard = CaptureModeGuard::relaxed(gpu.driver).unwrap();
        DeviceMemory::allocate(gpu.driver, Bytes::mib(2)).unwrap().free().unwrap();
    }
    assert!(matches!(stream.capture().unwrap(), CaptureStatus::Active(number) if number > 0));
    let error = DeviceMemory::allocate(gpu.driver, Bytes::mib(2)).unwrap_err();
    assert_eq!(error.code(), Some(Code::STREAM_CAPTURE_UNSUPPORTED), "the guard is gone");
    assert_eq!(stream.capture().unwrap(), CaptureStatus::Invalidated);
    assert!(stream.discard_capture().is_err());
    assert!(!stream.is_capturing().unwrap());
}

#[test]
fn memory_moves_from_one_range_to_another_with_its_bytes() {
    let gpu = gpu("behaviour");
    let (here, there) = (Location::device(0), Location::device(1));
    let size = Bytes::mib(2);
    let memory = PhysicalMemory::create(gpu.driver, here, size).unwrap();
    let host = PhysicalMemory::create(gpu.driver, Location::host_node(0), size).unwrap();
    let range = AddressRange::reserve(gpu.driver, Bytes::mib(8), Bytes::ZERO).unwrap();
    range.map(Bytes::ZERO, &memory).unwrap();
    range.map(size, &host).unwrap();
    let both = [(here, Access::ReadWrite), (there, Access::Read)];
    range.set_access(Bytes::ZERO, Bytes::mib(4), &both).unwrap();
    assert_eq!(range.access(size, there).unwrap(), Access::Read);
    range.region().part(Bytes::ZERO, Bytes::mib(4)).unwrap().fill(9).unwrap();
    range.unmap(Bytes::ZERO, size).unwrap();
    range.map(Bytes::mib(6), &memory).unwrap();
    range.set_access(Bytes::mib(6), size, &[(here, Access::ReadWrite)]).unwrap();
    let mut byte = [0];
    range
        .region()
        .part(Bytes::mib(8).saturating_sub(Bytes::new(1)), Bytes::new(1))
        .unwrap()
        .read(&mut byte)
        .unwrap();
    assert_eq!(byte, [9]);
    let error = range.map(Bytes::mib(7), &memory).unwrap_err();
    assert_eq!(error, Error::OutOfBounds { end: Bytes::mib(9), region: Bytes::mib(8) });
    let error = range.region().write(&vec![0; 9 << 20]).unwrap_err();
    assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
    range.unmap(size, size).unwrap();
    range.unmap(Bytes::mib(6), size).unwrap();
}

#[test]
fn pinned_memory_is_zeroed_and_travels() {
    let gpu = gpu("behaviour");
    let mut pinned = PinnedMemory::allocate(gpu.driver, Bytes::kib(4), PinnedKind::Portable).unwrap();
    assert!(pinned.iter().all(|byte| *byte == 0));
    pinned[17] = 1;
    let read = std::thread::spawn(move || pinned[17]).join().unwrap();
    assert_eq!(read, 1);
}

/// The event covers the work of streams that do not wait for each other, and no work that follows.
#[test]
fn an_event_of_a_context_comes_after_the_work_of_all_its_streams() {
    let gpu = gpu("behaviour");
    let context = gpu.driver.device(0).unwrap().retain_primary().unwrap();
    let streams = [0; 2].map(|_| Stream::create(gpu.driver, StreamKind::NonBlocking).unwrap());
    gpu.keep_busy(streams[0].handle(), 1_000_000);
    gpu.keep_busy(streams[1].handle(), 2_000_000);
    let event = Event::create(gpu.driver, EventKind::NoTiming).unwrap();
    event.record_context(&context).unwrap();
    gpu.keep_busy(streams[0].handle(), 9_000_000);
    gpu.advance(1_500_000);
    assert!(!event.is_done().unwrap());
    gpu.advance(1_500_000);
    assert!(event.is_done().unwrap() && !streams[0].is_done().unwrap());
    streams[1].begin_capture(CaptureMode::Relaxed).unwrap();
    let error = event.record_context(&context).unwrap_err();
    assert_eq!(error.code(), Some(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(streams[1].capture().unwrap(), CaptureStatus::Invalidated);
    assert!(streams[1].discard_capture().is_err());
    let other = gpu.driver.device(1).unwrap().create_context().unwrap();
    assert!(event.record_context(&other).is_err(), "the event belongs to another context");
    // SAFETY: nothing was created in it, and the tests hold another reference to the first.
    unsafe { other.end().and(context.end()) }.unwrap();
}

#[test]
fn memory_has_the_properties_that_the_program_wants() {
    let gpu = gpu("behaviour");
    let mut bytes = [0_u8; 32];
    bytes[..4].copy_from_slice(&1_i32.to_ne_bytes());
    bytes[4..8].copy_from_slice(&1_i32.to_ne_bytes());
    bytes[8..12].copy_from_slice(&1_i32.to_ne_bytes());
    bytes[12..16].copy_from_slice(&1_i32.to_ne_bytes());
    let properties = AllocationProperties::from_bytes(&bytes);
    assert_eq!(properties.location().device_number(), Some(1));
    assert_eq!(AllocationProperties::from_bytes(&[0; 32]).location().device_number(), None);
    PhysicalMemory::create_with(gpu.driver, &properties, Bytes::mib(2)).unwrap().release().unwrap();
    // A fabric handle, which the software GPU does not support.
    bytes[4..8].copy_from_slice(&8_i32.to_ne_bytes());
    let properties = AllocationProperties::from_bytes(&bytes);
    let error = PhysicalMemory::create_with(gpu.driver, &properties, Bytes::mib(2)).unwrap_err();
    assert_eq!(error.code(), Some(Code::NOT_SUPPORTED));
}
