//! PyTorch's own remedies, as far as the platform and the version have them: allocator settings, and what usually
//! helps training and inference.

use makeroom_core::{Bytes, Framework};
use makeroom_explain::Fix;
use makeroom_explain::advice::{self, Maker};

use crate::environment::System;
use crate::facts::Allocator;
use crate::situation::Situation;
use crate::smaller;

/// A cache in pieces.
pub(crate) fn fragmentation(situation: &Situation<'_>) -> Vec<Fix> {
    let cached = situation.account.cached.unwrap_or(Bytes::ZERO);
    let mut fixes = Vec::new();
    if situation.is_early_torch() {
        fixes.extend(smaller::less_data(situation).into_iter().take(2));
        fixes.push(fixed_sizes(situation));
        return fixes;
    }
    match situation.facts.allocator {
        Allocator::Torch | Allocator::TorchWithoutExpandable => {
            fixes.extend(torch_fragmentation(situation, cached));
        }
        Allocator::Bfc => fixes.push(
            Fix::new("use CUDA's stream-ordered allocator instead of the framework's arena")
                .command(situation.environment.export("TF_GPU_ALLOCATOR=cuda_malloc_async"))
                .frees(cached),
        ),
        _ => {}
    }
    fixes.push(fixed_sizes(situation));
    fixes
}

/// Few sizes of input, whose blocks fit again. PyTorch releases its cache before it fails, so releasing it earlier
/// changes nothing.
fn fixed_sizes(situation: &Situation<'_>) -> Fix {
    Fix::new(if situation.is_inference() {
        "pad inputs to a few fixed lengths or image sizes, so that freed blocks fit the next request"
    } else {
        "pad batches to a few fixed lengths or image sizes, so that freed blocks can be reused"
    })
}

/// PyTorch's remedies for a fragmented cache, as far as the platform and the version have them.
fn torch_fragmentation(situation: &Situation<'_>, cached: Bytes) -> Vec<Fix> {
    let environment = situation.environment;
    if matches!(environment.maker, Maker::Intel | Maker::Apple) {
        return Vec::new();
    }
    let variable = environment.allocator_variable();
    // Blocks above this are not split: small requests then find them whole.
    let split_at = match situation.facts.request {
        Some(request) if request <= Bytes::mib(128) => 128,
        _ => 512,
    };
    let is_old = situation.facts.allocator == Allocator::TorchWithoutExpandable
        && environment.torch.is_none_or(|version| version < (2, 1));
    if !environment.has_expandable_segments() && !is_old || environment.system == System::Windows {
        let split = Fix::new(
            "keep PyTorch from splitting large blocks (expandable segments do not exist on this platform)",
        )
        .command(
            environment
                .export(&format!("{variable}=max_split_size_mb:{split_at},garbage_collection_threshold:0.8")),
        )
        .frees(cached);
        return if situation.settings.configures_allocator("max_split_size_mb:") {
            Vec::new()
        } else {
            vec![split]
        };
    }
    if situation.is_expandable_on() {
        return Vec::new();
    }
    if !is_old {
        let command = environment.export(&format!("{variable}=expandable_segments:True"));
        return vec![Fix { command: Some(command), ..advice::expandable_segments() }.frees(cached)];
    }
    let split = Fix::new("keep PyTorch from splitting large blocks")
        .command(environment.export(&format!("{variable}=max_split_size_mb:{split_at}")));
    if !environment.can_update_torch() {
        return vec![split.frees(cached)];
    }
    vec![
        Fix::new("update PyTorch to 2.1 or later and turn on expandable segments")
            .command(format!(
                "pip install --upgrade torch && {}",
                environment.export(&format!("{variable}=expandable_segments:True"))
            ))
            .frees(cached),
        Fix { action: format!("without an update: {}", split.action), ..split },
    ]
}

/// A cache below this part of the GPU is what every full GPU has: the next requests would fail all the same.
const WORTH_TRYING: f64 = 0.02;

/// What costs nothing to try where the card is full: the allocator's own settings.
pub(crate) fn allocator_first(situation: &Situation<'_>) -> Vec<Fix> {
    let facts = situation.facts;
    let mut fixes = Vec::new();
    if facts.framework == Framework::PyTorchMps {
        fixes.push(watermark());
    }
    let can_be_in_pieces =
        situation.account.shortage().is_some_and(|shortage| {
            shortage.cached >= shortage.missing() && facts.allocator == Allocator::Torch
        }) && situation
            .account
            .cached
            .zip(facts.total)
            .is_none_or(|(cached, total)| cached.share_of(total) >= WORTH_TRYING);
    if can_be_in_pieces {
        fixes.extend(torch_fragmentation(situation, Bytes::ZERO).into_iter().take(1).map(|mut fix| {
            fix.action = format!("{} (worth trying first: it costs nothing)", fix.action);
            fix
        }));
    }
    fixes
}

/// Live tensors fill the device.
pub(crate) fn live_data(situation: &Situation<'_>) -> Vec<Fix> {
    let is_torch = situation.facts.framework.is_torch();
    let mut fixes = allocator_first(situation);
    fixes.extend(smaller::less_data(situation));
    if !is_torch {
        return fixes;
    }
    if situation.is_inference() {
        fixes.push(
            Fix::new("load the weights in 16-bit or 4-bit precision")
                .command("from_pretrained(…, torch_dtype=torch.bfloat16)   (or load_in_4bit=True)"),
        );
        fixes.push(
            Fix::new("run under inference mode, so that no activations are kept for gradients")
                .command("with torch.inference_mode(): …"),
        );
    } else {
        fixes.extend(training_steps(situation));
    }
    fixes
}

/// What usually helps a training run, less what is on already.
pub(crate) fn training_steps(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    if situation.is_early_torch() {
        fixes.push(
            Fix::new(
                "recompute activations in the backward pass instead of storing them (PyTorch 0.4 and later)",
            )
            .command("torch.utils.checkpoint.checkpoint(block, x)"),
        );
        return fixes;
    }
    if !settings.is_on(&[
        "--gradient_checkpointing",
        "gradient_checkpointing",
        "use_checkpoint",
        "--use_checkpoint",
    ]) {
        let has_method = ["transformers", "accelerate", "peft", "huggingface", "diffusers", "sft", "lora"]
            .iter()
            .any(|words| settings.mentions(words));
        fixes.push(if has_method {
            advice::checkpointing()
        } else {
            advice::checkpointing()
                .command("x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)")
        });
    }
    let is_half = settings.is_on(&["--fp16", "--bf16", "fp16", "bf16", "--amp", "--use_amp"])
        || [
            "mixed_precision=fp16",
            "mixed_precision=bf16",
            "mixed_precision fp16",
            "mixed_precision=\"fp16",
            "mixed_precision=\"bf16",
            "precision=16",
            "autocast",
        ]
        .iter()
        .any(|words| settings.mentions(words));
    if !is_half {
        fixes.push(advice::half_precision(situation.environment.maker));
    }
    let has_ranks =
        ["[rank", "torchrun", "local_rank", "accelerate"].iter().any(|words| settings.mentions(words));
    let is_sharded =
        ["deepspeed", "fsdp", "zero_stage", "fully_shard"].iter().any(|words| settings.mentions(words));
    if has_ranks && !is_sharded {
        fixes.push(
            Fix::new("shard gradients and optimizer state across the GPUs, with the state in RAM (ZeRO 2)").command(
                "accelerate launch --use_deepspeed --zero_stage 2 --offload_optimizer_device cpu train.py",
            ),
        );
    }
    if !["8bit", "8-bit", "adafactor", "paged_adam", "bnb"].iter().any(|words| settings.mentions(words))
        && situation.environment.maker == Maker::Nvidia
        && ["adam", "transformers", "llama", "lora", "bert", "gpt"]
            .iter()
            .any(|words| settings.mentions(words))
    {
        fixes.push(
            Fix::new("use an 8-bit optimizer (a quarter of the size of AdamW's state)")
                .command("optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=…)"),
        );
    }
    fixes
}

/// What Apple's limit needs.
pub(crate) fn watermark() -> Fix {
    Fix::new("release PyTorch's cache between runs, then lift its limit (the machine may swap)")
        .command("torch.mps.empty_cache()   (and: export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0)")
}
