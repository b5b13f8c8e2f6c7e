//! The batch size that a person names in a sentence.

use std::sync::LazyLock;

use makeroom_search::{Regex, mixed_pattern, pattern};

/// A batch size in a sentence: "batch size of 4", "even with the batch at 1", "`batch_size` that is 1 already".
static TOLD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)\bbatch(?:es)?(?:[_\- ]?size)?["'`]? (?:(?:is|was|set|down|even|already|reduced|lowered|from \d{1,6}) )*(?:is|of|to|at|=) (?:just |only )?(\d{1,6})(?:,? (?:or|then)(?: even| finally)? (\d{1,6}))?\b|\bBATCH_SIZE(?:_PER_GPU|_PER_DEVICE)?["'`]? (?:is )?(?:at|to|of|is) (\d{1,6})\b"#,
    )
});
/// The same in Korean, Chinese and Japanese: "batch size를 64로", "batchsize 改成 8", "バッチサイズを4に".
static TOLD_IN_ASIA: LazyLock<Regex> = LazyLock::new(|| {
    mixed_pattern(
        r"(?i)(?:batch[_ -]?size|batch|배치 ?(?:사이즈|크기)|批(?:次|量)?大小|バッチ(?:サイズ)?)[`'\x22]? ?(?:를|을|는|은|가|도|都|已经|已|を|は)? ?(?:改成|改为|改到|设为|设成|设置为|设置成|设到|调到|调成|调为|降到|降为|减到|减小到|是|为)? ?(\d{1,6}) ?(?:으로|로|にし|に|还|也|都|了|，|。|仍|依然)",
    )
});
/// Words of advice before a batch size: it is what to try, not what the run had.
static ADVISED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)(?:^\W*|[.!?:;,] |\b(?:just|please|try(?: to)?|should|could|can|must|maybe|simply|you) )(?:reduce|lower|decrease|set|change|use|make|keep)(?: (?:the|your|train\w*|eval\w*|test|inference|mini))*[ "'`]*$"#,
    )
});

/// The batch size that a person names in a sentence about the run.
pub(crate) fn batch_told(text: &str) -> Option<u64> {
    let told = |words: &Regex| {
        words.captures_iter(text).find_map(|found| {
            let is_advised = ADVISED.is_match(&text[..found.get(0)?.start()]);
            // Of several sizes that were tried the smallest says most.
            let sizes = found.iter().skip(1).flatten().filter_map(|size| size.as_str().parse::<u64>().ok());
            sizes.min().filter(|&batch| batch >= 1 && !is_advised)
        })
    };
    told(&TOLD).or_else(|| told(&TOLD_IN_ASIA))
}

#[cfg(test)]
mod tests {
    use super::batch_told;

    #[test]
    fn batch_sizes_in_sentences() {
        for text in [
            "it fails with a batch size of 3 too",
            "I reduced the batch size to 3 without success",
            "BATCH_SIZE_PER_GPU is at 3",
            "a batch of 3",
            "we reduced the batch size from 24 to 6 or 3 per GPU",
            "batch size를 3으로 해도 같은 에러가 납니다",
            "batchsize都改成3，还是报错",
            "バッチサイズを3にしても落ちます",
        ] {
            assert_eq!(batch_told(text), Some(3), "{text}");
        }
        for advice in [
            "Just reduce batch size to 3.",
            "try to set the batch size to 3",
            "Please lower your batch size to 3",
        ] {
            assert_eq!(batch_told(advice), None, "{advice}");
        }
        assert_eq!(batch_told("batch 25 of 300"), None);
    }
}
