//! Kokkos, and LAMMPS, Trilinos and others on it: the error names the memory space.
//!
//! | versions | wording |
//! |---|---|
//! | 3 – | `Kokkos failed to allocate memory for label "x". Allocation using MemorySpace named "Cuda" failed with the following error: Allocation of size 1.5 G failed, likely due to insufficient memory.` |
//! | 2 | `Kokkos::HostSpace::allocate[ INTEL_MM_ALLOC ]( 123 ) FAILED NULL` |
//! | 2 – | `cudaMalloc( & ptr , … ) error( cudaErrorMemoryAllocation): out of memory …/Kokkos_CudaSpace.cpp:290` |

use std::sync::LazyLock;

use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::{find_size, pattern};
use crate::text::log::Passage;
use crate::thresholds::ABSURD;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family =
    Family { anchors: &["Kokkos failed to allocate", "HostSpace::allocate", "Kokkos_Cuda"], read };

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Allocation of size ([\d.]+) ?([KMGT]?)i?B? failed"));
static HOST_REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"HostSpace::allocate\[[^\]]*\]\( ?(\d+) ?()\)"));
static HOST_SPACE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"MemorySpace named "?(?:Host|CudaHostPinned|HIPHostPinned)"#));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let is_host = passage.line().contains("HostSpace::allocate") || HOST_SPACE.is_match(text);
    let is_refusal =
        ["memory", "FAILED", "MemoryAllocation"].iter().any(|words| passage.line().contains(words));
    if !is_refusal {
        return None;
    }
    let mut facts = Facts::new("kokkos", if is_host { Resource::Host } else { Resource::Device }, passage);
    facts.request = find_size(&REQUEST, text).or_else(|| find_size(&HOST_REQUEST, text));
    if is_host {
        let asked = facts.request.map_or("Memory".to_owned(), |bytes| bytes.to_string());
        let summary = format!("{asked} was refused in a memory space of the host; the GPU was not asked.");
        // A size below zero was read as one above.
        let is_absurd = facts.request.is_some_and(|bytes| bytes >= ABSURD);
        if is_absurd {
            facts.state(
                Cause::IntegerOrShapeBug,
                Certainty::Certain,
                format!("{asked} was asked for: a size wrapped around."),
            );
        } else {
            facts.state(Cause::HostMemory, Certainty::Certain, summary);
        }
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;
    use makeroom_core::Bytes;

    const ERROR: &str = "  what():  Kokkos failed to allocate memory for label \"Scratch\".  Allocation using MemorySpace named \"Cuda\" failed with the following error:  Allocation of size 1.5 G failed, likely due to insufficient memory.  (The allocation mechanism was cudaMalloc().  The Cuda allocation returned the error code \"\"cudaErrorMemoryAllocation\".)";

    #[test]
    fn the_memory_space_decides() {
        let facts = facts_in(ERROR).unwrap();
        assert_eq!((facts.framework, facts.resource), ("kokkos", Resource::Device));
        assert_eq!((facts.request, facts.statements.len()), (Some(Bytes::mib(1536)), 0));
        let facts = facts_in(&ERROR.replace("\"Cuda\"", "\"Host\"")).unwrap();
        assert_eq!((facts.resource, facts.statements[0].cause), (Resource::Host, Cause::HostMemory));
        let wrapped = "Kokkos::HostSpace::allocate[ INTEL_MM_ALLOC ]( 18446743565090964400 ) FAILED NULL";
        assert_eq!(facts_in(wrapped).unwrap().statements[0].cause, Cause::IntegerOrShapeBug);
    }

    #[test]
    fn other_failures_are_not_taken() {
        assert!(facts_in("Kokkos_CudaSpace.cpp:12: cudaErrorInvalidValue").is_none());
    }
}
