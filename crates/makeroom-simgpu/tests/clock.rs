//! Tests of the clock and of injected faults. In a separate file, because the driver reads its environment once per
//! process.

mod common;

use std::ffi::c_char;

use common::stage;
use makeroom_simcard::testing::SoftwareGpu;

#[test]
fn the_clock_and_the_faults_are_in_the_tests_hands() {
    let stage = stage("clock").with_machine("memory=1GiB,context=0,fail=cuStreamCreate:2:304");
    // SAFETY: no other test of this process reads or writes the environment; the driver reads it here first.
    let library = unsafe { SoftwareGpu::load(&stage) };
    let (mut context, mut stream, mut other, mut event, mut address) = (0u64, 0u64, 0u64, 0u64, 0u64);
    // SAFETY: the types are those of the functions, and all pointers are valid until the end of the test.
    unsafe {
        let init: extern "C" fn(u32) -> u32 = library.function(c"cuInit");
        let create: extern "C" fn(*mut u64, u32, i32) -> u32 = library.function(c"cuCtxCreate_v2");
        let create_stream: extern "C" fn(*mut u64, u32) -> u32 = library.function(c"cuStreamCreate");
        let create_event: extern "C" fn(*mut u64, u32) -> u32 = library.function(c"cuEventCreate");
        let record: extern "C" fn(u64, u64) -> u32 = library.function(c"cuEventRecord");
        let query: extern "C" fn(u64) -> u32 = library.function(c"cuEventQuery");
        let allocate: extern "C" fn(*mut u64, u64) -> u32 = library.function(c"cuMemAlloc_v2");
        let free: extern "C" fn(u64) -> u32 = library.function(c"cuMemFree_v2");
        let work: extern "C" fn(u64, u64) -> u32 = library.function(c"makeroom_simgpu_enqueue_work");
        let advance: extern "C" fn(u64) -> u32 = library.function(c"makeroom_simgpu_advance");
        let now: extern "C" fn() -> u64 = library.function(c"makeroom_simgpu_now");
        let fail: extern "C" fn(*const c_char, u64, u32) -> u32 = library.function(c"makeroom_simgpu_fail");

        assert_eq!((now(), init(0)), (0, 0));
        assert_eq!(create(&raw mut context, 0, 0), 0);
        assert_eq!(create_stream(&raw mut stream, 1), 0);
        assert_eq!(create_stream(&raw mut other, 1), 304, "the second call fails");
        assert_eq!(create_stream(&raw mut other, 1), 0);
        assert_eq!(create_event(&raw mut event, 0), 0);
        assert_eq!(work(stream, 5_000_000), 0);
        assert_eq!(record(event, stream), 0);
        assert_eq!(query(event), 600);
        assert_eq!(now(), 1_000, "a query that finds work unfinished takes a microsecond");
        assert_eq!(advance(4_999_000), 0);
        assert_eq!(query(event), 0);
        assert_eq!(work(other, 7_000_000), 0);
        assert_eq!(allocate(&raw mut address, 1 << 20), 0);
        assert_eq!(free(address), 0);
        assert_eq!(now(), 12_000_000, "cuMemFree waits for the card");
        assert_eq!(fail(c"cuMemAlloc_v2".as_ptr(), 2, 2), 0);
        assert_eq!([0; 3].map(|_: u32| allocate(&raw mut address, 512)), [0, 2, 0]);
    }
}
