//! Training of image and video models: kohya's scripts, `OneTrainer`, ai-toolkit, `SimpleTuner`, the diffusers
//! examples.

use makeroom_explain::advice::Maker;

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] =
    &[&KOHYA, &ONE_TRAINER, &AI_TOOLKIT, &SIMPLE_TUNER, &DIFFUSERS_TRAINING];

fn is_nvidia(situation: &Situation<'_>) -> bool {
    situation.environment.maker == Maker::Nvidia
}

/// The transformer models, whose weights alone fill a card.
fn is_transformer(situation: &Situation<'_>) -> bool {
    ["flux", "sd3", "wan", "hunyuan", "musubi", "chroma", "qwen"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

const KOHYA: Program = Program {
    name: "sd-scripts",
    frameworks: &[],
    marks: &[
        "kohya",
        "sd-scripts",
        "musubi",
        "library/train_util",
        "train_network.py",
        "sdxl_train",
        "flux_train",
        "train_db.py",
        "lora_train",
        "network_args",
        "network_dim",
        "network rank(dimension)",
    ],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, KOHYA_LEVERS),
};

const KOHYA_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "--train_batch_size={to} --gradient_accumulation_steps={steps}",
        &["--train_batch_size", "train_batch_size", "train batch size", "batch size per device"],
    ),
    Lever::switch(
        "recompute activations instead of keeping them",
        "--gradient_checkpointing",
        &["--gradient_checkpointing", "gradient_checkpointing"],
    ),
    Lever::new(
        "use an 8-bit optimizer (a quarter of the size of AdamW's state)",
        "--optimizer_type=AdamW8bit",
    )
    .unless_said(&["8bit", "adafactor", "prodigy"])
    .only(is_nvidia),
    Lever::switch("load the base model in 8-bit precision", "--fp8_base", &["--fp8_base", "fp8_base"])
        .only(is_transformer),
    Lever::raise(
        "move more transformer blocks to the CPU{from}",
        "--blocks_to_swap {to}",
        &["--blocks_to_swap", "blocks_to_swap"],
        18,
        35,
    )
    .only(is_transformer),
    Lever::switch(
        "use memory-efficient attention",
        "--xformers",
        &["--xformers", "--sdpa", "xformers", "sdpa"],
    )
    .unless_said(&["--mem_eff_attn"]),
    Lever::new(
        "train a LoRA instead of the whole model",
        "train_network.py --network_module=networks.lora --network_dim=16",
    )
    .only(|situation| {
        ["train_db.py", "fine_tune.py", "sdxl_train.py"]
            .iter()
            .any(|words| situation.settings.mentions(words))
    }),
    Lever::switch(
        "cache the image latents, so that the VAE can be unloaded",
        "--cache_latents",
        &["--cache_latents", "cache_latents"],
    )
    .unless_said(&["cache latents", "caching latents"]),
    Lever::side(
        "lower the resolution{from}",
        "--resolution={to},{to}",
        &["--resolution", "resolution"],
        512,
        (256, 64),
    ),
    Lever::switch(
        "cache the text embeddings, so that the text encoder can be unloaded",
        "--cache_text_encoder_outputs --network_train_unet_only",
        &["--cache_text_encoder_outputs"],
    ),
];

const ONE_TRAINER: Program = Program {
    name: "OneTrainer",
    frameworks: &[],
    marks: &["OneTrainer", "modules/trainer/GenericTrainer"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, ONE_TRAINER_LEVERS),
};

const ONE_TRAINER_LEVERS: &[Lever] = &[
    Lever::new(
        "offload activations and layers (training tab)",
        "Gradient checkpointing = CPU_OFFLOADED, Layer offload fraction = 0.5",
    )
    .unless_said(&["CPU_OFFLOADED"]),
    Lever::batch(
        "lower the batch size{from} (training tab)",
        "Local Batch Size = {to}, Accumulation Steps = {steps}",
        &["batch_size"],
    ),
    Lever::new("load the weights in 8-bit precision (model tab)", "Weight Data Type = float8")
        .unless_said(&["float8", "FLOAT_8", "nfloat4", "NFLOAT_4"]),
    Lever::new("use an optimizer that keeps little state (training tab)", "Optimizer = ADAFACTOR")
        .unless_said(&["adafactor", "8bit", "8_BIT"]),
    Lever::side(
        "lower the resolution{from} (training tab)",
        "Resolution = {to}",
        &["resolution"],
        512,
        (256, 64),
    ),
];

const AI_TOOLKIT: Program = Program {
    name: "ai-toolkit",
    frameworks: &[],
    marks: &["ai-toolkit", "ai_toolkit", "extensions_built_in/sd_trainer", "toolkit/stable_diffusion_model"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, AI_TOOLKIT_LEVERS),
};

const AI_TOOLKIT_LEVERS: &[Lever] = &[
    Lever::switch(
        "quantize the model to 8 bits on the CPU before training (model section)",
        "quantize: true\nlow_vram: true",
        &["low_vram"],
    ),
    Lever::batch(
        "lower the batch size{from} (train section)",
        "batch_size: {to}\ngradient_accumulation_steps: {steps}",
        &["batch_size"],
    ),
    Lever::switch(
        "recompute activations instead of keeping them (train section)",
        "gradient_checkpointing: true",
        &["gradient_checkpointing"],
    ),
    Lever::new("use an 8-bit optimizer", "optimizer: adamw8bit").unless_said(&["8bit"]),
    Lever::new("train at one small resolution (datasets section)", "resolution: [512]"),
];

const SIMPLE_TUNER: Program = Program {
    name: "SimpleTuner",
    frameworks: &[],
    marks: &["SimpleTuner"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, SIMPLE_TUNER_LEVERS),
};

const SIMPLE_TUNER_LEVERS: &[Lever] = &[
    Lever::new("quantize the base model", "--base_model_precision=int8-quanto").unless_said(&[
        "int8-quanto",
        "nf4-bnb",
        "fp8-quanto",
    ]),
    Lever::batch(
        "lower the batch size{from}",
        "--train_batch_size={to} --gradient_accumulation_steps={steps}",
        &["--train_batch_size", "train_batch_size"],
    ),
    Lever::switch(
        "recompute activations instead of keeping them",
        "--gradient_checkpointing",
        &["--gradient_checkpointing", "gradient_checkpointing"],
    ),
    Lever::new("use an optimizer with 16-bit state", "--optimizer=adamw_bf16")
        .unless_said(&["8bit", "adamw_bf16"]),
    Lever::switch(
        "offload the text encoders and the VAE during startup while they are not in use",
        "--offload_during_startup",
        &["--offload_during_startup"],
    ),
];

const DIFFUSERS_TRAINING: Program = Program {
    name: "the diffusers training script",
    frameworks: &[],
    marks: &[
        "train_dreambooth",
        "train_text_to_image",
        "train_controlnet",
        "textual_inversion.py",
        "train_instruct_pix2pix",
        "diffusers/examples",
    ],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, DIFFUSERS_TRAINING_LEVERS),
};

const DIFFUSERS_TRAINING_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "--train_batch_size={to} --gradient_accumulation_steps={steps}",
        &["--train_batch_size", "train_batch_size"],
    ),
    Lever::switch(
        "recompute activations instead of keeping them",
        "--gradient_checkpointing",
        &["--gradient_checkpointing"],
    ),
    Lever::switch(
        "use an 8-bit optimizer (a quarter of the size of AdamW's state)",
        "--use_8bit_adam",
        &["--use_8bit_adam"],
    )
    .only(is_nvidia),
    Lever::new("train in 16-bit precision", "--mixed_precision=fp16").unless_said(&[
        "mixed_precision=fp16",
        "mixed_precision=bf16",
        "mixed_precision=\"fp16",
        "mixed_precision=\"bf16",
        "mixed_precision fp16",
        "mixed_precision bf16",
    ]),
    Lever::switch(
        "use memory-efficient attention and drop gradients instead of zeroing them",
        "--enable_xformers_memory_efficient_attention --set_grads_to_none",
        &["--enable_xformers_memory_efficient_attention"],
    ),
    Lever::side("lower the resolution{from}", "--resolution={to}", &["--resolution"], 512, (256, 64)),
    Lever::new("train a LoRA instead of the whole model", "train_text_to_image_lora_sdxl.py --rank=4").only(
        |situation| {
            situation.settings.mentions("train_text_to_image_sdxl") && !situation.settings.mentions("lora")
        },
    ),
    Lever::new("train a LoRA instead of the whole model", "train_text_to_image_lora.py --rank=4").only(
        |situation| {
            situation.settings.mentions("train_text_to_image.py") && !situation.settings.mentions("lora")
        },
    ),
    Lever::new("train a LoRA instead of the whole model", "train_dreambooth_lora.py --rank=4").only(
        |situation| {
            !situation.settings.mentions("train_text_to_image") && !situation.settings.mentions("lora")
        },
    ),
];

#[cfg(test)]
mod tests {
    use makeroom_explain::Cause;

    use super::super::testing::{advice, check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "sd-scripts",
                r#"  File "C:\kohya_ss\train_network.py", line 900"#,
                "--train_batch_size=1",
                ("--gradient_checkpointing --optimizer_type=AdamW8bit", "AdamW8bit"),
            ),
            (
                "OneTrainer",
                r#"  File "/x/OneTrainer/modules/trainer/GenericTrainer.py", line 9"#,
                "CPU_OFFLOADED",
                ("optimizer: ADAFACTOR", "ADAFACTOR"),
            ),
            (
                "ai-toolkit",
                r#"  File "/x/ai-toolkit/jobs/process/BaseSDTrainProcess.py", line 9"#,
                "low_vram: true",
                ("gradient_checkpointing: true", "gradient_checkpointing"),
            ),
            (
                "SimpleTuner",
                r#"  File "/x/SimpleTuner/train.py", line 9"#,
                "int8-quanto",
                ("--gradient_checkpointing", "--gradient_checkpointing"),
            ),
            (
                "the diffusers training script",
                "accelerate launch train_dreambooth.py --resolution=512",
                "--train_batch_size=1",
                ("--use_8bit_adam", "--use_8bit_adam"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    #[test]
    fn a_batch_of_one_is_not_lowered() {
        let log = torch(
            "accelerate launch train_db.py --train_batch_size=\"1\" --resolution=512,512 --cache_latents --gradient_checkpointing",
        );
        let (_, steps) = advice(&log, Cause::LiveDataFillsDevice);
        assert!(steps[0].command.as_deref().is_some_and(|line| line.contains("AdamW8bit")), "{steps:?}");
        assert!(steps.iter().all(|fix| !fix.command.as_deref().unwrap_or("").contains("batch_size")));
        assert!(steps.iter().any(|fix| fix.action == "lower the resolution from 512"), "{steps:?}");
    }
}
