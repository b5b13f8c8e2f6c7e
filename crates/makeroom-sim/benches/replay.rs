//! The speed of a replay for each recording and allocator: `cargo bench -p makeroom-sim`. Items are recorded events.
//! `bench/run replay` compares it with its goal.
//!
//! Only the replay is timed, not reading the file. The events include segment events and completions of frees, so the
//! figure shows how fast a whole file is processed. The recordings are those in `traces/`, or the files that the
//! environment variable `RECORDINGS` lists, separated by colons.

#[path = "../examples/recordings/mod.rs"]
mod recordings;

use std::path::PathBuf;
use std::sync::LazyLock;

use divan::counter::ItemsCount;
use makeroom_sim::{AllocatorSpec, parse};

use recordings::Recorded;

const ALLOCATORS: [&str; 8] = [
    "pytorch",
    "pytorch:expandable_segments:True",
    "cuda-async",
    "bfc",
    "cupy",
    "rmm-pool",
    "makeroom",
    "ideal",
];

static RECORDINGS: LazyLock<Vec<Recorded>> = LazyLock::new(|| {
    let paths: Vec<PathBuf> =
        std::env::var_os("RECORDINGS").map(|list| std::env::split_paths(&list).collect()).unwrap_or_default();
    recordings::all(paths).collect()
});

fn main() {
    divan::main();
}

/// A recording under an allocator.
struct Case {
    recorded: &'static Recorded,
    spec: AllocatorSpec,
}

impl std::fmt::Display for Case {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} under {}", self.recorded.name, self.spec.name())
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let specs = || ALLOCATORS.iter().filter_map(|name| parse(name).ok());
    RECORDINGS.iter().flat_map(move |recorded| specs().map(move |spec| Case { recorded, spec }))
}

#[divan::bench(args = cases(), max_time = 1)]
fn replay(bencher: divan::Bencher<'_, '_>, case: &Case) {
    let Case { recorded, spec } = case;
    bencher.counter(ItemsCount::new(recorded.events)).bench(|| spec.run(&recorded.program, None));
}
