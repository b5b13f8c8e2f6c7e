//! CatBoost on the GPU.
//!
//! | versions | wording |
//! |---|---|
//! | – 0.9 | `(NCudaLib::TOutOfMemoryError) …/stack_like_memory_pool.h:294: Error: Out of memory. Requested 1070.546387; Free 1010.952393` |
//! | later | `… Out of memory. Requested 9216 MB; Free 6144.250000 MB` |
//! | before training | `less than 75% GPU memory available for training. Free: 2866.5 Total: 6143.75` |
//!
//! Sizes are in 2²⁰ bytes. By default CatBoost takes 95 % of what is free on the card for its pool, up front;
//! `Free` is what the pool has left.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::binary_size;
use crate::log::Passage;

pub(crate) const FAMILY: Family =
    Family { anchors: &["TOutOfMemoryError", "stack_like_memory_pool.h", "Out of memory. Requested"], read };

/// A request of this share of a card is the pool itself.
const POOL_SHARE: f64 = 0.85;

/// Memory in use on a card decides from this share of it; less is the desktop's.
const USED_SHARE: f64 = 0.05;

/// With less than this share of the request left in the pool, the request may be the larger part of the problem.
const PLAUSIBLE_SHARE: f64 = 0.25;

static FIGURES: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)Out of memory\. Requested ([\d.]+)(?: Mi?B)?; Free ([\d.]+)"));
/// Printed before training where others use the card.
static AT_START: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"less than 75% GPU memory available for training\. Free: ([\d.]+) Total: ([\d.]+)")
});
/// Words for other users of a card.
static OTHERS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:gnome|xorg|x server|desktop|(?:an)?other (?:process|program|user|job)(?:e?s)?)\b")
});
static CARD: LazyLock<Regex> = LazyLock::new(|| pattern(r"(\d+)MiB +/ +(\d+)MiB"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let found = FIGURES.captures(&passage.flat)?;
    let (request, free) = (binary_size(&found[1], "MB")?, binary_size(&found[2], "MB")?);
    let mut facts = Facts {
        request: Some(request),
        cached: Some(free),
        ..Facts::new(Framework::CatBoost, Resource::Device, passage)
    };
    let rows = passage.all().filter_map(|line| {
        let found = CARD.captures(line)?;
        Some((binary_size(&found[2], "MiB")?, binary_size(&found[1], "MiB")?))
    });
    let cards: Vec<(Bytes, Bytes)> =
        rows.filter(|&(card, _)| request <= card && request.share_of(card) >= POOL_SHARE).collect();
    let at_start = passage.all().find_map(|line| {
        let found = AT_START.captures(line)?;
        let (free, total) = (binary_size(&found[1], "MB")?, binary_size(&found[2], "MB")?);
        Some((total, total - free))
    });
    // The pool asks for most of an empty card, which a card in use does not have. The table may have been printed while
    // CatBoost ran, so it counts only if the text names another user of the card.
    let are_others_named = || passage.all().any(|line| OTHERS.is_match(line));
    let shared = at_start
        .into_iter()
        .chain(cards.iter().copied().filter(|_| are_others_named()))
        .find(|&(card, used)| request <= card && request + used > card && used.share_of(card) >= USED_SHARE);
    if let Some((card, used)) = shared {
        facts.state(
            Cause::OtherProcesses,
            Certainty::Likely,
            format!("CatBoost requested {request} for its pool, but {used} of the GPU's {card} was already in use by other processes."),
        );
    }
    match cards.iter().max() {
        Some(&(card, used)) => {
            // A table that shows less in use than the pool has left was printed before the pool was there.
            let is_of_others = used < free && request + used > card && used.share_of(card) >= USED_SHARE;
            let of_others =
                if is_of_others { format!("; {used} of it was already in use") } else { String::new() };
            facts.state(
                Cause::Preallocation,
                Certainty::Likely,
                format!("CatBoost requested {request} on a GPU with {card}{of_others}: that is its pool, 95 % of the GPU's memory by default (gpu_ram_part)."),
            );
            if is_of_others && shared.is_none() {
                facts.state(
                    Cause::OtherProcesses,
                    Certainty::Possible,
                    format!("{used} of the GPU's {card} was in use before CatBoost allocated its pool; without that, the pool would fit."),
                );
            }
        }
        None => facts.state(
            Cause::LiveDataFillsDevice,
            certainty_of_data(request, free),
            format!("CatBoost's pool has {free} left and {request} was requested: its data fills the pool."),
        ),
    }
    facts.cached = facts.cached.filter(|&cached| cached > Bytes::ZERO);
    Some(facts)
}

/// The pool is the program's alone, so its data is what fills it; unless the request is so large that it would
/// hardly fit an empty pool either.
fn certainty_of_data(request: Bytes, free: Bytes) -> Certainty {
    if free.share_of(request) >= PLAUSIBLE_SHARE { Certainty::Likely } else { Certainty::Possible }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    const ERROR: &str = "(NCudaLib::TOutOfMemoryError) catboost/cuda/cuda_lib/memory_pool/stack_like_memory_pool.h:301: Error: Out of memory. Requested 9000 MB; Free 7000.5 MB";

    #[test]
    fn both_wordings_are_read() {
        for text in [
            ERROR,
            "stack_like_memory_pool.h:294: Error: Out of memory. Requested 9000.000000; Free 7000.500000",
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!((facts.framework_id(), facts.request), ("catboost", Some(Bytes::mib(9000))));
            assert_eq!(facts.cached, Some(Bytes::kib(7_168_512)));
            assert_eq!(
                (facts.statements[0].cause, facts.statements[0].certainty),
                (Cause::LiveDataFillsDevice, Certainty::Likely)
            );
        }
    }

    #[test]
    fn a_request_for_a_whole_card_is_the_pool() {
        let text = format!(
            "| 42%   58C    P2    62W / 250W |   2000MiB / 10000MiB |      0%      Default |\n\n{ERROR}"
        );
        let facts = facts_in(&text).unwrap();
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::Preallocation, Certainty::Likely)
        );
        assert!(facts.statements[0].summary.contains("1.95 GiB of it was already in use"), "{facts:?}");
        assert_eq!(facts.statements[1].cause, Cause::OtherProcesses);
        // A table with the pool in it shows nothing about others.
        let full = facts_in(&text.replace(" 2000MiB", " 9400MiB")).unwrap();
        assert!(full.statements.iter().all(|stated| !stated.summary.contains("in use")), "{full:?}");
    }

    #[test]
    fn other_programs_are_not_taken() {
        assert_ne!(
            facts_in("CUDA out of memory. Tried to allocate 2.00 GiB").unwrap().framework_id(),
            "catboost"
        );
    }

    #[test]
    fn a_pool_on_a_card_that_others_use() {
        let table = format!(
            "the desktop runs on this card\n| 30%   58C    P2    62W / 250W |   2100MiB /  9700MiB |      0%      Default |\n{ERROR}"
        );
        let warning = format!(
            "Warning: less than 75% GPU memory available for training. Free: 7000.5 Total: 9700\n{ERROR}"
        );
        for text in [table, warning] {
            let facts = facts_in(&text).unwrap();
            assert_eq!(facts.statements[0].cause, Cause::OtherProcesses, "{text}");
        }
    }
}
