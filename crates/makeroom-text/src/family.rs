//! The list of known formats.
//!
//! A family is one file in `families/`: the literal strings that give it away, and a function that reads the
//! passage around one of them. A format that only consists of fixed words is a row of a table in `families/phrases/`. To
//! add a format, write the row or the file with its tests, and a file's line in [`FAMILIES`].

use crate::facts::Facts;
use crate::families;
use crate::log::Passage;

/// One family of formats.
pub(crate) struct Family {
    /// Literal strings (compared without regard to case); where none occurs the family is not asked.
    pub(crate) anchors: &'static [&'static str],
    /// Reads the passage around an anchor. `None`: it is not this family's after all. Some families take whatever
    /// has their anchor, and still have this signature.
    pub(crate) read: fn(&Passage<'_>) -> Option<Facts>,
}

/// All families. The order is that of preference where two read the same line and know equally much.
pub(crate) const FAMILIES: &[&Family] = &[
    &families::pytorch::FAMILY,
    &families::pytorch_async::FAMILY,
    &families::pytorch_host::FAMILY,
    &families::vllm::FAMILY,
    &families::sglang::FAMILY,
    &families::tgi::FAMILY,
    &families::lmdeploy::FAMILY,
    &families::mlc_llm::FAMILY,
    &families::tensorrt::FAMILY,
    &families::vgpu::FAMILY,
    &families::onnxruntime::FAMILY,
    &families::triton_server::FAMILY,
    &families::openvino::FAMILY,
    &families::ctranslate2::FAMILY,
    &families::ollama::FAMILY,
    &families::llama_cpp::FAMILY,
    &families::tensorflow::bfc_dump::FAMILY,
    &families::tensorflow::tensor::FAMILY,
    &families::tensorflow::device::FAMILY,
    &families::tensorflow::host::FAMILY,
    &families::tensorflow::xla::FAMILY,
    &families::tensorflow::handles::FAMILY,
    &families::cupy::FAMILY,
    &families::rmm::FAMILY,
    &families::spark_rapids::FAMILY,
    &families::paddle::FAMILY,
    &families::catboost::FAMILY,
    &families::faiss::FAMILY,
    &families::julia::FAMILY,
    &families::phrases::libraries::FAMILY,
    &families::triton::FAMILY,
    &families::cuda_kernel::FAMILY,
    &families::cuda_libraries::FAMILY,
    &families::miners::FAMILY,
    &families::darknet::FAMILY,
    &families::mitsuba::FAMILY,
    &families::hashcat::FAMILY,
    &families::phrases::programs::FAMILY,
    &families::vulkan_heaps::FAMILY,
    &families::phrases::graphics::FAMILY,
    &families::phrases::statuses::FAMILY,
    &families::cuda_driver::FAMILY,
    &families::oom_killer::FAMILY,
    &families::phrases::runtimes::FAMILY,
    &families::phrases::host::FAMILY,
    &families::nvidia_smi::FAMILY,
    &families::generic::FAMILY,
    &families::wordings::FAMILY,
    &families::languages::FAMILY,
];

/// How many families at the end of the list are last resorts: they read figures without knowing what they mean, and any
/// other that knows the line knows it better.
pub(crate) const LAST_RESORTS: usize = 3;

#[cfg(test)]
mod tests {
    use makeroom_search::{LEAST_SAMPLED, SHORT_ANCHOR};

    use super::*;

    /// [`stream`](crate::stream) samples the log; anchors that are too short for that make it slow.
    #[test]
    fn anchors_are_long_enough_to_be_sampled() {
        let anchors = FAMILIES.iter().flat_map(|family| family.anchors).copied();
        let short: Vec<&str> = anchors.filter(|anchor| anchor.len() < LEAST_SAMPLED).collect();
        // It is compared at every byte: each short anchor is one more pass over the log.
        assert_eq!(short, ["oom"]);
        assert_eq!(short[0].len(), SHORT_ANCHOR);
    }
}
