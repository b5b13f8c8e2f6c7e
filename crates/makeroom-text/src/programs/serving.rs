//! LLM servers: vLLM, SGLang, TGI, `LMDeploy`, TensorRT-LLM, Triton. They reserve a share of the GPU at startup: weights
//! and activations take their part, the KV cache takes the rest.

mod engines;
mod hosts;
mod lmdeploy;
mod sglang;
mod tensorrt_llm;
mod tgi;
mod triton;
mod vllm;

use makeroom_explain::Fix;

use super::Program;
use crate::situation::Situation;
pub(super) use hosts::{hosted, is_host};

pub(super) const PROGRAMS: &[&Program] = &[
    &engines::APHRODITE,
    &engines::MLC,
    &vllm::VLLM,
    &sglang::SGLANG,
    &tgi::TGI,
    &lmdeploy::LMDEPLOY,
    &tensorrt_llm::TENSORRT_LLM,
    &triton::TRITON_SERVER,
    &engines::MISTRAL_RS,
    &engines::EXLLAMA,
];

/// GPUs before Ampere: servers have no 8-bit floats for them.
const WITHOUT_FP8: [&str; 14] = [
    "V100",
    "Tesla T4",
    "T4 ",
    "P100",
    "P40",
    "GTX 1",
    "RTX 20",
    "2080",
    "2070",
    "2060",
    "TITAN",
    "Quadro RTX",
    "colab",
    "capability 7.",
];

/// Whether the GPU that the text names, if any, can hold 8-bit floats.
fn has_fp8(situation: &Situation<'_>) -> bool {
    !WITHOUT_FP8.iter().any(|name| situation.settings.mentions(name))
}

/// A whole option of at least 1, if the text sets it.
fn count(situation: &Situation<'_>, names: &[&str]) -> Option<u64> {
    situation.settings.number(names).filter(|&value| value >= 1.0).map(|value| value as u64)
}

/// The GPUs that the model is split over: as the options say, or as many as there are ranks in the log.
fn devices(situation: &Situation<'_>, names: &[&str]) -> u64 {
    let has_rank = |rank: &u64| {
        [
            format!(" TP{rank}]"),
            format!("Worker_TP{rank} "),
            format!("rank={rank} pid"),
            format!("[rank{rank}]"),
        ]
        .iter()
        .any(|words| situation.settings.mentions(words))
    };
    let ranks = (1..16).rev().find(has_rank).map_or(1, |last| last + 1);
    count(situation, names).unwrap_or(1).max(ranks)
}

/// Split the model over twice as many GPUs as now.
fn more_devices(situation: &Situation<'_>, names: &[&str], option: &str) -> Fix {
    let devices = devices(situation, names) * 2;
    Fix::new(format!("split the model across {devices} GPUs, if the machine has them"))
        .command(format!("{option}{devices}"))
}

/// Half of an option, or its default where the text does not set it; `None` where it is at `least` already.
fn half(situation: &Situation<'_>, names: &[&str], unset: u64, least: u64) -> Option<u64> {
    match count(situation, names) {
        Some(value) if value <= least => None,
        Some(value) => Some((value / 2).max(least)),
        None => Some(unset),
    }
}
