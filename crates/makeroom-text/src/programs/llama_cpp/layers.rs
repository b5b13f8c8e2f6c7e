//! How many layers fit the GPU, from the buffer sizes that llama.cpp prints.

use makeroom_core::Bytes;
use makeroom_explain::thresholds::CONTEXT_TYPICAL;

use crate::situation::Situation;

/// Layers to try where the log does not give sizes: this share of the current number.
const FALLBACK_SHARE: f64 = 0.75;

/// A figure in MiB that stands behind `name`.
pub(super) fn mib(situation: &Situation<'_>, name: &str) -> Option<Bytes> {
    let amount: f64 = situation.settings.value(&[name])?.trim_end_matches("MiB").parse().ok()?;
    (amount > 0.0).then(|| Bytes::from_units(amount, 1 << 20))
}

/// A buffer of the failing device.
pub(super) fn device_buffer(situation: &Situation<'_>, kind: &str) -> Option<Bytes> {
    let device = situation.facts.device.map_or(0, |device| device.0);
    ["CUDA", "ROCm", "Vulkan", "SYCL"]
        .iter()
        .find_map(|backend| mib(situation, &format!("{backend}{device} {kind}")))
}

/// The model's layers, with the output layer where the log counts it.
pub(super) fn count(situation: &Situation<'_>) -> Option<u64> {
    offloaded(situation)
        .map(|(_, all)| all)
        .or_else(|| situation.settings.number(&["n_layer"]).map(|layers| layers as u64))
        .filter(|&layers| layers > 0)
}

/// `offloaded 33/33 layers to GPU`.
fn offloaded(situation: &Situation<'_>) -> Option<(u64, u64)> {
    let (now, all) = situation.settings.value(&["offloaded"])?.split_once('/')?;
    Some((now.parse().ok()?, all.parse().ok()?))
}

/// The layers on the GPU now.
fn now(situation: &Situation<'_>) -> Option<u64> {
    let all = count(situation);
    let set = situation
        .settings
        .number(&["-ngl", "--n-gpu-layers", "--gpu-layers", "n_gpu_layers", "gpulayers", "num_gpu"])
        .filter(|&layers| layers >= 1.0)
        .map(|layers| layers as u64);
    offloaded(situation).map(|(now, _)| now).or_else(|| Some(set?.min(all.unwrap_or(u64::MAX)))).or(all)
}

/// Memory that must leave the GPU for the failed buffer to fit, with a margin for the next one.
pub(super) fn to_free(situation: &Situation<'_>) -> Option<Bytes> {
    let facts = situation.facts;
    let request = facts.request?;
    let live = facts.live.unwrap_or(Bytes::ZERO);
    let free = facts.free.or_else(|| Some(facts.total? - live - CONTEXT_TYPICAL))?;
    if free >= request {
        return None;
    }
    let margin = facts.total.map_or(Bytes::mib(512), |total| total.scaled(0.05));
    Some(request - free + margin)
}

/// The number of layers that fits: all less as many as hold the missing memory. Three quarters where the log has
/// no sizes.
pub(super) fn fewer(situation: &Situation<'_>) -> Option<u64> {
    let now = now(situation)?;
    if now == 0 || now > 1000 {
        return None;
    }
    let fallback = ((now as f64) * FALLBACK_SHARE) as u64;
    let weights = device_buffer(situation, "model buffer size").or_else(|| {
        // The buffer that failed is the weights themselves.
        situation.facts.request.filter(|_| {
            situation.settings.mentions("alloc_tensor_range")
                || situation.settings.mentions("unable to allocate")
        })
    });
    let (Some(weights), Some(missing)) = (weights, to_free(situation)) else { return Some(fallback) };
    let kv = device_buffer(situation, "KV buffer size").unwrap_or(Bytes::ZERO);
    let per_layer = (weights + kv).get() / now.max(1);
    let fit = now.saturating_sub(missing.get().div_ceil(per_layer.max(1)));
    Some(fit)
}
