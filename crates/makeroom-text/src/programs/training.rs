//! Training of language models on PyTorch: Trainer and what wraps it.

use makeroom_explain::advice::Maker;
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[&UNSLOTH, &AXOLOTL, &TRAINER];
/// Programs that start a server of language models themselves, and so stand before it.
pub(super) const HOSTS: &[&Program] = &[&LLAMA_FACTORY, &MS_SWIFT, &TRL, &LM_EVAL];

fn is_nvidia(situation: &Situation<'_>) -> bool {
    situation.environment.maker == Maker::Nvidia
}

/// Words of a failure in the evaluation between training steps.
pub(super) fn is_evaluating(situation: &Situation<'_>) -> bool {
    [
        "evaluation_loop",
        "prediction_step",
        "nested_concat",
        "_maybe_log_save_evaluate",
        "validation_step",
        "_run_sanity_check",
    ]
    .iter()
    .any(|words| situation.settings.mentions(words))
}

pub(super) fn has_many_gpus(situation: &Situation<'_>) -> bool {
    situation.settings.mentions("rank") || situation.facts.device.is_some_and(|device| device.0 > 0)
}

const TRAINER: Program = Program {
    name: "the Hugging Face Trainer",
    frameworks: &[],
    marks: &[
        "transformers/trainer.py",
        "SFTTrainer",
        "Seq2SeqTrainer",
        "TrainingArguments",
        "per_device_train_batch_size",
        "trl/trainer",
        "trl/commands",
        "trl/core",
        "run_clm.py",
        "run_mlm.py",
        "peft/tuners",
        "peft/peft_model",
        "finetune.py --base_model",
        "rl-swarm",
    ],
    work: Work::Training,
    advise: trainer,
};

fn trainer(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    if is_evaluating(situation) && cause == Cause::LiveDataFillsDevice {
        return lever::steps(situation, cause, EVALUATION_LEVERS);
    }
    lever::steps(situation, cause, TRAINER_LEVERS)
}

const CHECKPOINTING: Lever = Lever::switch(
    "recompute activations instead of keeping them",
    "gradient_checkpointing=True",
    &["--gradient_checkpointing", "gradient_checkpointing"],
);

const QLORA: Lever = Lever::new(
    "train a LoRA on 4-bit weights (a quarter of the 16-bit size)",
    "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16) with LoraConfig(r=16)",
)
.unless_said(&["load_in_4bit", "qlora", "4bit"]);

const TRAINER_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size per device{from} and accumulate gradients to keep the effective batch",
        "per_device_train_batch_size={to}, gradient_accumulation_steps={steps}",
        &[
            "--per_device_train_batch_size",
            "per_device_train_batch_size",
            "--micro_batch_size",
            "micro_batch_size",
        ],
    ),
    CHECKPOINTING,
    Lever::new("use a paged 8-bit optimizer, whose state can move to the CPU", "optim=\"paged_adamw_8bit\"")
        .unless_said(&["8bit", "adafactor", "paged_adam"])
        .only(is_nvidia),
    Lever::lower(
        "shorten the sequences{from tokens}",
        "max_seq_length={to}",
        &[
            "max_seq_length",
            "--max_seq_length",
            "max_length",
            "--max_length",
            "model_max_length",
            "--block_size",
            "block_size",
            "cutoff_len",
        ],
        1024,
    )
    .at_least(128, 128),
    Lever::lower(
        "generate fewer completions per prompt{from}",
        "num_generations={to}",
        &["num_generations"],
        4,
    )
    .at_least(2, 2)
    .only(|situation| situation.settings.mentions("grpo")),
    Lever::switch("train in 16-bit precision", "bf16=True", &["--fp16", "--bf16", "fp16", "bf16"])
        .unless_said(&["bfloat16", "mixed_precision=\"fp16", "4bit"])
        .only(|situation| situation.environment.maker != Maker::Apple),
    QLORA.only(is_nvidia),
    Lever::new(
        "shard parameters, gradients and optimizer state across the GPUs",
        "deepspeed=\"ds_zero3.json\"",
    )
    .unless_said(&["deepspeed", "fsdp"])
    .only(has_many_gpus),
];

const EVALUATION_LEVERS: &[Lever] = &[
    Lever::lower(
        "evaluate in smaller batches{from}",
        "per_device_eval_batch_size={to}",
        &["--per_device_eval_batch_size", "per_device_eval_batch_size"],
        1,
    ),
    Lever::switch(
        "move predictions to the CPU as they are computed: by default, all of them stay on the GPU",
        "eval_accumulation_steps=8",
        &["--eval_accumulation_steps", "eval_accumulation_steps"],
    )
    .unless_said(&["eval_accumulation_steps="]),
    Lever::switch(
        "keep only the loss, if no metric needs the logits",
        "prediction_loss_only=True",
        &["--prediction_loss_only", "prediction_loss_only"],
    ),
    Lever::new(
        "keep class indices instead of logits",
        "preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)",
    )
    .unless_said(&["preprocess_logits_for_metrics"]),
];

const UNSLOTH: Program = Program {
    name: "Unsloth",
    frameworks: &[],
    marks: &["unsloth"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, UNSLOTH_LEVERS),
};

const UNSLOTH_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size per device{from} and accumulate gradients",
        "per_device_train_batch_size={to}, gradient_accumulation_steps={steps}",
        &["per_device_train_batch_size", "--per_device_train_batch_size"],
    ),
    Lever::new("let Unsloth offload activations", "use_gradient_checkpointing=\"unsloth\"")
        .unless_said(&["checkpointing=\"unsloth\"", "checkpointing = \"unsloth\""]),
    Lever::new(
        "load the weights in 4-bit precision",
        "FastLanguageModel.from_pretrained(…, load_in_4bit=True)",
    )
    .unless_said(&["load_in_4bit=True", "load_in_4bit = True", "bnb-4bit"]),
    Lever::lower("shorten the sequences{from tokens}", "max_seq_length={to}", &["max_seq_length"], 1024)
        .at_least(256, 128),
    Lever::new("use an 8-bit optimizer", "optim=\"adamw_8bit\"").unless_said(&["8bit\""]),
    Lever::new("give vLLM less GPU memory", "gpu_memory_utilization=0.4").only(|situation| {
        situation.settings.is_on(&["fast_inference"])
            && situation.settings.number(&["gpu_memory_utilization"]).is_none_or(|share| share > 0.4)
    }),
];

const AXOLOTL: Program = Program {
    name: "Axolotl",
    frameworks: &[],
    marks: &["axolotl"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, AXOLOTL_LEVERS),
};

const AXOLOTL_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the micro-batch size{from} and accumulate gradients",
        "micro_batch_size: {to}\ngradient_accumulation_steps: {steps}",
        &["micro_batch_size"],
    ),
    Lever::switch(
        "recompute activations instead of keeping them",
        "gradient_checkpointing: true",
        &["gradient_checkpointing"],
    )
    .unless_said(&["gradient_checkpointing: offload"]),
    Lever::lower("shorten the sequences{from tokens}", "sequence_len: {to}", &["sequence_len"], 2048)
        .at_least(256, 128),
    Lever::new("use a paged 8-bit optimizer", "optimizer: paged_adamw_8bit").unless_said(&[
        "8bit\n",
        "adamw_bnb_8bit",
        "paged_adam",
    ]),
    Lever::new("train a LoRA on 4-bit weights", "adapter: qlora\nload_in_4bit: true")
        .unless_said(&["qlora", "load_in_4bit: true"]),
    Lever::new("shard everything across the GPUs", "deepspeed: deepspeed_configs/zero3_bf16.json")
        .unless_said(&["zero3", "fsdp"])
        .only(has_many_gpus),
];

const LLAMA_FACTORY: Program = Program {
    name: "LLaMA-Factory",
    frameworks: &[],
    marks: &["llamafactory", "LLaMA-Factory", "llmtuner"],
    work: Work::Training,
    advise: |situation, cause| {
        let is_chat =
            ["llamafactory-cli chat", "llamafactory-cli api", "llamafactory-cli webchat", "infer_backend"]
                .iter()
                .any(|words| situation.settings.mentions(words));
        let levers = if is_chat { LLAMA_FACTORY_CHAT } else { LLAMA_FACTORY_LEVERS };
        lever::steps(situation, cause, levers)
    },
};

const LLAMA_FACTORY_CHAT: &[Lever] = &[
    Lever::new("load the weights in 4-bit precision (a quarter of the 16-bit size)", "--quantization_bit 4")
        .unless_said(&["quantization_bit", "gptq", "awq"]),
    Lever::lower("shorten the context{from tokens}", "--vllm_maxlen {to}", &["vllm_maxlen"], 2048)
        .at_least(512, 256)
        .only(|situation| situation.settings.mentions("vllm")),
    Lever::lower("generate fewer tokens{from}", "--max_new_tokens {to}", &["max_new_tokens"], 512)
        .at_least(64, 64),
];

const MS_SWIFT: Program = Program {
    name: "ms-swift",
    frameworks: &[],
    marks: &["ms-swift", "ms_swift", "swift/llm", "swift/cli", "swift sft", "swift rlhf", "swift/trainers"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, MS_SWIFT_LEVERS),
};

const MS_SWIFT_LEVERS: &[Lever] = &[
    Lever::new(
        "leave more GPU memory for training: give the rollout engine a smaller share, and let it sleep between rollouts",
        "--vllm_gpu_memory_utilization 0.4 --sleep_level 1 --offload_model true --offload_optimizer true",
    )
    .unless_said(&["sleep_level 1", "vllm_mode server"])
    .only(|situation| ["rlhf", "grpo"].iter().any(|words| situation.settings.mentions(words))),
    Lever::batch(
        "lower the batch size per device{from} and accumulate gradients",
        "--per_device_train_batch_size {to} --gradient_accumulation_steps {steps}",
        &["per_device_train_batch_size"],
    ),
    Lever::lower("shorten the samples{from tokens}", "--max_length {to}", &["max_length"], 2048)
        .at_least(256, 128),
    Lever::new("train a LoRA on 4-bit weights", "--train_type lora --quant_method bnb --quant_bits 4")
        .unless_said(&["quant_bits"]),
    Lever::new("shard everything across the GPUs, with the optimizer in RAM", "--deepspeed zero3_offload")
        .unless_said(&["zero3"])
        .only(has_many_gpus),
];

const TRL: Program = Program {
    name: "TRL",
    frameworks: &[],
    marks: &["GRPOConfig", "GRPOTrainer", "trl vllm-serve", "trl/trainer/grpo", "grpo_trainer"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, TRL_LEVERS),
};

const TRL_LEVERS: &[Lever] = &[
    Lever::lower(
        "generate fewer completions per prompt{from| (default 8)}",
        "GRPOConfig(…, num_generations={to})",
        &["num_generations"],
        4,
    )
    .at_least(2, 1),
    Lever::lower(
        "generate shorter completions{from tokens}",
        "GRPOConfig(…, max_completion_length={to})",
        &["max_completion_length"],
        256,
    )
    .at_least(64, 64),
    Lever::batch(
        "lower the batch size per device{from} and accumulate gradients",
        "GRPOConfig(…, per_device_train_batch_size={to}, gradient_accumulation_steps={steps})",
        &["per_device_train_batch_size"],
    ),
    Lever::new(
        "leave more GPU memory for training: lower vLLM's share (default 0.3), and let it sleep between rollouts",
        "GRPOConfig(…, vllm_gpu_memory_utilization=0.2, vllm_enable_sleep_mode=True)",
    )
    .unless_said(&["vllm_enable_sleep_mode=True"])
    .only(|situation| situation.settings.mentions("vllm")),
    CHECKPOINTING,
];

const LM_EVAL: Program = Program {
    name: "lm-evaluation-harness",
    frameworks: &[],
    marks: &["lm_eval/", "lm-evaluation-harness", "lm_eval --model", "lm-eval --model"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, LM_EVAL_LEVERS),
};

const LM_EVAL_LEVERS: &[Lever] = &[
    Lever::new("let the program find the largest batch that fits", "--batch_size auto")
        .unless_said(&["batch_size auto"]),
    Lever::batch("lower the batch size{from}", "--batch_size {to}", &["--batch_size", "batch_size"])
        .only(|situation| situation.settings.mentions("batch_size auto") || situation.batch().is_some()),
    Lever::lower("shorten the context{from tokens}", "--model_args …,max_length={to}", &["max_length"], 2048)
        .at_least(512, 256),
    Lever::new("split the model across the GPUs", "--model_args …,parallelize=True")
        .unless_said(&["parallelize=True"]),
    Lever::new("load the weights in 4-bit precision", "--model_args …,load_in_4bit=True")
        .unless_said(&["load_in_4bit"]),
];

const LLAMA_FACTORY_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size per device{from} and accumulate gradients",
        "per_device_train_batch_size: {to}\ngradient_accumulation_steps: {steps}",
        &["per_device_train_batch_size", "--per_device_train_batch_size"],
    ),
    Lever::lower(
        "shorten the samples{from tokens}",
        "cutoff_len: {to}",
        &["cutoff_len", "--cutoff_len"],
        1024,
    )
    .at_least(128, 128),
    Lever::new("train a LoRA on 4-bit weights", "finetuning_type: lora\nquantization_bit: 4")
        .unless_said(&["quantization_bit"]),
    Lever::new(
        "shard everything across the GPUs, with the optimizer on the CPU",
        "deepspeed: examples/deepspeed/ds_z3_offload_config.json",
    )
    .unless_said(&["ds_z3", "zero3", "stage\": 3"]),
    Lever::new("use an attention kernel that does not store the attention matrix", "flash_attn: fa2")
        .unless_said(&["flash_attn: fa2", "flash_attn fa2"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check, torch};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "the Hugging Face Trainer",
                r#"  File "/x/transformers/trainer.py", line 3"#,
                "per_device_train_batch_size=1",
                ("gradient_checkpointing=True", "gradient_checkpointing"),
            ),
            (
                "Unsloth",
                "Unsloth 2025.1: Fast Llama patching",
                "per_device_train_batch_size=1",
                ("load_in_4bit = True", "load_in_4bit"),
            ),
            ("Axolotl", "[axolotl.train] start", "micro_batch_size: 1", ("adapter: qlora", "qlora")),
            (
                "LLaMA-Factory",
                "llamafactory-cli train a.yaml",
                "per_device_train_batch_size: 1",
                ("quantization_bit: 4", "quantization_bit"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    #[test]
    fn the_effective_batch_is_kept() {
        let log = torch(
            "SFTTrainer per_device_train_batch_size=8 gradient_accumulation_steps=4 max_seq_length=4096",
        );
        let (_, steps) = advice(&log, Cause::LiveDataFillsDevice);
        assert_eq!(
            steps[0].command.as_deref(),
            Some("per_device_train_batch_size=4, gradient_accumulation_steps=8")
        );
    }

    #[test]
    fn an_evaluation_has_its_own_levers() {
        let (_, steps) =
            advice(&torch("transformers/trainer.py in evaluation_loop"), Cause::LiveDataFillsDevice);
        assert_eq!(steps[0].command.as_deref(), Some("per_device_eval_batch_size=1"));
        assert_eq!(steps[1].command.as_deref(), Some("eval_accumulation_steps=8"));
    }
}
