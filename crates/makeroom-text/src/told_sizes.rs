//! Sizes that a person tells: what the program needs ("the DAG is 2.7 GB now"), what is allocated and what is wanted in
//! addition, set against the size of the card. They are rounded and from memory, so they never make a cause certain.
//!
//! Also the request that a program prints as a plain or hexadecimal count of bytes.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Captures, Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::figures::binary_size;
use crate::searched::Searched;

/// Data that takes this share of a GPU leaves no room for a context, a desktop and work buffers.
const NEARLY_ALL: f64 = 0.85;
/// Longer lines were not typed by a person.
const LONGEST_LINE: usize = 4096;

/// What the data of a program takes.
static NEED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(DAG|model|weights|dataset|scene|mesh|grid|volume|lattice|table|textures?|plan)(?: file)?(?: size)?(?: alone)? (?:is|are|was|needs?|takes?|requires?|uses?|of|has) (?:now |about |around |already |up to |at least |~ ?)?(\d+(?:\.\d+)?) ?(GB|GiB)\b|\b(\d+(?:\.\d+)?) ?(GB|GiB) (?:of )?(DAG|weights|model|dataset|peak)\b",
    )
});
/// What is allocated, and what comes on top.
static HELD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(\d+(?:\.\d+)?) ?(GB|GiB) (?:is |are |was |were |has been |have been |gets? )?(?:already |first )?(?:allocated|in use|taken|occupied)\b",
    )
});
static MORE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:an )?(?:additional|another|extra|further) (\d+(?:\.\d+)?) ?(GB|GiB)\b|\b(\d+(?:\.\d+)?) ?(GB|GiB) more\b",
    )
});
static SUM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(\d+(?:\.\d+)?) ?(?:GB|GiB)? ?\+ ?(\d+(?:\.\d+)?) ?(GB|GiB)\b"));
/// Sizes that belong to the machine.
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:system|host|cpu|main) (?:memory|ram)\b|(?-i:\bRAM\b)|\bswap\b|\bdisk\b")
});

/// A count of bytes behind a word for a request.
static BYTES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:alloc\w*|size|request\w*|reserve|buffer)\b(?P<between>[^\n]{0,60}?)\b(?:0x(?P<hex>[0-9a-f]{4,16})|(?P<plain>\d{4,16})) ?bytes\b",
    )
});
static ANY_BYTES: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:0x[0-9a-f]{4,16}|\d{4,16}) ?bytes\b"));
/// Words for figures other than the request.
static NOT_WANTED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:free|available|total|used|remaining|limit|max(?:imum)?|capacity|alignment|page)\b")
});
static REFUSED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)out of memory|\bfail\w*|can['’]?t|\bcannot\b|\bcould not\b|\bunable\b|\berror\b|OutOfMemory|MemoryAllocation",
    )
});

/// The request that a line about a refused allocation gives as its only count of bytes.
pub(crate) fn request_in_bytes(line: &str) -> Option<Bytes> {
    if line.len() > LONGEST_LINE || !REFUSED.is_match(line) || ANY_BYTES.find_iter(line).take(2).count() != 1
    {
        return None;
    }
    let found = BYTES.captures(line).filter(|found| !NOT_WANTED.is_match(&found["between"]))?;
    let bytes = match (found.name("hex"), found.name("plain")) {
        (Some(hex), _) => u64::from_str_radix(hex.as_str(), 16).ok()?,
        (None, Some(plain)) => plain.as_str().parse().ok()?,
        (None, None) => return None,
    };
    Some(Bytes::new(bytes)).filter(|bytes| !bytes.is_zero())
}

/// States that the program's data fills the card, where the sizes in the text show it.
pub(crate) fn compare(facts: &mut Facts, told_total: Option<Bytes>, text: Searched<'_>) {
    let is_decided =
        facts.statements.iter().any(|stated| stated.certainty >= Certainty::Likely || stated.leads);
    let Some(total) = facts.total.or(told_total) else { return };
    if facts.resource != Resource::Device || is_decided || facts.free.is_some() || facts.limit.is_some() {
        return;
    }
    let is_too_much = |bytes: Bytes| bytes.share_of(total) >= NEARLY_ALL;
    // A plan that the format read without the card's size.
    if let Some(plan) = facts.statements.iter_mut().find(|stated| {
        stated.cause == Cause::LiveDataFillsDevice && stated.bytes.is_some_and(|bytes| bytes >= total)
    }) {
        plan.certainty = Certainty::Likely;
        let known = plan.summary.split("; the log does not say").next().unwrap_or_default();
        plan.summary = format!("{}. The GPU has {total}.", known.trim_end_matches('.'));
        return;
    }
    let own = match (facts.live, facts.request) {
        (Some(live), request) if !live.is_zero() => Some(live + request.unwrap_or_default()),
        (_, Some(request)) if request < total => Some(request),
        _ => None,
    };
    if let Some(own) = own {
        if is_too_much(own) && !(facts.live.is_some() && facts.request.is_some()) {
            fills(
                facts,
                own,
                format!(
                    "The program's data takes {own} of the GPU's {total}, which leaves too little for the context and work buffers."
                ),
            );
        }
        return;
    }
    if facts.request.is_some() {
        return;
    }
    if let Some((need, name)) = needed(text)
        && is_too_much(need)
    {
        let fit = if need > total {
            "does not fit"
        } else {
            "leaves too little for the context, a desktop and work buffers"
        };
        fills(
            facts,
            need,
            format!("According to the log, the {name} needs {need}; on a GPU with {total}, that {fit}."),
        );
    } else if let Some(sum) = summed(text).filter(|&sum| is_too_much(sum)) {
        fills(
            facts,
            sum,
            format!(
                "According to the sizes in the log, the program needs {sum} in total on a GPU with {total}."
            ),
        );
    }
}

fn fills(facts: &mut Facts, bytes: Bytes, summary: String) {
    facts.statements.retain(|stated| stated.cause != Cause::LiveDataFillsDevice);
    facts.state(Cause::LiveDataFillsDevice, Certainty::Likely, summary);
    if let Some(stated) = facts.statements.last_mut() {
        stated.bytes = Some(bytes);
    }
}

fn sentences(text: Searched<'_>) -> impl Iterator<Item = &str> {
    text.parts()
        .into_iter()
        .flat_map(str::lines)
        .filter(|line| line.len() <= LONGEST_LINE)
        .flat_map(|line| line.split(['!', '?', ';']))
        .filter(|sentence| !HOST.is_match(sentence))
}

fn size(found: &Captures<'_>, number: usize, unit: usize) -> Option<Bytes> {
    binary_size(found.get(number)?.as_str(), found.get(unit)?.as_str())
}

/// The largest size that the text gives for the program's data, and what it is.
fn needed(text: Searched<'_>) -> Option<(Bytes, String)> {
    sentences(text)
        .filter_map(|sentence| {
            let found = NEED.captures(sentence)?;
            let name = found.get(1).or_else(|| found.get(6))?.as_str().to_owned();
            let bytes = size(&found, 2, 3).or_else(|| size(&found, 4, 5))?;
            Some((bytes, name))
        })
        .max_by_key(|(bytes, _)| *bytes)
}

/// What is allocated and what comes on top of it, added up.
fn summed(text: Searched<'_>) -> Option<Bytes> {
    sentences(text).find_map(|sentence| {
        if let Some(found) = SUM.captures(sentence) {
            let parts = (binary_size(&found[1], &found[3])?, binary_size(&found[2], &found[3])?);
            return Some(parts.0 + parts.1);
        }
        let held = HELD.captures(sentence).and_then(|found| size(&found, 1, 2))?;
        let more =
            MORE.captures(sentence).and_then(|found| size(&found, 1, 2).or_else(|| size(&found, 3, 4)))?;
        Some(held + more)
    })
}
