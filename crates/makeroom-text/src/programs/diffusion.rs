//! Image generation: `ComfyUI` and diffusers. Memory is weights (text encoder, diffusion model,
//! VAE), attention (grows with the square of the pixels where no fused kernel is used) and the VAE's decode.

use makeroom_explain::advice::Maker;
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::environment::System;
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[&COMFY, &DIFFUSERS];

/// Words of a failure while the latent image is decoded.
const DECODING: [&str; 6] =
    ["VAEDecode", "vae.decode", "first_stage_model.decode", "vae_decode", "autoencoder", "VAE decoding"];
/// Words of a video model.
const VIDEO: [&str; 7] =
    ["WanVideo", "wan2", "HunyuanVideo", "LTXV", "LTX-Video", "AnimateDiff", "num_frames"];

fn is_decoding(situation: &Situation<'_>) -> bool {
    DECODING.iter().any(|words| situation.settings.mentions(words))
}

fn is_video(situation: &Situation<'_>) -> bool {
    VIDEO.iter().any(|words| situation.settings.mentions(words))
}

/// The size of the image that the text names, and one with fewer pixels.
fn smaller_image(situation: &Situation<'_>) -> Option<Fix> {
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

    use makeroom_search::{Regex, pattern};

    static SIZE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(\d{3,4}) ?[x×*] ?(\d{3,4})\b"));
    SIZE.captures_iter(text).find_map(|found| {
        let side = |group: usize| {
            found[group].parse::<u64>().ok().filter(|side| side % 8 == 0 && (384..=4096).contains(side))
        };
        Some((side(1)?, side(2)?))
    })
}

/// NVIDIA's driver for Windows can spill to system memory where a setting lets it.
pub(super) const SYSMEM_FALLBACK: Lever = Lever::new(
    "let the driver spill to system memory (slower): NVIDIA Control Panel > Manage 3D settings",
    "CUDA - Sysmem Fallback Policy = Prefer Sysmem Fallback",
)
.only(|situation| {
    situation.environment.system == System::Windows && situation.environment.maker == Maker::Nvidia
});

const COMFY: Program = Program {
    name: "ComfyUI",
    frameworks: &[],
    marks: &[
        "ComfyUI",
        "This error means you ran out of memory on your GPU",
        "TIPS: If the workflow worked before",
        "comfy/ldm",
        "comfy/model_management",
        "comfy/sd.py",
        "comfy_extras",
        "got prompt",
        "!!! Exception during processing",
    ],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, COMFY_LEVERS),
};

const TILED_DECODE: Lever = Lever::new(
    "decode in tiles: replace the VAE Decode node with VAE Decode (Tiled)",
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
        "--lowvram is already on: keep no weights on the GPU between layers",
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
        "load the diffusion model in 8-bit precision (half the size)",
        "python main.py --fp8_e4m3fn-unet",
        &["--fp8_e4m3fn-unet"],
    )
    .unless_said(&["fp8", "gguf", "nf4"])
    .only(|situation| situation.environment.maker == Maker::Nvidia),
    TILED_DECODE.only(|situation| !is_decoding(situation)),
    Lever::switch(
        "use PyTorch's fused attention: without it, attention memory grows with the square of the number of pixels",
        "python main.py --use-pytorch-cross-attention",
        &["--use-pytorch-cross-attention", "--use-flash-attention"],
    )
    .unless_said(&["pytorch cross attention", "--use-pytorch-cross-attention"])
    .only(|situation| matches!(situation.environment.maker, Maker::Amd | Maker::Apple)),
    Lever::raise(
        "leave more GPU memory for the desktop and other programs",
        "python main.py --reserve-vram {to}",
        &["--reserve-vram"],
        1,
        4,
    ),
    SYSMEM_FALLBACK,
];

/// A table, with a smaller image in second place where the text names a size.
pub(super) fn with_image(situation: &Situation<'_>, cause: Cause, levers: &[Lever]) -> Vec<Fix> {
    let mut fixes = lever::steps(situation, cause, levers);
    if matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice)
        && let Some(smaller) = smaller_image(situation)
    {
        fixes.insert(fixes.len().min(1), smaller);
    }
    fixes
}

/// Whether the failure is in attention without a fused kernel, or on a backend that has none.
fn is_attention(situation: &Situation<'_>) -> bool {
    situation.environment.maker == Maker::Apple
        || [
            "attention_scores",
            "get_attention_scores",
            ".softmax(",
            "baddbmm",
            "torch.bmm(",
            "AttnProcessor.__call__",
            "scaled_dot_product_attention(",
        ]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

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
        "pipe.enable_",
        "enable_model_cpu_offload",
        "enable_sequential_cpu_offload",
        "diffusers/quantizers",
        "hidden_states = F.scaled_dot_product_attention(",
        "hidden_states = attn_output",
        "huggingface/diffusers",
    ],
    work: Work::Inference,
    advise: |situation, cause| with_image(situation, cause, DIFFUSERS_LEVERS),
};

const DIFFUSERS_LEVERS: &[Lever] = &[
    Lever::new("compute attention in slices, so that the whole matrix is never stored at once", "pipe.enable_attention_slicing(\"max\")")
        .unless_said(&["enable_attention_slicing(", "flash_attn"])
        .only(is_attention),
    Lever::new("move each component to the GPU only while it works, instead of pipe.to(\"cuda\")", "pipe.enable_model_cpu_offload()")
        .unless_said(&["enable_model_cpu_offload()", "enable_sequential_cpu_offload()", ".enable_model_cpu_offload("])
        .only(|situation| situation.environment.maker != Maker::Apple),
    Lever::new("model offload is already on: offload layer by layer (much slower)", "pipe.enable_sequential_cpu_offload()")
        .unless_said(&["enable_sequential_cpu_offload("])
        .only(|situation| situation.settings.mentions("enable_model_cpu_offload(")),
    Lever::new("decode in tiles", "pipe.vae.enable_tiling()").unless_said(&["enable_tiling(", "enable_vae_tiling("]),
    Lever::lower("generate fewer frames{from}", "num_frames={to}", &["num_frames"], 49).only(is_video),
    Lever::new("load the weights in 16-bit precision", "from_pretrained(…, torch_dtype=torch.bfloat16)")
        .unless_said(&["torch.float16", "torch.bfloat16", "variant=\"fp16\"", "bnb_4bit"]),
    Lever::new("load the transformer in 4-bit precision", "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)")
        .unless_said(&["load_in_4bit", "quantization_config", "nf4"])
        .only(|situation| situation.environment.maker == Maker::Nvidia),
    Lever::new("store the weights in 8-bit precision, and cast each layer to 16-bit only while it runs", "pipe.transformer.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.bfloat16)")
        .unless_said(&["enable_layerwise_casting"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check, torch};
    use super::*;

    #[test]
    fn diffusers_is_found_and_names_its_own_options() {
        check(
            "diffusers",
            &torch(
                r#"  File "/usr/lib/python3/site-packages/diffusers/pipelines/flux/pipeline_flux.py", line 9"#,
            ),
            "enable_model_cpu_offload",
            ("pipe.enable_model_cpu_offload()", "enable_model_cpu_offload"),
        );
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
}
