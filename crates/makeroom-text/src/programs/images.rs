//! Other programs that work on pictures and voices: upscalers, splatting and radiance fields, face swaps, voice
//! conversion.

use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};

pub(super) const PROGRAMS: &[&Program] = &[
    &FLOWFRAMES,
    &NCNN,
    &REAL_ESRGAN,
    &SPLATTING,
    &NERFSTUDIO,
    &INSTANT_NGP,
    &DEEP_FACE_LAB,
    &FACE_FUSION,
    &ROOP,
    &RVC,
    &SO_VITS,
];

const REAL_ESRGAN: Program = Program {
    name: "Real-ESRGAN",
    frameworks: &[],
    marks: &["inference_realesrgan", "realesrgan", "Real-ESRGAN", "basicsr/", "gfpgan", "CodeFormer"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, REAL_ESRGAN_LEVERS),
};

const REAL_ESRGAN_LEVERS: &[Lever] = &[
    Lever::side("upscale in tiles{from}", "--tile {to}", &["--tile", "-t", "--bg_tile"], 256, (64, 32)),
    Lever::lower("upscale by a smaller factor{from}", "--outscale {to}", &["--outscale", "-s"], 2)
        .at_least(2, 1),
    Lever::new("compute in 16-bit precision: drop --fp32", "inference_realesrgan.py without --fp32")
        .only(|situation| situation.settings.is_on(&["--fp32"])),
];

const NCNN: Program = Program {
    name: "the ncnn upscaler",
    frameworks: &[],
    marks: &[
        "ncnn-vulkan",
        "waifu2x",
        "realcugan",
        "upscayl",
        "vkAllocateMemory failed -",
        "vkAllocateMemoryfaile",
    ],
    work: Work::Inference,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, NCNN_LEVERS),
        _ => lever::steps(situation, cause, NCNN_LEVERS),
    },
};

const NCNN_LEVERS: &[Lever] = &[
    Lever::side(
        "use smaller tiles{from} (Upscayl: Settings > Custom tile size)",
        "-t {to}",
        &["-t", "--tile-size", "tileSize"],
        128,
        (32, 32),
    ),
    Lever::switch("load, process and save one image at a time", "-j 1:1:1", &[]).unless_said(&["-j 1:1:1"]),
    Lever::new("use a lighter model", "-n realesr-animevideov3").unless_said(&["animevideov3", "-lite"]),
    Lever::new("run on another GPU, or on the CPU with -1", "-g 1").unless_said(&["-g 1", "-g -1"]),
];

const FLOWFRAMES: Program = Program {
    name: "Flowframes",
    frameworks: &[],
    marks: &["flowframes", "Settings -> Max Video Size", "frames interpolated", "rife-ncnn"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, FLOWFRAMES_LEVERS),
};

const FLOWFRAMES_LEVERS: &[Lever] = &[
    Lever::new("interpolate at a lower resolution: Settings > Interpolation", "Max Video Size = 720p")
        .unless_said(&["Max Video Size = 720"]),
    Lever::new("process one frame at a time: Settings > AI Specific Settings", "NCNN Processing Threads = 1"),
    Lever::new(
        "interpolate the video in parts",
        "ffmpeg -i in.mp4 -c copy -f segment -segment_time 600 part%03d.mp4",
    ),
];

const SPLATTING: Program = Program {
    name: "Gaussian splatting",
    frameworks: &[],
    marks: &[
        "gaussian-splatting",
        "gaussian_renderer",
        "diff_gaussian_rasterization",
        "diff-gaussian-rasterization",
        "scene/gaussian_model",
        "rasterize_gaussians",
        "diff_surfel_rasterization",
        "diff-surfel-rasterization",
        "simple_knn",
        "gsplat/",
    ],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::IntegerOrShapeBug => rebuild_rasterizer(),
        _ => lever::steps(situation, cause, SPLATTING_LEVERS),
    },
};

const SPLATTING_LEVERS: &[Lever] = &[
    Lever::switch("keep the training images in RAM", "--data_device cpu", &[]).unless_said(&[
        "data_device cpu",
        "data_device=cpu",
        "data_device='cpu'",
    ]),
    Lever::raise("train on downscaled images{from}", "-r {to}", &["-r", "--resolution"], 2, 8),
    Lever::new(
        "create fewer Gaussians: double the densification threshold (default 0.0002)",
        "--densify_grad_threshold 0.0004",
    )
    .unless_said(&["densify_grad_threshold 0.0004", "densify_grad_threshold=0.0004"]),
    Lever::lower(
        "stop densification earlier{from iterations}",
        "--densify_until_iter {to}",
        &["--densify_until_iter"],
        10_000,
    )
    .at_least(5_000, 1000),
    Lever::new("skip the evaluation during training", "--test_iterations -1")
        .unless_said(&["test_iterations -1"]),
];

/// An absurd size out of the rasterizer means code for another GPU.
fn rebuild_rasterizer() -> Vec<Fix> {
    vec![
        Fix::new("rebuild the rasterizer on this machine, for this GPU's compute capability (8.6: RTX 30xx, 8.9: RTX 40xx, 12.0: RTX 50xx)")
            .command("TORCH_CUDA_ARCH_LIST=8.6 pip install --no-cache-dir --force-reinstall ./submodules/diff-gaussian-rasterization"),
        Fix::new("check that nvcc has the same CUDA version that PyTorch was built with")
            .command("nvcc --version; python -c 'import torch; print(torch.version.cuda)'"),
    ]
}

const NERFSTUDIO: Program = Program {
    name: "nerfstudio",
    frameworks: &[],
    marks: &[
        "nerfstudio",
        "ns-train",
        "splatfacto",
        "nerfacto",
        "machine-num-devices",
        "machine.num-devices",
        "--pipeline.datamanager",
    ],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, NERFSTUDIO_LEVERS),
};

const NERFSTUDIO_LEVERS: &[Lever] = &[
    Lever::lower(
        "trace fewer rays per step{from}",
        "--pipeline.datamanager.train-num-rays-per-batch {to}",
        &["--pipeline.datamanager.train-num-rays-per-batch", "train_num_rays_per_batch"],
        2048,
    )
    .at_least(256, 256)
    .only(|situation| !situation.settings.mentions("splatfacto")),
    Lever::new("keep the training images in RAM", "--pipeline.datamanager.cache-images cpu")
        .unless_said(&["cache-images cpu", "cache-images disk"])
        .only(|situation| situation.settings.mentions("splatfacto")),
    Lever::raise(
        "train on downscaled images{from}",
        "nerfstudio-data --downscale-factor {to}",
        &["--downscale-factor"],
        2,
        8,
    ),
    Lever::lower(
        "render the evaluation in smaller chunks{from}",
        "--pipeline.model.eval-num-rays-per-chunk {to}",
        &["--pipeline.model.eval-num-rays-per-chunk"],
        4096,
    )
    .at_least(512, 512),
    Lever::lower(
        "load fewer images at once{from}",
        "--pipeline.datamanager.train-num-images-to-sample-from {to}",
        &["--pipeline.datamanager.train-num-images-to-sample-from"],
        100,
    )
    .only(|situation| !situation.settings.mentions("splatfacto")),
];

const INSTANT_NGP: Program = Program {
    name: "instant-ngp",
    frameworks: &[],
    marks: &["instant-ngp", "instant_ngp", "neural-graphics-primitives", "ngp::"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, INSTANT_NGP_LEVERS),
};

const INSTANT_NGP_LEVERS: &[Lever] = &[
    Lever::lower(
        "use a smaller scene box{from} in transforms.json",
        "\"aabb_scale\": {to}",
        &["aabb_scale"],
        4,
    ),
    Lever::new(
        "downscale the images by a factor of 2: all of them are kept on the GPU",
        "mogrify -resize 50% images/*",
    ),
    Lever::new("use a smaller hash table", "--network configs/nerf/small.json").unless_said(&["small.json"]),
];

const DEEP_FACE_LAB: Program = Program {
    name: "DeepFaceLab",
    frameworks: &[],
    marks: &["DeepFaceLab", "== Model name:", "Model_SAEHD", "SAEHD", "leras"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, DEEP_FACE_LAB_LEVERS),
};

const DEEP_FACE_LAB_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size{from}", "batch_size: {to}", &["batch_size"]),
    Lever::new("keep the optimizer in RAM", "Place models and optimizer on GPU: n")
        .unless_said(&["models_opt_on_gpu: False"]),
    Lever::side(
        "start a new model with a lower resolution{from}",
        "resolution: {to}",
        &["resolution"],
        128,
        (64, 16),
    ),
    Lever::new(
        "turn off options that need a second network",
        "gan_power: 0.0, true_face_power: 0.0, adabelief: n",
    )
    .unless_said(&["adabelief: False"]),
];

const FACE_FUSION: Program = Program {
    name: "FaceFusion",
    frameworks: &[],
    marks: &["facefusion"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, FACE_FUSION_LEVERS),
};

const FACE_FUSION_LEVERS: &[Lever] = &[
    Lever::lower(
        "run fewer threads{from}: each has its own buffers",
        "--execution-thread-count {to}",
        &["--execution-thread-count", "execution_thread_count"],
        1,
    ),
    Lever::new("unload models between steps", "--video-memory-strategy strict")
        .unless_said(&["strategy strict", "strategy = strict"]),
    Lever::lower(
        "process one frame per thread at a time",
        "--execution-queue-count {to}",
        &["--execution-queue-count"],
        1,
    ),
];

const ROOP: Program = Program {
    name: "the face swapper",
    frameworks: &[],
    marks: &[
        "roop",
        "Deep-Live-Cam",
        "deep_live_cam",
        "DeepFaceLive",
        "execution_thre",
        "--execution-threads",
    ],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, ROOP_LEVERS),
};

const ROOP_LEVERS: &[Lever] = &[
    Lever::lower(
        "run fewer threads{from}: each has its own buffers (roop-unleashed: Settings > Max. Number of Threads)",
        "--execution-threads {to}",
        &["--execution-threads", "execution_threads"],
        2,
    ),
    Lever::new("swap without an enhancer, or enhance in a second run", "--frame-processor face_swapper")
        .unless_said(&["frame-processor face_swapper\n"]),
    Lever::new("run the detector on the CPU", "--execution-provider cpu")
        .unless_said(&["execution-provider cpu"]),
];

const RVC: Program = Program {
    name: "RVC",
    frameworks: &[],
    marks: &["infer-web.py", "Retrieval-based-Voice", "rvc/", "RVC-", "Applio"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, RVC_LEVERS),
};

const RVC_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size per GPU{from}", "Batch size per GPU = {to}", &["batch_size", "-bs"]),
    Lever::new("do not cache the training set on the GPU", "Cache all training sets to GPU memory = No"),
    Lever::new(
        "convert in shorter segments: configs/config.py",
        "x_pad, x_query, x_center, x_max = 1, 5, 30, 32",
    ),
];

const SO_VITS: Program = Program {
    name: "so-vits-svc",
    frameworks: &[],
    marks: &["so-vits-svc", "so_vits_svc", "GPT-SoVITS"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, SO_VITS_LEVERS),
};

const SO_VITS_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from} in configs/config.json",
        "\"batch_size\": {to}",
        &["batch_size"],
    ),
    Lever::new("do not keep the dataset in memory: configs/config.json", "\"all_in_mem\": false")
        .only(|situation| situation.settings.is_on(&["all_in_mem"])),
    Lever::new("train in 16-bit precision: configs/config.json", "\"fp16_run\": true")
        .unless_on(&["fp16_run"]),
    Lever::new("convert the audio in slices", "inference_main.py --clip 30").unless_said(&["--clip"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check, torch};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "Real-ESRGAN",
                "python inference_realesrgan.py -i in.png",
                "--tile 256",
                ("--outscale 2", "--outscale"),
            ),
            (
                "the ncnn upscaler",
                "waifu2x-ncnn-vulkan -i a.png -o b.png",
                "-t 128",
                ("waifu2x-ncnn-vulkan -j 1:1:1", "-j 1:1:1"),
            ),
            (
                "Gaussian splatting",
                r#"  File "/x/gaussian-splatting/train.py", line 60"#,
                "--data_device cpu",
                ("python train.py --data_device cpu", "--data_device"),
            ),
            (
                "nerfstudio",
                "ns-train nerfacto --data d",
                "--pipeline.datamanager.train-num-rays-per-batch 2048",
                ("--downscale-factor 8", "--downscale-factor"),
            ),
            (
                "instant-ngp",
                "/x/instant-ngp/src/testbed.cu:900",
                "\"aabb_scale\": 4",
                ("--network configs/nerf/small.json", "small.json"),
            ),
            ("DeepFaceLab", "== Model name: me_SAEHD ==", "batch_size: 1", ("batch_size: 1", "batch_size")),
            (
                "FaceFusion",
                r#"  File "/x/facefusion/core.py", line 3"#,
                "--execution-thread-count 1",
                ("--execution-thread-count 1", "--execution-thread-count"),
            ),
            (
                "the face swapper",
                "python run.py --execution-threads 8 (Deep-Live-Cam)",
                "--execution-threads",
                ("--execution-provider cpu", "--execution-provider cpu"),
            ),
            (
                "RVC",
                r#"  File "/x/infer-web.py", line 3"#,
                "Batch size per GPU = 1",
                ("batch_size: 1", "Batch size per GPU"),
            ),
            (
                "so-vits-svc",
                r#"  File "/x/so-vits-svc/train.py", line 3"#,
                "\"batch_size\": 1",
                ("\"fp16_run\": true", "fp16_run"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    #[test]
    fn an_absurd_size_means_a_rasterizer_for_another_gpu() {
        let (_, steps) = advice(&torch("import diff_gaussian_rasterization"), Cause::IntegerOrShapeBug);
        assert!(steps[0].command.as_deref().is_some_and(|line| line.contains("TORCH_CUDA_ARCH_LIST")));
    }
}
