//! Theano, on its old and its new GPU back end.
//!
//! | back end | wording |
//! |---|---|
//! | `cuda` | `Error allocating 40000000 bytes of device memory (out of memory). Driver report 10000000 bytes free and 2000000000 bytes total`; with counting on, `new total bytes allocated: N.` between the two |
//! | `gpuarray` | `pygpu.gpuarray.GpuArrayException: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory` |
//! | CNMeM | `cnmemMalloc … CNMEM_STATUS_OUT_OF_MEMORY` |
//!
//! A driver that could not even say how much there is reports zero bytes total.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::{captured_number, find_size, pattern};
use crate::text::log::Passage;

pub(crate) const FAMILY: Family =
    Family { anchors: &["bytes of device memory", "GpuArrayException", "CNMEM_STATUS_OUT_OF_MEMORY"], read };

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Error allocating (\d+) (bytes) of device memory"));
static DRIVER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Driver report (\d+) bytes free and (\d+) bytes total"));
static COUNTED: LazyLock<Regex> = LazyLock::new(|| pattern(r"new total bytes allocated: (\d+)()"));
static WITHOUT_FIGURES: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"GpuArrayException.*(?i:out of memory)|CNMEM_STATUS_OUT_OF_MEMORY"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let mut facts =
        Facts { request: find_size(&REQUEST, text), ..Facts::new("theano", Resource::Device, passage) };
    if facts.request.is_none() {
        return WITHOUT_FIGURES.is_match(text).then_some(facts);
    }
    facts.live = find_size(&COUNTED, text);
    let driver = DRIVER.captures(text);
    let figure = |group| driver.as_ref().and_then(|found| captured_number(found, group)).map(Bytes::new);
    facts.total = figure(2).filter(|total| !total.is_zero());
    facts.free = figure(1).filter(|_| facts.total.is_some());
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn the_drivers_report_is_read() {
        let facts = facts_in("Error allocating 2000 bytes of device memory (out of memory). Driver report 1000 bytes free and 9000 bytes total").unwrap();
        assert_eq!(facts.framework, "theano");
        assert_eq!(
            (facts.request, facts.free, facts.total),
            (Some(Bytes::new(2000)), Some(Bytes::new(1000)), Some(Bytes::new(9000)))
        );
        assert!(facts.statements.is_empty());
    }

    #[test]
    fn a_report_of_zeros_is_no_report() {
        let facts = facts_in("Error allocating 24 bytes of device memory (out of memory). Driver report 0 bytes free and 0 bytes total").unwrap();
        assert_eq!((facts.free, facts.total), (None, None));
    }

    #[test]
    fn the_new_back_end_has_no_figures() {
        let facts = facts_in(
            "pygpu.gpuarray.GpuArrayException: b'cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory'",
        )
        .unwrap();
        assert_eq!((facts.framework, facts.request), ("theano", None));
    }

    #[test]
    fn other_programs_are_not_taken() {
        assert_ne!(facts_in("Error allocating 24 bytes: out of memory").unwrap().framework, "theano");
    }
}
