//! Image generation: ComfyUI, the web UIs, InvokeAI, diffusers. Memory is weights (text encoder, diffusion model,
//! VAE), attention (grows with the square of the pixels where no fused kernel is used) and the VAE's decode.

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::advice::Maker;
use crate::text::environment::System;
use crate::text::situation::Situation;
use crate::{Cause, Fix};

pub(super) const PROGRAMS: &[&Program] =
    &[&FOOOCUS, &FORGE, &SD_NEXT, &AUTOMATIC1111, &INVOKE, &COMFY, &DIFFUSERS];

/// Words of a failure while the latent image is decoded.
const DECODING: [&str; 6] =
    ["VAEDecode", "vae.decode", "first_stage_model.decode", "vae_decode", "autoencoder", "VAE decoding"];
/// Words of a video model.
const VIDEO: [&str; 7] =
    ["WanVideo", "wan2", "HunyuanVideo", "LTXV", "LTX-Video", "AnimateDiff", "num_frames"];

pub(super) fn is_decoding(situation: &Situation<'_>) -> bool {
    DECODING.iter().any(|words| situation.settings.mentions(words))
}

fn is_video(situation: &Situation<'_>) -> bool {
    VIDEO.iter().any(|words| situation.settings.mentions(words))
}

/// The size of the image that the text names, and one with fewer pixels.
pub(super) fn smaller_image(situation: &Situation<'_>) -> Option<Fix> {
    let (width, height) = situation.settings.parts().into_iter().find_map(image_size)?;
    let factor = situation.shrink_factor().unwrap_or(0.5).sqrt();
    let scaled = |side: u64| ((side as f64 * factor) as u64 / 64 * 64).max(256);
    let (to_width, to_height) = (scaled(width), scaled(height));
    (to_width < width).then(|| {
        Fix::new(format!(
            "generate {to_width}x{to_height} instead of {width}x{height}, and upscale afterward"
        ))
        .command(format!("width={to_width} height={to_height}"))
    })
}

/// The first `WIDTHxHEIGHT` of a text that an image could have.
fn image_size(text: &str) -> Option<(u64, u64)> {
    use std::sync::LazyLock;

    use regex::Regex;

    use crate::text::figures::pattern;
    static SIZE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(\d{3,4}) ?[x×*] ?(\d{3,4})\b"));
    SIZE.captures_iter(text).find_map(|found| {
        let side = |group: usize| {
            found[group].parse::<u64>().ok().filter(|side| side % 8 == 0 && (384..=4096).contains(side))
        };
        Some((side(1)?, side(2)?))
    })
}

/// NVIDIA's driver for Windows can spill to system memory where a setting lets it.
const SYSMEM_FALLBACK: Lever = Lever::new(
    "let the driver spill to system memory, slowly: NVIDIA Control Panel > Manage 3D settings",
    "CUDA - Sysmem Fallback Policy = Prefer Sysmem Fallback",
)
.only(|situation| {
    situation.environment.system == System::Windows && situation.environment.maker == Maker::Nvidia
});

const COMFY: Program = Program {
    name: "ComfyUI",
    frameworks: &[],
    marks: &["ComfyUI", "comfy/ldm", "comfy/model_management", "comfy/sd.py", "comfy_extras", "got prompt"],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, COMFY_LEVERS),
};

const TILED_DECODE: Lever = Lever::new(
    "decode in tiles: replace the VAE Decode node by VAE Decode (Tiled)",
    "tile_size=256 overlap=64",
)
.unless_said(&["VAEDecodeTiled", "retrying with tiled"]);

const COMFY_LEVERS: &[Lever] = &[
    TILED_DECODE.only(is_decoding),
    Lever::switch(
        "keep only part of the model on the GPU",
        "python main.py --lowvram",
        &["--lowvram", "--novram"],
    ),
    Lever::switch(
        "--lowvram is on: keep no weights on the GPU between layers",
        "python main.py --novram",
        &["--novram"],
    )
    .only(|situation| situation.settings.is_on(&["--lowvram"])),
    Lever::lower(
        "generate fewer frames{from}: length {to} in the empty-video node",
        "length={to}",
        &["length", "num_frames"],
        49,
    )
    .only(is_video),
    Lever::switch(
        "load the diffusion model in 8 bits, half its size",
        "python main.py --fp8_e4m3fn-unet",
        &["--fp8_e4m3fn-unet"],
    )
    .unless_said(&["fp8", "gguf", "nf4"])
    .only(|situation| situation.environment.maker == Maker::Nvidia),
    TILED_DECODE.only(|situation| !is_decoding(situation)),
    Lever::switch(
        "use PyTorch's fused attention: without it, attention needs memory for the square of the pixels",
        "python main.py --use-pytorch-cross-attention",
        &["--use-pytorch-cross-attention", "--use-flash-attention"],
    )
    .unless_said(&["pytorch cross attention", "--use-pytorch-cross-attention"])
    .only(|situation| matches!(situation.environment.maker, Maker::Amd | Maker::Apple)),
    Lever::raise(
        "leave more of the GPU to the desktop and other programs",
        "python main.py --reserve-vram {to}",
        &["--reserve-vram"],
        1,
        4,
    ),
    SYSMEM_FALLBACK,
];

/// A table, with a smaller image in second place where the text names a size.
fn with_image(situation: &Situation<'_>, cause: Cause, levers: &[Lever]) -> Vec<Fix> {
    let mut fixes = lever::steps(situation, cause, levers);
    if matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice)
        && let Some(smaller) = smaller_image(situation)
    {
        fixes.insert(fixes.len().min(1), smaller);
    }
    fixes
}

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
    ],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, AUTOMATIC1111_LEVERS),
};

const AUTOMATIC1111_LEVERS: &[Lever] = &[
    Lever::switch(
        "keep only the part of the model in use on the GPU",
        "COMMANDLINE_ARGS=--medvram",
        &["--medvram", "--lowvram"],
    )
    .variable(),
    Lever::switch(
        "--medvram is on: move the model to the GPU piece by piece, slowly",
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
    .unless_said(&["directml"])
    .variable(),
    Lever::switch(
        "on DirectML, use its memory-saving attention",
        "COMMANDLINE_ARGS=--opt-sub-quad-attention",
        &["--opt-sub-quad-attention"],
    )
    .only(|situation| situation.settings.mentions("directml"))
    .variable(),
    Lever::new(
        "lower the hires fix: the second pass needs memory for the upscaled image",
        "Upscale by = 1.5",
    )
    .only(|situation| {
        ["hires", "hr_", "sample_hr_pass", "upscale"].iter().any(|words| situation.settings.mentions(words))
    }),
    Lever::batch(
        "generate one image at a time: batch count instead of batch size{from}",
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
        "webui-reforge",
        "sd-forge",
        "modules_forge",
        "ldm_patched",
        "backend/memory_management.py",
    ],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, FORGE_LEVERS),
};

const FORGE_LEVERS: &[Lever] = &[
    Lever::new(
        "lower the GPU Weights slider at the top of the page: the rest stays for computation",
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
        "--always-low-vram is on: keep no weights on the GPU",
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
        "lower the hires fix: the second pass needs memory for the upscaled image",
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
    marks: &["SD.Next", "sdnext", "vladmandic/automatic"],
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
        "--medvram is on: move the model layer by layer, slowly",
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
        "--always-low-vram is on: keep no weights on the GPU",
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
        "load the diffusion model in 8 bits",
        "--unet-in-fp8-e4m3fn",
        &["--unet-in-fp8-e4m3fn", "--unet-in-fp8-e5m2"],
    ),
    SYSMEM_FALLBACK,
];

const INVOKE: Program = Program {
    name: "InvokeAI",
    frameworks: &[],
    marks: &["invokeai", "invoke-ai"],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, INVOKE_LEVERS),
};

/// InvokeAI 2 and older, which had command-line switches and no memory manager.
fn is_old_invoke(situation: &Situation<'_>) -> bool {
    situation.settings.mentions(">> Max VRAM used") || situation.settings.mentions("python3.9")
}

/// InvokeAI 3 to 5.5, which kept a fixed VRAM cache.
fn has_vram_cache(situation: &Situation<'_>) -> bool {
    ["ModelManagerService", "lazy_offload", "max_vram_cache_size", "4.0.", "model_manager_default"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

const INVOKE_LEVERS: &[Lever] = &[
    Lever::switch(
        "move models off the GPU when they are idle, and load them in 16 bits",
        "invoke.py --free_gpu_mem --precision float16",
        &["--free_gpu_mem"],
    )
    .only(is_old_invoke),
    Lever::switch(
        "keep no models cached on the GPU (InvokeAI 4 to 5.5, invokeai.yaml)",
        "vram: 0\nlazy_offload: true",
        &[],
    )
    .only(|situation| has_vram_cache(situation) && !is_old_invoke(situation)),
    Lever::switch(
        "load models onto the GPU in part (InvokeAI 5.6 or later, invokeai.yaml)",
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

const DIFFUSERS: Program = Program {
    name: "diffusers",
    frameworks: &[],
    marks: &[
        "diffusers/pipelines",
        "diffusers/models",
        "from diffusers",
        "DiffusionPipeline",
        "StableDiffusionXLPipeline",
        "FluxPipeline",
        "pipe.to(",
        "huggingface/diffusers",
    ],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, DIFFUSERS_LEVERS),
};

const DIFFUSERS_LEVERS: &[Lever] = &[
    Lever::new("move each component to the GPU only while it works, instead of pipe.to(\"cuda\")", "pipe.enable_model_cpu_offload()")
        .unless_said(&["enable_model_cpu_offload()", "enable_sequential_cpu_offload()", ".enable_model_cpu_offload("])
        .only(|situation| situation.environment.maker != Maker::Apple),
    Lever::new("model offload is on: offload layer by layer, slowly", "pipe.enable_sequential_cpu_offload()")
        .unless_said(&["enable_sequential_cpu_offload("])
        .only(|situation| situation.settings.mentions("enable_model_cpu_offload(")),
    Lever::new("decode in tiles", "pipe.vae.enable_tiling()").unless_said(&["enable_tiling(", "enable_vae_tiling("]),
    Lever::new("compute attention in slices: this backend has no fused kernel", "pipe.enable_attention_slicing()")
        .unless_said(&["enable_attention_slicing("])
        .only(|situation| situation.environment.maker == Maker::Apple),
    Lever::lower("generate fewer frames{from}", "num_frames={to}", &["num_frames"], 49).only(is_video),
    Lever::new("load the weights in 16 bits", "from_pretrained(…, torch_dtype=torch.bfloat16)")
        .unless_said(&["torch.float16", "torch.bfloat16", "variant=\"fp16\"", "bnb_4bit"]),
    Lever::new("load the transformer in 4 bits", "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)")
        .unless_said(&["load_in_4bit", "quantization_config", "nf4"])
        .only(|situation| situation.environment.maker == Maker::Nvidia),
    Lever::new("cast the weights to 8 bits while they are stored", "pipe.transformer.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.bfloat16)")
        .unless_said(&["enable_layerwise_casting"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check, torch};
    use super::*;

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
            (
                "diffusers",
                r#"  File "/usr/lib/python3/site-packages/diffusers/pipelines/flux/pipeline_flux.py", line 9"#,
                "enable_model_cpu_offload",
                ("pipe.enable_model_cpu_offload()", "enable_model_cpu_offload"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    #[test]
    fn comfy_goes_from_lowvram_to_novram() {
        let log = torch(r#"  File "/opt/ComfyUI/comfy/ldm/flux/model.py", line 88, in forward"#);
        let commands = |text: &str| -> Vec<String> {
            advice(text, Cause::LiveDataFillsDevice).1.into_iter().filter_map(|fix| fix.command).collect()
        };
        assert_eq!(commands(&log)[0], "python main.py --lowvram");
        let next = commands(&format!("python main.py --lowvram\n{log}"));
        assert_eq!(next[0], "python main.py --novram");
        let decode = commands(&format!("VAEDecode\n{log}"));
        assert_eq!(decode[0], "tile_size=256 overlap=64");
    }

    #[test]
    fn the_image_shrinks_by_what_is_missing() {
        let log = torch("got prompt\nEmptyLatentImage 1536x1024");
        let (_, steps) = advice(&log, Cause::LiveDataFillsDevice);
        assert!(steps[1].action.contains("instead of 1536x1024"), "{steps:?}");
        assert_eq!(image_size("a 1920x1081 screen, image 832 x 1216"), Some((832, 1216)));
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
