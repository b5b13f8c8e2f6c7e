//! Hashcat, which prints OpenCL's cap on a single allocation next to each device's memory.
//!
//! | versions | wording |
//! |---|---|
//! | 3 – 5 | `Device #1: NAME, 512/2048 MB allocatable, 5MCU` |
//! | 6 – | `Device #1: NAME, 1800/2048 MB (512 MB allocatable), 2MCU` |
//! | – 3 | `Device #1: Device does not provide enough allocatable device-memory to handle this attack` |
//! | 4 – | `Device #5: Not enough allocatable device memory for this attack.` |

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Captures, Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family =
    Family { anchors: &["enough allocatable device-memory", "enough allocatable device memory"], read };

static OLD: LazyLock<Regex> = LazyLock::new(|| pattern(r"Device #(\d+): .*?(\d+)/(\d+) MB allocatable"));
static NEW: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Device #(\d+): .*?(\d+)/(\d+) MB \((\d+) MB allocatable\)"));
static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)Device #(\d+)"));

#[expect(clippy::unnecessary_wraps, reason = "the signature of a family")]
fn read(passage: &Passage<'_>) -> Option<Facts> {
    let mut facts = Facts::new(Framework::Hashcat, Resource::Device, passage);
    let device: Option<u32> = DEVICE.captures(passage.line()).and_then(|found| captured_number(&found, 1));
    let mebibytes = |found: &Captures<'_>, group: usize| captured_number(found, group).map(Bytes::mib);
    let is_here = |found: &Captures<'_>| device.is_none() || captured_number(found, 1) == device;
    for line in passage.before() {
        if let Some(found) = NEW.captures(line).filter(is_here) {
            (facts.free, facts.total) = (mebibytes(&found, 2), mebibytes(&found, 3));
            facts.limit = mebibytes(&found, 4);
        } else if let Some(found) = OLD.captures(line).filter(is_here) {
            (facts.limit, facts.total) = (mebibytes(&found, 2), mebibytes(&found, 3));
        } else {
            continue;
        }
        break;
    }
    match (facts.limit, facts.total) {
        (Some(limit), Some(total)) if limit.share_of(total) <= 0.5 => {
            let summary =
                format!("OpenCL limits a single allocation to {limit} of this device's {total}; the attack needs a larger one.");
            facts.state(Cause::ArtificialLimit, Certainty::Likely, summary);
        }
        _ => facts.state(
            Cause::ArtificialLimit,
            Certainty::Possible,
            "OpenCL caps a single allocation below the device's memory, and the attack needs more than the cap; the log does not show how much.",
        ),
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn the_cap_on_one_allocation() {
        for (device, error) in [
            (
                "- Device #1: GPU 9, 512/2048 MB allocatable, 5MCU",
                "- Device #1: Device does not provide enough allocatable device-memory to handle this attack",
            ),
            (
                "* Device #1: GPU 9, 1800/2048 MB (512 MB allocatable), 2MCU",
                "* Device #1: Not enough allocatable device memory for this attack.",
            ),
        ] {
            let facts =
                facts_in(&format!("{device}\n* Device #2: GPU 8, 8000/9000 MB allocatable\n\n{error}"))
                    .unwrap();
            assert_eq!((facts.framework_id(), facts.limit), ("hashcat", Some(Bytes::mib(512))));
            assert_eq!(facts.total, Some(Bytes::gib(2)));
            let stated = &facts.statements[0];
            assert_eq!((stated.cause, stated.certainty), (Cause::ArtificialLimit, Certainty::Likely));
        }
    }

    #[test]
    fn without_figures_it_is_possible() {
        let text = "* Device #5: Not enough allocatable device memory for this attack.";
        assert_eq!(facts_in(text).unwrap().statements[0].certainty, Certainty::Possible);
        let without_device =
            facts_in("hashcat: not enough allocatable device memory for this attack").unwrap();
        assert_eq!((without_device.framework_id(), without_device.limit), ("hashcat", None));
        assert_ne!(facts_in("LLVM ERROR: out of memory").unwrap().framework_id(), "hashcat");
    }
}
