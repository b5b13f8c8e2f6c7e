//! cuDNN, cuBLAS and cuSOLVER that could not start inside TensorFlow or JAX.
//!
//! | framework | wording |
//! |---|---|
//! | both | `Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR`, newer versions followed by `Memory usage: 500000000 bytes free, 4000000000 bytes total.` |
//! | both | `failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED`, `DNN library initialization failed` |
//! | TensorFlow | `Failed to get convolution algorithm. This is probably because cuDNN failed to initialize` |
//! | JAX | `gpusolverDnCreate(&handle) failed: cuSolver internal error` |
//!
//! The libraries take their memory from the driver, not from the framework's pool. A pool that took the card
//! leaves them nothing. Without the memory figures that is one explanation among others: a version that does not
//! fit the driver fails with the same words.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::bfc_dump::framework;
use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "could not create cudnn handle",
        "failed to create cublas",
        "Failed to get convolution algorithm",
        "DNN library initialization failed",
        "gpusolverDnCreate",
    ],
    read,
};

/// JAX leaves a quarter of the card by default, TensorFlow less.
const LEFT_BY_POOL: f64 = 0.25;
/// With this much free, the libraries did not fail because of memory.
const PLENTY: f64 = 0.5;

static START: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)could not create cudnn handle|failed to create cublas(?: handle\b|\s*$)|Failed to get convolution algorithm|DNN library initialization failed|gpusolverDnCreate\S* failed",
    )
});
static USAGE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Memory usage: (\d+) bytes free, (\d+) bytes total"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    if !START.is_match(passage.line()) {
        return None;
    }
    let usage = USAGE.captures(&passage.flat);
    let figure = |group| usage.as_ref().and_then(|found| captured_number(found, group)).map(Bytes::new);
    let mut facts = Facts {
        free: figure(1),
        total: figure(2),
        ..Facts::new(framework(passage), Resource::Device, passage)
    };
    let (certainty, summary) = match (facts.free, facts.total) {
        (Some(free), Some(total)) if free.share_of(total) <= LEFT_BY_POOL => (
            Certainty::Likely,
            format!("{free} of {total} was free when a CUDA library started: the framework preallocated the rest."),
        ),
        // A library that does not start at all on an empty GPU does not match the driver; other statuses leave it open.
        (Some(free), Some(total)) if free.share_of(total) >= PLENTY => {
            return (!passage.line().contains("NOT_INITIALIZED")).then_some(facts);
        }
        _ => (
            Certainty::Possible,
            "A CUDA library could not start. It allocates outside the framework's pool, and the pool reserves nearly all GPU memory at startup.".to_owned(),
        ),
    };
    // The pool itself ran short before: then the library's failure has that reason, and its size is not the question.
    let is_pool_full = passage.before().any(|line| line.contains("this is not a failure"));
    if certainty == Certainty::Possible && !is_pool_full {
        facts.lead(Cause::Preallocation, summary);
    } else {
        facts.state(Cause::Preallocation, certainty, summary);
    }
    Some(facts)
}

/// Whether a line reports that a CUDA library could not start.
pub(super) fn is_handle_failure(line: &str) -> bool {
    START.is_match(line)
}

#[cfg(test)]
mod tests {
    use makeroom_core::Bytes;
    use makeroom_explain::{Cause, Certainty};

    use crate::find::facts_in;

    fn started_with(free: u64) -> String {
        format!(
            "2024-01-02 03:04:05.000001: E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:441] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n2024-01-02 03:04:05.000002: E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:445] Memory usage: {free} bytes free, 8000000000 bytes total.\n"
        )
    }

    #[test]
    fn a_card_that_the_pool_took_starves_the_library() {
        let facts = facts_in(&started_with(1_000_000_000)).unwrap();
        assert_eq!((facts.framework_id(), facts.total), ("jax", Some(Bytes::new(8_000_000_000))));
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::Preallocation, Certainty::Likely)
        );
    }

    #[test]
    fn on_an_empty_card_nothing_can_be_said() {
        let text = started_with(7_800_000_000);
        assert!(facts_in(&text).unwrap().statements.is_empty());
        assert!(facts_in(&text.replace("INTERNAL_ERROR", "NOT_INITIALIZED")).is_none());
    }

    #[test]
    fn without_figures_it_is_only_possible() {
        let facts = facts_in("E tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED").unwrap();
        assert_eq!(facts.statements[0].certainty, Certainty::Possible);
    }
}
