//! Browser front ends for image models: the Stable Diffusion web UI and its forks, Fooocus, `InvokeAI`.

use makeroom_core::Framework;

use super::diffusion::{SYSMEM_FALLBACK, with_image};
use super::lever::Lever;
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[&FOOOCUS, &FORGE, &SD_NEXT, &AUTOMATIC1111, &INVOKE];

const AUTOMATIC1111: Program = Program {
    name: "Stable Diffusion web UI",
    frameworks: &[],
    marks: &[
        "stable-diffusion-webui",
        "sd-webui",
        "webui-user",
        "modules/processing.py",
        "modules/call_queue.py",
        "modules/sd_samplers",
        "Torch active/reserved:",
        "--enable-insecure-extension-access",
        "--disable-safe-unpickle",
        "--gradio-auth",
        "COMMANDLINE_ARGS",
        "Sys VRAM:",
    ],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, AUTOMATIC1111_LEVERS),
};

fn is_directml(situation: &Situation<'_>) -> bool {
    situation.facts.framework == Framework::DirectMl || situation.settings.mentions("directml")
}

const AUTOMATIC1111_LEVERS: &[Lever] = &[
    Lever::switch(
        "keep only the part of the model in use on the GPU",
        "COMMANDLINE_ARGS=--medvram",
        &["--medvram", "--lowvram"],
    )
    .variable(),
    Lever::switch(
        "--medvram is already on: move the model to the GPU piece by piece (much slower)",
        "COMMANDLINE_ARGS=--lowvram",
        &["--lowvram"],
    )
    .only(|situation| situation.settings.is_on(&["--medvram"]))
    .variable(),
    Lever::switch(
        "use fused attention instead of storing the attention matrix",
        "COMMANDLINE_ARGS=--opt-sdp-attention",
        &["--opt-sdp-attention", "--xformers", "--opt-sdp-no-mem-attention"],
    )
    .only(|situation| !is_directml(situation))
    .variable(),
    Lever::switch(
        "on DirectML, use its memory-efficient attention",
        "COMMANDLINE_ARGS=--opt-sub-quad-attention",
        &["--opt-sub-quad-attention"],
    )
    .only(is_directml)
    .variable(),
    Lever::new(
        "lower the scale of the hires fix: the second pass needs memory for the upscaled image",
        "Upscale by = 1.5",
    )
    .only(|situation| {
        ["hires", "hr_", "sample_hr_pass", "upscale"].iter().any(|words| situation.settings.mentions(words))
    }),
    Lever::batch(
        "generate one image at a time: use batch count instead of batch size{from}",
        "Batch size = {to}",
        &["batch_size"],
    ),
    Lever::new(
        "decode in tiles: turn on Tiled VAE (multidiffusion-upscaler extension)",
        "Decoder Tile Size = 64",
    )
    .unless_said(&["tiled vae", "vae_optimize"]),
    SYSMEM_FALLBACK,
];

const FORGE: Program = Program {
    name: "Forge",
    frameworks: &[],
    marks: &[
        "webui-forge",
        "[Memory Management] Target",
        "webui-reforge",
        "sd-forge",
        "modules_forge",
        "ldm_patched",
        "backend/memory_management.py",
        "[Low VRAM Warning]",
        "[Low GPU VRAM Warning]",
        "forge model load",
    ],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, FORGE_LEVERS),
};

const FORGE_LEVERS: &[Lever] = &[
    Lever::new(
        "lower the GPU Weights slider at the top of the page: the rest of the memory is used for computation",
        "GPU Weights (MB) = half of the GPU's memory",
    ),
    Lever::switch(
        "move models off the GPU after each step",
        "--always-offload-from-vram",
        &["--always-offload-from-vram"],
    ),
    Lever::switch(
        "keep only part of the model on the GPU",
        "--always-low-vram",
        &["--always-low-vram", "--always-no-vram"],
    ),
    Lever::switch(
        "--always-low-vram is already on: keep no weights on the GPU",
        "--always-no-vram",
        &["--always-no-vram"],
    )
    .only(|situation| situation.settings.is_on(&["--always-low-vram"])),
    Lever::new(
        "turn on Never OOM for the VAE (Never OOM Integrated): it decodes in tiles",
        "Enabled for VAE (always tiled) = on",
    )
    .unless_said(&["never oom"]),
    Lever::new(
        "lower the scale of the hires fix: the second pass needs memory for the upscaled image",
        "Upscale by = 1.5",
    )
    .only(|situation| {
        ["hires", "hr_", "sample_hr_pass"].iter().any(|words| situation.settings.mentions(words))
    }),
    SYSMEM_FALLBACK,
];

const SD_NEXT: Program = Program {
    name: "SD.Next",
    frameworks: &[],
    marks: &[
        "SD.Next",
        "sdnext",
        "vladmandic/automatic",
        "Torch backend: Intel IPEX",
        "INFO     Torch detected",
        "Torch detected GPU",
    ],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, SD_NEXT_LEVERS),
};

const SD_NEXT_LEVERS: &[Lever] = &[
    Lever::switch(
        "move model components to the GPU only while they work",
        "./webui.sh --medvram",
        &["--medvram", "--lowvram"],
    ),
    Lever::switch(
        "--medvram is already on: move the model layer by layer (much slower)",
        "./webui.sh --lowvram",
        &["--lowvram"],
    )
    .only(|situation| situation.settings.is_on(&["--medvram"])),
    Lever::new("quantize the model while it loads: Settings > Quantization", "SDNQ = int8")
        .unless_said(&["sdnq", "quantization"]),
    Lever::new("decode in tiles: Settings > Variational Auto Encoder", "VAE tiling = on"),
];

const FOOOCUS: Program = Program {
    name: "Fooocus",
    frameworks: &[],
    marks: &["Fooocus"],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, FOOOCUS_LEVERS),
};

const FOOOCUS_LEVERS: &[Lever] = &[
    Lever::switch(
        "keep only part of the model on the GPU",
        "python entry_with_update.py --always-low-vram",
        &["--always-low-vram", "--always-no-vram"],
    ),
    Lever::switch(
        "--always-low-vram is already on: keep no weights on the GPU",
        "python entry_with_update.py --always-no-vram",
        &["--always-no-vram"],
    )
    .only(|situation| situation.settings.is_on(&["--always-low-vram"])),
    Lever::switch(
        "move models off the GPU after each step",
        "--always-offload-from-vram",
        &["--always-offload-from-vram"],
    ),
    Lever::switch(
        "load the diffusion model in 8-bit precision",
        "--unet-in-fp8-e4m3fn",
        &["--unet-in-fp8-e4m3fn", "--unet-in-fp8-e5m2"],
    ),
    SYSMEM_FALLBACK,
];

const INVOKE: Program = Program {
    name: "InvokeAI",
    frameworks: &[],
    marks: &["invokeai", "invoke-ai", ">> Max VRAM used", "invocation_services"],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, INVOKE_LEVERS),
};

/// `InvokeAI` 2 and older, which had command-line switches and no memory manager.
fn is_old_invoke(situation: &Situation<'_>) -> bool {
    situation.settings.mentions(">> Max VRAM used") || situation.settings.mentions("python3.9")
}

/// `InvokeAI` 3 to 5.5, which kept a fixed VRAM cache.
fn has_vram_cache(situation: &Situation<'_>) -> bool {
    ["ModelManagerService", "lazy_offload", "max_vram_cache_size", "4.0.", "model_manager_default"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

const INVOKE_LEVERS: &[Lever] = &[
    Lever::switch(
        "move models off the GPU when they are idle, and load them in 16-bit precision",
        "invoke.py --free_gpu_mem --precision float16",
        &["--free_gpu_mem"],
    )
    .only(is_old_invoke),
    Lever::switch(
        "do not cache models on the GPU (InvokeAI 4 to 5.5, invokeai.yaml)",
        "vram: 0\nlazy_offload: true",
        &[],
    )
    .only(|situation| has_vram_cache(situation) && !is_old_invoke(situation)),
    Lever::switch(
        "load models onto the GPU only partially (InvokeAI 5.6 or later, invokeai.yaml)",
        "enable_partial_loading: true",
        &["enable_partial_loading"],
    )
    .only(|situation| !is_old_invoke(situation)),
    Lever::switch("decode in tiles (invokeai.yaml)", "force_tiled_decode: true", &["force_tiled_decode"])
        .only(|situation| !is_old_invoke(situation)),
    Lever::raise(
        "reserve more memory for computation than the default of 3 GB (invokeai.yaml)",
        "device_working_mem_gb: {to}",
        &["device_working_mem_gb"],
        4,
        8,
    )
    .only(|situation| !is_old_invoke(situation)),
    Lever::new("install a quantized version of the model from the model manager", "FLUX: bnb-nf4 or GGUF Q4")
        .unless_said(&["nf4", "gguf"])
        .only(|situation| situation.settings.mentions("flux")),
    Lever::new("generate a smaller image, then upscale it", "width=512 height=512").only(is_old_invoke),
];

#[cfg(test)]
mod tests {
    use makeroom_explain::Cause;

    use super::super::testing::{advice, check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "Stable Diffusion web UI",
                r#"  File "/home/me/stable-diffusion-webui/modules/processing.py", line 91"#,
                "--medvram",
                ("Launching Web UI with arguments: --xformers --medvram", "--opt-sdp-attention"),
            ),
            (
                "Forge",
                r#"  File "E:\webui-forge\backend\memory_management.py", line 7"#,
                "GPU Weights",
                ("--always-offload-from-vram", "--always-offload-from-vram"),
            ),
            (
                "SD.Next",
                "SD.Next version: 2025 device=cuda",
                "--medvram",
                ("./webui.sh --lowvram", "--medvram"),
            ),
            (
                "Fooocus",
                r#"  File "/content/Fooocus/modules/async_worker.py", line 3"#,
                "--always-low-vram",
                ("python launch.py --always-low-vram", "entry_with_update.py --always-low-vram"),
            ),
            (
                "InvokeAI",
                r#"  File "/srv/invokeai/app/invocations/flux_denoise.py", line 6"#,
                "enable_partial_loading: true",
                ("enable_partial_loading: true", "enable_partial_loading"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    #[test]
    fn windows_gets_windows_steps() {
        let (_, steps) = advice(
            &torch("File \"D:\\stable-diffusion-webui\\modules\\processing.py\""),
            Cause::LiveDataFillsDevice,
        );
        assert_eq!(steps[0].command.as_deref(), Some("set COMMANDLINE_ARGS=--medvram"));
    }
}
