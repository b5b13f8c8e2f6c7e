//! Many keys in the worst orders, and keys whose comparisons panic or contradict one another.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};

use makeroom_ordered::OrderedMap;

const MANY: u64 = 1_000_000;

/// Distinct keys in an order that looks random: multiplying by an odd number is a permutation of the integers.
fn random(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes()
}

/// Adds a million keys, finds them, and removes them in the order in which they were added.
fn check(key: impl Fn(u64) -> u64) {
    let mut map = OrderedMap::new();
    for number in 0..MANY {
        assert_eq!(map.insert(key(number), number), None);
    }
    let mut sorted: Vec<(u64, u64)> = (0..MANY).map(|number| (key(number), number)).collect();
    sorted.sort_unstable();
    assert!(map.iter().map(|(&key, &number)| (key, number)).eq(sorted));
    for number in (0..MANY).step_by(7) {
        assert_eq!(map.get(&key(number)), Some(&number));
    }
    for number in 0..MANY {
        assert_eq!(map.remove(&key(number)), Some(number));
    }
    assert!(map.is_empty() && map.iter().next().is_none());
}

#[test]
fn a_million_keys_in_order() {
    check(|number| number);
}

#[test]
fn a_million_keys_in_reverse() {
    check(|number| MANY - number);
}

#[test]
fn a_million_keys_in_random_order() {
    check(random);
}

#[test]
fn a_million_keys_that_are_collected_and_taken_from_both_ends() {
    let mut map: OrderedMap<u64, u64> = (0..MANY).map(|number| (random(number), number)).collect();
    let mut before = None;
    while map.len() > 2 {
        let (first, last) = (map.pop_first().unwrap(), map.pop_last().unwrap());
        assert!(before.is_none_or(|(low, high)| low < first.0 && last.0 < high));
        before = Some((first.0, last.0));
    }
}

thread_local! {
    /// Number of comparisons left before one goes wrong.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// A key whose comparison panics, or returns nonsense, once [`LEFT`] is used up.
#[derive(Clone, Copy, Debug)]
struct Key<const PANICS: bool>(u32);

impl<const PANICS: bool> Ord for Key<PANICS> {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = LEFT.get();
        LEFT.set(left.wrapping_sub(1));
        match (left, PANICS) {
            (0, true) => panic!("no comparisons left"),
            (..2_000_000_000, false) if left.is_multiple_of(3) => {
                [Ordering::Less, Ordering::Greater][(left / 3) as usize % 2]
            }
            (..2_000_000_000, false) if left.is_multiple_of(7) => Ordering::Equal,
            _ => self.0.cmp(&other.0),
        }
    }
}

impl<const PANICS: bool> PartialOrd for Key<PANICS> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const PANICS: bool> PartialEq for Key<PANICS> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<const PANICS: bool> Eq for Key<PANICS> {}

#[test]
fn a_panic_in_a_comparison_leaves_the_map_as_it_was() {
    type Map = OrderedMap<Key<true>, String>;
    let build = || {
        let mut map = Map::new();
        (0..1500).for_each(|number| drop(map.insert(Key(number * 7919 % 1500), number.to_string())));
        map
    };
    let operations: [fn(&mut Map); 5] = [
        |map| drop(map.insert(Key(5000), "new".to_owned())),
        |map| drop(map.remove(&Key(700))),
        |map| drop(map.pop_first()),
        |map| _ = map.range(Key(5)..Key(9)).next(),
        |map| map.entry(Key(1)).or_default().push('x'),
    ];
    let mut panics = 0;
    for operation in operations {
        for comparisons in 0..30 {
            let mut map = build();
            LEFT.set(comparisons);
            let result = catch_unwind(AssertUnwindSafe(|| operation(&mut map)));
            LEFT.set(u32::MAX);
            if result.is_err() {
                panics += 1;
                assert_eq!(map, build());
            }
            map.insert(Key(9000), String::new());
            assert_eq!(map.remove(&Key(9000)), Some(String::new()));
            assert!(map.keys().is_sorted());
        }
    }
    assert!(panics > 50, "{panics}");
}

#[test]
fn comparisons_that_contradict_one_another_lose_no_entry() {
    for seed in 0..200 {
        LEFT.set(1_000_000_000 + seed);
        let mut map: OrderedMap<Key<false>, Box<u32>> = OrderedMap::new();
        let mut count = 0;
        for number in 0..4000_u32 {
            let key = Key(number.wrapping_mul(0x9e37_79b9));
            match number % 5 {
                0..=2 => count += usize::from(map.insert(key, Box::new(number)).is_none()),
                3 => count -= usize::from(map.remove(&key).is_some()),
                _ => count -= usize::from(map.pop_first().is_some()),
            }
            assert_eq!(map.len(), count);
        }
        assert_eq!(map.range(Key(0)..).count() + map.range(..Key(0)).count() > 0, count > 0);
        assert_eq!(map.iter().count(), count);
        let mut values: Vec<Box<u32>> = map.into_values().collect();
        values.sort_unstable();
        assert!(values.is_sorted_by(|one, other| one < other), "an entry is there twice");
        assert_eq!(values.len(), count);
    }
}
