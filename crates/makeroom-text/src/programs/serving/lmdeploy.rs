//! `LMDeploy`'s options. `cache_max_entry_count` is the KV cache's share of the memory that the weights leave (before
//! 0.2.1: of the whole GPU).

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::super::{Program, Work};
use super::{half, more_devices};
use crate::situation::Situation;

pub(super) const LMDEPLOY: Program = Program {
    name: "LMDeploy",
    frameworks: &[Framework::LmDeploy],
    marks: &["lmdeploy", "turbomind"],
    work: Work::Inference,
    advise,
};

fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::LiveDataFillsDevice
        | Cause::RequestExceedsDevice
        | Cause::ArtificialLimit
        | Cause::NonFrameworkOverhead
        | Cause::Preallocation
        | Cause::Fragmentation => smaller(situation),
        Cause::OtherProcesses | Cause::HiddenHolder => vec![smaller_cache(situation)],
        _ => Vec::new(),
    }
}

fn smaller_cache(situation: &Situation<'_>) -> Fix {
    // Before 0.1 the option was a number of sequences.
    let count = situation.settings.number(&["cache_max_entry_count"]).filter(|&count| count > 1.0);
    if let Some(count) = count {
        let fewer = ((count / 2.0) as u64).clamp(1, 8);
        return Fix::new(format!("reserve the KV cache for fewer sequences than {count} (config.ini)"))
            .command(format!("cache_max_entry_count = {fewer}"));
    }
    let now =
        situation.settings.number(&["cache_max_entry_count"]).filter(|share| (0.0..=1.0).contains(share));
    let suggested = now.map_or(0.4, |now| now / 2.0);
    Fix::new("shrink the KV cache: by default, it takes 0.8 of the memory that remains after the weights are loaded")
        .command(format!("--cache-max-entry-count {suggested:.1}   (Python: TurbomindEngineConfig(cache_max_entry_count={suggested:.1}))"))
}

fn smaller(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    let is_planned = settings.mentions("No enough gpu memory for kv cache");
    if !is_planned {
        fixes.push(smaller_cache(situation));
    }
    fixes.push(more_devices(situation, &["--tp", "tp"], "--tp "));
    if !["awq", "gptq", "w4a16"].iter().any(|name| settings.mentions(name)) {
        fixes.push(
            Fix::new("load a 4-bit checkpoint (a quarter of the size)")
                .command("lmdeploy lite auto_awq MODEL --work-dir MODEL-4bit && lmdeploy serve api_server MODEL-4bit --model-format awq"),
        );
    }
    if let Some(length) = half(situation, &["session_len"], 8192, 1024) {
        fixes.push(
            Fix::new("limit the context length per session").command(format!("--session-len {length}")),
        );
    }
    if let Some(requests) = half(situation, &["max_batch_size"], 32, 1) {
        fixes.push(Fix::new("run fewer requests at once").command(format!("--max-batch-size {requests}")));
    }
    if settings.number(&["quant_policy"]).is_none() {
        fixes.push(
            Fix::new("quantize the KV cache to 8 bits: twice as many tokens fit").command("--quant-policy 8"),
        );
    }
    fixes
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::commands;
    use super::*;

    #[test]
    fn the_cache_then_more_gpus() {
        let text = "pipe = pipeline(model, backend_config=TurbomindEngineConfig(session_len=16384, cache_max_entry_count=0.6))\nRuntimeError: [TM][ERROR] CUDA runtime error: out of memory /lmdeploy/src/turbomind/utils/memory_utils.cu:32";
        let steps = commands(text, Cause::LiveDataFillsDevice);
        assert!(steps[0].starts_with("--cache-max-entry-count 0.3"), "{steps:?}");
        assert!(steps.contains(&"--session-len 8192".to_owned()) && steps.contains(&"--tp 2".to_owned()));
    }
}
