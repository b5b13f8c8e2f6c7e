//! Training frameworks that spread the work: `DeepSpeed`, FSDP, Megatron, Lightning, Ray.

use makeroom_explain::Cause;
use makeroom_explain::advice::Maker;

use super::lever::{self, Lever};
use super::training::{has_many_gpus, is_evaluating};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[&LIGHTNING, &DEEPSPEED, &MEGATRON, &FSDP, &RAY_TRAIN];
/// An application of `DeepSpeed`, which stands before what it is built on.
pub(super) const APPLICATIONS: &[&Program] = &[&DEEPSPEED_CHAT];

const DEEPSPEED: Program = Program {
    name: "DeepSpeed",
    frameworks: &[],
    marks: &["deepspeed", "sigkill_handler"],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::HostMemory => lever::steps(situation, Cause::LiveDataFillsDevice, DEEPSPEED_HOST),
        _ => lever::steps(situation, cause, DEEPSPEED_LEVERS),
    },
};

const DEEPSPEED_HOST: &[Lever] = &[
    Lever::new(
        "offload to disk instead of RAM",
        "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/local_nvme\"}",
    )
    .unless_said(&["nvme"])
    .only(|situation| situation.settings.mentions("offload")),
    Lever::new("start fewer ranks: each loads the whole model into RAM", "deepspeed --num_gpus 2 …")
        .unless_said(&["--num_gpus 1", "--num_gpus 2", "--num_gpus=1"]),
    Lever::new(
        "load the weights in 16-bit precision, without a second copy",
        "from_pretrained(…, torch_dtype=torch.bfloat16, low_cpu_mem_usage=True)",
    )
    .unless_said(&["low_cpu_mem_usage=True"]),
];

fn is_stage_three(situation: &Situation<'_>) -> bool {
    ["zero3", "zero-3", "stage3", "stage_3", "stage\": 3", "stage=3", "stage 3", "zero_stage 3"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

const DEEPSPEED_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the micro-batch size{from} and accumulate gradients",
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
    Lever::new(
        "shard the models across the GPUs: ZeRO stage 3",
        "--actor_zero_stage 3 --critic_zero_stage 3",
    )
    .unless_said(&["zero_stage 3", "zero_stage=3", "zero_stage', '3"]),
    Lever::switch("keep parameters and optimizer state in CPU memory", "--offload", &["--offload"]),
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
    )
    .only(|situation| {
        situation.settings.mentions("llama_recipes") || situation.settings.mentions("batch_size_training")
    }),
    Lever::batch(
        "lower the batch size per GPU{from} and accumulate gradients",
        "--per_device_train_batch_size {to} --gradient_accumulation_steps {steps}",
        &["per_device_train_batch_size", "batch_size"],
    )
    .only(|situation| {
        !situation.settings.mentions("llama_recipes") && !situation.settings.mentions("batch_size_training")
    }),
    Lever::new("shard parameters, gradients and optimizer state", "fsdp_sharding_strategy: FULL_SHARD")
        .unless_said(&["FULL_SHARD"]),
    Lever::switch(
        "recompute activations instead of keeping them",
        "fsdp_activation_checkpointing: true",
        &["fsdp_activation_checkpointing", "fsdp_activation_checkpointing"],
    )
    .unless_said(&["apply_activation_checkpointing"]),
    Lever::switch(
        "keep parameters and optimizer state in CPU memory",
        "fsdp_offload_params: true",
        &["fsdp_offload_params"],
    )
    .unless_said(&["CPUOffload(offload_params=True", "fsdp_cpu_offload True"]),
    Lever::lower(
        "shorten the sequences{from tokens}",
        "--context_length {to}",
        &["context_length", "--context_length"],
        2048,
    )
    .at_least(256, 128)
    .only(|situation| {
        situation.settings.mentions("llama_recipes") || situation.settings.mentions("context_length")
    }),
];

const MEGATRON: Program = Program {
    name: "Megatron-LM",
    frameworks: &[],
    marks: &["megatron", "pretrain_gpt", "pretrain_llama"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, MEGATRON_LEVERS),
};

const MEGATRON_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the micro-batch size{from}: the global batch size stays the same",
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
        "shard the optimizer across the data-parallel ranks",
        "--use-distributed-optimizer",
        &["--use-distributed-optimizer", "use_distributed_optimizer"],
    ),
    Lever::raise(
        "split each layer across more GPUs{from}",
        "--tensor-model-parallel-size {to} --sequence-parallel",
        &["--tensor-model-parallel-size", "tensor_model_parallel_size"],
        2,
        8,
    ),
    Lever::lower(
        "shorten the sequences{from tokens}",
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
        "anomalib",
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
    Lever::new("train in 16-bit precision", "Trainer(precision=\"bf16-mixed\")")
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
    Lever::new("shard the model across the GPUs", "Trainer(strategy=\"fsdp\")")
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
    use super::super::testing::{check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
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
                "--per_device_train_batch_size 1",
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
}
