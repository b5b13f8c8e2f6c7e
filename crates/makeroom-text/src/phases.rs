//! Phases of a PyTorch program in which the batch is not the lever: weights are gathered to be saved, loaded, moved to
//! the GPU, or the optimizer takes its first step. The traceback shows the phase; its steps come before the program's own.

use makeroom_explain::{Cause, Fix};

use crate::situation::Situation;

/// What a program was doing when memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// FSDP gathers all shards of a checkpoint on each GPU.
    GatherShards,
    /// `DeepSpeed` gathers 16-bit weights to save them.
    GatherWeights,
    /// A checkpoint is read to the GPU that it was saved from.
    ReadCheckpoint,
    /// An optimizer updates all parameters in one call.
    UpdateAtOnce,
    /// Layers are created on the GPU, or moved to it.
    PlaceWeights,
}

const GATHER_SHARDS: &[&str] = &[
    "_full_pre_state_dict_hook",
    "_full_post_state_dict_hook",
    "_common_unshard_pre_state_dict_hook",
    "Failed to clone() tensor",
    "full_optim_state_dict",
    "_gather_orig_param_state",
    "_gather_state_dict",
];
const GATHER_WEIGHTS: &[&str] =
    &["_zero3_consolidated_16bit_state_dict", "consolidated_16bit", "save_16bit_model", "save_fp16_model"];
const READ_CHECKPOINT: &[&str] =
    &["_cuda_deserialize", "default_restore_location", "_rebuild_from_type_v2", "restore_location(storage"];
const UPDATE_AT_ONCE: &[&str] = &[
    "_multi_tensor_adam",
    "_foreach_sqrt",
    "_foreach_add",
    "_foreach_div",
    "_foreach_mul",
    "_multi_tensor_sgd",
];
/// Frames that move a module, and source lines that create one.
const PLACE_WEIGHTS: &[&str] = &[
    "return self._apply(convert)",
    "self._apply(lambda t: t.cuda(device))",
    "in convert\n",
    "= Parameter(torch.Tensor(",
    "= Parameter(torch.empty(",
    "Parameter(\n            torch.empty",
    "skip_init",
    "load_checkpoint_and_dispatch",
    "_load_state_dict_into_meta_model",
    "set_module_tensor_to_device",
];
/// Frames of a step, in which the weights are in place.
const IN_A_STEP: &[&str] =
    &["backward(", "in forward", "forward(", "training_step", "optimizer.step", "generate("];

impl Phase {
    /// The phase that a traceback shows.
    pub(crate) fn from_situation(situation: &Situation<'_>) -> Option<Self> {
        let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
        if says(GATHER_SHARDS) {
            Some(Self::GatherShards)
        } else if says(GATHER_WEIGHTS) {
            Some(Self::GatherWeights)
        } else if says(READ_CHECKPOINT) {
            Some(Self::ReadCheckpoint)
        } else if says(UPDATE_AT_ONCE) {
            Some(Self::UpdateAtOnce)
        } else if says(PLACE_WEIGHTS) && !says(IN_A_STEP) {
            Some(Self::PlaceWeights)
        } else {
            None
        }
    }
}

/// The steps for the phase, first of all for causes that less memory cures.
pub(crate) fn steps(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let is_about_own_memory =
        matches!(cause, Cause::LiveDataFillsDevice | Cause::Fragmentation | Cause::RequestExceedsDevice);
    let is_torch = situation.settings.mentions("torch") || situation.facts.framework.is_torch();
    if !is_about_own_memory || !is_torch {
        return Vec::new();
    }
    let says = |words: &str| situation.settings.mentions(words);
    match Phase::from_situation(situation) {
        Some(Phase::GatherShards) => {
            let mut fixes = Vec::new();
            if !says("offload_to_cpu=True") {
                fixes.push(
                    Fix::new("gather the checkpoint in RAM, on the first rank only")
                        .command("FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True))"),
                );
            }
            if !says("SHARDED_STATE_DICT") {
                fixes.push(
                    Fix::new("or save one file per rank, and merge them afterward")
                        .command("StateDictType.SHARDED_STATE_DICT   (accelerate: fsdp_state_dict_type: SHARDED_STATE_DICT)"),
                );
            }
            fixes
        }
        Some(Phase::GatherWeights) => vec![
            Fix::new("save the shards without gathering them, and merge them afterward with `python zero_to_fp32.py . out`")
                .command("\"zero_optimization\": {\"stage3_gather_16bit_weights_on_model_save\": false}"),
        ],
        Some(Phase::ReadCheckpoint) if !says("map_location='cpu'") && !says("map_location=\"cpu\"") => vec![
            Fix::new("read the checkpoint into RAM: by default, it is loaded onto the GPU it was saved from")
                .command("torch.load(path, map_location='cpu')"),
        ],
        Some(Phase::UpdateAtOnce) if !says("foreach=False") => vec![
            Fix::new("update one parameter at a time: updating all of them in one call needs a second copy of the parameters")
                .command("torch.optim.AdamW(model.parameters(), lr=…, foreach=False)"),
        ],
        _ => Vec::new(),
    }
}

/// Whether a traceback shows a step, in which the weights are in place.
pub(crate) fn is_in_a_step(situation: &Situation<'_>) -> bool {
    IN_A_STEP.iter().any(|words| situation.settings.mentions(words))
}

/// The steps where weights fill the GPU and nothing shows the program's own options.
pub(crate) fn fewer_weights_on_gpu(situation: &Situation<'_>) -> Vec<Fix> {
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    let mut fixes = Vec::new();
    let is_quantized = says(&["4bit", "4-bit", "int4", "gptq", "awq", "quant"]);
    if situation.is_training() {
        if !says(&["zero_stage 3", "stage3", "zero3", "ZeRO-3"]) {
            fixes.push(
                Fix::new("the weights fill the GPU before activations do: shard them across the GPUs, and keep them in RAM between uses (ZeRO 3)")
                    .command("accelerate launch --use_deepspeed --zero_stage 3 --offload_param_device cpu --offload_optimizer_device cpu train.py"),
            );
        }
        if !is_quantized {
            fixes
                .push(Fix::new("or train an adapter on 4-bit weights (QLoRA)").command(
                    "from_pretrained(…, quantization_config=BitsAndBytesConfig(load_in_4bit=True))",
                ));
        }
        return fixes;
    }
    if !is_quantized {
        fixes.push(
            Fix::new("if the weights alone fill the GPU: load them in 4-bit precision").command(
                "from_pretrained(…, load_in_4bit=True)   (many programs: --quant 4 or --load-in-4bit)",
            ),
        );
    }
    fixes
}

/// The steps where the weights themselves do not fit: no batch has been read yet.
pub(crate) fn smaller_weights(situation: &Situation<'_>) -> Vec<Fix> {
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    let mut fixes = Vec::new();
    if !says(&["float16", "fp16", ".half()"]) {
        fixes.push(
            Fix::new("convert the weights to 16-bit precision before they move to the GPU (half the size)")
                .command("model = model.half().to('cuda')"),
        );
    }
    let is_transformers =
        says(&["from_pretrained", "transformers", "llama", "huggingface", "AutoModel", "accelerate"]);
    if !is_transformers {
        fixes.push(
            Fix::new("or keep the model on the CPU, for inference only")
                .command(situation.environment.export("CUDA_VISIBLE_DEVICES=-1")),
        );
        return fixes;
    }
    if !says(&["4bit", "4-bit", "int4", "gptq", "awq"]) {
        fixes.push(
            Fix::new("or load them in 4-bit precision (an eighth of the 32-bit size)")
                .command("from_pretrained(…, quantization_config=BitsAndBytesConfig(load_in_4bit=True))"),
        );
    }
    // Activations get a quarter of the GPU.
    let cap = situation.facts.total.map_or(8, |total| (total.scaled(0.75).get() >> 30).max(1));
    if !says(&["max_memory"]) {
        fixes.push(
            Fix::new(format!("or keep {cap} GiB of the weights on the GPU and the rest in RAM"))
                .command(format!("accelerate.dispatch_model(model, accelerate.infer_auto_device_map(model, max_memory={{0: \"{cap}GiB\", \"cpu\": \"64GiB\"}}))")),
        );
    }
    fixes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::find;
    use crate::fixes::for_cause;
    use crate::log::Log;

    const OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 40.00 GiB of which 200.00 MiB is free. Including non-PyTorch memory, this process has 39.70 GiB memory in use. Of the allocated memory 39.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.";

    fn first(frames: &str) -> String {
        let text = format!("Traceback (most recent call last):\n{frames}\n{OOM}");
        let log = Log::new(&text);
        let found = find::failures(&log).unwrap();
        let context = Context::read(&log, found.index);
        let situation = Situation::new(&log, found.index, &found.first, &context);
        for_cause(Cause::LiveDataFillsDevice, &situation)[0].command.clone().unwrap_or_default()
    }

    #[test]
    fn the_phase_comes_before_the_batch() {
        for (frames, command) in [
            (
                "  File \"torch/distributed/fsdp/_state_dict_utils.py\", line 9, in _full_pre_state_dict_hook",
                "offload_to_cpu=True",
            ),
            (
                "  File \"deepspeed/runtime/engine.py\", line 9, in _zero3_consolidated_16bit_state_dict",
                "stage3_gather_16bit_weights_on_model_save",
            ),
            ("  File \"torch/serialization.py\", line 9, in _cuda_deserialize", "map_location='cpu'"),
            ("  File \"torch/optim/adamw.py\", line 9, in _multi_tensor_adamw", "foreach=False"),
            (
                "  File \"torch/nn/modules/module.py\", line 9, in convert\n    return t.to(device)",
                "model.half().to('cuda')",
            ),
        ] {
            assert!(first(frames).contains(command), "{frames}: {}", first(frames));
        }
    }

    #[test]
    fn a_step_is_not_the_start() {
        let frames = "  File \"m.py\", line 3, in forward\n  File \"torch/nn/modules/module.py\", line 9, in convert\n    return t.to(device)";
        assert!(!first(frames).contains("model.half().to("), "{}", first(frames));
    }
}
