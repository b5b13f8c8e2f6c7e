//! Robots and game engines: policies that are fine-tuned, and networks that search a game.

use super::{Program, program};
use crate::programs::Work;
use crate::programs::lever::{self, Lever};

pub(in crate::programs) const PROGRAMS: &[&Program] = &[&OPEN_PI, &GR00T, &LE_ROBOT, &LC0, &KATA_GO];

/// Words that show openpi's PyTorch trainer.
const IN_PYTORCH: [&str; 4] = ["pytorch_weight_path", "train_pytorch", "using pytorch", "the pytorch"];

program!(
    OPEN_PI,
    "openpi",
    Training,
    &["openpi/", "openpi-assets", "pi0_config", "paligemma_variant", "openpi.training"],
    &[
        Lever::new(
            "train LoRA adapters with the JAX trainer: the PyTorch trainer supports neither LoRA nor FSDP",
            "uv run scripts/train.py pi0_libero_low_mem_finetune --exp-name=lora"
        )
        .only(|situation| { IN_PYTORCH.iter().any(|words| situation.settings.mentions(words)) }),
        Lever::new(
            "train LoRA adapters instead of all weights",
            "paligemma_variant=\"gemma_2b_lora\", action_expert_variant=\"gemma_300m_lora\""
        )
        .unless_said(&["gemma_2b_lora"]),
        Lever::batch("lower the batch size{from| (default 32)}", "--batch-size={to}", &["batch_size"]),
        Lever::new("let JAX use 90 % of the GPU", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.9")
            .unless_said(&[
                "MEM_FRACTION",
                "pytorch_weight_path",
                "train_pytorch",
                "using pytorch",
                "the pytorch"
            ])
            .variable(),
        Lever::new("turn off the moving average of the weights", "ema_decay=None")
            .unless_said(&["ema_decay=None"]),
    ]
);

program!(
    GR00T,
    "Isaac GR00T",
    Training,
    &["gr00t_finetune", "Isaac-GR00T", "gr00t/"],
    &[
        Lever::batch("lower the batch size{from| (default 32)}", "--batch-size {to}", &["batch_size"]),
        Lever::new("train LoRA adapters instead of all weights", "--lora_rank 64 --lora_alpha 128")
            .unless_said(&["lora_rank"]),
        Lever::new("keep the diffusion model frozen", "--no-tune_diffusion_model")
            .unless_said(&["no-tune_diffusion_model", "no-tune-diffusion-model"]),
    ]
);

program!(
    LE_ROBOT,
    "LeRobot",
    Training,
    &["lerobot-train", "lerobot/", "lerobot_train"],
    &[
        Lever::batch("lower the batch size{from| (default 8)}", "--batch_size={to}", &["batch_size"]),
        Lever::new("train in 16-bit precision", "--policy.use_amp=true").unless_said(&["use_amp=true"]),
        Lever::new(
            "for pi0 and pi0.5: train only the action expert, and recompute activations",
            "--policy.train_expert_only=true --policy.gradient_checkpointing=true"
        )
        .unless_said(&["train_expert_only"])
        .only(|situation| situation.settings.mentions("pi0")),
    ]
);

program!(
    LC0,
    "Leela Chess Zero",
    Other,
    &["lc0/", "network_cudnn.cc", "network_cuda.cc", "lc0.exe"],
    &[
        Lever::lower(
            "evaluate fewer positions at once{from| (default 1024)}",
            "--backend-opts=max_batch={to}",
            &["max_batch"],
            256
        ),
        Lever::new("run the network in 16-bit precision", "--backend=cuda-fp16").unless_said(&["-fp16"]),
    ]
);

program!(
    KATA_GO,
    "KataGo",
    Other,
    &["katago", "nnMaxBatchSize"],
    &[
        Lever::lower(
            "evaluate fewer positions at once{from}",
            "nnMaxBatchSize = {to}",
            &["nnMaxBatchSize"],
            8
        ),
        Lever::lower("search with fewer threads{from}", "numSearchThreads = {to}", &["numSearchThreads"], 8),
    ]
);

#[cfg(test)]
mod tests {
    use crate::programs::testing::{check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, log, first, set) in [
            (
                "openpi",
                torch("File \"/x/openpi/scripts/train.py\", line 3"),
                "gemma_2b_lora",
                ("ema_decay=None", "ema_decay"),
            ),
            (
                "Isaac GR00T",
                torch("python scripts/gr00t_finetune.py --batch_size 16"),
                "--batch-size ",
                ("--lora_rank 32", "lora_rank"),
            ),
            (
                "LeRobot",
                torch("lerobot-train --policy.type=act --batch_size=64"),
                "--batch_size=",
                ("--policy.use_amp=true", "use_amp"),
            ),
            (
                "Leela Chess Zero",
                "CUDA error: out of memory (../src/neural/cuda/network_cudnn.cc:211)".to_owned(),
                "max_batch=256",
                ("--backend=cudnn-fp16", "fp16"),
            ),
            (
                "KataGo",
                "katago benchmark: CUDA error: out of memory".to_owned(),
                "nnMaxBatchSize = 8",
                ("numSearchThreads = 1", "numSearchThreads"),
            ),
        ] {
            check(name, &log, first, set);
        }
    }
}
