//! XLA's own errors: JAX, and TensorFlow or PyTorch compiled with XLA, on GPUs and TPUs.
//!
//! | versions | wording |
//! |---|---|
//! | jaxlib – 0.1.6 | `Resource exhausted: Out of memory while trying to allocate 4294967296 bytes.` |
//! | with the platform allocator | `Failed to allocate request for 32.00MiB (33554432B) on device ordinal 0` |
//! | jaxlib 0.3 – 0.6 | `RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.`, then `BufferAssignment OOM Debugging.` with the largest buffers |
//! | newest | `Out of memory while trying to allocate 300.00GiB with allocator GPU_0_bfc on device 0.` |
//! | TPU, running | `Attempting to reserve 10.51G at the bottom of memory. That was not possible. There are 8.97G free, …`, older with `HBM capacity 16.00G:` and what is allocated |
//! | TPU, one buffer | `Allocation (size=107374182400) would exceed memory (size=17179869184) :: #allocation7 …` |
//! | TPU, compiling | `Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm.` |
//! | compiler | `Can't reduce memory use below 12.00GiB (…) by rematerialization; only reduced to 30.00GiB` |
//! | compiler | `The byte size of input/output arguments (322122547201) exceeds the base limit (112583507968)` |
//! | kernels | `Shared memory size limit exceeded: requested 163840, available: 101376` |
//!
//! What the compiler may use is the pool: three quarters of the card unless a fraction was set, less the
//! program's arguments.

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::xla_plan::Plan;
use crate::facts::{Allocator, Facts, Resource, Severity};
use crate::family::Family;
use crate::figures::{captured_number, captured_size, find_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "RESOURCE_EXHAUSTED",
        "Resource exhausted:",
        "while trying to allocate",
        "Failed to allocate request for",
        "by rematerialization",
        "Shared memory size limit exceeded",
        "That was not possible",
        "would exceed memory (size=",
        "Ran out of memory in memory space",
    ],
    read,
};

/// The pool is at least this share of the card by default.
const POOL_SHARE: f64 = 0.75;

static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)Out of memory (?:while trying to allocate|trying to allocate|allocating) ([\d.,]+) ?([KMGT]?i?B|bytes)\b",
    )
});
static PLATFORM_REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Failed to allocate request for [\d.]+ ?\w+ \((\d+)(B)\)"));
static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"on device (?:ordinal )?(\d+)"));
static TPU_REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Attempting to (?:allocate|reserve) ([\d.]+)([KMGT]?)B?(?: at the bottom of memory)?\. That was not possible\.(?: There are ([\d.]+)([KMGT]?)B? free)?",
    )
});
static TPU_CAPACITY: LazyLock<Regex> = LazyLock::new(|| pattern(r"HBM capacity ([\d.]+)([KMGT]?)B?:"));
static TPU_LIVE: LazyLock<Regex> = LazyLock::new(|| pattern(r"Currently allocated: ([\d.]+)([KMGT]?)B? "));
static TPU_PROGRAM: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"Ran out of memory in memory space \w+\.? Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) \w+")
});
static TPU_ALLOCATION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\)"));
static SHARED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Shared memory size limit exceeded: requested (\d+), available: (\d+)"));
static REMATERIALIZED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"reduce memory use below ([\d.]+) ?([KMGT]?i?B)(?: \(\d+ bytes\))? by rematerialization; only reduced to ([\d.]+) ?([KMGT]?i?B)",
    )
});
static BASE_LIMIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"exceeds the base limit \((\d+)\)"));
/// What the runtime took when it started.
static POOL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"XLA backend allocating (\d+) bytes on device \d+ for BFCAllocator"));
static SITE: LazyLock<Regex> = LazyLock::new(|| pattern(r#"source_file="([^"]+)" source_line=(\d+)"#));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let mut facts =
        Facts { allocator: Allocator::Bfc, ..Facts::new(framework(passage), Resource::Device, passage) };
    if let Some(found) = SHARED.captures(text) {
        facts.resource = Resource::Kernel;
        facts.state(
            Cause::SharedMemoryOrKernelResource,
            Certainty::Certain,
            format!("A kernel needs {} bytes of shared memory; the device has {}.", &found[1], &found[2]),
        );
        return Some(facts);
    }
    if let Some(found) = TPU_PROGRAM.captures(text) {
        state_program(captured_size(&found, 1)?, captured_size(&found, 3)?, &mut facts);
        return Some(facts);
    }
    if let Some(found) = TPU_ALLOCATION.captures(text) {
        facts.request = captured_number(&found, 1).map(Bytes::new);
        facts.total = captured_number(&found, 2).map(Bytes::new);
        return Some(facts);
    }
    if let Some(found) = TPU_REQUEST.captures(text) {
        (facts.request, facts.free) = (captured_size(&found, 1), captured_size(&found, 3));
        (facts.total, facts.live) = (find_size(&TPU_CAPACITY, text), find_size(&TPU_LIVE, text));
        return Some(facts);
    }
    let request = REQUEST.captures(text).or_else(|| PLATFORM_REQUEST.captures(text));
    if let Some(found) = request {
        facts.request = captured_size(&found, 1);
        facts.device = DEVICE.captures(text).and_then(|found| captured_number(&found, 1)).map(DeviceIndex);
        facts.site = site(passage);
    } else {
        // The compiler only warns: whether the program fits shows when it runs.
        facts.request = captured_size(&REMATERIALIZED.captures(text)?, 3);
        facts.severity = Severity::Warning;
    }
    state_budget(passage, &mut facts);
    state_plan(passage, None, &mut facts);
    Some(facts)
}

/// A compiled program's whole need against what a TPU has: no single request, so nothing about one piece.
fn state_program(used: Bytes, total: Bytes, facts: &mut Facts) {
    (facts.live, facts.total) = (Some(used), Some(total));
    let summary = format!("The compiled program needs {used} in total; the chip has {total} for it.");
    facts.state(Cause::LiveDataFillsDevice, Certainty::Certain, summary);
}

/// Puts XLA's plan of the program, where it stands below, against what there is: what the compiler may use, or the pool.
pub(super) fn state_plan(passage: &Passage<'_>, pool: Option<Bytes>, facts: &mut Facts) {
    if let Some(plan) = Plan::read(passage) {
        let started =
            || captured_number(&passage.all().find_map(|line| POOL.captures(line))?, 1).map(Bytes::new);
        plan.state(budget(passage).or(pool).or_else(started), facts);
    }
}

fn framework(passage: &Passage<'_>) -> Framework {
    let has = |mark: &str| passage.all().any(|line| line.contains(mark));
    if has("torch_xla") || has("XRTExecute") {
        Framework::PyTorchXla
    } else if has("jax") {
        Framework::Jax
    } else if has("tensorflow.python") || has("tensorflow/python") || has("local_xla") {
        Framework::TensorFlow
    } else {
        Framework::Jax
    }
}

/// The program's line that made the largest buffer. XLA lists buffers by size.
fn site(passage: &Passage<'_>) -> Option<String> {
    let buffers = passage.onward().skip_while(|line| !line.contains("Peak buffers"));
    let found = buffers.skip(1).find_map(|line| SITE.captures(line))?;
    Some(format!("{}:{}", &found[1], &found[2]))
}

/// What the compiler may use on the device, where it said so.
fn budget(passage: &Passage<'_>) -> Option<Bytes> {
    passage.all().find_map(|line| {
        let found = REMATERIALIZED.captures(line);
        let reduced = found.and_then(|found| captured_size(&found, 1));
        reduced.or_else(|| captured_number(&BASE_LIMIT.captures(line)?, 1).map(Bytes::new))
    })
}

/// States that a program is too large, where the compiler said what it may use.
pub(super) fn state_budget(passage: &Passage<'_>, facts: &mut Facts) {
    let (Some(budget), Some(request)) = (budget(passage), facts.request) else { return };
    if request <= budget {
        return;
    }
    // Beyond the pool, a program may still fit a card whose pool is a part of it.
    let certainty = if request.scaled(POOL_SHARE) > budget { Certainty::Likely } else { Certainty::Possible };
    facts.state(
        Cause::RequestExceedsDevice,
        certainty,
        format!(
            "The compiled program needs a single block of {request}; XLA has {budget} for it on this device."
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn every_wording_of_the_request_is_read() {
        for (text, bytes) in [
            (
                "Execution of replica 0 failed: Resource exhausted: Out \nof memory while trying to allocate 4096 bytes.",
                4096,
            ),
            (
                "RuntimeError: Resource exhausted: Failed to allocate request for 3.00MiB (3145728B) on device ordinal 0",
                3 << 20,
            ),
            (
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8192 bytes.",
                8192,
            ),
            (
                "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.00GiB with allocator GPU_0_bfc on device 0. [tf-allocator-allocation-error='']",
                2 << 30,
            ),
            ("RESOURCE_EXHAUSTED: Out of memory allocating 512 bytes.", 512),
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!((facts.framework_id(), facts.request), ("jax", Some(Bytes::new(bytes))), "{text}");
            assert!(facts.statements.is_empty(), "{text}");
        }
    }

    #[test]
    fn the_largest_buffer_names_the_line() {
        let facts = facts_in("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8192 bytes.\nBufferAssignment OOM Debugging.\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 8.0KiB\n\t\tOperator: op_name=\"jit(f)/dot\" source_file=\"model.py\" source_line=41\n").unwrap();
        assert_eq!(facts.site.as_deref(), Some("model.py:41"));
    }

    #[test]
    fn a_program_beyond_what_the_compiler_may_use_is_too_large() {
        let text = "E gpu_hlo_schedule.cc:1068] The byte size of input/output arguments (90000000000) exceeds the base limit (30000000000). This indicates an error in the calculation!\njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 83.82GiB with allocator GPU_0_bfc on device 0.";
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.device, Some(DeviceIndex(0)));
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::RequestExceedsDevice, Certainty::Likely)
        );
        let warning = facts_in("W hlo_rematerialization.cc:3005] Can't reduce memory use below 10.00GiB (10737418240 bytes) by rematerialization; only reduced to 11.00GiB (11811160064 bytes)").unwrap();
        assert_eq!(
            (warning.severity, warning.statements[0].certainty),
            (Severity::Warning, Certainty::Possible)
        );
    }

    #[test]
    fn tpus_give_what_is_free_or_what_they_have() {
        let running = facts_in("RESOURCE_EXHAUSTED: Attempting to reserve 9.50G at the bottom of memory. That was not possible. There are 8.00G free, 0B reserved, and 8.00G reservable.").unwrap();
        assert_eq!(running.free, Some(Bytes::gib(8)));
        let older = facts_in("Attempting to reserve 3.00G at the bottom of memory. That was not possible. There are 2.00G free, 0B reserved, and 2.00G reservable.; \nHBM capacity 8.00G:\n     Currently allocated:    6.00G (   6442450944 bytes)\nRESOURCE_EXHAUSTED").unwrap();
        assert_eq!((older.total, older.live), (Some(Bytes::gib(8)), Some(Bytes::gib(6))));
        let compiling = facts_in("RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.00G of 16.00G hbm.").unwrap();
        assert_eq!((compiling.request, compiling.live), (None, Some(Bytes::gib(20))));
        assert_eq!(compiling.total, Some(Bytes::gib(16)));
        assert_eq!(compiling.statements[0].cause, Cause::LiveDataFillsDevice);
    }

    #[test]
    fn a_buffer_larger_than_a_tpu() {
        let facts = facts_in("XlaRuntimeError: RESOURCE_EXHAUSTED: Allocation (size=34359738368) would exceed memory (size=17179869184) :: #allocation7").unwrap();
        assert_eq!((facts.request, facts.total), (Some(Bytes::gib(32)), Some(Bytes::gib(16))));
    }

    #[test]
    fn shared_memory_of_a_kernel_is_no_device_memory() {
        let facts = facts_in("XlaRuntimeError: RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 200000, available: 101376").unwrap();
        assert_eq!(
            (facts.resource, facts.statements[0].cause),
            (Resource::Kernel, Cause::SharedMemoryOrKernelResource)
        );
    }

    #[test]
    fn tensors_of_tensorflow_are_not_taken() {
        let facts = facts_in("Resource exhausted: OOM when allocating tensor with shape[2,2] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc").unwrap();
        assert_eq!(facts.framework_id(), "tensorflow");
    }
}
