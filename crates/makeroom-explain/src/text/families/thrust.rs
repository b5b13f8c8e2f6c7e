//! Thrust and CUB.
//!
//! | wording |
//! |---|
//! | `std::bad_alloc: cudaErrorMemoryAllocation: out of memory` |
//! | `thrust::system::system_error … what(): parallel_for failed: cudaErrorMemoryAllocation: out of memory` |
//! | `thrust::system::detail::bad_alloc … what(): std::bad_alloc: out of memory` |
//! | `temporary_buffer::allocate: get_temporary_buffer failed` |
//!
//! No figures. The runtime's word for the error says that the GPU refused; a bare `std::bad_alloc` may be the
//! host's.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::pattern;
use crate::text::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "bad_alloc",
        "get_temporary_buffer failed",
        "cudaErrorMemoryAllocation",
        "failed: out of memory",
    ],
    read,
};

static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"bad_alloc: cudaErrorMemoryAllocation|get_temporary_buffer failed|thrust::.*(?:out of memory|cudaErrorMemoryAllocation)|(?:parallel_for|radix_sort|reduce|scan|merge_sort|copy|unique|for_each)\w*(?: failed)?:? (?:failed .*)?(?:cudaErrorMemoryAllocation|out of memory)",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    WORDS.is_match(&passage.flat).then(|| Facts::new("thrust", Resource::Device, passage))
}

#[cfg(test)]
mod tests {
    use crate::text::find::facts_in;

    #[test]
    fn every_wording_is_read_and_states_nothing() {
        for text in [
            "RuntimeError: std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
            "terminate called after throwing an instance of 'thrust::system::system_error'\n  what():  parallel_for failed: cudaErrorMemoryAllocation: out of memory",
            "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n  what():  std::bad_alloc: out of memory",
            "RuntimeError: temporary_buffer::allocate: get_temporary_buffer failed",
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!((facts.framework, facts.statements.len()), ("thrust", 0), "{text}");
        }
    }

    #[test]
    fn a_bare_bad_alloc_is_not_taken() {
        assert_ne!(
            facts_in("terminate called after throwing an instance of 'std::bad_alloc'").unwrap().framework,
            "thrust"
        );
    }
}
