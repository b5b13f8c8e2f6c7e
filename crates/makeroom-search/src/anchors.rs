//! Finds anchors in bytes, fast: a sampled q-gram filter, then an Aho-Corasick DFA where the filter fires.
//!
//! Every anchor is represented by one window of its bytes. The text is sampled at a stride so that each occurrence of
//! a window contains a sampled 4-gram of it; a table holds those 4-grams. In a training log few samples hit, so most
//! of the text is never searched by the automaton. An anchor of three bytes is too short to be sampled: it is compared
//! at every byte, in a loop that the compiler vectorizes. The result is exact: the filter has no false negatives.

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// An anchor of this length is compared at every byte of a log, and counts only where a word begins.
pub const SHORT_ANCHOR: usize = 3;
/// If all longer anchors have at least this length, the log is sampled at a stride instead of at every byte.
pub const LEAST_SAMPLED: usize = GRAM + 1;

/// Bytes per sample.
const GRAM: usize = 4;
/// The table has two to this power entries.
const TABLE_BITS: u32 = 16;
const TABLE_LENGTH: usize = 1 << TABLE_BITS;
/// Samples that are looked up between two branches.
const SAMPLES: usize = 8;
/// The filter examines about this many bytes at a time, and the automaton searches at least as many where it fires, so
/// that a text in which it always fires is searched once and not over and over.
const SEARCHED: usize = 1024;
/// How much of the log is sampled to learn which 4-grams are rare in it.
const LONGEST_SAMPLE: usize = 1 << 20;

/// Whether an anchor of this length counts at this place of a text: a short one is not the end of another word.
pub fn counts_at(text: &[u8], start: usize, length: usize) -> bool {
    length > SHORT_ANCHOR || start == 0 || !text[start - 1].is_ascii_alphanumeric()
}

/// How often each 4-gram occurs in the log, as far as was seen when the scan began.
#[derive(Debug)]
pub struct Frequencies(Vec<u32>);

impl Frequencies {
    /// Counts the 4-grams at the beginning of a sample.
    pub fn count(sample: &[u8]) -> Self {
        let mut counts = vec![0; TABLE_LENGTH];
        for gram in sample[..sample.len().min(LONGEST_SAMPLE)].windows(GRAM) {
            counts[slot(gram)] += 1;
        }
        Self(counts)
    }

    fn of_window(&self, window: &[u8]) -> u64 {
        window.windows(GRAM).map(|gram| u64::from(self.0[slot(gram)])).sum()
    }
}

/// A set of anchors to search for.
#[derive(Debug)]
pub struct AnchorScanner {
    automaton: Option<AhoCorasick>,
    longest: usize,
    /// The length of each anchor, by its number in the automaton.
    lengths: Vec<usize>,
    /// `None` where an anchor is too short to be sampled and too long to be compared at every byte.
    filter: Option<Filter>,
}

#[derive(Debug)]
struct Filter {
    is_hit: Box<[u8; TABLE_LENGTH]>,
    stride: usize,
    /// Anchors that are compared at every byte, in lower case.
    short: Vec<[u8; SHORT_ANCHOR]>,
}

impl AnchorScanner {
    /// Searches for these strings, ignoring ASCII case.
    pub fn new(anchors: &[&str], frequencies: &Frequencies) -> Self {
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(anchors)
            .ok()
            .filter(|_| !anchors.is_empty());
        let lengths: Vec<usize> = anchors.iter().map(|anchor| anchor.len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        Self { automaton, longest, lengths, filter: Filter::new(anchors, frequencies) }
    }

    /// Where the first anchor at or after `from` ends.
    pub fn find(&self, text: &[u8], from: usize) -> Option<usize> {
        let Some(filter) = &self.filter else { return self.search(text, from, text.len()) };
        let chunk = filter.chunk();
        let mut at = from;
        while let Some(searched) = text.get(at..at + chunk + GRAM) {
            if filter.fires(searched) {
                let end = (at + chunk + self.longest).min(text.len());
                let found = self.search(text, at.saturating_sub(self.longest).max(from), end);
                if found.is_some() || end == text.len() {
                    return found;
                }
                // An anchor that ends behind `end` begins behind `end - longest`.
                at = end - self.longest;
            } else {
                at += chunk;
            }
        }
        self.search(text, at.saturating_sub(self.longest).max(from), text.len())
    }

    /// Where the first anchor in a part of the text ends, without the filter.
    fn search(&self, text: &[u8], start: usize, end: usize) -> Option<usize> {
        let automaton = self.automaton.as_ref()?;
        automaton
            .find_overlapping_iter(&text[start..end])
            .find(|found| counts_at(text, start + found.start(), self.lengths[found.pattern().as_usize()]))
            .map(|found| start + found.end())
    }
}

impl Filter {
    fn new(anchors: &[&str], frequencies: &Frequencies) -> Option<Self> {
        let (short, long): (Vec<&str>, Vec<&str>) =
            anchors.iter().partition(|anchor| anchor.len() <= SHORT_ANCHOR);
        let length = long.iter().map(|anchor| anchor.len()).min()?;
        let stride = (length + 1).checked_sub(GRAM).filter(|&stride| stride > 0)?;
        let mut is_hit: Box<[u8; TABLE_LENGTH]> = vec![0; TABLE_LENGTH].into_boxed_slice().try_into().ok()?;
        for anchor in long {
            let rarest =
                anchor.as_bytes().windows(length).min_by_key(|window| frequencies.of_window(window))?;
            for gram in rarest.windows(GRAM) {
                is_hit[slot(gram)] = 1;
            }
        }
        let lower = |anchor: &&str| anchor.to_ascii_lowercase().into_bytes().try_into().ok();
        let short = short.iter().map(lower).collect::<Option<_>>()?;
        Some(Self { is_hit, stride, short })
    }

    /// How many bytes [`Filter::fires`] examines, besides the [`GRAM`] bytes behind them.
    fn chunk(&self) -> usize {
        let step = self.stride * SAMPLES;
        step * (SEARCHED / step).max(1)
    }

    /// Whether an anchor may begin in a chunk.
    fn fires(&self, chunk: &[u8]) -> bool {
        self.fires_at_samples(chunk) || self.short.iter().any(|&anchor| has_short(chunk, anchor))
    }

    fn fires_at_samples(&self, chunk: &[u8]) -> bool {
        let step = self.stride * SAMPLES;
        chunk[..chunk.len() - GRAM].chunks_exact(step).enumerate().any(|(index, _)| {
            let samples = &chunk[index * step..index * step + step + GRAM];
            let mut hit = 0;
            for sample in 0..SAMPLES {
                hit |= self.is_hit[slot(&samples[sample * self.stride..sample * self.stride + GRAM])];
            }
            hit != 0
        })
    }
}

/// Whether an anchor in lower case occurs, in any case. A fold without a branch, so that it is vectorized. Bytes that
/// are not letters may be equal too: the automaton decides.
fn has_short(text: &[u8], anchor: [u8; SHORT_ANCHOR]) -> bool {
    let Some(last) = text.len().checked_sub(SHORT_ANCHOR - 1) else { return false };
    let (first, second, third) = (&text[..last], &text[1..=last], &text[2..last + 2]);
    let is_same = |byte: u8, letter: u8| u8::from(byte | 0x20 == letter);
    let mut hit = 0;
    for ((&first, &second), &third) in first.iter().zip(second).zip(third) {
        hit |= is_same(first, anchor[0]) & is_same(second, anchor[1]) & is_same(third, anchor[2]);
    }
    hit != 0
}

/// The place of a 4-gram in a table. Letters of either case have the same place.
fn slot(gram: &[u8]) -> usize {
    let gram = u32::from_le_bytes([gram[0], gram[1], gram[2], gram[3]]) | 0x2020_2020;
    (gram.wrapping_mul(0x9e37_79b1) >> (u32::BITS - TABLE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_anchor_counts_where_a_word_begins() {
        let scanner = AnchorScanner::new(&["oom", "memory"], &Frequencies::count(b""));
        let noise = "a bloom in every room of the zoomed bathroom\n".repeat(100);
        assert_eq!(scanner.find(noise.as_bytes(), 0), None);
        let text = format!("{noise}CUDA OOM\n{noise}");
        assert_eq!(scanner.find(text.as_bytes(), 0), Some(noise.len() + 8));
        assert_eq!(scanner.find(b"Oom", 0), Some(3));
    }

    proptest! {
        #[test]
        fn the_filter_loses_no_anchor(
            noise in prop::collection::vec("[a-e ]{0,900}", 0..8),
            mut anchors in prop::collection::vec("[a-e ]{4,9}", 1..6),
            short in prop::option::of("[a-e]{3}"),
            from in 0_usize..50,
        ) {
            let text = noise.join("ABC");
            anchors.extend(short);
            let anchors: Vec<&str> = anchors.iter().map(String::as_str).collect();
            let scanner = AnchorScanner::new(&anchors, &Frequencies::count(&text.as_bytes()[..text.len() / 2]));
            let from = from.min(text.len());
            let lower = text[from..].to_ascii_lowercase();
            let first = |anchor: &&str| {
                let mut starts = (0..lower.len()).filter(|&start| lower[start..].starts_with(anchor));
                let start = starts.find(|&start| counts_at(text.as_bytes(), start + from, anchor.len()))?;
                Some(start + anchor.len() + from)
            };
            let expected = anchors.iter().filter_map(first).min();
            prop_assert_eq!(scanner.find(text.as_bytes(), from), expected);
        }
    }
}
