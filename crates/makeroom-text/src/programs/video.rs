//! Video generation: Wan, `HunyuanVideo`, LTX-Video and front ends. Memory grows with frames times pixels; the
//! weights of the text encoder are as large as those of the video model.

use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};

pub(super) const PROGRAMS: &[&Program] = &[&WAN_GP, &FRAME_PACK, &WAN, &HUNYUAN, &LTX];

const WAN: Program = Program {
    name: "Wan",
    frameworks: &[],
    marks: &[
        "Wan2.1/",
        "Wan2.2/",
        "Wan-Video",
        "wan/modules",
        "wan/text2video",
        "wan/image2video",
        "wan/speech2video",
        "wan/textimage2video",
    ],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, WAN_LEVERS),
};

const WAN_LEVERS: &[Lever] = &[
    Lever::switch(
        "move the model off the GPU before the VAE decodes",
        "--offload_model True",
        &["--offload_model"],
    ),
    Lever::switch("keep the T5 text encoder on the CPU: it takes 11 GB", "--t5_cpu", &["--t5_cpu"]),
    Lever::switch(
        "convert the weights to 16-bit precision",
        "--convert_model_dtype",
        &["--convert_model_dtype"],
    ),
    // Wan wants 4n + 1 frames.
    Lever::lower(
        "generate fewer frames{from}; the number must be 4n+1",
        "--frame_num 49",
        &["--frame_num", "--infer_frames"],
        49,
    )
    .at_least(49, 1),
    Lever::new("generate at 480p", "--size 832*480").unless_said(&["832*480", "480*832"]),
    Lever::new(
        "shard the weights across the GPUs",
        "torchrun --nproc_per_node=2 generate.py --dit_fsdp --t5_fsdp --ulysses_size 2",
    )
    .unless_said(&["dit_fsdp"])
    .only(|situation| situation.settings.mentions("rank")),
];

const WAN_GP: Program = Program {
    name: "Wan2GP",
    frameworks: &[],
    marks: &["Wan2GP", "WanGP", "wgp.py", "mmgp", "perc_reserved_mem_max"],
    work: Work::Inference,
    advise: |situation, cause| match cause {
        Cause::HostMemory => wan_gp_host(),
        _ => lever::steps(situation, cause, WAN_GP_LEVERS),
    },
};

fn wan_gp_host() -> Vec<Fix> {
    vec![
        Fix::new("pin less RAM: lower the share of reserved memory")
            .command("python wgp.py --perc-reserved-mem-max 0.3"),
        Fix::new("choose the profile for low RAM and low VRAM").command("python wgp.py --profile 5"),
        Fix::new("use the 8-bit text encoder (Configuration > Models)")
            .command("text encoder = int8 quantized"),
    ]
}

const WAN_GP_LEVERS: &[Lever] = &[
    Lever::raise(
        "choose a profile that needs less VRAM",
        "python wgp.py --profile {to}",
        &["--profile"],
        4,
        5,
    ),
    Lever::lower("generate fewer frames{from}", "Number of frames = 49", &["video_length", "frames"], 49)
        .at_least(49, 1),
    Lever::new("do not preload models into VRAM (Configuration > Performance)", "VRAM preload (MB) = 0")
        .only(|situation| situation.settings.mentions("preload")),
    Lever::new("decode in tiles (Configuration > Performance)", "VAE Tiling = 128 x 128"),
    Lever::new("use a lower resolution", "Resolution = 832x480"),
];

const HUNYUAN: Program = Program {
    name: "HunyuanVideo",
    frameworks: &[],
    marks: &["hyvideo", "HunyuanVideo", "sample_video.py"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, HUNYUAN_LEVERS),
};

const HUNYUAN_LEVERS: &[Lever] = &[
    Lever::switch("move idle models to the CPU", "--use-cpu-offload", &["--use-cpu-offload"])
        .unless_said(&["enable_model_cpu_offload()"]),
    Lever::lower(
        "generate fewer frames{from}; the number must be 4n+1",
        "--video-length 65",
        &["--video-length", "num_frames"],
        65,
    )
    .at_least(65, 1),
    Lever::new("generate at 540p", "--video-size 544 960").unless_said(&["544 960", "544x960"]),
    Lever::switch(
        "load the 8-bit checkpoint",
        "--use-fp8 --dit-weight mp_rank_00_model_states_fp8.pt",
        &["--use-fp8"],
    ),
    Lever::new("decode in tiles", "pipe.vae.enable_tiling()")
        .unless_said(&["enable_tiling(", "--vae-tiling"]),
];

const LTX: Program = Program {
    name: "LTX-Video",
    frameworks: &[],
    marks: &["ltx_video", "LTX-Video", "LTX Video", "ltx_core", "ltx_pipelines"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, LTX_LEVERS),
};

const LTX_LEVERS: &[Lever] = &[
    Lever::switch("move idle models to the CPU", "--offload_to_cpu True", &["--offload_to_cpu"]),
    Lever::lower(
        "generate fewer frames{from}; the number must be 8n+1",
        "--num_frames 65",
        &["--num_frames", "num_frames"],
        65,
    )
    .at_least(65, 1),
    Lever::side("use smaller frames (multiples of 32)", "--height {to}", &["--height"], 480, (256, 32)),
    Lever::new("use the distilled 8-bit model", "--pipeline_config configs/ltxv-2b-0.9.8-distilled-fp8.yaml")
        .unless_said(&["fp8"]),
];

const FRAME_PACK: Program = Program {
    name: "FramePack",
    frameworks: &[],
    marks: &["FramePack", "diffusers_helper/"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, FRAME_PACK_LEVERS),
};

const FRAME_PACK_LEVERS: &[Lever] = &[
    Lever::new(
        "reserve more memory for computation: move the slider up",
        "GPU Inference Preserved Memory (GB) = 8",
    ),
    Lever::switch("decode fewer latents at a time", "latent_window_size = 7", &["latent_window_size"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check, torch};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "Wan",
                r#"  File "/data/Wan2.2/generate.py", line 40"#,
                "--offload_model True",
                ("python generate.py --t5_cpu", "--t5_cpu"),
            ),
            (
                "Wan2GP",
                r#"  File "/data/Wan2GP/wgp.py", line 7"#,
                "--profile 4",
                ("python wgp.py --profile 5", "--profile"),
            ),
            (
                "HunyuanVideo",
                r#"  File "/data/HunyuanVideo/hyvideo/inference.py", line 2"#,
                "--use-cpu-offload",
                ("sample_video.py --use-cpu-offload", "--use-cpu-offload"),
            ),
            (
                "LTX-Video",
                r#"  File "/x/ltx_video/inference.py", line 2"#,
                "--offload_to_cpu True",
                ("--num_frames 65", "--num_frames"),
            ),
            (
                "FramePack",
                r#"  File "/x/FramePack/diffusers_helper/memory.py", line 2"#,
                "Preserved Memory",
                ("latent_window_size: 1", "latent_window_size"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    #[test]
    fn pinned_memory_has_its_own_steps() {
        let (_, steps) = advice(&torch("wgp.py: reserved RAM"), Cause::HostMemory);
        assert!(steps[0].command.as_deref().is_some_and(|line| line.contains("--perc-reserved-mem-max 0.3")));
    }
}
