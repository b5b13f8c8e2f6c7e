//! Generation and recognition of images, video, speech and shapes.

use super::{Program, program};
use crate::programs::Work;
use crate::programs::lever::{self, Lever};

pub(in crate::programs) const PROGRAMS: &[&Program] = &[
    &MOCHI,
    &OPEN_SORA,
    &F5_TTS,
    &FISH_SPEECH,
    &COSY_VOICE,
    &MUSUBI,
    &DIFFUSION_PIPE,
    &SAM_2,
    &DEPTH_ANYTHING,
    &GROUNDING_DINO,
    &WAV2LIP,
    &SAD_TALKER,
    &LIVE_PORTRAIT,
    &MUSE_TALK,
    &TRIPO_SR,
    &TRELLIS,
    &INSTANT_MESH,
    &DUST3R,
    &VGGT,
    &CONTROL_NET,
    &EASY_DIFFUSION,
    &CODE_FORMER,
    &OPEN_CLIP,
    &REMBG,
    &IMMICH,
    &OPEN_POSE,
    &DEEP_STREAM,
];

program!(
    MOCHI,
    "Mochi",
    Inference,
    &["mochi_preview", "genmo/"],
    &[
        Lever::switch("keep idle models in RAM", "python ./demos/cli.py --cpu_offload", &["--cpu_offload"]),
        Lever::lower("generate fewer frames{from}", "num_frames={to}", &["num_frames"], 49).at_least(7, 6),
        Lever::new("decode in tiles", "decode_type=\"tiled_spatial\"").unless_said(&["tiled_spatial"]),
    ]
);

program!(
    OPEN_SORA,
    "Open-Sora",
    Inference,
    &["opensora/", "opensora-v1", "Open-Sora"],
    &[
        Lever::new("generate at a lower resolution", "--resolution 240p")
            .unless_said(&["resolution 240p", "resolution 144p"]),
        Lever::new("generate fewer frames", "--num-frames 51").unless_said(&["num-frames 51"]),
        Lever::new("keep idle models in RAM (version 2.0)", "--offload True").unless_said(&["offload True"]),
    ]
);

program!(
    F5_TTS,
    "F5-TTS",
    Inference,
    &["f5_tts/", "f5-tts_", "F5-TTS"],
    &[
        Lever::new(
            "use a reference clip of at most 10 seconds: memory grows with its length",
            "ffmpeg -i ref.wav -t 10 ref10.wav && f5-tts_infer-cli --ref_audio ref10.wav"
        )
        .only(|situation| situation.settings.mentions("infer")),
        Lever::lower(
            "train on fewer frames per GPU{from}",
            "datasets.batch_size_per_gpu={to}",
            &["batch_size_per_gpu"],
            1600
        )
        .only(|situation| !situation.settings.mentions("infer")),
        Lever::new("generate on the CPU", "f5-tts_infer-cli --device cpu")
            .only(|situation| situation.settings.mentions("infer")),
        Lever::new("use an 8-bit optimizer", "optim.bnb_optimizer=True")
            .only(|situation| !situation.settings.mentions("infer")),
    ]
);

program!(
    FISH_SPEECH,
    "fish-speech",
    Inference,
    &["fish_speech/", "fish-speech"],
    &[
        Lever::switch("load the model in 16-bit precision", "--half", &["--half"]),
        Lever::lower(
            "generate fewer tokens at a time{from}",
            "--max-new-tokens {to}",
            &["max_new_tokens"],
            512
        )
        .at_least(64, 64),
        Lever::lower(
            "split the text into shorter parts{from}",
            "--chunk-length {to}",
            &["chunk_length"],
            100
        )
        .at_least(50, 10),
    ]
);

program!(
    COSY_VOICE,
    "CosyVoice",
    Inference,
    &["cosyvoice/", "CosyVoice2("],
    &[
        Lever::new("load the model in 16-bit precision", "CosyVoice2(model_dir, fp16=True)")
            .unless_said(&["fp16=True"]),
        Lever::new("stream the speech in chunks", "inference_zero_shot(…, stream=True)")
            .unless_said(&["stream=True"]),
        Lever::new(
            "do not start the vLLM engine alongside the model",
            "CosyVoice2(model_dir, load_vllm=False)"
        )
        .only(|situation| situation.settings.mentions("vllm")),
    ]
);

program!(
    MUSUBI,
    "musubi-tuner",
    Training,
    &["musubi_tuner", "musubi-tuner", "hv_train_network", "wan_train_network", "fpack_train_network"],
    &[
        Lever::raise(
            "keep more blocks of the model in RAM{from}",
            "--blocks_to_swap {to}",
            &["--blocks_to_swap"],
            20,
            36
        ),
        Lever::switch("load the model in 8-bit precision", "--fp8_base", &["--fp8_base"]),
        Lever::switch(
            "recompute activations instead of keeping them",
            "--gradient_checkpointing",
            &["--gradient_checkpointing"]
        ),
        Lever::new(
            "train on fewer or smaller frames (dataset TOML)",
            "target_frames = [1, 25]\nresolution = [512, 320]"
        ),
    ]
);

program!(
    DIFFUSION_PIPE,
    "diffusion-pipe",
    Training,
    &["diffusion-pipe"],
    &[
        Lever::raise(
            "keep more blocks of the model in RAM{from} (in the TOML file)",
            "blocks_to_swap = {to}",
            &["blocks_to_swap"],
            20,
            36
        ),
        Lever::lower(
            "lower the batch size{from} (in the TOML file)",
            "micro_batch_size_per_gpu = {to}",
            &["micro_batch_size_per_gpu"],
            1
        ),
        Lever::new(
            "recompute activations, and keep the checkpoints in RAM (in the TOML file)",
            "activation_checkpointing = 'unsloth'"
        )
        .unless_said(&["'unsloth'"]),
        Lever::new("load the model in 8-bit precision (in the TOML file)", "transformer_dtype = 'float8'")
            .unless_said(&["float8"]),
    ]
);

program!(
    SAM_2,
    "SAM 2",
    Inference,
    &["sam2/", "sam2_video_predictor", "sam2.1_hiera"],
    &[
        Lever::new(
            "keep the frames and their state in RAM",
            "predictor.init_state(video_path, offload_video_to_cpu=True, offload_state_to_cpu=True)"
        )
        .unless_said(&["offload_state_to_cpu=True"])
        .only(|situation| situation.settings.mentions("video")),
        Lever::new("load the smallest model", "configs/sam2.1/sam2.1_hiera_t.yaml").unless_said(&["hiera_t"]),
        Lever::lower(
            "prompt with fewer points at a time{from}",
            "SAM2AutomaticMaskGenerator(sam2, points_per_batch={to})",
            &["points_per_batch"],
            16
        ),
    ]
);

program!(
    DEPTH_ANYTHING,
    "Depth Anything",
    Inference,
    &["depth_anything", "Depth-Anything"],
    &[
        Lever::lower(
            "use smaller images{from| (default 518)}",
            "--input-size {to}",
            &["--input-size", "input_size"],
            364
        )
        .at_least(140, 14),
        Lever::new("load the smallest model", "--encoder vits").unless_said(&["encoder vits"]),
    ]
);

program!(
    GROUNDING_DINO,
    "Grounding DINO",
    Inference,
    &["groundingdino/", "GroundingDINO"],
    &[
        Lever::new("use smaller images (default 800, at most 1333)", "T.RandomResize([512], max_size=853)")
            .unless_said(&["RandomResize([512]"]),
        Lever::new("load the smaller model", "GroundingDINO_SwinT_OGC.py with groundingdino_swint_ogc.pth")
            .unless_said(&["swint"]),
    ]
);

program!(
    WAV2LIP,
    "Wav2Lip",
    Inference,
    &["wav2lip"],
    &[
        Lever::lower(
            "detect faces in fewer frames at a time{from| (default 16)}",
            "--face_det_batch_size {to}",
            &["--face_det_batch_size"],
            4
        ),
        Lever::lower(
            "lip-sync fewer frames at a time{from| (default 128)}",
            "--wav2lip_batch_size {to}",
            &["--wav2lip_batch_size"],
            32
        ),
        Lever::new("halve the width and height of the video", "--resize_factor 2")
            .unless_said(&["resize_factor 2"]),
    ]
);

program!(
    SAD_TALKER,
    "SadTalker",
    Inference,
    &["SadTalker"],
    &[
        Lever::lower(
            "render fewer frames at a time{from| (default 2)}",
            "--batch_size {to}",
            &["--batch_size"],
            1
        ),
        Lever::new("render at 256 pixels", "--size 256").unless_said(&["size 256"]),
        Lever::new("drop --enhancer, which loads a second model", "inference.py without --enhancer")
            .only(|situation| situation.settings.mentions("enhancer")),
        Lever::new("animate only the cropped face", "--preprocess crop").unless_said(&["preprocess crop"]),
    ]
);

program!(
    LIVE_PORTRAIT,
    "LivePortrait",
    Inference,
    &["LivePortrait", "live_portrait_pipeline"],
    &[
        Lever::new("use smaller source images (default 1280)", "--source-max-dim 720")
            .unless_said(&["source-max-dim"]),
        Lever::new("compute in 16-bit precision", "--flag-use-half-precision")
            .unless_said(&["use-half-precision"]),
    ]
);

program!(
    MUSE_TALK,
    "MuseTalk",
    Inference,
    &["musetalk"],
    &[
        Lever::lower(
            "generate fewer frames at a time{from| (default 8)}",
            "--batch_size {to}",
            &["--batch_size"],
            2
        ),
        Lever::switch("compute in 16-bit precision", "--use_float16", &["--use_float16"]),
    ]
);

program!(
    TRIPO_SR,
    "TripoSR",
    Inference,
    &["TripoSR", "tsr/system"],
    &[
        Lever::lower(
            "query fewer points at a time{from| (default 8192)}",
            "--chunk-size {to}",
            &["--chunk-size"],
            2048
        )
        .at_least(256, 256),
        Lever::lower(
            "extract a coarser mesh{from| (default 256)}",
            "--mc-resolution {to}",
            &["--mc-resolution"],
            128
        )
        .at_least(32, 32),
    ]
);

program!(
    TRELLIS,
    "TRELLIS",
    Inference,
    &["trellis/", "TRELLIS"],
    &[
        Lever::new("decode only the mesh", "pipeline.run(image, formats=['mesh'])")
            .unless_said(&["formats=['mesh']"]),
        Lever::new(
            "use the native algorithm instead of benchmarking all of them",
            "SPCONV_ALGO=native ATTN_BACKEND=xformers"
        )
        .unless_said(&["SPCONV_ALGO=native"])
        .variable(),
        Lever::new(
            "bake a smaller texture",
            "postprocessing_utils.to_glb(…, simplify=0.95, texture_size=512)"
        )
        .unless_said(&["texture_size=512"]),
    ]
);

program!(
    INSTANT_MESH,
    "InstantMesh",
    Inference,
    &["InstantMesh", "instant-mesh"],
    &[
        Lever::new("load the smaller model", "python run.py configs/instant-mesh-base.yaml …")
            .unless_said(&["instant-mesh-base"]),
        Lever::new("drop --export_texmap, which needs a second pass", "run.py without --export_texmap")
            .only(|situation| situation.settings.mentions("export_texmap")),
    ]
);

program!(
    DUST3R,
    "DUSt3R",
    Inference,
    &["dust3r/", "mast3r/"],
    &[
        Lever::new(
            "align fewer image pairs: only neighbors within a window instead of all pairs",
            "make_pairs(images, scene_graph='swin-3')"
        )
        .unless_said(&["swin-"]),
        Lever::new("use smaller images", "load_images(paths, size=224)")
            .unless_said(&["size=224", "image_size 224"]),
    ]
);

program!(
    VGGT,
    "VGGT",
    Inference,
    &["vggt/"],
    &[
        Lever::new(
            "use every other image: memory grows with the number of images",
            "load_and_preprocess_images(paths[::2])"
        )
        .unless_said(&["[::2]"]),
        Lever::new(
            "run in 16-bit precision, without gradients",
            "with torch.no_grad(), torch.autocast('cuda', dtype=torch.bfloat16): model(images)"
        )
        .unless_said(&["autocast"]),
    ]
);

program!(
    CONTROL_NET,
    "ControlNet",
    Inference,
    &["ControlNet/", "gradio_canny2image", "cldm/"],
    &[
        Lever::new("keep idle models in RAM (config.py)", "save_memory = True")
            .unless_said(&["save_memory = True"]),
        Lever::new("generate one small image", "num_samples = 1, image_resolution = 512"),
    ]
);

program!(
    EASY_DIFFUSION,
    "Easy Diffusion",
    Inference,
    &["Easy Diffusion", "easydiffusion", "easy-diffusion"],
    &[
        Lever::new("lower GPU memory use in the settings", "GPU Memory Usage = Low")
            .unless_said(&["Usage = Low"]),
        Lever::new(
            "generate smaller images, one at a time",
            "Image Size = 512 x 512, Number of Images (in parallel) = 1"
        ),
    ]
);

program!(
    CODE_FORMER,
    "CodeFormer",
    Inference,
    &["inference_codeformer", "codeformer/"],
    &[
        Lever::lower(
            "upscale the background in smaller tiles{from| (default 400)}",
            "--bg_tile {to}",
            &["--bg_tile"],
            200
        )
        .at_least(50, 50),
        Lever::new("upscale by a smaller factor", "--upscale 1").unless_said(&["--upscale 1", "-s 1"]),
        Lever::new("leave the background as it is", "--bg_upsampler None")
            .only(|situation| situation.settings.mentions("bg_upsampler")),
    ]
);

program!(
    OPEN_CLIP,
    "OpenCLIP",
    Training,
    &["open_clip"],
    &[
        Lever::batch(
            "lower the batch size per GPU{from} and accumulate gradients",
            "--batch-size {to} --accum-freq {steps}",
            &["--batch-size", "batch_size"]
        ),
        Lever::switch(
            "recompute activations instead of keeping them",
            "--grad-checkpointing",
            &["--grad-checkpointing"]
        ),
        Lever::new("compute only the local part of the loss on each rank", "--local-loss --gather-with-grad")
            .unless_said(&["local-loss"]),
        Lever::new("train in 16-bit precision", "--precision amp_bf16").unless_said(&["amp"]),
    ]
);

program!(
    REMBG,
    "rembg",
    Inference,
    &["rembg/"],
    &[
        Lever::new(
            "use the small model",
            "remove(image, session=new_session(\"u2netp\"))   (rembg i -m u2netp in.png out.png)"
        )
        .unless_said(&["u2netp"]),
        Lever::new("scale the image down first", "image.thumbnail((1024, 1024))")
            .unless_said(&["thumbnail("]),
    ]
);

program!(
    IMMICH,
    "Immich",
    Inference,
    &["immich_machine_learning", "immich-machine-learning", "immich_ml"],
    &[
        Lever::new(
            "run one worker that handles one request at a time",
            "MACHINE_LEARNING_WORKERS=1 MACHINE_LEARNING_REQUEST_THREADS=1"
        )
        .unless_said(&["MACHINE_LEARNING_WORKERS=1"]),
        Lever::new("unload idle models after a minute (default 300 s)", "MACHINE_LEARNING_MODEL_TTL=60")
            .unless_said(&["MODEL_TTL=60"]),
        Lever::new(
            "search with a smaller model: Administration > Settings > Machine Learning",
            "CLIP model = ViT-B-32__openai"
        )
        .unless_said(&["ViT-B-32__openai"]),
    ]
);

program!(
    OPEN_POSE,
    "OpenPose",
    Inference,
    &["openpose"],
    &[
        Lever::new("use a smaller network input (default -1x368)", "--net_resolution -1x240")
            .unless_said(&["net_resolution"]),
        Lever::new("use the smaller model", "--model_pose MPI_4_layers").unless_said(&["model_pose MPI"]),
    ]
);

program!(
    DEEP_STREAM,
    "DeepStream",
    Inference,
    &["deepstream-app", "NvDsInfer", "gst-nvinfer", "nvstreammux", "NvBufSurf"],
    &[
        Lever::lower(
            "run inference on fewer frames at a time{from} ([property] section of the nvinfer file)",
            "batch-size={to}",
            &["batch-size"],
            1
        ),
        Lever::new("run inference in 16-bit precision", "network-mode=2").unless_said(&["network-mode=2"]),
        Lever::new("scale the streams down ([streammux] section)", "width=1280\nheight=720")
            .unless_said(&["width=1280"]),
        Lever::new("keep fewer decoder surfaces ([sourceN] section)", "num-extra-surfaces=1")
            .unless_said(&["num-extra-surfaces"]),
    ]
);

#[cfg(test)]
mod tests {
    use crate::programs::testing::{check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "SAM 2",
                "sam2/sam2_video_predictor.py in propagate_in_video",
                "offload_state_to_cpu",
                ("sam2.1_hiera_t", "hiera_t.yaml"),
            ),
            (
                "Wav2Lip",
                "python inference.py  # Wav2Lip/inference.py --wav2lip_batch_size 64",
                "--face_det_batch_size 4",
                ("--resize_factor 2", "--resize_factor"),
            ),
            (
                "musubi-tuner",
                "src/musubi_tuner/hv_train_network.py",
                "--blocks_to_swap 20",
                ("--fp8_base", "--fp8_base"),
            ),
            (
                "OpenCLIP",
                "open_clip_train/train.py --batch-size 256",
                "--batch-size",
                ("--grad-checkpointing", "--grad-checkpointing"),
            ),
            (
                "TripoSR",
                "tsr/system.py in extract_mesh",
                "--chunk-size 2048",
                ("--mc-resolution 32", "--mc-resolution"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }
}
