//! PaddlePaddle.
//!
//! | versions | wording |
//! |---|---|
//! | – 1.4 | `enforce allocating <= available failed, 10513462067 > 1369702144` |
//! | – 1.5 | `Cannot malloc 98.0 MB GPU memory. Please shrink FLAGS_fraction_of_gpu_memory_to_use …` |
//! | 1.6 – 2.0 | `Out of memory error on GPU 0. Cannot allocate 64.00MB memory on GPU 0, available memory is only 32.00MB.` |
//! | 2.1 – | `… Cannot allocate 64.00MB memory on GPU 0, 7.50GB memory has been allocated and available memory is only 32.00MB.` |
//! | in Chinese | `无法在GPU 0上分配64.00MB内存，已分配7.50GB内存，可用内存仅为32.00MB。` |
//! | with a limit | `… Currently FLAGS_gpu_memory_limit_mb is 4096, so the maximum GPU memory usage is limited to 4096 MB.` |
//!
//! Paddle writes `MB` and means 2²⁰ bytes. What "has been allocated" is the device's memory less what is
//! available, whoever holds it; together the two are the device's memory, or the limit where one is set.

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Captures, Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::{binary_size, captured_number};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "Out of memory error on",
        "enforce allocating <= available",
        "Cannot malloc",
        "available memory is only",
        "可用内存仅为",
        "可用显存仅为",
    ],
    read,
};

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)(?:Cannot (?:allocate|malloc) |上分配 ?)([\d.]+) ?([KMGT]?B)"));
static ALLOCATED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:已分配(?:了)? ?)?([\d.]+) ?([KMGT]?B) ?(?:memory has been allocated|(?:内存|显存)，可用)",
    )
});
static AVAILABLE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:available memory is(?: only)?|可用(?:内存|显存)仅为) ?([\d.]+) ?([KMGT]?B)")
});
static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)(?:error on|在) ?(?:GPU|XPU|NPU) (\d+)"));
static LIMIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"memory usage is limited to (\d+) (MB)"));
static ENFORCED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"enforce allocating <= available failed, (\d+) > (\d+)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let mut facts = Facts::new(Framework::PaddlePaddle, Resource::Device, passage);
    if let Some(found) = ENFORCED.captures(text) {
        facts.request = captured_number(&found, 1).map(Bytes::new);
        facts.free = captured_number(&found, 2).map(Bytes::new);
        return Some(facts);
    }
    let figure = |regex: &Regex| regex.captures(text).and_then(|found| paddle_size(&found));
    facts.request = Some(figure(&REQUEST)?);
    facts.free = figure(&AVAILABLE);
    facts.device = DEVICE.captures(text).and_then(|found| captured_number(&found, 1)).map(DeviceIndex);
    if text.contains("CPU memory") || text.contains("CUDAPinned") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "Paddle could not allocate host memory. The GPU is not involved.",
        );
        return Some(facts);
    }
    if let Some(limit) = figure(&LIMIT) {
        // With a limit, what is left of it is printed as available.
        facts.limit = Some(limit);
        facts.live = figure(&ALLOCATED);
        facts.free = None;
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Certain,
            format!("The request exceeds FLAGS_gpu_memory_limit_mb, which limits Paddle to {limit}."),
        );
    } else if let (Some(allocated), Some(free)) = (figure(&ALLOCATED), facts.free) {
        facts.total = Some(allocated + free);
        // A program that fills the GPU by itself leaves a remainder smaller than its next chunk. Nothing at all is
        // left where other processes or the driver's paging take part.
        if !free.is_zero() {
            facts.lead(
                Cause::LiveDataFillsDevice,
                format!("{allocated} of the GPU's memory is allocated, usually most of it by this program, and {free} is free."),
            );
        }
    } else if !(text.contains("Out of memory error") || text.contains("FLAGS_fraction")) {
        return None;
    }
    Some(facts)
}

fn paddle_size(found: &Captures<'_>) -> Option<Bytes> {
    binary_size(&found[1], &found[2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn the_newest_wording_gives_the_whole_device() {
        let facts = facts_in("ResourceExhaustedError:\n\nOut of memory error on GPU 3. Cannot allocate 512.000000MB memory on GPU 3, 15.500000GB memory has been allocated and available memory is only 256.000000MB.\n\nPlease check whether there is any other process using GPU 3.").unwrap();
        assert_eq!((facts.framework_id(), facts.device), ("paddlepaddle", Some(DeviceIndex(3))));
        assert_eq!(facts.request, Some(Bytes::mib(512)));
        assert_eq!((facts.total, facts.free), (Some(Bytes::mib(15_872 + 256)), Some(Bytes::mib(256))));
        assert!(facts.statements[0].leads);
    }

    #[test]
    fn older_wordings_and_wrapped_lines_are_read() {
        for text in [
            "Out of memory error on GPU 0. Cannot allocate 2.000000GB memory on GPU 0, available memory is only \n                   512.000000MB.",
            "Out of memory error on GPU 0. Cannot allocate 2.000000GB GPU memory, available memory is 512.000000MB.",
            "paddle.fluid.core.EnforceNotMet: enforce allocating <= available failed, 2147483648 > 536870912",
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!((facts.request, facts.free), (Some(Bytes::gib(2)), Some(Bytes::mib(512))), "{text}");
        }
    }

    #[test]
    fn the_chinese_wording_is_read() {
        let facts = facts_in("GPU 3上出现内存不足错误。无法在GPU 3上分配512.000000MB内存，已分配15.500000GB内存，可用内存仅为256.000000MB。").unwrap();
        assert_eq!((facts.framework_id(), facts.device), ("paddlepaddle", Some(DeviceIndex(3))));
        assert_eq!((facts.request, facts.free), (Some(Bytes::mib(512)), Some(Bytes::mib(256))));
        assert_eq!(facts.total, Some(Bytes::mib(15_872 + 256)));
    }

    #[test]
    fn the_limit_is_stated() {
        let facts = facts_in("Out of memory error on GPU 0. Cannot allocate 1.000000GB memory on GPU 0, 3.500000GB memory has been allocated and available memory is only 512.000000MB.\n2. If no, please decrease the batch size of your model. Or set environment variable `FLAGS_gpu_memory_limit_mb` to a larger value. Currently `FLAGS_gpu_memory_limit_mb` is 4096, so the maximum GPU memory usage is limited to 4096 MB.").unwrap();
        assert_eq!((facts.limit, facts.total), (Some(Bytes::gib(4)), None));
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::ArtificialLimit, Certainty::Certain)
        );
    }

    #[test]
    fn other_programs_are_not_taken() {
        assert_ne!(facts_in("fork: Cannot allocate memory").unwrap().framework_id(), "paddlepaddle");
    }
}
