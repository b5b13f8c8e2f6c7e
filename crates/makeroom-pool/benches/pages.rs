//! The host time of paging per report of PyTorch's allocator that needs no driver call: `cargo bench -p makeroom-pool`.
//! One iteration of `reports` frees a block and places it again at the same address: two reports. One iteration of `cold_report`
//! is one report after the processor's caches were overwritten, as in a training step. The goal is 150 ns per report.

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;

use common::segments::{MIB, Torch};
use makeroom_pool::PagesOptions;

fn main() {
    divan::main();
}

/// Slots of PyTorch's pools of small and of large blocks, and a block of each.
const SIZES: [(u64, u64); 4] =
    [(2 * MIB, 512), (2 * MIB, 512 << 10), (20 * MIB, 4 * MIB), (20 * MIB, 40 * MIB)];
/// Blocks that are live at once.
const LIVE: usize = 16;

#[divan::bench(args = SIZES, sample_count = 100, sample_size = 5000, counters = [divan::counter::ItemsCount::new(2_u32)])]
fn reports(bencher: divan::Bencher<'_, '_>, (slot, size): (u64, u64)) {
    let gpu = common::gpu("pages-bench");
    let Ok(mut torch) = Torch::new(&gpu, slot, PagesOptions::default()) else { return };
    let mut blocks: VecDeque<u64> = (0..LIVE).filter_map(|_| torch.allocate(size)).collect();
    assert_eq!(blocks.len(), LIVE);
    let live = torch.live();
    bencher.bench_local(|| {
        if let Some(block) = blocks.pop_front() {
            torch.pages.give(block, size);
            divan::black_box(torch.pages.take(block, size, live));
            blocks.push_back(block);
        }
    });
    torch.end();
}

/// Larger than a core's second-level data cache (`CACHED`), and than the reach of its second-level TLB (`TRANSLATED`).
const CACHED: usize = 4 << 20;
const TRANSLATED: usize = 4096 * SMALL_PAGE;
const SMALL_PAGE: usize = 4096;

/// Memory in 4 KiB pages, without huge pages, like most of a program's memory.
fn small_pages() -> &'static mut [u8] {
    let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, which nothing else uses and which is never unmapped.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), TRANSLATED, read_write, private, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        libc::madvise(memory, TRANSLATED, libc::MADV_NOHUGEPAGE);
        std::slice::from_raw_parts_mut(memory.cast::<u8>(), TRANSLATED)
    }
}

#[divan::bench(args = SIZES, sample_count = 4000, sample_size = 1)]
fn cold_report(bencher: divan::Bencher<'_, '_>, (slot, size): (u64, u64)) {
    let gpu = common::gpu("pages-bench");
    let Ok(mut torch) = Torch::new(&gpu, slot, PagesOptions::default()) else { return };
    let mut blocks: VecDeque<u64> = (0..LIVE).filter_map(|_| torch.allocate(size)).collect();
    assert_eq!(blocks.len(), LIVE);
    let live = torch.live();
    let (mut other, pages) = (vec![1_u64; CACHED / size_of::<u64>()], small_pages());
    let mut is_free = false;
    bencher
        .with_inputs(|| {
            for word in &mut other {
                *word = word.wrapping_mul(3);
            }
            for byte in pages.iter_mut().skip(64).step_by(SMALL_PAGE + 64) {
                *byte = byte.wrapping_add(1);
            }
            is_free = !is_free;
            if is_free {
                blocks.rotate_left(1);
            }
            (blocks.front().copied().unwrap_or(0), is_free)
        })
        .bench_local_values(|(block, is_free)| {
            if is_free {
                torch.pages.give(block, size);
            } else {
                divan::black_box(torch.pages.take(block, size, live));
            }
        });
    torch.end();
}
