//! Pages under PyTorch's allocator, on the software GPU: contents survive moves, nothing is unmapped while the GPU may use
//! it, waits end, captures stay valid, and every driver call may fail.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::segments::{MIB, SLOTS, Torch, properties};
use common::{Gpu, gpu};
use makeroom_core::Bytes;
use makeroom_cuda::{Access, AddressRange, CaptureMode, CaptureStatus, Code, DeviceMemory, Location};
use makeroom_pool::{Pages, PagesOptions, PagesStats, is_token};

const SLOT: u64 = 20 * MIB;
/// A time that no polling reaches.
const FOR_EVER: u64 = 1 << 60;

fn torch(gpu: &Gpu) -> Torch<'_> {
    Torch::new(gpu, SLOT, PagesOptions::default()).unwrap()
}

/// A fixed sequence of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Random blocks of random sizes, with work on several streams.
fn run(torch: &mut Torch<'_>, seed: u64, steps: u64, largest: u64) {
    let mut random = Random(seed);
    for _ in 0..steps {
        let count = torch.blocks.len() as u64;
        match random.below(10) {
            0..=4 => {
                torch.allocate((1 + random.below(largest / 512)) * 512);
            }
            5..=7 if count > 0 => {
                let nth = random.below(count) as usize;
                let address = *torch.blocks.keys().nth(nth).unwrap();
                torch.free(address);
            }
            8 => torch.work(random.below(3) as usize, random.below(20_000)),
            9 if random.below(4) == 0 => torch.gpu.advance(random.below(30_000)),
            9 if random.below(8) == 0 => torch.trim(),
            _ => {}
        }
        torch.check();
    }
    for &address in torch.blocks.keys() {
        torch.verify(address);
    }
}

#[test]
fn contents_survive_and_pages_move_only_when_the_gpu_is_done() {
    let gpu = gpu("pages");
    let free = gpu.driver.memory().unwrap().free;
    let mut all = PagesStats::default().pages;
    for seed in 0..12 {
        let mut torch = torch(&gpu);
        run(&mut torch, seed, 400, 60 * MIB);
        let stats = torch.end().pages;
        assert_eq!((stats.physical, stats.mapped), (0, 0), "{stats:?}");
        (all.moved, all.waits) = (all.moved + stats.moved, all.waits + stats.waits);
    }
    assert!(all.moved > 100 && all.waits > 10, "too few pages moved: {all:?}");
    assert_eq!(gpu.driver.memory().unwrap().free, free, "memory leaked");
}

/// Blocks that scatter free space, freed one by one.
fn scatter(torch: &mut Torch<'_>) -> Vec<u64> {
    let blocks: Vec<u64> = (0..24).filter_map(|_| torch.allocate(12 * MIB)).collect();
    let freed = blocks.iter().copied().step_by(2).collect::<Vec<_>>();
    for address in freed {
        torch.free(address);
    }
    blocks.into_iter().skip(1).step_by(2).collect()
}

#[test]
fn nothing_moves_while_a_stream_is_stuck_and_waits_end() {
    let gpu = gpu("pages");
    let options = PagesOptions { longest_wait: Duration::from_millis(50), ..PagesOptions::default() };
    let mut torch = Torch::new(&gpu, SLOT, options).unwrap();
    scatter(&mut torch);
    torch.work(1, FOR_EVER);
    let freed = *torch.blocks.keys().next().unwrap();
    torch.free(freed);
    // An event that was recorded before the stream got stuck proves that the others are idle; nothing proves this one.
    let (before, begun) = (torch.pages.stats().pages, Instant::now());
    for _ in 0..4 {
        torch.allocate(60 * MIB).unwrap();
    }
    let after = torch.pages.stats().pages;
    assert!(after.physical > before.physical, "{before:?} {after:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    torch.check();
    gpu.advance(FOR_EVER);
    let moved = torch.pages.stats().pages.moved;
    torch.allocate(100 * MIB).unwrap();
    torch.check();
    assert!(torch.pages.stats().pages.moved > moved, "the GPU is done: {:?}", torch.pages.stats());
    torch.end();
}

/// PyTorch unmaps slot by slot, with its own lock held.
#[test]
fn a_gpu_that_stopped_delays_one_call_and_keeps_the_range() {
    let gpu = gpu("pages");
    let longest_wait = Duration::from_millis(300);
    let mut torch = Torch::new(&gpu, SLOT, PagesOptions { longest_wait, ..PagesOptions::default() }).unwrap();
    let blocks: Vec<_> = (0..20).map(|_| torch.allocate(SLOT).unwrap()).collect();
    torch.work(1, FOR_EVER);
    for block in blocks {
        torch.free(block);
    }
    let (start, begun) = (torch.range.address().0, Instant::now());
    torch.trim();
    torch.check();
    assert!(!torch.pages.free_range(start), "the GPU may use it");
    assert!(begun.elapsed() >= longest_wait, "it did not wait");
    assert!(begun.elapsed() < 5 * longest_wait, "{:?} for 20 slots", begun.elapsed());
    gpu.advance(FOR_EVER);
    assert!(torch.pages.free_range(start));
    assert_eq!(torch.pages.stats().pages.physical, 0);
}

/// PyTorch's frees, queries of addresses and the figures come from any thread, also while another waits for the GPU.
#[test]
fn other_threads_do_not_wait_for_one_that_waits_for_the_gpu() {
    let gpu = gpu("pages");
    let longest_wait = Duration::from_secs(2);
    let mut torch = Torch::new(&gpu, SLOT, PagesOptions { longest_wait, ..PagesOptions::default() }).unwrap();
    let [shared, other] = [(); 2].map(|()| torch.allocate(SLOT).unwrap());
    torch.work(1, FOR_EVER);
    let waits = torch.pages.stats().pages.waits;
    let pages = &torch.pages;
    std::thread::scope(|scope| {
        let begun = Instant::now();
        // A slot becomes one handle only when the device is idle.
        let sharing = scope.spawn(move || pages.whole_at(shared));
        while pages.stats().pages.waits == waits {
            assert!(begun.elapsed() < longest_wait, "nothing waits");
            std::thread::sleep(Duration::from_millis(1));
        }
        let asked = Instant::now();
        for _ in 0..20 {
            assert_eq!(pages.slot(other), Some((other, SLOT)));
            pages.give(other, SLOT);
            assert_eq!(pages.take(other, SLOT, 2 * SLOT).map(|taken| taken.unbacked), Some(0));
        }
        assert!(asked.elapsed() < longest_wait / 2, "{:?}", asked.elapsed());
        assert!(!sharing.is_finished(), "the GPU is not done");
        assert_eq!(sharing.join().unwrap(), None);
        assert!(begun.elapsed() >= longest_wait, "it did not wait");
    });
    torch.check();
    gpu.advance(FOR_EVER);
    assert!(torch.pages.whole_at(shared).is_some(), "the GPU is done");
    torch.verify(shared);
    torch.end();
}

#[test]
fn a_capture_stays_valid_and_its_range_keeps_its_memory() {
    let gpu = gpu("pages");
    let mut torch = torch(&gpu);
    scatter(&mut torch);
    let capture = |torch: &Torch<'_>| torch.streams[0].0.capture().unwrap();
    torch.safety.is_capturing.store(true, Ordering::Relaxed);
    torch.streams[0].0.begin_capture(CaptureMode::Global).unwrap();
    // Long enough for events to be due.
    std::thread::sleep(Duration::from_millis(15));
    let freed = *torch.blocks.keys().next().unwrap();
    torch.free(freed);
    let waits = torch.pages.stats().pages.waits;
    torch.allocate(50 * MIB).unwrap();
    assert!(matches!(capture(&torch), CaptureStatus::Active(_)));
    torch.pages.exempt(torch.range.address().0);
    let stats = torch.pages.stats().pages;
    assert_eq!(stats.physical, stats.mapped, "all is backed: {stats:?}, {waits} waits");
    torch.streams[0].0.discard_capture().unwrap();
    torch.safety.is_capturing.store(false, Ordering::Relaxed);
    let moved = torch.pages.stats().pages.moved;
    for address in torch.blocks.keys().copied().collect::<Vec<_>>() {
        torch.free(address);
    }
    torch.allocate(100 * MIB).unwrap();
    assert_eq!(torch.pages.stats().pages.moved, moved, "the memory of a captured range moved");
    torch.end();
}

#[test]
fn growth_fails_where_it_could_not_be_backed_and_nothing_else_does() {
    let gpu = gpu("pages");
    let mut torch = torch(&gpu);
    let memory = gpu.driver.memory().unwrap().free.get();
    let fitting = (memory - 16 * MIB) / SLOT;
    assert!(fitting < SLOTS);
    for _ in 0..fitting {
        torch.grow(1).unwrap();
    }
    assert_eq!(torch.grow(1), Err(Code::OUT_OF_MEMORY));
    assert_eq!(torch.pages.stats().pages.physical, 0, "slots are virtual");
    let blocks: Vec<_> = (0..fitting).map(|_| torch.allocate(SLOT).unwrap()).collect();
    assert!(torch.blocks.values().all(|block| block.is_backed));
    assert_eq!(torch.allocate(SLOT), None);
    torch.free(blocks[0]);
    assert_eq!(torch.grow(2), Err(Code::OUT_OF_MEMORY), "the slot is still mapped");
    assert_eq!(torch.allocate(2 * SLOT), None);
    torch.free(blocks[1]);
    assert!(torch.allocate(2 * SLOT).is_some(), "after a trim");
    torch.end();
}

#[test]
fn a_limit_counts_in_the_commit_rule() {
    let gpu = gpu("pages");
    let mut torch = torch(&gpu);
    torch.safety.available.store(66 * MIB, Ordering::Relaxed);
    assert_eq!(torch.grow(3), Err(Code::OUT_OF_MEMORY));
    assert_eq!(torch.grow(2), Ok(()));
    torch.end();
}

/// PyTorch asks for fabric handles first, and for file descriptors if the driver does not support them.
#[test]
fn the_first_memory_of_a_kind_is_the_drivers_answer() {
    let gpu = gpu("pages");
    let mut torch = torch(&gpu);
    let others = DeviceMemory::allocate(gpu.driver, gpu.driver.memory().unwrap().free).unwrap();
    assert_eq!(torch.pages.create(SLOT, &properties(8)), Some(Err(Code::NOT_SUPPORTED)));
    assert_eq!(torch.pages.create(SLOT, &properties(1)), Some(Err(Code::OUT_OF_MEMORY)));
    drop(others);
    let token = torch.pages.create(SLOT, &properties(1)).unwrap().unwrap();
    assert_eq!(is_token(token), Some(0));
    assert_eq!(torch.pages.create(SLOT, &properties(0)), None, "other memory is not paged");
    assert_eq!(torch.pages.create(SLOT + 1, &properties(1)), None);
    assert_eq!(torch.pages.release(token), Some(Ok(())));
    assert_eq!(torch.pages.release(token), Some(Err(Code::INVALID_VALUE)));
    assert_eq!(torch.pages.unmap(torch.range.address().0, SLOT), None, "nothing is mapped");
    torch.grow(1).unwrap();
    let misplaced = torch.range.address().0 + 2 * MIB;
    assert_eq!(torch.pages.unmap(misplaced, SLOT), Some(Err(Code::INVALID_VALUE)));
    torch.end();
}

/// Reports of small blocks need no lock, but only if their slots got memory.
#[test]
fn a_small_slot_that_got_no_memory_gets_it_with_its_first_block() {
    for function in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        let gpu = gpu("pages");
        let mut torch = Torch::new(&gpu, 2 * MIB, PagesOptions::default()).unwrap();
        let first = torch.allocate(2 * MIB).unwrap();
        let held = torch.pages.stats().pages.physical;
        assert_eq!(held, 2 * MIB);
        // The driver fails until the slot is mapped.
        for number in 1..20 {
            gpu.fail_nth(function, number, 999);
        }
        torch.grow(1).unwrap();
        assert_eq!(torch.pages.stats().pages.physical, held, "{function}");
        gpu.forget_faults();
        torch.free(first);
        let blocks = [torch.allocate(2 * MIB).unwrap(), torch.allocate(2 * MIB).unwrap()];
        for block in blocks {
            torch.verify(block);
        }
        assert!(torch.blocks.values().all(|block| block.is_backed));
        assert_eq!(torch.pages.stats().pages.physical, 2 * held, "{function}");
        torch.end();
    }
}

/// PyTorch's count of live bytes has all blocks, also those that another allocator of a `MemPool` made.
#[test]
fn blocks_outside_of_the_segments_are_not_counted() {
    let gpu = gpu("pages");
    let mut torch = torch(&gpu);
    torch.grow(4).unwrap();
    let (elsewhere, start) = (0x1000, torch.range.address().0);
    torch.pages.give(elsewhere, SLOT);
    assert_eq!(torch.pages.take(elsewhere, 30 * MIB, 30 * MIB), None);
    assert!(torch.pages.take(start, 2 * SLOT, 30 * MIB + 2 * SLOT).is_some());
    assert_eq!(torch.pages.stats().pages.peak_live, 2 * SLOT);
    torch.pages.give(elsewhere, 30 * MIB);
    assert!(torch.pages.take(start + 2 * SLOT, SLOT, 3 * SLOT).is_some());
    assert_eq!(torch.pages.stats().pages.peak_live, 3 * SLOT);
    torch.pages.give(start, 2 * SLOT);
    torch.pages.give(start + 2 * SLOT, SLOT);
    torch.peak_live = 3 * SLOT;
    torch.end();
}

/// Small slots come and go, and blocks in them keep their contents.
#[test]
fn small_blocks_survive_trims() {
    let gpu = gpu("pages");
    for seed in 0..4 {
        let mut torch = Torch::new(&gpu, 2 * MIB, PagesOptions::default()).unwrap();
        run(&mut torch, seed, 400, MIB);
        let stats = torch.end();
        assert!(stats.pages.physical == 0 && stats.reports > 300, "{stats:?}");
    }
}

/// Another process breaks the commit rule: blocks get host memory, and growth fails until they are gone.
#[test]
fn memory_that_others_took_is_replaced_by_host_memory() {
    let gpu = gpu("pages");
    let mut torch = torch(&gpu);
    torch.grow(4).unwrap();
    let others = DeviceMemory::allocate(gpu.driver, gpu.driver.memory().unwrap().free).unwrap();
    let block = torch.allocate(SLOT).unwrap();
    assert!(torch.blocks[&block].is_backed);
    torch.verify(block);
    assert_eq!(torch.pages.stats().pages.on_host, SLOT);
    drop(others);
    assert_eq!(torch.grow(1), Err(Code::OUT_OF_MEMORY), "there is a debt");
    torch.free(block);
    torch.trim();
    assert_eq!(torch.grow(1), Ok(()));
    torch.end();
}

#[test]
fn peers_keep_their_access_to_memory_that_moved() {
    let gpu = gpu("pages");
    let mut torch = torch(&gpu);
    torch.grow(20).unwrap();
    let peer = [(Location::device(1), Access::ReadWrite)];
    assert_eq!(torch.pages.set_access(torch.range.address().0, 20 * SLOT, &peer), Some(Ok(())));
    scatter(&mut torch);
    torch.allocate(40 * MIB).unwrap();
    assert!(torch.pages.stats().pages.moved > 0);
    for &address in torch.blocks.keys() {
        let offset = Bytes::new(address - torch.range.address().0);
        for device in [0, 1] {
            assert_eq!(torch.range.access(offset, Location::device(device)).unwrap(), Access::ReadWrite);
        }
    }
    torch.end();
}

/// Another process maps a slot by one handle.
#[test]
fn a_shared_slot_is_one_handle_with_the_same_contents() {
    let gpu = gpu("pages");
    let mut torch = torch(&gpu);
    scatter(&mut torch);
    let address = *torch.blocks.keys().next().unwrap();
    let (start, size) = torch.pages.slot(address).unwrap();
    assert_eq!(size, SLOT);
    let handle = torch.pages.whole_at(address).unwrap();
    assert_eq!(torch.pages.whole_at(start), Some(handle));
    torch.check();
    for &address in torch.blocks.keys() {
        torch.verify(address);
    }
    // What the other process sees.
    let view = AddressRange::reserve(gpu.driver, Bytes::new(SLOT), Bytes::ZERO).unwrap();
    // SAFETY: the handle is live, and the addresses are reserved here.
    unsafe { gpu.driver.map(view.address().0, SLOT as usize, 0, handle, 0) }.unwrap();
    view.set_access(Bytes::ZERO, Bytes::new(SLOT), &[(Location::device(0), Access::ReadWrite)]).unwrap();
    let (mut here, mut there) = ([0; 64], [1; 64]);
    torch
        .range
        .region()
        .part(Bytes::new(address - torch.range.address().0), Bytes::new(64))
        .unwrap()
        .read(&mut here)
        .unwrap();
    view.region().part(Bytes::new(address - start), Bytes::new(64)).unwrap().read(&mut there).unwrap();
    assert_eq!(here, there);
    for address in torch.blocks.keys().copied().collect::<Vec<_>>() {
        torch.free(address);
    }
    torch.allocate(100 * MIB).unwrap();
    torch.check();
    view.unmap(Bytes::ZERO, Bytes::new(SLOT)).unwrap();
    torch.end();
}

#[test]
fn a_driver_without_events_of_contexts_has_no_pages() {
    let gpu = gpu("pages");
    let old = gpu.resolve(|name| name != c"cuCtxRecordEvent");
    let error = Pages::new(old, 0, PagesOptions::default()).unwrap_err();
    assert!(error.to_string().contains("cuCtxRecordEvent"), "{error}");
}

#[test]
fn every_driver_call_may_fail() {
    let gpu = gpu("pages");
    let functions = [
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
        "cuCtxRecordEvent",
        "cuEventQuery",
        "cuEventCreate",
        "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2",
        "cuThreadExchangeStreamCaptureMode",
        "cuMemGetInfo_v2",
    ];
    for function in functions {
        let mut number = 1;
        loop {
            let mut torch = torch(&gpu);
            torch.grow(16).unwrap();
            gpu.fail_nth(function, number, 999);
            scatter(&mut torch);
            torch.work(1, 30_000);
            torch.allocate(50 * MIB);
            torch.allocate(70 * MIB);
            for &address in torch.blocks.keys() {
                torch.verify(address);
            }
            for address in torch.blocks.keys().copied().take(10).collect::<Vec<_>>() {
                torch.free(address);
            }
            torch.trim();
            torch.check();
            let was_hit = gpu.forget_faults() == 0;
            gpu.make_current();
            torch.end();
            if !was_hit {
                break;
            }
            // Polls are many: of those, every call near the start and some of the others.
            number += if function.starts_with("cuMem") { 1 } else { 1 + number / 4 };
        }
        assert!(number > 1, "{function} was not called");
    }
}
