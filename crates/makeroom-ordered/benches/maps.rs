//! `OrderedMap` and the standard `BTreeMap`: insertion, lookup, removal and iteration, for few and many keys in order, in
//! reverse and in random order. `cargo bench -p makeroom-ordered`.

use std::collections::BTreeMap;

use divan::{Bencher, black_box};
use makeroom_ordered::OrderedMap;

fn main() {
    divan::main();
}

const SIZES: [u64; 3] = [10, 1_000, 1_000_000];
const ORDERS: [Keys; 3] = [Keys::Ascending, Keys::Descending, Keys::Random];

#[derive(Clone, Copy, Debug)]
enum Keys {
    Ascending,
    Descending,
    Random,
}

impl Keys {
    /// Distinct keys: multiplying by an odd number is a permutation of the integers.
    fn of(self, size: u64) -> Vec<u64> {
        let key = |number: u64| match self {
            Self::Ascending => number,
            Self::Descending => size - number,
            Self::Random => number.wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes(),
        };
        (0..size).map(key).collect()
    }
}

/// Every order with every size.
fn inputs() -> impl Iterator<Item = Input> {
    SIZES.into_iter().flat_map(|size| ORDERS.into_iter().map(move |keys| Input(size, keys)))
}

#[derive(Clone, Copy)]
struct Input(u64, Keys);

impl std::fmt::Display for Input {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {:?}", self.0, self.1)
    }
}

/// The same benchmarks for a type of map.
macro_rules! benchmarks {
    ($name:ident, $map:ident) => {
        mod $name {
            use super::*;

            fn filled(keys: &[u64]) -> $map<u64, u64> {
                let mut map = $map::new();
                for &key in keys {
                    map.insert(key, key);
                }
                map
            }

            #[divan::bench(args = inputs(), max_time = 1)]
            fn insert(bencher: Bencher<'_, '_>, input: Input) {
                let keys = input.1.of(input.0);
                bencher.counter(input.0).bench_local(|| filled(&keys));
            }

            #[divan::bench(args = inputs(), max_time = 1)]
            fn collect(bencher: Bencher<'_, '_>, input: Input) {
                let keys = input.1.of(input.0);
                bencher
                    .counter(input.0)
                    .bench_local(|| keys.iter().map(|&key| (key, key)).collect::<$map<_, _>>());
            }

            #[divan::bench(args = inputs(), max_time = 1)]
            fn get(bencher: Bencher<'_, '_>, input: Input) {
                let keys = input.1.of(input.0);
                let map = filled(&keys);
                bencher.counter(input.0).bench_local(|| {
                    keys.iter().filter_map(|key| map.get(black_box(key))).fold(0, |sum, key| sum ^ key)
                });
            }

            #[divan::bench(args = inputs(), max_time = 1)]
            fn remove(bencher: Bencher<'_, '_>, input: Input) {
                let keys = input.1.of(input.0);
                bencher.counter(input.0).with_inputs(|| filled(&keys)).bench_local_values(|mut map| {
                    for key in &keys {
                        map.remove(key);
                    }
                    map
                });
            }

            #[divan::bench(args = inputs(), max_time = 1)]
            fn iterate(bencher: Bencher<'_, '_>, input: Input) {
                let map = filled(&input.1.of(input.0));
                bencher
                    .counter(input.0)
                    .bench_local(|| map.iter().fold(0, |sum, (key, value)| sum ^ key ^ value));
            }
        }
    };
}

benchmarks!(ordered, OrderedMap);
benchmarks!(btree, BTreeMap);
