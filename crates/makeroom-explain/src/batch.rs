//! The batch size, where a text or an annotation names it.

use std::sync::LazyLock;

use crate::text::Regex;
use crate::text::pattern;

static BATCH: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?i)\b(?:mini)?-?batch[_\- ]?size["']?\s*(?:[:=]|is\b)?\s*(\d{1,6})\b"#));

/// A batch size in a sentence: "batch size of 4", "even with the batch at 1", "`batch_size` that is 1 already".
static TOLD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)\bbatch(?:es)?(?:[_\- ]?size)?["'`]? (?:(?:is|was|set|down|even|already|reduced|lowered|from \d{1,6}) )*(?:is|of|to|at|=) (?:just |only )?(\d{1,6})\b|\bBATCH_SIZE(?:_PER_GPU|_PER_DEVICE)?["'`]? (?:is )?(?:at|to|of|is) (\d{1,6})\b"#,
    )
});

/// The batch size that a person names in a sentence about the run.
pub(crate) fn batch_told(text: &str) -> Option<u64> {
    let found = TOLD.captures(text)?;
    found.get(1).or_else(|| found.get(2))?.as_str().parse().ok().filter(|&batch| batch >= 1)
}

/// The batch size that a text names.
pub(crate) fn batch_in(text: &str) -> Option<u64> {
    BATCH.captures(text)?[1].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{batch_in, batch_told};

    #[test]
    fn batch_sizes_in_sentences() {
        for text in [
            "it fails with a batch size of 3 too",
            "I reduced the batch size to 3 without success",
            "BATCH_SIZE_PER_GPU is at 3",
            "a batch of 3",
        ] {
            assert_eq!(batch_told(text), Some(3), "{text}");
        }
        assert_eq!(batch_told("batch 25 of 300"), None);
    }

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
