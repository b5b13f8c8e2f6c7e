//! The host time of paging per report of PyTorch's allocator that needs no driver call: `cargo bench -p makeroom-pool`.
//! One iteration is a block that comes and goes where it was before, so two reports. The goal is 150 ns per report.
//! `cold_reports` replaces the contents of the processor's caches before each, as a training step does.

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
    bencher.bench_local(|| {
        if let Some(block) = blocks.pop_front() {
            torch.pages.give(block, size);
            divan::black_box(torch.pages.take(block, size));
            blocks.push_back(block);
        }
    });
    torch.end();
}

/// More than the second-level cache of a core.
const CACHED: usize = 4 << 20;

#[divan::bench(args = SIZES, sample_count = 2000, sample_size = 1, counters = [divan::counter::ItemsCount::new(2_u32)])]
fn cold_reports(bencher: divan::Bencher<'_, '_>, (slot, size): (u64, u64)) {
    let gpu = common::gpu("pages-bench");
    let Ok(mut torch) = Torch::new(&gpu, slot, PagesOptions::default()) else { return };
    let mut blocks: VecDeque<u64> = (0..LIVE).filter_map(|_| torch.allocate(size)).collect();
    assert_eq!(blocks.len(), LIVE);
    let mut other = vec![1_u64; CACHED / size_of::<u64>()];
    bencher
        .with_inputs(|| {
            for word in &mut other {
                *word = word.wrapping_mul(3);
            }
            let block = blocks.pop_front().unwrap_or(0);
            blocks.push_back(block);
            block
        })
        .bench_local_values(|block| {
            torch.pages.give(block, size);
            divan::black_box(torch.pages.take(block, size));
        });
    torch.end();
}
