//! Mitsuba on Enoki and Dr.Jit. When it fails, it reports how much it frees: that is the memory it held.
//!
//! | versions | wording |
//! |---|---|
//! | Mitsuba 2 | `cuda_malloc(): out of memory!`, `cuda_malloc_trim(): freed 160 arrays (6.5000 GiB device memory, …)` |
//! | Mitsuba 3 | `jit_malloc(): out of memory! Could not allocate 512 bytes of device memory.`, also `host-pinned memory` |
//! | Mitsuba 3 | `cuda_check(): API error 0002 (CUDA_ERROR_OUT_OF_MEMORY): "out of memory" in …` |

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::find_size;
use crate::log::Passage;
use crate::smi_table;

pub(crate) const FAMILY: Family = Family {
    anchors: &["cuda_malloc(): out of memory", "jit_malloc(): out of memory", "API error 0002"],
    read,
};

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Could not allocate ([\d.]+) ?([KMGT]?i?B|bytes) of"));
static FREED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"cuda_malloc_trim\(\): freed \d+ arrays \(([\d.]+) ?([KMGT]?i?B) device memory")
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    if !text.to_ascii_lowercase().contains("out of memory") {
        return None;
    }
    let mut facts = Facts::new(Framework::Mitsuba, Resource::Device, passage);
    facts.request = find_size(&REQUEST, text);
    if passage.line().contains("host-pinned") || passage.line().contains("host memory") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Likely,
            "Pinned host memory could not be allocated. The GPU's memory is not involved.",
        );
        return Some(facts);
    }
    // What is freed before the error was cached; what is freed after it, at the end, was in use.
    facts.live = passage.onward().find_map(|line| find_size(&FREED, line));
    facts.total = smi_table::tables(passage.all())
        .iter()
        .flat_map(|table| &table.devices)
        .map(|device| device.total)
        .max();
    if let Some(live) = facts.live {
        let share = facts.total.map(|total| live.share_of(total));
        let of = facts.total.map_or(String::new(), |total| format!(" of {total}"));
        let certainty =
            if share.is_some_and(|share| share >= 0.5) { Certainty::Likely } else { Certainty::Possible };
        if live > Bytes::mib(1) {
            let summary = format!("The program itself held {live}{of}, which it freed at exit.");
            facts.state(Cause::LiveDataFillsDevice, certainty, summary);
        }
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    const ERROR: &str = "cuda_malloc_trim(): freed 9 arrays (2.25 MiB device memory, 8 B unified memory, and 880 B host memory).\n\nCaught a critical exception: cuda_malloc(): out of memory!\ncuda_shutdown()\ncuda_malloc_trim(): freed 160 arrays (6.5000 GiB device memory, 8.0000 KiB unified memory, and 9.0000 KiB host memory).\n";

    #[test]
    fn what_is_freed_at_the_end_was_live() {
        let facts = facts_in(ERROR).unwrap();
        assert_eq!((facts.framework_id(), facts.live), ("mitsuba", Some(Bytes::mib(6656))));
        assert_eq!(facts.statements[0].certainty, Certainty::Possible);
        let table = "|   0  Quadro P9        Off  | 00000000:91:00.0  On |                  N/A |\n| 50%   49C    P0    29W / 105W |   1536MiB /  8192MiB |     13%      Default |";
        let facts = facts_in(&format!("{ERROR}{table}")).unwrap();
        assert_eq!(facts.total, Some(Bytes::gib(8)));
        assert_eq!(facts.statements[0].certainty, Certainty::Likely);
    }

    #[test]
    fn dr_jit_says_what_it_asked_for() {
        let text = "Caught a critical exception: jit_malloc(): out of memory! Could not allocate 1048576 bytes of device memory.";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.request, facts.statements.len()), (Some(Bytes::mib(1)), 0));
        let facts = facts_in(&text.replace("device memory", "host-pinned memory")).unwrap();
        assert_eq!((facts.resource, facts.statements[0].cause), (Resource::Host, Cause::HostMemory));
    }

    #[test]
    fn another_programs_malloc_is_not_taken() {
        assert_ne!(facts_in("malloc(): out of memory").unwrap().framework_id(), "mitsuba");
        assert!(facts_in("API error 0002: file not found").is_none());
    }
}
