//! The last resort: any line that says that memory ran out, with whatever figures stand near it.
//!
//! It claims nothing about the cause. It exists so that an unknown program's error is found, quoted and answered
//! with what would decide it, instead of with silence.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::call::Call;
use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::{find_size, pattern};
use crate::text::log::Passage;
use crate::text::site::source_line;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "out of memory",
        "out-of-memory",
        "OUT_OF_MEMORY",
        "OutOfMemory",
        "MemoryAllocation",
        "bad_alloc",
        "MemoryError",
        "failed to allocate",
        "cannot allocate",
        "could not allocate",
        "unable to allocate",
        "Error allocating",
        "not enough memory",
        "insufficient memory",
        "ALLOC_FAILED",
        "out of memeory",
        "RESOURCE_EXHAUSTED",
        "ResourceExhausted",
        "memory exhausted",
        "OOM when allocating",
    ],
    read,
};

static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:requested|tried to allocate|trying to allocate|failed to allocate|allocating|cannot allocate|could not allocate|unable to allocate|alloc(?:ation)? of)(?: memory| size| a buffer of size| of size)?:? ([\d.,]+) ?([KMGTP]i?B|bytes|B)\b",
    )
});
static FREE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:free|available)(?: memory)?(?: is only| is|:|=)? ?([\d.,]+) ?([KMGTP]i?B|bytes|B)\b")
});
static FREE_AFTER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)([\d.,]+) ?([KMGTP]i?B|bytes|B) (?:is |are )?(?:free|available)\b"));
static TOTAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)([\d.,]+) ?([KMGTP]i?B|bytes|B) total\b|\btotal(?: memory)?(?: is|:|=| of)? ?([\d.,]+) ?([KMGTP]i?B|bytes|B)\b",
    )
});

/// Words about running out of memory that report no failure: tests, source, advice, denials.
static NO_FAILURE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:no|not|without|never|avoids?|avoiding|prevents?|to fix|in case of|if you (?:get|see|run|encounter))\b[^.;:]{0,24}(?:out[ -]of[ -]memory|oom\b)|\btest_\w*memory\w*.*\b(?:PASSED|ok)\b|^\s*(?:except|raise|catch|assert|def|#|//|\*)\b?.*memory",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.line();
    if NO_FAILURE.is_match(text) {
        return None;
    }
    let call = Call::read(text);
    Some(Facts {
        line: passage.line_number,
        quote: text.to_owned(),
        resource: Resource::Unknown,
        request: find_size(&REQUEST, text).or(call.request),
        free: find_size(&FREE, text).or_else(|| find_size(&FREE_AFTER, text)).or(call.free),
        site: source_line(text),
        total: TOTAL
            .captures(text)
            .and_then(|found| {
                crate::text::figures::captured_size(&found, 1)
                    .or_else(|| crate::text::figures::captured_size(&found, 3))
            })
            .or(call.total),
        ..Facts::default()
    })
}
