//! `CTranslate2`, and faster-whisper on it: CUDA's error string and nothing else.
//!
//! | wording | meaning |
//! |---|---|
//! | `RuntimeError: CUDA failed with error out of memory` | an allocation failed |
//! | `RuntimeError: cuBLAS failed with status CUBLAS_STATUS_ALLOC_FAILED` | cuBLAS got no workspace |
//!
//! Other programs put the error's number before the string (`cuda failed with error 2 out of memory`).

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::contains_folded;

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::log::Passage;

pub(crate) const FAMILY: Family =
    Family { anchors: &["CUDA failed with error", "cuBLAS failed with status"], read };

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let has = |words: &str| contains_folded(passage.line(), words);
    if !has("failed with error out of memory") && !has("ALLOC_FAILED") {
        return None;
    }
    let mut facts = Facts::new(Framework::CTranslate2, Resource::Device, passage);
    facts.state(
        Cause::LiveDataFillsDevice,
        Certainty::Possible,
        "The model, the beams and the batch do not fit on this GPU.",
    );
    Some(facts)
}

#[cfg(test)]
mod tests {
    use crate::find::facts_in;

    #[test]
    fn only_errors_about_memory() {
        for text in [
            "RuntimeError: CUDA failed with error out of memory",
            "RuntimeError: cuBLAS failed with status CUBLAS_STATUS_ALLOC_FAILED",
        ] {
            assert_eq!(facts_in(text).unwrap().framework_id(), "ctranslate2", "{text}");
        }
        for text in [
            "voxel/core.cc 31\ncuda failed with error 2 out of memory. use CUDA_LAUNCH_BLOCKING=1 to get correct traceback.",
            "CUDA failed with error 2: out of memory",
        ] {
            assert_ne!(facts_in(text).unwrap().framework_id(), "ctranslate2", "{text}");
        }
        assert!(facts_in("RuntimeError: CUDA failed with error no kernel image is available").is_none());
        assert!(facts_in("RuntimeError: cuBLAS failed with status CUBLAS_STATUS_NOT_SUPPORTED").is_none());
    }
}
