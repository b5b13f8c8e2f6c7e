//! PyTorch's errors about host memory: the CPU allocator in all its wordings, data-loader workers that die for
//! want of shared memory, and storage sizes that overflow before anything is allocated.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Allocator, Facts, Resource, Statement};
use crate::family::Family;
use crate::figures::captured_size;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "CPUAllocator",
        "not enough memory: you tried to allocate",
        "Storage size calculation overflowed",
        "insufficient shared memory",
        "out of shared memory. Please try to raise",
        "unable to allocate shared memory",
        "unable to mmap",
    ],
    read,
};

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)you tried to allocate ([\d.,]+) ?([KMGTP]?i?B|bytes)"));

#[expect(clippy::unnecessary_wraps, reason = "the signature of a family")]
fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.flat.as_str();
    let mut facts = Facts {
        framework: Framework::PyTorch,
        allocator: Allocator::Other,
        line: passage.line_number,
        quote: passage.line().to_owned(),
        resource: Resource::Host,
        ..Facts::default()
    };
    if line.contains("Storage size calculation overflowed") {
        facts.resource = Resource::Device;
        facts.statements.push(Statement::new(
            Cause::IntegerOrShapeBug,
            Certainty::Certain,
            "The size of the tensor does not fit in 64 bits: a shape is wrong.",
        ));
        return Some(facts);
    }
    if line.contains("shared memory") {
        facts.statements.push(Statement::new(
            Cause::HostMemory,
            Certainty::Likely,
            "A data-loader worker died because shared memory (/dev/shm) is full. The GPU is not involved.",
        ));
        return Some(facts);
    }
    let request = REQUEST.captures(line).and_then(|found| captured_size(&found, 1));
    facts.request = request;
    let wanted = request.map_or("host memory".to_owned(), |bytes| format!("{bytes} of host memory"));
    let absurd = request.is_some_and(|bytes| bytes >= Bytes::gib(1 << 30));
    let statement = if absurd {
        Statement::new(
            Cause::IntegerOrShapeBug,
            Certainty::Likely,
            format!("{wanted} was requested. No machine has that much: a shape or an index is wrong."),
        )
    } else {
        Statement::new(
            Cause::HostMemory,
            Certainty::Certain,
            format!("Allocating {wanted} failed: the tensor is on the CPU. The GPU is not involved."),
        )
    };
    facts.statements.push(statement);
    Some(facts)
}
