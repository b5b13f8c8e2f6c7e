//! Programs around language models: chat servers, embedding servers, quantizers, fine-tuning recipes, reinforcement learning
//! from feedback.

use makeroom_explain::Cause;

use super::lever::{self, Lever};
use super::{Program, Work};

/// Before the servers that they start.
pub(super) const FEEDBACK: &[&Program] = &[&VERL, &OPEN_RLHF, &XINFERENCE];
pub(super) const PROGRAMS: &[&Program] =
    &[&FASTCHAT, &GPT4ALL, &KTRANSFORMERS, &QUANTIZER, &EMBEDDINGS, &LITGPT, &TORCHTUNE];

const VERL: Program = Program {
    name: "verl",
    frameworks: &[],
    marks: &["verl/", "verl.trainer", "actor_rollout_ref", "(WorkerDict pid=", "verl_"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, VERL_LEVERS),
};

const VERL_LEVERS: &[Lever] = &[
    Lever::lower(
        "train on fewer samples at a time{from}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={to}",
        &["ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size"],
        1,
    ),
    Lever::new(
        "leave more GPU memory for training: lower the rollout engine's share",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
    )
    .unless_said(&["gpu_memory_utilization=0.4", "gpu_memory_utilization=0.3"]),
    Lever::new(
        "keep parameters and optimizer state in RAM between steps",
        "actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
    )
    .unless_said(&["param_offload=True", "param_offload: true"]),
    Lever::new("recompute activations", "actor_rollout_ref.model.enable_gradient_checkpointing=True")
        .unless_said(&["enable_gradient_checkpointing=True"]),
    Lever::lower(
        "generate shorter answers{from tokens}",
        "data.max_response_length={to}",
        &["max_response_length"],
        1024,
    )
    .at_least(256, 128),
];

const OPEN_RLHF: Program = Program {
    name: "OpenRLHF",
    frameworks: &[],
    marks: &["openrlhf", "train_ppo_ray", "--vllm_num_engines", "--colocate_all_models"],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::HostMemory => lever::steps(situation, Cause::LiveDataFillsDevice, OPEN_RLHF_HOST),
        _ => lever::steps(situation, cause, OPEN_RLHF_LEVERS),
    },
};

const OPEN_RLHF_HOST: &[Lever] = &[
    Lever::new(
        "drop --vllm_enable_sleep: sleeping engines keep their weights in RAM, one copy each",
        "train_ppo_ray without --vllm_enable_sleep",
    )
    .only(|situation| situation.settings.is_on(&["--vllm_enable_sleep"])),
    Lever::new(
        "drop --adam_offload: it keeps the optimizer state in RAM",
        "train_ppo_ray without --adam_offload",
    )
    .only(|situation| situation.settings.is_on(&["--adam_offload"])),
    Lever::lower(
        "start fewer engines{from}: each loads the weights through RAM",
        "--vllm_num_engines {to}",
        &["--vllm_num_engines"],
        0,
    ),
    Lever::lower(
        "keep fewer samples per rollout{from}",
        "--rollout_batch_size {to}",
        &["--rollout_batch_size"],
        128,
    ),
];

const OPEN_RLHF_LEVERS: &[Lever] = &[
    Lever::lower(
        "train on fewer samples at a time{from}",
        "--micro_train_batch_size {to}",
        &["--micro_train_batch_size"],
        1,
    ),
    Lever::lower(
        "run rollouts on fewer samples at a time{from}",
        "--micro_rollout_batch_size {to}",
        &["--micro_rollout_batch_size"],
        1,
    ),
    Lever::new("leave more GPU memory for training", "--vllm_gpu_memory_utilization 0.5")
        .unless_said(&["vllm_gpu_memory_utilization 0.5"]),
    Lever::switch("keep the optimizer state in RAM", "--adam_offload", &["--adam_offload"]),
    Lever::switch("recompute activations", "--gradient_checkpointing", &["--gradient_checkpointing"]),
];

const FASTCHAT: Program = Program {
    name: "FastChat",
    frameworks: &[],
    marks: &["fastchat", "fschat"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, FASTCHAT_LEVERS),
};

const FASTCHAT_LEVERS: &[Lever] = &[
    Lever::switch("load the weights in 8-bit precision (half the size)", "--load-8bit", &["--load-8bit"]),
    Lever::switch(
        "move the weights that do not fit on the GPU to RAM (with 8-bit weights, on Linux)",
        "--load-8bit --cpu-offloading",
        &["--cpu-offloading"],
    ),
    Lever::lower("split the model across more GPUs", "--num-gpus 2", &["--num-gpus"], 2)
        .only(|situation| situation.settings.number(&["--num-gpus"]).is_none()),
    Lever::new("cap the memory for weights on each GPU", "--max-gpu-memory 8GiB")
        .unless_said(&["--max-gpu-memory"]),
];

const GPT4ALL: Program = Program {
    name: "GPT4All",
    frameworks: &[],
    marks: &["gpt4all", "gpu loading failed (out of vram?)"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, GPT4ALL_LEVERS),
};

const GPT4ALL_LEVERS: &[Lever] = &[
    Lever::new("put fewer layers on the GPU: Settings > Model", "GPU Layers = 20"),
    Lever::new("shorten the context: Settings > Model (default 2048)", "Context Length = 1024"),
    Lever::new("load a model quantized to 4 bits", "MODEL.Q4_0.gguf").unless_said(&["Q4_0"]),
    Lever::new("or run on the CPU: Settings > Application", "Device = CPU"),
];

const KTRANSFORMERS: Program = Program {
    name: "KTransformers",
    frameworks: &[],
    marks: &["ktransformers", "kvcache-ai", "local_chat.py", "--optimize_config_path"],
    work: Work::Inference,
    advise: |situation, cause| match cause {
        Cause::HostMemory => lever::steps(situation, Cause::LiveDataFillsDevice, KTRANSFORMERS_HOST),
        _ => lever::steps(situation, cause, KTRANSFORMERS_LEVERS),
    },
};

const KTRANSFORMERS_LEVERS: &[Lever] = &[
    Lever::lower(
        "reserve a smaller KV cache{from tokens}",
        "--cache_lens {to}",
        &["--cache_lens", "cache_lens"],
        4096,
    )
    .at_least(2048, 256),
    Lever::new(
        "split the layers across two GPUs",
        "--optimize_config_path ktransformers/optimize/optimize_rules/DeepSeek-V3-Chat-multi-gpu.yaml",
    )
    .unless_said(&["multi-gpu"]),
    Lever::lower("generate fewer tokens{from}", "--max_new_tokens {to}", &["--max_new_tokens"], 512)
        .at_least(128, 64),
];

const KTRANSFORMERS_HOST: &[Lever] = &[
    Lever::new(
        "do not copy the experts to each socket: rebuild without NUMA copies",
        "USE_NUMA=0 bash install.sh",
    )
    .only(|situation| situation.settings.mentions("NUMA")),
    Lever::new("load a smaller quantization", "DeepSeek-R1-UD-Q2_K_XL.gguf").unless_said(&["Q2_K"]),
];

const QUANTIZER: Program = Program {
    name: "the quantizer",
    frameworks: &[],
    marks: &["awq/quantize", "AutoAWQ", "auto_gptq", "gptqmodel", "llmcompressor", "autoawq"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, QUANTIZER_LEVERS),
};

fn is_awq(situation: &crate::situation::Situation<'_>) -> bool {
    situation.settings.mentions("awq")
}

fn is_gptq(situation: &crate::situation::Situation<'_>) -> bool {
    situation.settings.mentions("gptq")
}

const QUANTIZER_LEVERS: &[Lever] = &[
    Lever::new(
        "calibrate with fewer and shorter samples (default: 128 samples of 512 tokens)",
        "model.quantize(tokenizer, quant_config=quant_config, max_calib_samples=64, max_calib_seq_len=256, n_parallel_calib_samples=8)",
    )
    .unless_said(&["n_parallel_calib_samples"])
    .only(is_awq),
    Lever::new(
        "calibrate with one sample at a time, and keep the samples off the GPU",
        "model.quantize(examples, batch_size=1, cache_examples_on_gpu=False)",
    )
    .unless_said(&["cache_examples_on_gpu"])
    .only(is_gptq),
    Lever::new("load the weights into RAM, and quantize layer by layer", "from_pretrained(…, device_map=\"cpu\")")
        .unless_said(&["device_map=\"cpu\"", "device_map='cpu'"]),
    Lever::lower(
        "calibrate with shorter sequences{from tokens}",
        "max_seq_length={to}",
        &["max_seq_length", "max_calib_seq_len"],
        512,
    )
    .at_least(128, 64),
];

const EMBEDDINGS: Program = Program {
    name: "the embedding server",
    frameworks: &[],
    marks: &[
        "infinity_emb",
        "text-embeddings-router",
        "sentence_transformers",
        "SentenceTransformer(",
        "FlagEmbedding",
        "FlagReranker",
    ],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, EMBEDDING_LEVERS),
};

fn is_infinity(situation: &crate::situation::Situation<'_>) -> bool {
    situation.settings.mentions("infinity_emb")
}

fn is_router(situation: &crate::situation::Situation<'_>) -> bool {
    situation.settings.mentions("text-embeddings-router")
}

const EMBEDDING_LEVERS: &[Lever] = &[
    Lever::lower(
        "embed fewer texts at a time{from| (default 32)}",
        "infinity_emb v2 --batch-size {to}",
        &["--batch-size", "batch_size"],
        8,
    )
    .only(is_infinity),
    Lever::lower(
        "embed fewer tokens at a time{from| (default 16384)}",
        "text-embeddings-router --max-batch-tokens {to}",
        &["--max-batch-tokens"],
        4096,
    )
    .at_least(512, 512)
    .only(is_router),
    Lever::lower(
        "embed fewer texts at a time{from| (default 32)}",
        "model.encode(texts, batch_size={to})",
        &["batch_size"],
        4,
    )
    .only(|situation| !is_infinity(situation) && !is_router(situation)),
    Lever::lower(
        "truncate long texts{from tokens}: memory grows with the square of the longest text's length",
        "model.max_seq_length = {to}",
        &["max_seq_length", "max_length"],
        512,
    )
    .at_least(128, 64),
    Lever::new("load the weights in 16-bit precision", "--dtype float16")
        .unless_said(&["float16", "fp16", "bfloat16"])
        .only(|situation| is_infinity(situation) || is_router(situation)),
    Lever::new(
        "load the weights in 16-bit precision",
        "SentenceTransformer(…, model_kwargs={\"torch_dtype\": \"float16\"})",
    )
    .unless_said(&["float16", "fp16", "bfloat16", "infinity_emb", "text-embeddings-router"]),
];

const LITGPT: Program = Program {
    name: "LitGPT",
    frameworks: &[],
    marks: &["litgpt", "lit_gpt", "lit-gpt", "lit-llama"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, LITGPT_LEVERS),
};

const LITGPT_LEVERS: &[Lever] = &[
    Lever::lower(
        "lower the micro-batch size{from}",
        "--train.micro_batch_size {to}",
        &["--train.micro_batch_size", "micro_batch_size"],
        1,
    ),
    Lever::lower(
        "shorten the sequences{from tokens}",
        "--train.max_seq_length {to}",
        &["--train.max_seq_length", "max_seq_length"],
        512,
    )
    .at_least(128, 64),
    Lever::new("quantize the frozen weights", "--quantize bnb.nf4").unless_said(&["bnb.nf4", "bnb.int8"]),
    Lever::new("keep all weights in 16-bit precision", "--precision bf16-true")
        .unless_said(&["bf16-true", "16-true"]),
];

const TORCHTUNE: Program = Program {
    name: "torchtune",
    frameworks: &[],
    marks: &["torchtune", "tune run "],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, TORCHTUNE_LEVERS),
};

const TORCHTUNE_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from} and accumulate gradients",
        "tune run … batch_size={to} gradient_accumulation_steps={steps}",
        &["batch_size"],
    ),
    Lever::switch(
        "recompute activations",
        "enable_activation_checkpointing=True",
        &["enable_activation_checkpointing"],
    ),
    Lever::switch(
        "keep activations in RAM",
        "enable_activation_offloading=True",
        &["enable_activation_offloading"],
    ),
    Lever::new("use an 8-bit optimizer", "optimizer=bitsandbytes.optim.PagedAdamW8bit")
        .unless_said(&["8bit"]),
    Lever::lower("shorten the sequences{from tokens}", "tokenizer.max_seq_len={to}", &["max_seq_len"], 2048)
        .at_least(256, 64),
];

const XINFERENCE: Program = Program {
    name: "Xinference",
    frameworks: &[],
    marks: &["xinference"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, XINFERENCE_LEVERS),
};

const XINFERENCE_LEVERS: &[Lever] = &[
    Lever::new(
        "load the model in 4-bit precision",
        "xinference launch … --model-format gptq --quantization Int4",
    )
    .unless_said(&["int4", "4-bit", "awq", "gptq"]),
    Lever::new("place the model on another GPU", "xinference launch … --gpu-idx 1")
        .unless_said(&["--gpu-idx"]),
    Lever::new("split the model across two GPUs", "xinference launch … --n-gpu 2").unless_said(&["--n-gpu"]),
    Lever::lower("send fewer texts per request{from}", "batch_size={to}", &["batch_size"], 1),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "verl",
                "python -m verl.trainer.main_ppo",
                "ppo_micro_batch_size_per_gpu=1",
                ("param_offload=True", "param_offload"),
            ),
            (
                "OpenRLHF",
                "openrlhf.cli.train_ppo_ray",
                "--micro_train_batch_size 1",
                ("--adam_offload", "--adam_offload"),
            ),
            (
                "FastChat",
                "python -m fastchat.serve.cli",
                "--load-8bit",
                ("--cpu-offloading", "--cpu-offloading"),
            ),
            ("GPT4All", "gpt4all chat", "GPU Layers = 20", ("wizard.Q4_0.gguf", "Q4_0")),
            (
                "KTransformers",
                "ktransformers --cache_lens 16384",
                "--cache_lens",
                ("DeepSeek-V3-Chat-multi-gpu.yaml", "multi-gpu"),
            ),
            (
                "the quantizer",
                "awq/quantize/quantizer.py",
                "max_calib_samples=64",
                ("device_map=\"cpu\"", "device_map"),
            ),
            (
                "the embedding server",
                "infinity_emb v2 --batch-size 32",
                "--batch-size",
                ("--dtype float16", "float16"),
            ),
            ("LitGPT", "litgpt finetune_lora", "micro_batch_size 1", ("--quantize bnb.nf4", "bnb.nf4")),
            (
                "torchtune",
                "tune run lora_finetune_single_device",
                "batch_size=1",
                ("enable_activation_checkpointing=True", "activation_checkpointing"),
            ),
            ("Xinference", "xinference.core.model ERROR", "Int4", ("--n-gpu 2", "--n-gpu 2")),
        ] {
            check(name, &torch(line), first, set);
        }
    }
}
