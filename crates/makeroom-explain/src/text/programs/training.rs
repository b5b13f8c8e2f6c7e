//! Training of language models and general training frameworks on PyTorch: Trainer and what wraps it, DeepSpeed,
//! FSDP, Megatron, Lightning, Ray.

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::advice::Maker;
use crate::text::situation::Situation;
use crate::{Cause, Fix};

pub(super) const PROGRAMS: &[&Program] = &[
    &DEEPSPEED_CHAT,
    &UNSLOTH,
    &AXOLOTL,
    &LLAMA_FACTORY,
    &TRAINER,
    &MEGATRON,
    &LIGHTNING,
    &DEEPSPEED,
    &FSDP,
    &RAY_TRAIN,
];

fn is_nvidia(situation: &Situation<'_>) -> bool {
    situation.environment.maker == Maker::Nvidia
}

/// Words of a failure in the evaluation between training steps.
fn is_evaluating(situation: &Situation<'_>) -> bool {
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

fn has_many_gpus(situation: &Situation<'_>) -> bool {
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
    if is_evaluating(situation) && matches!(cause, Cause::LiveDataFillsDevice | Cause::Undetermined) {
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
    "train a LoRA on 4-bit weights, a quarter of the 16-bit size",
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
    Lever::new(
        "keep the optimizer state in 8 bits, in pages that can move to the CPU",
        "optim=\"paged_adamw_8bit\"",
    )
    .unless_said(&["8bit", "adafactor", "paged_adam"])
    .only(is_nvidia),
    Lever::lower(
        "shorten the sequences{from} tokens",
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
    Lever::switch("train in 16 bits", "bf16=True", &["--fp16", "--bf16", "fp16", "bf16"])
        .unless_said(&["bfloat16", "mixed_precision=\"fp16", "4bit"])
        .only(|situation| situation.environment.maker != Maker::Apple),
    QLORA.only(is_nvidia),
    Lever::new("shard parameters, gradients and optimizer over the GPUs", "deepspeed=\"ds_zero3.json\"")
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
        "move predictions to the CPU as they come: by default all stay on the GPU",
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
        "keep class numbers instead of logits",
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
    Lever::new("load the weights in 4 bits", "FastLanguageModel.from_pretrained(…, load_in_4bit=True)")
        .unless_said(&["load_in_4bit=True", "load_in_4bit = True", "bnb-4bit"]),
    Lever::lower("shorten the sequences{from} tokens", "max_seq_length={to}", &["max_seq_length"], 1024)
        .at_least(256, 128),
    Lever::new("keep the optimizer state in 8 bits", "optim=\"adamw_8bit\"").unless_said(&["8bit\""]),
    Lever::new("give vLLM less of the GPU", "gpu_memory_utilization=0.4").only(|situation| {
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

const AXOLOTL_LEVERS: &[Lever] =
    &[
        Lever::batch(
            "lower the micro batch{from} and accumulate gradients",
            "micro_batch_size: {to}\ngradient_accumulation_steps: {steps}",
            &["micro_batch_size"],
        ),
        Lever::switch(
            "recompute activations instead of keeping them",
            "gradient_checkpointing: true",
            &["gradient_checkpointing"],
        )
        .unless_said(&["gradient_checkpointing: offload"]),
        Lever::lower("shorten the sequences{from} tokens", "sequence_len: {to}", &["sequence_len"], 2048)
            .at_least(256, 128),
        Lever::new("keep the optimizer state in 8 bits, in pages", "optimizer: paged_adamw_8bit")
            .unless_said(&["8bit\n", "adamw_bnb_8bit", "paged_adam"]),
        Lever::new("train a LoRA on 4-bit weights", "adapter: qlora\nload_in_4bit: true")
            .unless_said(&["qlora", "load_in_4bit: true"]),
        Lever::new("shard everything over the GPUs", "deepspeed: deepspeed_configs/zero3_bf16.json")
            .unless_said(&["zero3", "fsdp"])
            .only(has_many_gpus),
    ];

const LLAMA_FACTORY: Program = Program {
    name: "LLaMA-Factory",
    frameworks: &[],
    marks: &["llamafactory", "LLaMA-Factory", "llmtuner"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, LLAMA_FACTORY_LEVERS),
};

const LLAMA_FACTORY_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size per device{from} and accumulate gradients",
        "per_device_train_batch_size: {to}\ngradient_accumulation_steps: {steps}",
        &["per_device_train_batch_size", "--per_device_train_batch_size"],
    ),
    Lever::lower(
        "shorten the samples{from} tokens",
        "cutoff_len: {to}",
        &["cutoff_len", "--cutoff_len"],
        1024,
    )
    .at_least(128, 128),
    Lever::new("train a LoRA on 4-bit weights", "finetuning_type: lora\nquantization_bit: 4")
        .unless_said(&["quantization_bit"]),
    Lever::new(
        "shard everything over the GPUs, with the optimizer on the CPU",
        "deepspeed: examples/deepspeed/ds_z3_offload_config.json",
    )
    .unless_said(&["ds_z3", "zero3", "stage\": 3"]),
    Lever::new("use an attention kernel that does not store the matrix", "flash_attn: fa2")
        .unless_said(&["flash_attn: fa2", "flash_attn fa2"]),
];

const DEEPSPEED: Program = Program {
    name: "DeepSpeed",
    frameworks: &[],
    marks: &["deepspeed"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, DEEPSPEED_LEVERS),
};

fn is_stage_three(situation: &Situation<'_>) -> bool {
    ["zero3", "zero-3", "stage3", "stage_3", "stage\": 3", "stage=3", "stage 3", "zero_stage 3"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

const DEEPSPEED_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the micro batch{from} and accumulate gradients",
        "\"train_micro_batch_size_per_gpu\": {to}, \"gradient_accumulation_steps\": {steps}",
        &["train_micro_batch_size_per_gpu", "--per_device_train_batch_size", "micro_batch_size"],
    ),
    Lever::new("shard parameters too: ZeRO stage 3", "\"zero_optimization\": {\"stage\": 3}")
        .only(|situation| !is_stage_three(situation)),
    Lever::new(
        "keep the optimizer state in CPU memory",
        "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}}",
    )
    .unless_said(&["offload_optimizer", "cpu_offload"]),
    Lever::new(
        "keep the parameters in CPU memory too",
        "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}",
    )
    .unless_said(&["offload_param"])
    .only(is_stage_three),
    Lever::new(
        "gather fewer parameters at a time",
        "\"stage3_max_live_parameters\": 3e8, \"stage3_prefetch_bucket_size\": 2e7",
    )
    .unless_said(&["stage3_max_live_parameters"])
    .only(is_stage_three),
    Lever::switch(
        "recompute activations instead of keeping them",
        "model.gradient_checkpointing_enable()",
        &["--gradient_checkpointing", "gradient_checkpointing", "--gradient-checkpointing"],
    )
    .unless_said(&["gradient_checkpointing_enable", "checkpoint-activations"]),
];

const DEEPSPEED_CHAT: Program = Program {
    name: "DeepSpeed-Chat",
    frameworks: &[],
    marks: &[
        "DeepSpeed-Chat",
        "dschat",
        "step3_rlhf_finetuning",
        "step1_supervised_finetuning",
        "step2_reward_model",
    ],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, DEEPSPEED_CHAT_LEVERS),
};

const DEEPSPEED_CHAT_LEVERS: &[Lever] = &[
    Lever::switch(
        "keep the reference model in CPU memory",
        "--offload_reference_model",
        &["--offload_reference_model"],
    )
    .only(|situation| situation.settings.mentions("step3")),
    Lever::new("shard the models over the GPUs: ZeRO stage 3", "--actor_zero_stage 3 --critic_zero_stage 3")
        .unless_said(&["zero_stage 3", "zero_stage=3", "zero_stage', '3"]),
    Lever::switch("keep parameters and optimizer in CPU memory", "--offload", &["--offload"]),
    Lever::switch(
        "recompute activations instead of keeping them",
        "--actor_gradient_checkpointing --critic_gradient_checkpointing",
        &["--actor_gradient_checkpointing", "--gradient_checkpointing"],
    ),
    Lever::lower(
        "shorten prompts and answers{from}",
        "--max_prompt_seq_len {to} --max_answer_seq_len {to}",
        &["--max_answer_seq_len", "--max_prompt_seq_len"],
        128,
    )
    .at_least(64, 64),
    Lever::batch(
        "lower the batch size per device{from}",
        "--per_device_train_batch_size {to} --gradient_accumulation_steps {steps}",
        &["--per_device_train_batch_size"],
    ),
];

const FSDP: Program = Program {
    name: "FSDP",
    frameworks: &[],
    marks: &["fully_sharded_data_parallel", "FullyShardedDataParallel", "fsdp/", "fsdp_", "llama_recipes"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, FSDP_LEVERS),
};

const FSDP_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size per GPU{from} and accumulate gradients",
        "--batch_size_training {to} --gradient_accumulation_steps {steps}",
        &["batch_size_training", "--batch_size_training", "batch_size"],
    ),
    Lever::new("shard parameters, gradients and optimizer", "fsdp_sharding_strategy: FULL_SHARD")
        .unless_said(&["FULL_SHARD"]),
    Lever::switch(
        "recompute activations instead of keeping them",
        "fsdp_activation_checkpointing: true",
        &["fsdp_activation_checkpointing", "fsdp_activation_checkpointing"],
    )
    .unless_said(&["apply_activation_checkpointing"]),
    Lever::switch(
        "keep parameters and optimizer in CPU memory",
        "fsdp_offload_params: true",
        &["fsdp_offload_params"],
    )
    .unless_said(&["CPUOffload(offload_params=True", "fsdp_cpu_offload True"]),
    Lever::lower(
        "shorten the sequences{from} tokens",
        "--context_length {to}",
        &["context_length", "--context_length"],
        2048,
    )
    .at_least(256, 128),
];

const MEGATRON: Program = Program {
    name: "Megatron-LM",
    frameworks: &[],
    marks: &["megatron", "pretrain_gpt", "pretrain_llama", "pretrain_bert"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, MEGATRON_LEVERS),
};

const MEGATRON_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the micro batch{from}: the global batch keeps the rest",
        "--micro-batch-size {to}",
        &["--micro-batch-size", "micro_batch_size"],
    ),
    Lever::new(
        "recompute all activations",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    )
    .unless_said(&[
        "recompute-granularity full",
        "recompute_granularity full",
        "checkpoint-activations",
        "recompute-activations",
    ]),
    Lever::switch(
        "shard the optimizer over the data-parallel ranks",
        "--use-distributed-optimizer",
        &["--use-distributed-optimizer", "use_distributed_optimizer"],
    ),
    Lever::raise(
        "split each layer over more GPUs{from}",
        "--tensor-model-parallel-size {to} --sequence-parallel",
        &["--tensor-model-parallel-size", "tensor_model_parallel_size"],
        2,
        8,
    ),
    Lever::lower(
        "shorten the sequences{from} tokens",
        "--seq-length {to}",
        &["--seq-length", "seq_length"],
        0,
    )
    .at_least(512, 128),
];

const LIGHTNING: Program = Program {
    name: "Lightning",
    frameworks: &[],
    marks: &[
        "pytorch_lightning",
        "lightning/pytorch",
        "lightning.pytorch",
        "L.Trainer",
        "pl.Trainer",
        "pytorch-lightning",
        "lightning_fabric",
    ],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, LIGHTNING_LEVERS),
};

const LIGHTNING_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the DataLoader's batch size{from} and accumulate gradients",
        "DataLoader(…, batch_size={to}); Trainer(accumulate_grad_batches={steps})",
        &["batch_size", "--batch_size", "--batch-size"],
    ),
    Lever::new("train in 16 bits", "Trainer(precision=\"bf16-mixed\")")
        .unless_said(&[
            "16-mixed",
            "precision=16",
            "precision: 16",
            "bf16",
            "16bit Automatic Mixed Precision",
        ])
        .only(|situation| situation.environment.maker != Maker::Apple),
    Lever::new("skip the validation that runs before training", "Trainer(num_sanity_val_steps=0)")
        .only(|situation| situation.settings.mentions("sanity")),
    Lever::new("validate in smaller batches", "val_dataloader: batch_size=1").only(is_evaluating),
    Lever::new("shard the model over the GPUs", "Trainer(strategy=\"fsdp\")")
        .unless_said(&["fsdp", "deepspeed"])
        .only(has_many_gpus),
    Lever::new(
        "find the largest batch that fits",
        "Tuner(trainer).scale_batch_size(model, mode=\"binsearch\")",
    )
    .unless_said(&["scale_batch_size"]),
];

const RAY_TRAIN: Program = Program {
    name: "Ray Train",
    frameworks: &[],
    marks: &["ray/train", "ray.train", "TorchTrainer", "rllib"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, RAY_TRAIN_LEVERS),
};

const RAY_TRAIN_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size per worker{from}",
        "train_loop_config={\"batch_size\": {to}}",
        &["batch_size", "train_batch_size"],
    ),
    Lever::new(
        "give each worker a whole GPU",
        "ScalingConfig(num_workers=N, use_gpu=True, resources_per_worker={\"GPU\": 1})",
    )
    .unless_said(&["\"GPU\": 1}"]),
    Lever::lower(
        "run fewer trials at once{from}",
        "TuneConfig(max_concurrent_trials={to})",
        &["max_concurrent_trials"],
        1,
    ),
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
            (
                "DeepSpeed",
                r#"  File "/x/deepspeed/runtime/engine.py", line 3"#,
                "train_micro_batch_size_per_gpu\": 1",
                ("\"offload_optimizer\": {\"device\": \"cpu\"}", "offload_optimizer"),
            ),
            (
                "DeepSpeed-Chat",
                "/x/DeepSpeed-Chat/training/step3_rlhf_finetuning/main.py",
                "--offload_reference_model",
                ("--offload_reference_model", "--offload_reference_model"),
            ),
            (
                "FSDP",
                "FullyShardedDataParallel(",
                "--batch_size_training 1",
                ("fsdp_sharding_strategy: FULL_SHARD", "FULL_SHARD"),
            ),
            (
                "Megatron-LM",
                r#"  File "/x/megatron/training/training.py", line 3"#,
                "--micro-batch-size 1",
                ("--use-distributed-optimizer", "--use-distributed-optimizer"),
            ),
            (
                "Lightning",
                r#"  File "/x/pytorch_lightning/loops/fit_loop.py", line 3"#,
                "batch_size=1",
                ("Trainer(precision=\"16-mixed\")", "precision"),
            ),
            (
                "Ray Train",
                r#"  File "/x/ray/train/_internal/worker_group.py", line 3"#,
                "batch_size\": 1",
                ("max_concurrent_trials=1", "max_concurrent_trials"),
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
            Some("per_device_train_batch_size=6, gradient_accumulation_steps=8")
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
