//! Checks that time grows as n log n with the size of a recording, no matter what it mostly consists of: streams,
//! pending frees, segments or holes.
//!
//! A time is compared with that of a recording an eighth as large, never with a number of seconds. Eight times as many
//! events take eight to sixteen times as long, because they do not fit in caches; with a quadratic algorithm they would
//! take 64 times as long. Measurements alternate, and are repeated if another program may have filled the caches.

use std::hint::black_box;
use std::time::Duration;

use crate::support::cpu_time::cpu_time;
use makeroom_core::{Action, DeviceTrace, Event, Stacks, StreamId};
use makeroom_sim::{Memory, Settings, Workload, check, parse, smallest_memory};

const PAGE: u64 = 2 << 20;
const MODELS: [&str; 7] =
    ["pytorch", "pytorch:expandable_segments:True", "cuda-async", "bfc", "cupy", "rmm-pool", "makeroom"];
/// Ratio of the two sizes.
const FACTOR: u64 = 8;
/// About halfway between linear and quadratic on a logarithmic scale.
const MOST: f64 = 24.0;
/// Shorter times are not measured.
const FLOOR: Duration = Duration::from_millis(4);

/// A recording under construction.
#[derive(Default)]
struct Script(DeviceTrace);

impl Script {
    fn push(&mut self, action: Action, address: u64, size: u64, stream: u64) {
        self.0.events.push(Event { stream: StreamId(stream), ..Event::new(action, address, size) });
    }

    fn free(&mut self, address: u64, size: u64, stream: u64) {
        self.push(Action::FreeRequested, address, size, stream);
        self.push(Action::FreeCompleted, address, size, stream);
    }
}

/// The blocks of a recording are far apart.
fn place(number: u64) -> u64 {
    (1 << 40) + number * 64 * PAGE
}

/// One block on every stream.
fn streams(count: u64) -> DeviceTrace {
    let mut script = Script::default();
    for stream in 0..count {
        script.push(Action::Alloc, place(stream), 512, stream);
    }
    script.0
}

/// One block on every stream, freed before the next stream starts.
fn streams_in_turn(count: u64) -> DeviceTrace {
    let mut script = Script::default();
    for stream in 0..count {
        let size = (3 + stream % 5) * PAGE;
        script.push(Action::Alloc, place(stream), size, stream);
        script.free(place(stream), size, stream);
    }
    script.0
}

/// Frees that are pending while other streams need memory, and that complete in a different order.
fn pending(count: u64) -> DeviceTrace {
    let mut script = Script::default();
    for number in 0..count {
        script.push(Action::Alloc, place(number), PAGE, number % 7);
        script.push(Action::FreeRequested, place(number), PAGE, number % 7);
    }
    for number in 0..count {
        script.push(Action::Alloc, place(count + number), PAGE, number % 5);
        script.push(Action::FreeCompleted, place((number * 7919) % count), PAGE, number % 7);
    }
    script.0
}

/// Large blocks that are never freed.
fn growing(count: u64) -> DeviceTrace {
    let mut script = Script::default();
    for number in 0..count {
        script.push(Action::Alloc, place(number), (1 + number % 9) * PAGE + 512 * (number % 331), 0);
    }
    script.0
}

/// Blocks of which every second one is freed, and requests that fit in no hole.
fn comb(count: u64, size: u64) -> DeviceTrace {
    let mut script = Script::default();
    for number in 0..count {
        script.push(Action::Alloc, place(number), size, 0);
    }
    for number in (0..count).step_by(2) {
        script.free(place(number), size, 0);
    }
    for number in 0..count / 2 {
        script.push(Action::Alloc, place(count + number), size + size / 3 + 512 * (number % 97), 0);
    }
    script.0
}

/// Many live blocks, and as many segments that are released one by one, each before a request.
fn releases(count: u64) -> DeviceTrace {
    let mut script = Script::default();
    // More was reserved before, so the releases are not for lack of memory.
    script.push(Action::SegmentAlloc, place(2 * count), 1 << 40, 0);
    script.push(Action::SegmentFree, place(2 * count), 1 << 40, 0);
    for number in 0..count {
        script.push(Action::SegmentAlloc, place(number), PAGE, 0);
        script.push(Action::Alloc, place(number), PAGE / 2, 0);
    }
    for number in count..2 * count {
        // Every second request is larger than the segment that was released before it.
        let size = (12 + 2 * (number % 2)) * PAGE;
        script.push(Action::SegmentAlloc, place(number), size, 0);
        script.push(Action::Alloc, place(number), size, 0);
        script.free(place(number), size, 0);
        script.push(Action::SegmentFree, place(number), size, 0);
    }
    script.0
}

/// The shortest time of several runs: time of this thread, so that other programs do not count.
fn time(mut run: impl FnMut()) -> Duration {
    let once = || {
        let start = cpu_time();
        run();
        cpu_time().saturating_sub(start)
    };
    std::iter::repeat_with(once).take(3).min().unwrap_or_default()
}

/// Asserts how the time grows from `count` to [`FACTOR`] times that.
fn assert_growth(what: &str, count: u64, run: impl Fn(u64)) {
    let mut growth = f64::MAX;
    for _ in 0..5 {
        let (part, whole) = (time(|| run(count)), time(|| run(FACTOR * count)));
        growth = growth.min(whole.max(FLOOR).as_secs_f64() / part.max(FLOOR).as_secs_f64());
        if growth < MOST {
            return;
        }
    }
    panic!("{what}: {FACTOR} times as much took {growth:.1} times as long");
}

fn assert_replays(what: &str, count: u64, models: &[&str], device: impl Fn(u64) -> DeviceTrace) {
    let workloads = [count, FACTOR * count].map(|count| Workload::new(&device(count), &Stacks::default()));
    for name in models {
        let spec = parse(name).expect("there is one");
        assert_growth(&format!("{what} under {name}"), count, |size| {
            let workload = &workloads[usize::from(size > count)];
            black_box(workload.run(&spec, Memory { bytes: None }, false));
        });
    }
}

#[test]
fn streams_do_not_search_each_other() {
    assert_replays("streams", 2_000, &MODELS, streams);
    assert_replays("streams in turn", 2_000, &MODELS, streams_in_turn);
}

#[test]
fn frees_that_wait_are_not_all_looked_at() {
    assert_replays("pending frees", 2_000, &MODELS, pending);
}

#[test]
fn blocks_are_not_looked_at_for_a_hole() {
    assert_replays("large blocks", 4_000, &MODELS, growing);
    assert_replays("small holes", 5_000, &MODELS, |count| comb(count, 1536));
    assert_replays("large holes", 2_500, &MODELS, |count| comb(count, 3 * PAGE));
}

#[test]
fn a_search_for_the_least_memory_grows_no_faster() {
    for name in ["pytorch", "cupy", "rmm-pool"] {
        let spec = parse(name).expect("there is one");
        assert_growth(&format!("the least memory under {name}"), 1_000, |count| {
            let workload = Workload::new(&streams_in_turn(count), &Stacks::default());
            black_box(smallest_memory(&workload.program, &spec));
        });
    }
}

#[test]
fn a_check_grows_no_faster() {
    for (what, count, device) in [
        ("streams", 2_000, streams as fn(u64) -> DeviceTrace),
        ("turns", 2_000, streams_in_turn),
        ("frees", 2_000, pending),
        // A smaller one fits in the caches.
        ("releases", 4_000, releases),
    ] {
        assert_growth(&format!("a check of {what}"), count, |count| {
            black_box(check(&device(count), &Stacks::default(), Settings::default(), None));
        });
    }
    // Every request looks for garbage.
    let settings = Settings { garbage_collection_threshold: 0.8, ..Settings::default() };
    assert_growth("a check of garbage", 4_000, |count| {
        black_box(check(&streams_in_turn(count), &Stacks::default(), settings.clone(), None));
    });
}
