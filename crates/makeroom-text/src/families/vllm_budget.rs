//! vLLM's memory budget, as its startup log prints it: `total × utilization = weights + activations + libraries +
//! KV cache`.
//!
//! | versions | wording |
//! |---|---|
//! | 0.6 | `Memory profiling results: total_gpu_memory=23.6GiB … non_torch_memory=0.1GiB kv_cache_size=-1.2GiB gpu_memory_utilization=0.90` |
//! | 0.6 – 0.8 | `total_gpu_memory (8.00GiB) x gpu_memory_utilization (0.70) = 5.60GiB`, `model weights take …; … the rest of the memory reserved for KV Cache is -1.05GiB` |
//! | 0.8 – | `Model loading took 14.9 GiB`, `Total non KV cache memory: 17.2GiB`, `Available KV cache memory: -1.2 GiB` |

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_search::{Regex, pattern};

use crate::figures::captured_number;
use crate::log::Passage;
use crate::settings::Settings;

/// The largest share that leaves room for the context and for libraries.
pub(crate) const LARGEST_SHARE: f64 = 0.95;
/// vLLM's share unless it is set.
pub(crate) const DEFAULT_SHARE: f64 = 0.9;
/// A KV cache smaller than this serves next to nothing.
const LEAST_CACHE: Bytes = Bytes::gib(1);

/// Every figure of the budget: its name, its number.
static FIGURE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)(total_gpu_memory|gpu[-_]memory[-_]utilization|GPU memory utilization|Requested memory|model weights take|weights memory|Model loading took|model weights took|Total non KV cache memory|PyTorch activation peak memory takes|non_torch_memory takes|reserved for KV Cache is|Available KV cache memory|kv_cache_size)["'`]?(?: *[=:] *| +| *\( *)["'`]?(-?\d+(?:\.\d+)?)"#,
    )
});
/// Words before an option that only suggest it.
static SUGGESTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:try|e\.g\.|set|setting|increas\w+|decreas\w+|lower\w*|rais\w+)\b[^.:;]{0,24}$")
});

/// Whether the free memory of a GPU is worth a share: with less than 4 GiB only where that is most of a small GPU, whose
/// owner chose the model for it.
pub(crate) fn is_worth_a_share(free: Bytes, total: Bytes) -> bool {
    free >= Bytes::gib(4) || free.share_of(total) >= 0.5
}

/// vLLM's budget, as far as the log prints it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Budget {
    /// The GPU's memory.
    pub(crate) total: Option<Bytes>,
    /// `gpu_memory_utilization`.
    pub(crate) share: Option<f64>,
    /// The memory that vLLM may use: the share of the total.
    pub(crate) limit: Option<Bytes>,
    /// Weights.
    pub(crate) weights: Option<Bytes>,
    /// Weights, activations, graphs and libraries.
    pub(crate) fixed: Option<Bytes>,
    /// Memory left for the KV cache in GiB; below zero where the fixed part exceeds the limit.
    pub(crate) cache: Option<f64>,
}

impl Budget {
    /// Reads it from the options and log lines of a whole text.
    pub(crate) fn read(settings: &Settings<'_>) -> Self {
        Self::from_figures(|names| settings.value(names).and_then(number))
    }

    /// Reads it from the lines around an anchor.
    pub(crate) fn around(passage: &Passage<'_>) -> Self {
        let mut figures: Vec<(String, f64)> = Vec::new();
        for line in passage.all().chain(passage.others()) {
            for found in FIGURE.captures_iter(line) {
                let start = found.get(0).map_or(0, |all| all.start());
                let Some(value) = captured_number(&found, 2).filter(|_| !SUGGESTION.is_match(&line[..start]))
                else {
                    continue;
                };
                figures.push((found[1].to_ascii_lowercase().replace('-', "_"), value));
            }
        }
        Self::from_figures(|names| {
            names.iter().find_map(|name| {
                let name = name.to_ascii_lowercase();
                figures.iter().find(|(known, _)| name.ends_with(known.as_str())).map(|&(_, value)| value)
            })
        })
    }

    /// Puts the figures together; `figure` returns the number behind the first of some names.
    fn from_figures(figure: impl Fn(&[&str]) -> Option<f64>) -> Self {
        let bytes = |names: &[&str]| {
            figure(names).filter(|&amount| amount >= 0.0).map(|amount| Bytes::from_units(amount, 1 << 30))
        };
        let mut budget = Self {
            // "can use" before the name would make it a suggestion.
            total: bytes(&["can use total_gpu_memory", "total_gpu_memory"]),
            share: figure(&["gpu_memory_utilization", "Requested memory", "GPU memory utilization"])
                .filter(|share| (0.01..=1.0).contains(share)),
            limit: None,
            weights: bytes(&[
                "model weights take",
                "weights memory",
                "Model loading took",
                "model weights took",
            ]),
            fixed: bytes(&["Total non KV cache memory"]),
            cache: figure(&["reserved for KV Cache is", "Available KV cache memory", "kv_cache_size"]),
        };
        if let (Some(total), Some(share)) = (budget.total, budget.share) {
            budget.limit = Some(total.scaled(share));
        }
        if budget.fixed.is_none() {
            budget.fixed = bytes(&["PyTorch activation peak memory takes"]).and_then(|activations| {
                Some(
                    budget.weights? + activations + bytes(&["non_torch_memory takes"]).unwrap_or(Bytes::ZERO),
                )
            });
        }
        // The parts sum up to the limit.
        if let (None, Some(limit), Some(cache)) = (budget.fixed, budget.limit, budget.cache) {
            let short = Bytes::from_units(cache.abs(), 1 << 30);
            budget.fixed = Some(if cache < 0.0 { limit + short } else { limit - short });
        }
        budget
    }

    /// Whether the share is as large as it can be.
    pub(crate) fn is_at_largest(&self) -> bool {
        self.share.is_some_and(|share| share >= LARGEST_SHARE)
    }

    /// The smallest share that holds weights, activations and a KV cache of `cache`, in hundredths; `None` where the
    /// log lacks the figures or the GPU is too small.
    pub(crate) fn needed_share(&self, cache: Option<Bytes>) -> Option<f64> {
        let (total, fixed) = (self.total?, self.fixed?);
        let cache = cache.unwrap_or(LEAST_CACHE);
        let share = ((fixed + cache).share_of(total) * 100.0 - 1e-6).ceil() / 100.0;
        (share <= LARGEST_SHARE).then_some(share)
    }
}

/// The number at the front of `8.00GiB`.
fn number(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(text.len());
    text[..end].trim_end_matches('.').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_each_version() {
        let old = Budget::read(&Settings::new(
            "the current vLLM instance can use total_gpu_memory (16.00GiB) x gpu_memory_utilization (0.50) = 8.00GiB\nmodel weights take 7.50GiB; non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes 1.25GiB; the rest of the memory reserved for KV Cache is -1.00GiB.",
        ));
        assert_eq!((old.total, old.share, old.limit), (Some(Bytes::gib(16)), Some(0.5), Some(Bytes::gib(8))));
        assert_eq!((old.fixed, old.cache), (Some(Bytes::gib(9)), Some(-1.0)));
        assert_eq!(old.needed_share(None), Some(0.63));
        let older = Budget::read(&Settings::new(
            "Memory profiling results: total_gpu_memory=20.00GiB initial_memory_usage=15.00GiB kv_cache_size=-2.00GiB gpu_memory_utilization=0.80",
        ));
        assert_eq!(older.fixed, Some(Bytes::gib(18)));
        let new = Budget::read(&Settings::new(
            "Initial free memory: 40.00 GiB; Requested memory: 0.900000 (util), 36.00 GiB\nMemory profiling takes 9.1 seconds. Total non KV cache memory: 37.5GiB; weights memory: 35.0GiB.\nAvailable KV cache memory: -1.5 GiB",
        ));
        assert_eq!((new.share, new.fixed, new.cache), (Some(0.9), Some(Bytes::mib(38_400)), Some(-1.5)));
    }

    #[test]
    fn a_share_that_no_gpu_has_is_not_suggested() {
        let text = "total_gpu_memory (8.00GiB) x gpu_memory_utilization (0.90) = 7.20GiB\nmodel weights take 7.50GiB; non_torch_memory takes 0.10GiB; PyTorch activation peak memory takes 1.00GiB;";
        assert_eq!(Budget::read(&Settings::new(text)).needed_share(None), None);
    }
}
