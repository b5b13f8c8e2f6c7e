//! Searches for one word, ignoring ASCII case and treating `-` and `_` as equal, because options are written both ways.

use memchr::memchr2_iter;

/// Whether `text` contains `words`, in any case; `-` and `_` are the same.
pub fn contains_folded(text: &str, words: &str) -> bool {
    find_folded(text, words).next().is_some()
}

/// Where `words` occur in a text, in any case; `-` and `_` are the same.
pub fn find_folded(text: &str, words: &str) -> impl Iterator<Item = usize> {
    let words = words.as_bytes();
    let first = words.first().copied().unwrap_or(b' ');
    let (one, other) = match first {
        b'-' | b'_' => (b'-', b'_'),
        letter => (letter.to_ascii_lowercase(), letter.to_ascii_uppercase()),
    };
    let bytes = text.as_bytes();
    memchr2_iter(one, other, bytes).filter(move |&start| {
        bytes.get(start..start + words.len()).is_some_and(|found| is_same(found, words))
    })
}

fn is_same(found: &[u8], words: &[u8]) -> bool {
    let is_dash = |byte: u8| matches!(byte, b'-' | b'_');
    found.iter().zip(words).all(|(&a, &b)| a.eq_ignore_ascii_case(&b) || is_dash(a) && is_dash(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_and_case_do_not_matter() {
        let text = "--gpu-memory-utilization 0.9, GPU_MEMORY_UTILIZATION=0.8, gpu memory";
        assert_eq!(find_folded(text, "gpu-memory_utilization").collect::<Vec<_>>(), [2, 30]);
        assert!(contains_folded(text, "_GPU-") && contains_folded("größe", "e"));
        assert!(!contains_folded(text, "gpu+memory") && !contains_folded("", "gpu"));
    }
}
