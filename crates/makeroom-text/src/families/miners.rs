//! Miners of Ethash: one large table (the DAG) that either fits the card or does not.
//!
//! | program | wording |
//! |---|---|
//! | ethminer 0.15 – | `Using Pci Id : 01:00.0 NAME (Compute 7.5) Memory : 4.00 GB`, `Generating DAG + Light : 3.75 GB`, `CUDA error in func … out of memory` |
//! | ethminer 0.15 | `has insufficient GPU memory. 2147483648 bytes of memory found < 3221225472 bytes of memory required` |
//! | older | `Found suitable CUDA device [NAME] with 2147483648 bytes of GPU memory`, `CUDA error in func 'ethash_cuda_miner::init' at line 243 : out of memory.` |
//! | OpenCL | `Creating DAG buffer, size 2390748544`, `clEnqueueNDRangeKernel -4`, `clCreateBuffer(-61). GPU can't allocate the DAG in a single chunk` |
//! | lolMiner | `Memory:  4096 MByte`, `size of new DAG: 4184 MByte`, `insufficient memory for DAG epoch 395`, `error when allocating memory or building DAG` |
//! | nanominer | `requires 3071 MB memory for DAG but there is only 2079 MB allowed to allocate in single buffer` |
//! | PhoenixMiner | `Allocating DAG (3.50) GB`, `CUDA memory: 4.00 GB total, 3.25 GB free` |

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::binary_size;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "CUDA error in ",
        "has insufficient GPU memory",
        "initMiner error: out of memory",
        "clEnqueueNDRangeKernel",
        "clEnqueueWriteBuffer",
        "clCreateBuffer",
        "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        "allocate the DAG",
        "to create DAG",
        "memory for DAG",
        "Allocation of DAG failed",
        "building DAG",
        "initialize DAG",
        "initialise DAG",
        "generate DAG",
    ],
    read,
};

static TABLE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)Generating DAG \S Light ?: ([\d.]+) ?(GB|MB)|DAG buffer,? size:? (\d+)( ?)|Allocating DAG \(?([\d.]+)\)? ?(GB|MB)|size of new DAG: ([\d.]+) ?(MB)|\bDAG size(?: is|:| of|=)?:? (?:now |about )?([\d.]+) ?(GB|MB)|\b([\d.]+) ?(GB|MB) DAG\b|requires ([\d.]+) ?(MB) memory for DAG|< (\d+) +(bytes) of memory required",
    )
});
static TOTAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Memory ?: +([\d.]+) ?(GB|MB)|with (\d+) (bytes) of GPU memory|([\d.]+) ?(GB|MB) total, [\d.]+ ?(?:GB|MB) free|(\d+) +(bytes) of memory found|\b(\d+(?:\.\d+)?) ?(GB) (?:card|gpu|vram)\b|\b[GR]TX ?\d{3,4}(?: ?ti)? ?\(?(\d{1,2}) ?(GB)\b|CL_DEVICE_GLOBAL_MEM_SIZE\W{1,20}(\d+)( ?)|Global memory size\W+(\d+)( ?)",
    )
});
static LIMIT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"only ([\d.]+) ?(MB|GB) allowed to allocate in single buffer"));
static FREE: LazyLock<Regex> = LazyLock::new(|| pattern(r"[\d.]+ ?(?:GB|MB) total, ([\d.]+) ?(GB|MB) free"));
/// OpenCL's statuses for memory: `CL_MEM_OBJECT_ALLOCATION_FAILURE` is −4, `CL_INVALID_BUFFER_SIZE` is −61.
static OPENCL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\bcl(?:Create|Enqueue)\w+\W{0,3}-4\b|CL_MEM_OBJECT_ALLOCATION_FAILURE"));
static ONE_BUFFER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)clCreateBuffer\W{0,3}-61\b|can't allocate the DAG in a single chunk"));
static SPEAKER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)ethash|\bDAG\b|CUDAMiner|initMiner|insufficient GPU memory"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let lower = passage.line().to_ascii_lowercase();
    let near: Vec<&str> = passage.onward().take(4).chain(passage.before().take(40)).collect();
    let is_too_large = ONE_BUFFER.is_match(passage.line());
    let is_refusal = lower.contains("out of memory")
        || lower.contains("insufficient gpu memory")
        || lower.contains("insufficient memory for dag")
        || lower.contains("allocation of dag failed")
        || lower.contains("allocating memory or building dag")
        || lower.contains("memory for dag but")
        || OPENCL.is_match(passage.line())
        || is_too_large;
    if !is_refusal || !near.iter().any(|line| SPEAKER.is_match(line)) {
        return None;
    }
    let figure = |figure: &Regex| near.iter().find_map(|line| captured(figure, line));
    let mut facts = Facts::new(Framework::Ethminer, Resource::Device, passage);
    (facts.request, facts.free) = (figure(&TABLE), figure(&FREE));
    facts.total = total_of_device(passage).or_else(|| figure(&TOTAL));
    if let (Some(request), Some(limit)) = (facts.request, captured(&LIMIT, passage.line())) {
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Likely,
            format!("The driver allows at most {limit} in one buffer, but the DAG needs {request}; the size of the GPU's memory does not matter."),
        );
        return Some(facts);
    }
    match (facts.request, facts.total) {
        _ if is_too_large => facts.lead(
            Cause::RequestExceedsDevice,
            "The DAG is larger than the device allows in one buffer; it grows over time, and this GPU is too small for it.",
        ),
        (Some(request), Some(total)) if request <= total => {
            let rest = facts.free.map_or(total - request, |free| total - free);
            let summary = format!(
                "The DAG of {request} fits in the GPU's {total}, but not together with the {rest} that the driver, the context and a desktop use."
            );
            let certainty =
                if request.share_of(total) >= 0.75 { Certainty::Likely } else { Certainty::Possible };
            facts.state(Cause::NonFrameworkOverhead, certainty, summary);
        }
        (None, Some(total)) => {
            let summary = format!(
                "The GPU has {total}; the DAG grows over time, and the log does not give its size."
            );
            facts.state(Cause::RequestExceedsDevice, Certainty::Possible, summary);
        }
        // A table and a card whose sizes are known are for the judge to compare.
        _ => {}
    }
    Some(facts)
}

/// The size of the device that the error names, where the log lists several.
fn total_of_device(passage: &Passage<'_>) -> Option<Bytes> {
    /// The most lines that a device's entry spans.
    const ENTRY_LINES: usize = 12;
    static NAMED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(?:GPU|device) ?#?(\d{1,2})\b"));
    static ENTRY: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)^\W*(?:GPU|device) ?#?(\d{1,2}) ?:?\s*$"));
    let device = NAMED.captures(passage.line())?;
    let mut above: Vec<&str> = passage.before().collect();
    above.reverse();
    let start =
        above.iter().rposition(|line| ENTRY.captures(line).is_some_and(|entry| entry[1] == device[1]))?;
    let entry = above[start + 1..].iter().take(ENTRY_LINES).take_while(|line| !ENTRY.is_match(line));
    entry.into_iter().find_map(|line| captured(&TOTAL, line))
}

/// The size that a figure captured, in whichever of its alternatives.
fn captured(figure: &Regex, line: &str) -> Option<Bytes> {
    let found = figure.captures(line)?;
    let mut groups = found.iter().skip(1).flatten();
    binary_size(groups.next()?.as_str(), groups.next()?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn a_table_that_fits_the_card_but_not_beside_the_rest() {
        let text = "cu 16:40:28 cuda-0   Using Pci Id : 01:00.0 GPU 9 (Compute 7.5) Memory : 4.00 GB\ncu 16:40:30 cuda-0   Generating DAG + Light : 3.75 GB\ncu 16:40:30 cuda-0   Unexpected error CUDA error in func dev::eth::CUDAMiner::initEpoch_internal at line 123 out of memory on CUDA device 01:00.0";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.total), ("ethminer", Some(Bytes::gib(4))));
        assert_eq!(facts.request, Some(Bytes::mib(3840)));
        assert_eq!(facts.statements[0].cause, Cause::NonFrameworkOverhead);
        let text = "GPU1: Allocating DAG (3.50) GB; good for epoch up to #298\nCUDA error in CudaProgram.cu:373 : out of memory (2)\nGPU1: CUDA memory: 4.00 GB total, 3.25 GB free";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.request, facts.free), (Some(Bytes::mib(3584)), Some(Bytes::mib(3328))));
    }

    #[test]
    fn a_table_larger_than_the_card() {
        let text = "CUDA device GPU 9 has insufficient GPU memory. 2147483648  bytes of memory found < 3221225472  bytes of memory required";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.total, facts.request), (Some(Bytes::gib(2)), Some(Bytes::gib(3))));
        assert!(facts.statements.is_empty());
    }

    #[test]
    fn opencls_statuses() {
        let text = " cl  15:16:38|cl-0      Creating DAG buffer, size 3221225472\n  x  15:16:38|cl-0      OpenCL Error: clEnqueueNDRangeKernel -4";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.request), ("ethminer", Some(Bytes::gib(3))));
        let text = "Creating one big buffer for the DAG\nfailed with: clCreateBuffer(-61). GPU can't allocate the DAG in a single chunk.";
        let stated = &facts_in(text).unwrap().statements[0];
        assert!(stated.leads && stated.cause == Cause::RequestExceedsDevice);
    }

    #[test]
    fn without_the_tables_size_nothing_is_sure() {
        let text = "Found suitable CUDA device [GPU 9] with 2147483648 bytes of GPU memory\nCUDA error in func 'ethash_cuda_miner::init' at line 243 : out of memory.";
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.statements[0].certainty, Certainty::Possible);
        assert_ne!(
            facts_in("CUDA error in file 'solver.cu': out of memory").unwrap().framework_id(),
            "ethminer"
        );
    }

    #[test]
    fn the_device_that_failed_has_the_size() {
        let text = "Device 0:\n    Name:    Card A\n    Memory:  3072 MByte\nDevice 1:\n    Name:    Card B\n    Memory:  6144 MByte\nsize of new DAG: 3300 MByte\nGPU 0: insufficient memory for DAG epoch 300.";
        assert_eq!(facts_in(text).unwrap().total, Some(Bytes::gib(3)));
        let other = text.replace("GPU 0:", "GPU 1:");
        assert_eq!(facts_in(&other).unwrap().total, Some(Bytes::gib(6)));
    }

    #[test]
    fn a_table_that_is_larger_than_the_card_or_its_buffers() {
        let text = "    Memory:  4096 MByte\nStart Mining...\n     Done (2500 ms), size of new DAG: 4200 MByte\nGPU 0: insufficient memory for DAG epoch 397.";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.request, facts.total), (Some(Bytes::mib(4200)), Some(Bytes::gib(4))));
        let text = "Error: could not allocate memory on GPU 0 to create DAG. Current epoch requires 3000 MB memory for DAG but there is only 2000 MB allowed to allocate in single buffer.";
        assert_eq!(facts_in(text).unwrap().statements[0].cause, Cause::ArtificialLimit);
        let text = "GPU 0: error when allocating memory or building DAG. Disabling card.";
        assert_eq!(facts_in(text).unwrap().framework_id(), "ethminer");
    }
}
