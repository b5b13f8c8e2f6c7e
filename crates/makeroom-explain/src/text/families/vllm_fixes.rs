//! What vLLM's own options mend. vLLM decides at its start how much it takes and how long a request may be, so its
//! errors are mended by those two options and not by a smaller batch: the batch is made of what is left.

use makeroom_core::{Bytes, DeviceIndex};

use crate::Fix;
use crate::advice::{self, Maker};
use crate::thresholds::CONTEXT_TYPICAL;

/// vLLM hands out its cache in blocks of this many tokens.
const BLOCK_TOKENS: u64 = 16;
/// The largest share that leaves room for the context and for libraries.
const LARGEST_SHARE: f64 = 0.95;

/// A share of fewer hundredths than this holds no model.
const LEAST_SHARE: f64 = 5.0;

/// What vLLM was told to take of the card, as far as its log says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// The card.
    pub(super) total: Option<Bytes>,
    /// What it may use of it.
    pub(super) limit: Option<Bytes>,
}

/// The share that vLLM is to take was not free: give the rest back, or take less.
pub(super) fn at_start(free: Bytes, total: Bytes, device: Option<DeviceIndex>) -> Vec<Fix> {
    let used = (total - free) - CONTEXT_TYPICAL;
    let mut fixes = Vec::new();
    let holders = advice::list_holders(Maker::Nvidia);
    fixes.push(if used.is_zero() { holders } else { holders.frees(used) });
    let hundredths = (free.share_of(total) * 100.0).floor();
    if hundredths >= LEAST_SHARE {
        fixes.push(
            Fix::new(format!("or let vLLM take only what is free, {free}, if the model fits into that"))
                .command(format!("--gpu-memory-utilization {:.2}", hundredths / 100.0)),
        );
    }
    fixes.extend(advice::another_device(Maker::Nvidia, device));
    fixes
}

/// One request of full length does not fit the cache: shorter requests, or more cache.
pub(super) fn shorter_requests(longest: Option<u64>, share: Share, missing: Option<Bytes>) -> Vec<Fix> {
    let mut fixes = Vec::new();
    if let Some(longest) = longest.filter(|&longest| longest > 0) {
        fixes.push(
            Fix::new(format!("allow requests of {longest} tokens at most, for which the cache has room"))
                .command(format!("--max-model-len {longest}")),
        );
    }
    fixes.extend(larger_share(share, missing));
    fixes.push(
        Fix::new("keep the cache in 8 bits, which makes room for twice as many tokens")
            .command("--kv-cache-dtype fp8"),
    );
    fixes.push(several_devices());
    fixes
}

/// The weights leave nothing for the cache.
pub(super) fn smaller_model() -> Vec<Fix> {
    vec![
        several_devices(),
        Fix::new("load the weights in fewer bits, or a smaller model").command("--quantization fp8"),
        Fix::new("plan for fewer tokens at once: activations take less")
            .command("--max-num-batched-tokens 2048"),
    ]
}

/// A larger share of the card: exactly what is missing where the log gives the figures; nothing where the share is as
/// large as it can be.
pub(super) fn larger_share(share: Share, missing: Option<Bytes>) -> Option<Fix> {
    let advice = "give vLLM a larger share of the card, if nobody else needs it";
    let Share { total: Some(total), limit: Some(limit) } = share else {
        return Some(
            Fix::new(format!("{advice} (0.9 unless you set it)"))
                .command(format!("--gpu-memory-utilization {LARGEST_SHARE:.2}")),
        );
    };
    let now = limit.share_of(total);
    let needed = missing.map(|missing| ((limit + missing).share_of(total) * 100.0).ceil() / 100.0);
    let suggested = needed.filter(|&needed| needed <= LARGEST_SHARE).unwrap_or(LARGEST_SHARE);
    if suggested < now + 0.005 {
        return None;
    }
    Some(
        Fix::new(advice)
            .command(format!("--gpu-memory-utilization {suggested:.2}"))
            .frees(total.scaled(suggested) - limit),
    )
}

/// Fewer requests at once.
pub(super) fn fewer_requests(now: Option<u64>) -> Vec<Fix> {
    let half = now.map_or(64, |now| (now / 2).max(1));
    vec![
        Fix::new("serve fewer requests at once").command(format!("--max-num-seqs {half}")),
        Fix::new("leave more of the card to what is not vLLM's cache")
            .command("--gpu-memory-utilization 0.85"),
    ]
}

/// The longest request that a cache has room for, where one of `length` tokens needs `needed`.
pub(super) fn longest_request(length: u64, needed: Bytes, available: Bytes) -> Option<u64> {
    let tokens = u128::from(length) * u128::from(available.get()) / u128::from(needed.get().max(1));
    let tokens = u64::try_from(tokens).ok()?;
    Some(tokens / BLOCK_TOKENS * BLOCK_TOKENS).filter(|&tokens| tokens > 0 && tokens < length)
}

fn several_devices() -> Fix {
    Fix::new("spread the model over several GPUs, if the machine has them")
        .command("--tensor-parallel-size 2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_what_is_missing_and_no_more() {
        let share = Share { total: Some(Bytes::gib(40)), limit: Some(Bytes::gib(20)) };
        let command = |missing| larger_share(share, Some(missing)).unwrap().command.unwrap();
        assert_eq!(command(Bytes::gib(5)), "--gpu-memory-utilization 0.63");
        assert_eq!(command(Bytes::gib(50)), "--gpu-memory-utilization 0.95");
        let full = Share { limit: Some(Bytes::gib(38)), ..share };
        assert_eq!(larger_share(full, Some(Bytes::gib(1))), None);
    }

    #[test]
    fn a_share_of_what_is_free_is_rounded_down() {
        let fixes = at_start(Bytes::mib(10_475), Bytes::mib(24_218), Some(DeviceIndex(0)));
        let commands: Vec<&str> = fixes.iter().filter_map(|fix| fix.command.as_deref()).collect();
        assert_eq!(
            commands,
            ["makeroom ps", "--gpu-memory-utilization 0.43", "export CUDA_VISIBLE_DEVICES=1"]
        );
        assert_eq!(at_start(Bytes::mib(1), Bytes::gib(24), None).len(), 2);
    }

    #[test]
    fn the_longest_request_is_a_number_of_blocks() {
        assert_eq!(longest_request(40_960, Bytes::gib(10), Bytes::gib(3)), Some(12_288));
        assert_eq!(longest_request(1000, Bytes::gib(10), Bytes::mib(5000)), Some(480));
        assert_eq!(longest_request(1000, Bytes::gib(10), Bytes::ZERO), None);
        assert_eq!(longest_request(1000, Bytes::ZERO, Bytes::gib(1)), None);
    }
}
