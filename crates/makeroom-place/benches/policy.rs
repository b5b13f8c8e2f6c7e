//! The host time of the pool's policy per allocation and free: `cargo bench -p makeroom-place`. `bench/run pool-speed`
//! compares it with PyTorch's native allocator.

mod patterns;

use patterns::{PATTERNS, Pattern, Work};

fn main() {
    divan::main();
}

/// The pool of a long run: it needs next to no calls of its backing anymore.
const WARM_UP: usize = 10;

impl std::fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

#[divan::bench(args = PATTERNS, sample_count = 200, sample_size = 5000)]
fn pair(bencher: divan::Bencher<'_, '_>, pattern: &Pattern) {
    let mut work = Work::new(pattern);
    work.rounds(WARM_UP);
    bencher.bench_local(|| work.pair());
}
