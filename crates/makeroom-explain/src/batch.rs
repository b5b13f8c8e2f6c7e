//! The batch size, where a text or an annotation names it.

use std::sync::LazyLock;

use makeroom_search::{Regex, pattern};

static BATCH: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?i)\b(?:mini)?-?batch[_\- ]?size["']?\s*(?:[:=]|is\b)?\s*(\d{1,6})\b"#));

/// The batch size that a text names.
pub fn batch_in(text: &str) -> Option<u64> {
    BATCH.captures(text)?[1].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::batch_in;

    #[test]
    fn batch_sizes_in_their_common_spellings() {
        for text in [
            "batch_size=32",
            "--batch-size 32",
            "Minibatch-size: 32",
            "'batch_size': 32",
            "Batch size: 32",
            "Batch size is 32",
        ] {
            assert_eq!(batch_in(text), Some(32), "{text}");
        }
        assert_eq!(batch_in("batch 3/32"), None);
    }
}
