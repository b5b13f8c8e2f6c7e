//! Compares maps and sets with the standard ones, for random sequences of operations.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;

use makeroom_ordered::{Entry, OrderedMap, OrderedSet};
use proptest::prelude::*;

/// There are few keys, so that operations share them, or many, so that there are several chunks.
type Key = u16;

#[derive(Clone, Debug)]
enum Step {
    Insert(Key, u32),
    /// Keys in order from this one, ascending or descending.
    InsertMany(Key, u16, bool),
    Remove(Key),
    RemoveMany(Key, u16),
    PopFirst,
    PopLast,
    OrInsert(Key, u32),
    AddTo(Key, u32),
    RemoveEntry(Key),
    SetByEntry(Key, u32),
    GetMut(Key, u32),
    AddToAll(u32),
    Retain(u32),
    Range(Bound<Key>, Bound<Key>, Vec<bool>),
    Collect,
    Clone,
    Extend(Vec<(Key, u32)>),
    Clear,
}

fn bound(keys: impl Strategy<Value = Key> + Clone) -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => keys.clone().prop_map(Bound::Included),
        2 => keys.prop_map(Bound::Excluded)
    ]
}

fn steps(keys: impl Strategy<Value = Key> + Clone + 'static, most: u16) -> impl Strategy<Value = Vec<Step>> {
    let ends = prop::collection::vec(any::<bool>(), 0..40);
    let entries = prop::collection::vec((keys.clone(), any::<u32>()), 0..30);
    let step = prop_oneof![
        20 => (keys.clone(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        4 => (keys.clone(), 0..most, any::<bool>()).prop_map(|(key, count, up)| Step::InsertMany(key, count, up)),
        10 => keys.clone().prop_map(Step::Remove),
        3 => (keys.clone(), 0..most).prop_map(|(key, count)| Step::RemoveMany(key, count)),
        4 => Just(Step::PopFirst),
        4 => Just(Step::PopLast),
        4 => (keys.clone(), any::<u32>()).prop_map(|(key, value)| Step::OrInsert(key, value)),
        4 => (keys.clone(), any::<u32>()).prop_map(|(key, value)| Step::AddTo(key, value)),
        4 => keys.clone().prop_map(Step::RemoveEntry),
        4 => (keys.clone(), any::<u32>()).prop_map(|(key, value)| Step::SetByEntry(key, value)),
        4 => (keys.clone(), any::<u32>()).prop_map(|(key, value)| Step::GetMut(key, value)),
        1 => any::<u32>().prop_map(Step::AddToAll),
        1 => (2_u32..9).prop_map(Step::Retain),
        10 => (bound(keys.clone()), bound(keys), ends).prop_map(|(from, to, ends)| Step::Range(from, to, ends)),
        1 => Just(Step::Collect),
        1 => Just(Step::Clone),
        2 => entries.prop_map(Step::Extend),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 0..80)
}

/// Whether a `BTreeMap` panics for this range.
fn is_invalid(from: Bound<Key>, to: Bound<Key>) -> bool {
    match (from, to) {
        (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from > to
        }
        _ => false,
    }
}

/// Compares elements of both iterators, for each of `ends` one from the front or the back, then the rest.
fn same_from_both_ends<T: PartialEq + std::fmt::Debug>(
    mut ours: impl DoubleEndedIterator<Item = T>,
    mut theirs: impl DoubleEndedIterator<Item = T>,
    ends: &[bool],
) {
    for &is_front in ends {
        if is_front {
            assert_eq!(ours.next(), theirs.next());
        } else {
            assert_eq!(ours.next_back(), theirs.next_back());
        }
    }
    assert!(ours.eq(theirs));
}

fn do_step(step: Step, ours: &mut OrderedMap<Key, u32>, theirs: &mut BTreeMap<Key, u32>) {
    match step {
        Step::Insert(key, value) => assert_eq!(ours.insert(key, value), theirs.insert(key, value)),
        Step::InsertMany(key, count, is_upward) => {
            for number in 0..count {
                let key = if is_upward { key.saturating_add(number) } else { key.saturating_sub(number) };
                assert_eq!(ours.insert(key, key.into()), theirs.insert(key, key.into()));
            }
        }
        Step::Remove(key) => assert_eq!(ours.remove(&key), theirs.remove(&key)),
        Step::RemoveMany(key, count) => {
            for key in key..key.saturating_add(count) {
                assert_eq!(ours.remove_entry(&key), theirs.remove_entry(&key));
            }
        }
        Step::PopFirst => assert_eq!(ours.pop_first(), theirs.pop_first()),
        Step::PopLast => assert_eq!(ours.pop_last(), theirs.pop_last()),
        Step::OrInsert(key, value) => {
            assert_eq!(ours.entry(key).or_insert(value), theirs.entry(key).or_insert(value));
        }
        Step::AddTo(key, value) => {
            let one = ours.entry(key).and_modify(|known| *known ^= value).or_default();
            assert_eq!(one, theirs.entry(key).and_modify(|known| *known ^= value).or_default());
        }
        Step::RemoveEntry(key) => {
            let removed = theirs.remove_entry(&key);
            match ours.entry(key) {
                Entry::Occupied(entry) => assert_eq!(Some(entry.remove_entry()), removed),
                Entry::Vacant(entry) => assert_eq!((Some(entry.into_key()), None), (Some(key), removed)),
            }
        }
        Step::SetByEntry(key, value) => {
            let before = theirs.insert(key, value);
            match ours.entry(key) {
                Entry::Occupied(mut entry) => assert_eq!(Some(entry.insert(value)), before),
                Entry::Vacant(entry) => assert_eq!((*entry.insert(value), before), (value, None)),
            }
        }
        Step::GetMut(key, value) => {
            let [one, other] = [ours.get_mut(&key), theirs.get_mut(&key)];
            assert_eq!(one, other);
            for known in [one, other].into_iter().flatten() {
                *known = value;
            }
        }
        Step::AddToAll(value) => {
            for known in ours.values_mut().chain(theirs.values_mut()) {
                *known = known.wrapping_add(value);
            }
            assert!(ours.iter_mut().rev().eq(theirs.iter_mut().rev()));
        }
        Step::Retain(divisor) => {
            ours.retain(|key, value| (u32::from(*key) ^ *value).is_multiple_of(divisor));
            theirs.retain(|key, value| (u32::from(*key) ^ *value).is_multiple_of(divisor));
        }
        Step::Range(from, to, ends) => {
            if !is_invalid(from, to) {
                same_from_both_ends(ours.range((from, to)), theirs.range((from, to)), &ends);
                assert_eq!(ours.range((from, to)).len(), theirs.range((from, to)).count());
            }
            same_from_both_ends(ours.iter(), theirs.iter(), &ends);
            same_from_both_ends(ours.keys(), theirs.keys(), &ends);
            same_from_both_ends(ours.clone().into_iter(), theirs.clone().into_iter(), &ends);
        }
        Step::Collect => *ours = std::mem::take(ours).into_iter().rev().collect(),
        Step::Clone => {
            let copy = ours.clone();
            assert_eq!(copy, *ours);
            *ours = copy;
        }
        Step::Extend(entries) => {
            ours.extend(entries.iter().copied());
            theirs.extend(entries);
        }
        Step::Clear => {
            ours.clear();
            theirs.clear();
        }
    }
}

fn check(steps: Vec<Step>) {
    let (mut ours, mut theirs) = (OrderedMap::new(), BTreeMap::new());
    for step in steps {
        do_step(step, &mut ours, &mut theirs);
        assert_eq!((ours.len(), ours.is_empty()), (theirs.len(), theirs.is_empty()));
        assert_eq!(ours.first_key_value(), theirs.first_key_value());
        assert_eq!(ours.last_key_value(), theirs.last_key_value());
    }
    assert_eq!(ours.iter().len(), theirs.len());
    assert!(ours.iter().eq(&theirs));
    for key in theirs.keys().flat_map(|&key| [key, key.wrapping_add(1)]) {
        assert_eq!(ours.get(&key), theirs.get(&key));
        assert_eq!(ours.contains_key(&key), theirs.contains_key(&key));
    }
    assert!(ours.clone().into_values().eq(theirs.clone().into_values()));
    assert!(ours.into_keys().eq(theirs.into_keys()));
}

proptest! {
    #[test]
    fn few_keys(steps in steps(0_u16..40, 20)) {
        check(steps);
    }

    #[test]
    fn many_keys(steps in steps(any::<Key>(), 3000)) {
        check(steps);
    }

    #[test]
    fn collected_entries_are_those_of_a_btree_map(entries in prop::collection::vec((0_u8..60, any::<u8>()), 0..200)) {
        let ours: OrderedMap<u8, u8> = entries.iter().copied().collect();
        let theirs: BTreeMap<u8, u8> = entries.into_iter().collect();
        prop_assert!(ours.iter().eq(&theirs));
        prop_assert_eq!(format!("{ours:?} {ours:#?}"), format!("{theirs:?} {theirs:#?}"));
    }

    #[test]
    fn comparisons_are_those_of_a_btree_map(
        one in prop::collection::vec((0_u8..4, 0_u8..3), 0..6),
        other in prop::collection::vec((0_u8..4, 0_u8..3), 0..6),
    ) {
        let ours = [&one, &other].map(|entries| entries.iter().copied().collect::<OrderedMap<_, _>>());
        let theirs = [&one, &other].map(|entries| entries.iter().copied().collect::<BTreeMap<_, _>>());
        prop_assert_eq!(ours[0] == ours[1], theirs[0] == theirs[1]);
        prop_assert_eq!(ours[0].cmp(&ours[1]), theirs[0].cmp(&theirs[1]));
        prop_assert_eq!(ours[0].partial_cmp(&ours[1]), theirs[0].partial_cmp(&theirs[1]));
        // The same entries, added one by one, are stored in another order.
        let mut added = OrderedMap::new();
        added.extend(one.iter().copied());
        prop_assert_eq!(&added, &ours[0]);
        prop_assert_eq!(hash(&added), hash(&ours[0]));
    }

    #[test]
    fn sets_are_those_of_the_standard_library(
        one in prop::collection::vec(0_u8..30, 0..40),
        other in prop::collection::vec(0_u8..30, 0..40),
        element in 0_u8..30,
    ) {
        let ours = [&one, &other].map(|elements| elements.iter().copied().collect::<OrderedSet<_>>());
        let theirs = [&one, &other].map(|elements| elements.iter().copied().collect::<BTreeSet<_>>());
        prop_assert!(ours[0].iter().eq(&theirs[0]));
        prop_assert!(ours[0].difference(&ours[1]).eq(theirs[0].difference(&theirs[1])));
        prop_assert!(ours[0].intersection(&ours[1]).eq(theirs[0].intersection(&theirs[1])));
        prop_assert_eq!(ours[0].is_disjoint(&ours[1]), theirs[0].is_disjoint(&theirs[1]));
        prop_assert_eq!(ours[0].is_subset(&ours[1]), theirs[0].is_subset(&theirs[1]));
        prop_assert_eq!(ours[0].cmp(&ours[1]), theirs[0].cmp(&theirs[1]));
        prop_assert_eq!(format!("{:?}", ours[0]), format!("{:?}", theirs[0]));
        prop_assert!(ours[0].range(element..).eq(theirs[0].range(element..)));
        prop_assert_eq!((ours[0].first(), ours[0].last()), (theirs[0].first(), theirs[0].last()));

        let ([mut ours, _], [mut theirs, _]) = (ours, theirs);
        prop_assert_eq!(ours.get(&element), theirs.get(&element));
        prop_assert_eq!(ours.insert(element), theirs.insert(element));
        prop_assert_eq!((ours.pop_first(), ours.pop_last()), (theirs.pop_first(), theirs.pop_last()));
        prop_assert_eq!(ours.take(&element), theirs.take(&element));
        ours.extend(&other);
        theirs.extend(&other);
        prop_assert_eq!(ours.remove(&element), theirs.remove(&element));
        prop_assert!(!ours.contains(&element));
        ours.retain(|element| element % 2 == 0);
        theirs.retain(|element| element % 2 == 0);
        prop_assert!(ours.into_iter().eq(theirs));
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn keys_are_found_by_what_they_borrow_as() {
    let map = OrderedMap::from([("b".to_owned(), 2), ("a".to_owned(), 1)]);
    assert_eq!((map.get("a"), map["b"], map.contains_key("c")), (Some(&1), 2, false));
    assert_eq!(
        map.range::<str>((Bound::Included("b"), Bound::Unbounded)).next(),
        Some((&"b".to_owned(), &2))
    );
}

#[test]
fn a_present_key_stays_when_its_value_changes() {
    let mut map = OrderedMap::from([(Caseless("a"), 1)]);
    assert_eq!(map.insert(Caseless("A"), 2), Some(1));
    assert_eq!(map.keys().next().unwrap().0, "a");
}

#[derive(Debug)]
struct Caseless(&'static str);

impl Ord for Caseless {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.to_lowercase().cmp(&other.0.to_lowercase())
    }
}

impl PartialOrd for Caseless {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Caseless {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Caseless {}

#[test]
#[should_panic(expected = "range start is greater than range end")]
fn a_range_that_ends_before_it_starts_panics() {
    let (from, to) = (2, 1);
    OrderedMap::from([(1, 1)]).range(from..to);
}

#[test]
#[should_panic(expected = "range start and end are equal and excluded")]
fn a_range_without_any_key_panics() {
    OrderedMap::from([(1, 1)]).range((Bound::Excluded(1), Bound::Excluded(1)));
}
