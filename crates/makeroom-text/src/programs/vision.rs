//! Programs for images, documents, volumes and scenes beyond detection: segment-anything, microscopy, OCR, medical
//! imaging, radiance fields, meshes.

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[
    &SEGMENT_ANYTHING,
    &CELLPOSE,
    &STARDIST,
    &EASY_OCR,
    &MARKER,
    &TOTAL_SEGMENTATOR,
    &MONAI,
    &NERF,
    &THREESTUDIO,
    &HUNYUAN_3D,
    &OBJECT_DETECTION,
];

fn is_training(situation: &Situation<'_>) -> bool {
    situation.is_training()
}

const SEGMENT_ANYTHING: Program = Program {
    name: "Segment Anything",
    frameworks: &[],
    marks: &["segment_anything", "SamAutomaticMaskGenerator", "SamPredictor", "sam2/", "sam_vit_"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, SEGMENT_ANYTHING_LEVERS),
};

const SEGMENT_ANYTHING_LEVERS: &[Lever] = &[
    Lever::lower(
        "prompt with fewer points at a time{from| (default 64)}",
        "SamAutomaticMaskGenerator(sam, points_per_batch={to})",
        &["points_per_batch"],
        16,
    ),
    Lever::new("load a smaller model", "sam_model_registry[\"vit_b\"](checkpoint=\"sam_vit_b_01ec64.pth\")")
        .unless_said(&["vit_b"]),
    Lever::new(
        "scale the image down: masks are kept at its full size",
        "cv2.resize(image, None, fx=0.5, fy=0.5)",
    ),
    Lever::new("keep the frames of a video in RAM", "predictor.init_state(path, offload_video_to_cpu=True)")
        .unless_said(&["offload_video_to_cpu=True"])
        .only(|situation| situation.settings.mentions("video")),
];

const CELLPOSE: Program = Program {
    name: "Cellpose",
    frameworks: &[],
    marks: &["cellpose"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, CELLPOSE_LEVERS),
};

const CELLPOSE_LEVERS: &[Lever] = &[
    Lever::lower(
        "process fewer tiles at a time{from| (default 8)}",
        "--batch_size {to}",
        &["--batch_size", "batch_size"],
        2,
    ),
    Lever::new(
        "scale large images down first",
        "model.eval(skimage.transform.rescale(image, 0.5), diameter=15)",
    ),
];

const STARDIST: Program = Program {
    name: "StarDist",
    frameworks: &[],
    marks: &["stardist"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, STARDIST_LEVERS),
};

const STARDIST_LEVERS: &[Lever] = &[
    Lever::new("predict in tiles", "model.predict_instances(image, n_tiles=(4, 4))")
        .unless_said(&["n_tiles"]),
    Lever::new("leave part of the GPU's memory for other libraries", "limit_gpu_memory(0.8)")
        .unless_said(&["limit_gpu_memory"]),
];

const EASY_OCR: Program = Program {
    name: "EasyOCR",
    frameworks: &[],
    marks: &["easyocr"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, EASY_OCR_LEVERS),
};

const EASY_OCR_LEVERS: &[Lever] = &[
    Lever::lower(
        "scale large pages down{from px| (default 2560 px)}",
        "reader.readtext(image, canvas_size={to})",
        &["canvas_size"],
        1280,
    )
    .at_least(640, 32),
    Lever::lower(
        "recognize fewer lines at a time{from}",
        "reader.readtext(image, batch_size={to})",
        &["batch_size"],
        1,
    ),
];

const MARKER: Program = Program {
    name: "Marker",
    frameworks: &[],
    marks: &["marker_single", "marker-pdf", "marker/converters", "surya/", "surya_ocr"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, MARKER_LEVERS),
};

const MARKER_LEVERS: &[Lever] = &[
    Lever::new("recognize fewer lines at a time", "RECOGNITION_BATCH_SIZE=16")
        .unless_said(&["RECOGNITION_BATCH_SIZE"])
        .variable(),
    Lever::new("detect lines on fewer pages at a time", "DETECTOR_BATCH_SIZE=2")
        .unless_said(&["DETECTOR_BATCH_SIZE"])
        .variable(),
    Lever::new("convert fewer files at once: each worker loads the models", "marker DIRECTORY --workers 1")
        .unless_said(&["--workers 1"]),
];

const TOTAL_SEGMENTATOR: Program = Program {
    name: "TotalSegmentator",
    frameworks: &[],
    marks: &["TotalSegmentator"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, TOTAL_SEGMENTATOR_LEVERS),
};

const TOTAL_SEGMENTATOR_LEVERS: &[Lever] = &[
    Lever::switch(
        "segment at a resolution of 3 mm instead of 1.5 mm",
        "TotalSegmentator … --fast",
        &["--fast"],
    ),
    Lever::switch("segment the image in three parts", "TotalSegmentator … --force_split", &["--force_split"]),
    Lever::switch("crop to the body first", "TotalSegmentator … --body_seg", &["--body_seg"]),
];

const MONAI: Program = Program {
    name: "MONAI",
    frameworks: &[],
    marks: &["monai", "monailabel"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, MONAI_LEVERS),
};

const MONAI_LEVERS: &[Lever] = &[
    Lever::new(
        "run inference on one window at a time, and stitch the results on the CPU",
        "sliding_window_inference(x, roi_size=(96, 96, 96), sw_batch_size=1, predictor=model, sw_device='cuda', device='cpu')",
    )
    .unless_said(&["sw_batch_size=1", "device='cpu'"]),
    Lever::new("train on smaller patches, one per image", "RandCropByPosNegLabeld(…, spatial_size=(64, 64, 64), num_samples=1)")
        .only(is_training),
    Lever::batch("lower the batch size{from}", "DataLoader(dataset, batch_size={to})", &["batch_size"])
        .only(is_training),
    Lever::new("keep fewer volumes cached", "CacheDataset(…, cache_rate=0.1)").unless_said(&["cache_rate=0.1"]),
];

const NERF: Program = Program {
    name: "NeRF",
    frameworks: &[],
    marks: &["run_nerf.py", "nerf-pytorch", "N_rand", "netchunk"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, NERF_LEVERS),
};

const NERF_LEVERS: &[Lever] = &[
    Lever::lower(
        "sample fewer rays per step{from| (default 4096)}",
        "--N_rand {to}",
        &["--N_rand", "N_rand"],
        1024,
    )
    .at_least(128, 128),
    Lever::switch(
        "sample rays from one image at a time: by default, the rays of all images are on the GPU",
        "--no_batching",
        &["--no_batching", "no_batching"],
    ),
    Lever::lower(
        "render fewer rays at a time{from| (default 32768)}",
        "--chunk {to}",
        &["--chunk", "chunk"],
        8192,
    )
    .at_least(256, 256),
    Lever::raise(
        "load smaller images: divide their width and height",
        "--factor {to}",
        &["--factor", "factor"],
        8,
        8,
    ),
];

const THREESTUDIO: Program = Program {
    name: "threestudio",
    frameworks: &[],
    marks: &["threestudio"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, THREESTUDIO_LEVERS),
};

const THREESTUDIO_LEVERS: &[Lever] = &[
    Lever::new("render smaller views", "data.width=64 data.height=64").unless_said(&["data.width=64"]),
    Lever::new("sample fewer points along each ray", "system.renderer.num_samples_per_ray=256")
        .unless_said(&["num_samples_per_ray=256"]),
    Lever::new(
        "compute the guidance model's attention in slices, and keep its idle layers in RAM",
        "system.guidance.enable_attention_slicing=true system.guidance.enable_sequential_cpu_offload=true",
    )
    .unless_said(&["enable_sequential_cpu_offload=true"]),
];

const HUNYUAN_3D: Program = Program {
    name: "Hunyuan3D",
    frameworks: &[],
    marks: &["hy3dgen", "hunyuan3d", "hy3dshape"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, HUNYUAN_3D_LEVERS),
};

const HUNYUAN_3D_LEVERS: &[Lever] = &[
    Lever::switch(
        "keep models in RAM while they are idle",
        "python gradio_app.py --low_vram_mode",
        &["--low_vram_mode"],
    ),
    Lever::lower(
        "extract the mesh on a coarser grid{from| (default 384)}",
        "octree_resolution={to}",
        &["octree_resolution"],
        256,
    )
    .at_least(128, 64),
    Lever::lower("decode fewer points at a time{from}", "num_chunks={to}", &["num_chunks"], 8000)
        .at_least(2000, 1000),
];

const OBJECT_DETECTION: Program = Program {
    name: "the TensorFlow Object Detection API",
    frameworks: &[],
    marks: &[
        "model_main_tf2",
        "object_detection/model_lib",
        "object_detection/legacy",
        "object_detection/trainer",
        "object_detection/builders",
        "object_detection/model_main",
    ],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, OBJECT_DETECTION_LEVERS),
};

const OBJECT_DETECTION_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from} in pipeline.config",
        "train_config { batch_size: {to} }",
        &["batch_size"],
    ),
    Lever::new(
        "scale the images down in pipeline.config",
        "keep_aspect_ratio_resizer { min_dimension: 480 max_dimension: 800 }",
    )
    .unless_said(&["max_dimension: 800"]),
    Lever::new(
        "queue fewer images in RAM (TensorFlow 1)",
        "batch_queue_capacity: 10 prefetch_queue_capacity: 5",
    )
    .unless_said(&["batch_queue_capacity"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "Segment Anything",
                "segment_anything/automatic_mask_generator.py",
                "points_per_batch=16",
                ("sam_model_registry['vit_b']", "vit_b"),
            ),
            (
                "Cellpose",
                "cellpose/models.py batch_size=16",
                "--batch_size",
                ("--batch_size 1", "--batch_size"),
            ),
            (
                "StarDist",
                "stardist/models/base.py",
                "n_tiles=(4, 4)",
                ("limit_gpu_memory(0.5)", "limit_gpu_memory"),
            ),
            ("EasyOCR", "easyocr/recognition.py", "canvas_size=1280", ("batch_size=1", "batch_size=")),
            (
                "Marker",
                "marker_single in.pdf",
                "RECOGNITION_BATCH_SIZE=16",
                ("DETECTOR_BATCH_SIZE=1", "DETECTOR_BATCH_SIZE"),
            ),
            (
                "TotalSegmentator",
                "TotalSegmentator -i ct.nii.gz",
                "--fast",
                ("--force_split", "--force_split"),
            ),
            ("MONAI", "monai/inferers/utils.py", "sw_batch_size=1", ("cache_rate=0.1", "cache_rate")),
            ("NeRF", "python run_nerf.py --N_rand 4096", "--N_rand", ("--no_batching", "--no_batching")),
            (
                "threestudio",
                "threestudio/systems/base.py",
                "data.width=64",
                ("num_samples_per_ray=256", "num_samples_per_ray"),
            ),
            (
                "Hunyuan3D",
                "hy3dgen/shapegen/pipelines.py",
                "--low_vram_mode",
                ("octree_resolution=128", "octree_resolution"),
            ),
            (
                "the TensorFlow Object Detection API",
                "object_detection/model_main_tf2.py",
                "batch_size: 1",
                ("batch_queue_capacity: 5", "batch_queue_capacity"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }
}
