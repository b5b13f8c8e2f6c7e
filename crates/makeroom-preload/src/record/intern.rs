//! Lock-free insert-only hash table with open addressing: interns stacks, Python functions and kernel names, so that
//! events refer to them by number.
//!
//! An entry is a list of words. Its number is its index in the table, found by probing from its hash, so two threads
//! that insert the same entry at once agree on the number without waiting. The words go into a separate store: the
//! thread that claims a slot copies them there and publishes their offset. A thread that finds a claimed slot without
//! content publishes it as well, so the content is available once `intern` returns, unless the store is full.
//!
//! Entries are compared by their 64-bit hash only. Among a million stacks, a collision happens once in 37 million
//! runs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::memory::Lazy;
use crate::notices::{Notice, raise};

/// Slots in the table: 4 MiB of pages, which become resident when touched.
const PLACES: usize = 1 << 18;
/// The slots that are probed first. Most programs need no more, and fewer pages mean fewer cache and TLB misses.
const FIRST_PLACES: usize = 1 << 12;
/// Probes in the first slots.
const FIRST_PROBE: usize = 8;
/// Capacity of the store in words: 256 MiB of pages, which become resident when touched.
const STORE_WORDS: usize = 32 << 20;
/// Probes in the rest of the table.
const LONGEST_PROBE: usize = 128;

struct InternSlot {
    /// Hash of the content, 0 for an empty slot.
    hash: AtomicU64,
    /// Offset of the content in the store, plus one; 0 until published.
    content: AtomicU64,
}

struct Table {
    places: [InternSlot; PLACES],
    used_words: AtomicUsize,
    store: [AtomicU64; STORE_WORDS],
}

// SAFETY: atomics are valid as zeros, which is an empty table.
static TABLE: Lazy<Table> = unsafe { Lazy::new() };

/// Returns the number of a list of words, 0 if the table is full. Equal lists have equal numbers.
pub(crate) fn intern(words: &[u64]) -> u32 {
    let Some(table) = TABLE.get() else {
        raise(Notice::NoMemory);
        return 0;
    };
    let hash = hash(words);
    for index in places(hash) {
        let Some(place) = table.places.get(index) else { return 0 };
        let number = index as u32 + 1;
        let mut found = place.hash.load(Ordering::Acquire);
        if found == 0 {
            match place.hash.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    table.publish(place, words);
                    return number;
                }
                Err(others) => found = others,
            }
        }
        if found == hash {
            // The thread that claimed the slot may never publish: after a fork, or a `longjmp` out of a signal
            // handler.
            if place.content.load(Ordering::Acquire) == 0 {
                table.publish(place, words);
            }
            return number;
        }
    }
    raise(Notice::StacksFull);
    0
}

/// The slots to probe for a hash, in order.
fn places(hash: u64) -> impl Iterator<Item = usize> {
    let first = (0..FIRST_PROBE).map(move |step| (hash as usize).wrapping_add(step) % FIRST_PLACES);
    let beyond = (0..LONGEST_PROBE).map(move |step| (hash >> 32) as usize + step);
    first.chain(beyond.map(|place| FIRST_PLACES + place % (PLACES - FIRST_PLACES)))
}

/// Copies out the content of a number, for the writer. `None` if the number is unknown or the store was full.
pub(crate) fn content(number: u32, into: &mut Vec<u64>) -> Option<()> {
    let table = TABLE.if_made()?;
    let place = table.places.get((number as usize).checked_sub(1)?)?;
    let start = (place.content.load(Ordering::Acquire) as usize).checked_sub(1)?;
    let length = table.store.get(start)?.load(Ordering::Relaxed) as usize;
    let words = table.store.get(start + 1..start + 1 + length)?;
    into.clear();
    into.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
    Some(())
}

impl Table {
    /// Copies the content of a slot into the store, unless another thread publishes first.
    #[cold]
    fn publish(&self, place: &InternSlot, words: &[u64]) {
        if self.used_words.load(Ordering::Relaxed) >= STORE_WORDS {
            raise(Notice::StacksFull);
            return;
        }
        let start = self.used_words.fetch_add(words.len() + 1, Ordering::Relaxed);
        let Some(room) = self.store.get(start..start + words.len() + 1) else {
            raise(Notice::StacksFull);
            return;
        };
        let with_length = std::iter::once(words.len() as u64).chain(words.iter().copied());
        for (slot, word) in room.iter().zip(with_length) {
            slot.store(word, Ordering::Relaxed);
        }
        // Another thread may have published in the meantime: its words are the same.
        let _ = place.content.compare_exchange(0, start as u64 + 1, Ordering::Release, Ordering::Relaxed);
    }
}

/// Multiply-and-fold hash, never 0. Four independent lanes, because each product depends on the one before it.
fn hash(words: &[u64]) -> u64 {
    let fold = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        (product as u64) ^ ((product >> 64) as u64).rotate_left(23)
    };
    let start = words.len() as u64 ^ 0x243f_6a88_85a3_08d3;
    let (groups, rest) = words.as_chunks::<4>();
    let mut lanes = [start, !start, start.rotate_left(16), start.rotate_left(40)];
    for group in groups {
        for (lane, &word) in lanes.iter_mut().zip(group) {
            *lane = fold(*lane, word);
        }
    }
    rest.iter().chain(&lanes).fold(start, |state, &word| fold(state, word)).max(1)
}

/// Encodes bytes as words, after their length.
pub(crate) fn words_of(bytes: &[u8], into: &mut Vec<u64>) {
    into.push(bytes.len() as u64);
    into.extend(bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    }));
}

/// Decodes what [`words_of`] wrote. Returns the bytes and the remaining words.
pub(crate) fn bytes_of(words: &[u64]) -> Option<(Vec<u8>, &[u64])> {
    let (&length, rest) = words.split_first()?;
    let count = (length as usize).div_ceil(8);
    let mut bytes: Vec<u8> = rest.get(..count)?.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(length as usize);
    Some((bytes, rest.get(count..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_have_equal_numbers_and_their_content_comes_back() {
        let first = intern(&[1, 2, 3]);
        let second = intern(&[3, 2, 1]);
        assert_ne!(first, 0);
        assert_ne!(first, second);
        assert_eq!(intern(&[1, 2, 3]), first);
        let mut words = Vec::new();
        assert_eq!(content(second, &mut words), Some(()));
        assert_eq!(words, [3, 2, 1]);
        assert_eq!(content(0, &mut words), None);
        assert_eq!(content(u32::MAX, &mut words), None);
    }

    /// A fork, or a `longjmp` out of a signal handler, in the middle of `intern`.
    #[test]
    fn a_place_that_was_taken_and_never_published_gets_its_content() {
        let table = TABLE.get().unwrap();
        // Other tests use the table too, so the place must be free.
        let take = |words: &[u64; 3]| {
            let place = places(hash(words)).next().unwrap();
            let taken = table.places[place].hash.compare_exchange(
                0,
                hash(words),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            taken.is_ok().then_some(place)
        };
        let (words, place) =
            (0..).map(|last| [8, 15, last]).find_map(|words| Some((words, take(&words)?))).unwrap();
        let number = intern(&words);
        let mut found = Vec::new();
        assert_eq!(content(number, &mut found), Some(()));
        assert_eq!(found, words);
        assert_eq!(number as usize, place + 1, "the place is used, not another one");
        // Once published, the content is not written again.
        let content = table.places[place].content.load(Ordering::Relaxed);
        assert_eq!(intern(&words), number);
        assert_eq!(table.places[place].content.load(Ordering::Relaxed), content);
    }

    #[test]
    fn threads_agree_on_numbers() {
        let threads: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| (0..5000).map(|n| intern(&[n, 77, n])).collect::<Vec<_>>()))
            .collect();
        let numbers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] == pair[1]));
        let distinct: std::collections::BTreeSet<_> = numbers[0].iter().collect();
        assert_eq!(distinct.len(), 5000);
    }

    #[test]
    fn bytes_survive_as_words() {
        let mut words = Vec::new();
        words_of(b"scaled_dot_product", &mut words);
        words_of(b"", &mut words);
        let (first, rest) = bytes_of(&words).unwrap();
        assert_eq!(first, b"scaled_dot_product");
        assert_eq!(bytes_of(rest), Some((Vec::new(), &[][..])));
        assert_eq!(bytes_of(&[99]), None);
    }
}
