//! The size of a GPU that the error itself does not give: from the memory line of Stable Diffusion web UIs, or from
//! the model. A model counts only where the text names no other, and where it is sold with one size or carries its
//! size in the name.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_search::{Captures, Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::figures::binary_size;
use crate::searched::Searched;

/// A model name; the second group is a size that belongs to the name.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b(?: (?: (?:geforce \s?)? (?:rtx|gtx) \s? -?
            (?P<card> 3090(?:\s?ti)? | 4090 | 5090 | 4080 | 4070 | 3070(?:\s?ti)? | 2080(?:\s?ti)? | 2070 | 2060 | 1660(?:\s?ti)? | 1080(?:\s?ti)? | 1070 | a6000 | a5000 | a4000) )
          | (?P<server> titan \s rtx | tesla \s t4 | t4 | l40s | a6000 | a10g )
          | (?P<sized> v100 | a100 | h100 ) (?:[-\s](?:sxm\d?|pcie|hbm3))? [-\s(]{1,2} (?P<size> 16 | 32 | 40 | 80 ) \s? g(?:i?b)?
        ) (?P<laptop> \s (?:laptop|mobile|max-?q) )? \b",
    )
});

/// The memory line of the web UIs: peak use and size of the whole GPU.
static SYSTEM: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bSys VRAM: ?(\d+) ?/ ?(\d+) ?(MiB|MB)\b"));

/// A person says how much the GPU has.
static SAID: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:I|we|GPU|card|it)(?:['’]ve| have| has| only has| got)\b (?:\w+ ){0,4}?(\d{1,3}) ?(GB|GiB|G)(?: of)? (?:VRAM|GPU (?:memory|RAM)|video (?:memory|RAM)|graphics memory)\b|\b(?:card|gpu|graphics card)\b\W{1,3}(?:(?:nvidia|amd|intel|geforce|a|an|with|only|of)\W{1,2}){0,3}(\d{1,3}) ?(GB|GiB)\b|\b(?:a|an|my|our|one|single|the|on) (\d{1,3}) ?(GB|GiB) (?:\w+ )?(?:gpu|graphics card|video card|card)\b|\bdevice: \d+, capacity: ?(\d{1,3}) ?(GB|GiB)\b|\b(\d{1,3}) ?(GB|GiB) (?:gpu|graphics card|video card|card)\b|\b(?:gpu|card)(?: only)? (?:has|with|got)(?: only| just)? (\d{1,3}) ?(GB|GiB)\b|\b(?:rtx|gtx|mx|rx|quadro|radeon)[ -]?\w{2,6}(?: (?:ti|super|xt|xtx|mobile|laptop|max-q))?[ -]?\(?(\d{1,2}) ?(GB|GiB)\b",
    )
});

/// Models and what the driver reports for them, in MiB.
const SIZES: &[(&str, u64)] = &[
    ("3090", 24_576),
    ("3090ti", 24_564),
    ("4090", 24_564),
    ("5090", 32_607),
    ("4080", 16_376),
    ("4070", 12_282),
    ("3070", 8_192),
    ("3070ti", 8_192),
    ("2080", 8_192),
    ("2080ti", 11_264),
    ("2070", 8_192),
    ("2060", 6_144),
    ("1660", 6_144),
    ("1660ti", 6_144),
    ("1080", 8_192),
    ("1080ti", 11_264),
    ("1070", 8_192),
    ("a6000", 49_140),
    ("a5000", 24_564),
    ("a4000", 16_376),
    ("titanrtx", 24_576),
    ("teslat4", 15_360),
    ("t4", 15_360),
    ("l40s", 46_068),
    ("a10g", 23_028),
];

/// The size in the alternative that matched.
fn said_size(found: &Captures<'_>) -> Option<Bytes> {
    let groups: Vec<&str> = found.iter().skip(1).flatten().map(|group| group.as_str()).collect();
    binary_size(groups.first()?, groups.get(1)?)
}

/// The size that a text tells for its GPU, where it tells no other.
pub(super) fn told(text: Searched<'_>) -> Option<Bytes> {
    let mut sizes = text
        .parts()
        .into_iter()
        .flat_map(|part| SAID.captures_iter(part))
        .filter_map(|found| said_size(&found))
        .filter(|size| !size.is_zero());
    let first = sizes.next()?;
    sizes.all(|size| size == first).then_some(first)
}

/// Adds the size of the GPU that a text names, where the failure has figures but not this one.
pub(super) fn add_total(facts: &mut Facts, text: Searched<'_>) {
    let has_figures = facts.request.is_some() || facts.live.is_some();
    if facts.resource != Resource::Device || facts.total.is_some() || facts.limit.is_some() {
        return;
    }
    if !has_figures {
        // Without a request there is nothing to compare it with, but the reader sees that it was read.
        if let Some(total) = told(text).filter(|_| facts.free.is_none() && facts.statements.is_empty()) {
            facts.evidence.push(format!("The log says that the GPU has {total}"));
        }
        return;
    }
    if let Some(found) = text.parts().into_iter().find_map(|part| SYSTEM.captures(part))
        && let (Some(used), Some(total)) =
            (binary_size(&found[1], &found[3]), binary_size(&found[2], &found[3]))
    {
        facts.total = Some(total);
        facts.evidence.push(format!("The program reports a peak of {used} of the GPU's {total} in use"));
        return;
    }
    if let Some(total) = told(text) {
        facts.total = Some(total);
        facts.is_total_told = true;
        facts.evidence.push(format!("The log says that the GPU has {total}"));
        return;
    }
    let mut named: Option<(String, u64)> = None;
    for found in text.parts().into_iter().flat_map(|part| NAME.captures_iter(part)) {
        let group = |name: &str| found.name(name).map(|group| group.as_str());
        let model = || group("card").or_else(|| group("server"));
        let mib = match (group("size"), model()) {
            (Some(size), _) => size.parse::<u64>().ok().map(|gib| gib * 1024),
            (None, Some(model)) => {
                let plain = model.to_ascii_lowercase().replace(char::is_whitespace, "");
                SIZES.iter().find(|(name, _)| *name == plain).map(|&(_, mib)| mib)
            }
            (None, None) => None,
        };
        // Mobile models are smaller than those they are named after.
        let Some(mib) = mib.filter(|_| group("laptop").is_none()) else { return };
        if named.as_ref().is_some_and(|&(_, other)| other != mib) {
            return;
        }
        named.get_or_insert_with(|| (found[0].trim().to_owned(), mib));
    }
    if let Some((name, mib)) = named {
        facts.total = Some(Bytes::mib(mib));
        let name = name.replace('(', "");
        facts.evidence.push(format!("The log names one GPU model, {name}, which has {}", Bytes::mib(mib)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(text: &str) -> Option<Bytes> {
        let mut facts =
            Facts { request: Some(Bytes::gib(1)), resource: Resource::Device, ..Facts::default() };
        add_total(&mut facts, text.into());
        facts.total
    }

    #[test]
    fn one_model_gives_the_size() {
        assert_eq!(total("GeForce RTX 3090 on Ubuntu"), Some(Bytes::gib(24)));
        assert_eq!(total("two RTX 2080 Ti, each rtx 2080ti alone"), Some(Bytes::gib(11)));
        assert_eq!(total("Tesla V100-SXM2-32GB"), Some(Bytes::gib(32)));
        assert_eq!(total("8x A100 (80GB)"), Some(Bytes::gib(80)));
        assert_eq!(total("GPU: Tesla T4"), Some(Bytes::gib(15)));
        assert_eq!(total("on a GeForce RTX 2060"), Some(Bytes::gib(6)));
        assert_eq!(total("the card has 12 GB of VRAM, the host is a desktop"), Some(Bytes::gib(12)));
        assert_eq!(total("my card: amd, 16gb, windows"), Some(Bytes::gib(16)));
        assert_eq!(total("does not run on a 6 GB laptop GPU"), Some(Bytes::gib(6)));
        assert_eq!(total("current device: 1, capacity: 48GB"), Some(Bytes::gib(48)));
        assert_eq!(total("reserved: 5120 MiB, Sys VRAM: 6100/6144 MiB (99.3%)"), Some(Bytes::gib(6)));
    }

    #[test]
    fn several_models_or_sizes_give_none() {
        for text in ["RTX 3090 and RTX 4080", "A100", "V100", "RTX 3070 Laptop GPU", "model_t4000", ""] {
            assert_eq!(total(text), None, "{text}");
        }
    }
}
