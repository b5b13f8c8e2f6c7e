//! Detection and segmentation: YOLO, detectron2, `OpenMMLab`, nnU-Net, timm. Memory grows with batch times pixels, in
//! detectors also with the objects per image.

use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] =
    &[&YOLOX, &OLD_YOLO, &ULTRALYTICS, &DETECTRON, &OPEN_MMLAB, &NN_UNET, &TIMM];

const ULTRALYTICS: Program = Program {
    name: "Ultralytics YOLO",
    frameworks: &[],
    marks: &["ultralytics", "yolov8", "yolo11", "yolo train", "yolov10", "yolov9"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, ULTRALYTICS_LEVERS),
};

const ULTRALYTICS_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from} (-1 picks one that uses 60 % of GPU memory)",
        "yolo train batch={to}",
        &["batch", "--batch-size", "batch_size"],
    ),
    Lever::side(
        "train on smaller images{from}",
        "imgsz={to}",
        &["imgsz", "--img-size", "--img"],
        512,
        (320, 32),
    ),
    Lever::new("train a smaller model of the same family", "model=yolo11n.pt")
        .unless_said(&["yolo11n", "yolov8n"]),
    Lever::new("do not change the image size between batches", "multi_scale=False")
        .only(|situation| situation.settings.is_on(&["multi_scale"])),
    Lever::new("train in 16-bit precision", "amp=True").only(|situation| {
        situation.settings.value(&["amp"]).is_some_and(|value| value.eq_ignore_ascii_case("false"))
    }),
];

const OLD_YOLO: Program = Program {
    name: "YOLO",
    frameworks: &[],
    marks: &["AutoBatch:", "yolov5", "yolov7", "yolov3", "yolor/", "yolov6"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, OLD_YOLO_LEVERS),
};

const OLD_YOLO_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "train.py --batch-size {to}",
        &["--batch-size", "--batch", "batch_size"],
    ),
    Lever::side(
        "train on smaller images{from}",
        "--img-size {to}",
        &["--img-size", "--img", "--imgsz", "img_size"],
        512,
        (320, 32),
    ),
    Lever::new(
        "do not change the image size between batches: drop --multi-scale, which goes 50 % above --img-size",
        "train.py without --multi-scale",
    )
    .only(|situation| situation.settings.is_on(&["--multi-scale"])),
    Lever::new("train a smaller model of the same family", "--weights yolov5s.pt --cfg yolov5s.yaml")
        .unless_said(&["yolov5s", "yolov5n", "yolov7-tiny"]),
    Lever::new("keep the image cache on disk", "--cache disk")
        .only(|situation| situation.settings.is_on(&["--cache", "--cache-images"])),
];

const YOLOX: Program = Program {
    name: "YOLOX",
    frameworks: &[],
    marks: &["yolox"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, YOLOX_LEVERS),
};

const YOLOX_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from} (at least one image per GPU)",
        "tools/train.py -b {to}",
        &["-b", "--batch-size", "batch_size"],
    ),
    Lever::switch("train in 16-bit precision", "tools/train.py --fp16", &["--fp16"]),
    Lever::new("drop -o, which reserves 90 % of the GPU's memory at startup", "tools/train.py without -o")
        .only(|situation| situation.settings.is_on(&["-o", "--occupy"])),
    Lever::new(
        "use a smaller input in the experiment file, without multiscale",
        "self.input_size = (512, 512); self.multiscale_range = 0",
    ),
];

const DETECTRON: Program = Program {
    name: "detectron2",
    frameworks: &[],
    marks: &[
        "detectron2",
        "maskrcnn_benchmark",
        "IMS_PER_BATCH",
        "BATCH_SIZE_PER_IMAGE",
        "tools/train_net.py",
    ],
    work: Work::Training,
    advise: |situation, cause| {
        lever::steps(situation, cause, if is_lazy(situation) { LAZY_LEVERS } else { DETECTRON_LEVERS })
    },
};

/// Whether the configuration is a Python file (`LazyConfig`), which has none of the keys in capitals.
fn is_lazy(situation: &Situation<'_>) -> bool {
    ["LazyConfig", "lazyconfig_train_net", "detrex", "config/lazy.py", "total_batch_size"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

const LAZY_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the total batch size across all GPUs{from}, and the learning rate by the same factor",
        "dataloader.train.total_batch_size={to}",
        &["total_batch_size"],
    ),
    Lever::switch("train in 16-bit precision", "train.amp.enabled=True", &["amp.enabled"]),
    Lever::new(
        "recompute the backbone's activations in the backward pass",
        "model.backbone.use_checkpoint=True",
    )
    .unless_said(&["use_checkpoint=True"])
    .only(|situation| situation.settings.mentions("swin")),
];

const DETECTRON_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the total batch size across all GPUs{from}, and the learning rate by the same factor",
        "SOLVER.IMS_PER_BATCH {to}",
        &["IMS_PER_BATCH"],
    ),
    Lever::new("train on smaller images", "INPUT.MIN_SIZE_TRAIN \"(512,)\" INPUT.MAX_SIZE_TRAIN 800"),
    Lever::lower(
        "sample fewer proposals per image{from}",
        "MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE {to}",
        &["BATCH_SIZE_PER_IMAGE"],
        128,
    )
    .at_least(64, 64),
    Lever::switch("train in 16-bit precision", "SOLVER.AMP.ENABLED True", &["AMP.ENABLED"]),
];

pub(super) const OPEN_MMLAB: Program = Program {
    name: "OpenMMLab",
    frameworks: &[],
    marks: &[
        "mmdet",
        "mmcv",
        "mmseg",
        "mmocr",
        "mmengine",
        "mmpose",
        "open-mmlab",
        "samples_per_gpu",
        "mmaction",
    ],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, OPEN_MMLAB_LEVERS),
};

/// `OpenMMLab`'s versions before `MMEngine`.
fn is_old_mmlab(situation: &Situation<'_>) -> bool {
    const NEW: [&str; 8] = [
        "mmengine",
        "train_dataloader",
        "mmdet/structures",
        "mmdet-3",
        "mmseg/structures",
        "mmseg-1",
        "mmpose-1",
        "mmocr-1",
    ];
    !NEW.iter().any(|words| situation.settings.mentions(words))
}

const OPEN_MMLAB_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size per GPU{from}",
        "--cfg-options data.samples_per_gpu={to}",
        &["samples_per_gpu", "batch_size"],
    )
    .only(is_old_mmlab),
    Lever::batch(
        "lower the batch size per GPU{from}",
        "--cfg-options train_dataloader.batch_size={to}",
        &["batch_size"],
    )
    .only(|situation| !is_old_mmlab(situation)),
    Lever::switch("train in 16-bit precision", "tools/train.py --amp", &["--amp"])
        .unless_said(&["AmpOptimWrapper"])
        .only(|situation| !is_old_mmlab(situation)),
    Lever::new("train in 16-bit precision (in the config)", "fp16 = dict(loss_scale=512.)")
        .unless_said(&["fp16 = dict", "fp16=dict"])
        .only(is_old_mmlab),
    Lever::new(
        "assign boxes on the CPU for images that have many boxes (in the config)",
        "assigner=dict(…, gpu_assign_thr=100)",
    )
    .unless_said(&["gpu_assign_thr"])
    .only(|situation| ["mmdet", "bbox", "assigner"].iter().any(|words| situation.settings.mentions(words))),
    Lever::new("recompute the backbone's activations (in the config)", "backbone=dict(…, with_cp=True)")
        .unless_said(&["with_cp=True"]),
    Lever::new("crop the images to a smaller size (in the config)", "crop_size = (512, 512)"),
];

const NN_UNET: Program =
    Program { name: "nnU-Net", frameworks: &[], marks: &["nnunet"], work: Work::Training, advise: nn_unet };

fn nn_unet(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let mut fixes = lever::steps(situation, cause, NN_UNET_LEVERS);
    if fixes.is_empty() {
        return fixes;
    }
    let target = situation.facts.total.map_or(6, |total| ((total.get() >> 30) * 3 / 4).max(4));
    fixes.insert(
        0,
        Fix::new(format!("plan patches and batches for {target} GB, then preprocess and train with these plans"))
            .command(format!("nnUNetv2_plan_experiment -d ID -gpu_memory_target {target} -overwrite_plans_name nnUNetPlans_{target}G")),
    );
    fixes
}

const NN_UNET_LEVERS: &[Lever] = &[
    Lever::new("train the low-resolution configuration", "nnUNetv2_train ID 3d_lowres 0 -p nnUNetPlans")
        .unless_said(&["3d_lowres"]),
    Lever::new("predict without keeping the result on the GPU", "nnUNetv2_predict … --not_on_device")
        .unless_said(&["not_on_device"])
        .only(|situation| situation.settings.mentions("predict")),
    Lever::new("stop other work on the GPU: the plans assume that the whole GPU is available", "nvidia-smi")
        .only(|situation| !situation.settings.mentions("predict")),
];

const TIMM: Program = Program {
    name: "timm",
    frameworks: &[],
    marks: &["pytorch-image-models", "timm/"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, TIMM_LEVERS),
};

const TIMM_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from} and accumulate gradients",
        "train.py -b {to} --grad-accum-steps {steps}",
        &["--batch-size", "-b", "batch_size"],
    ),
    Lever::switch("train in 16-bit precision", "--amp", &["--amp"]),
    Lever::switch(
        "recompute activations instead of keeping them",
        "--grad-checkpointing",
        &["--grad-checkpointing"],
    ),
    Lever::side(
        "train on smaller images{from}",
        "--img-size {to}",
        &["--img-size", "--input-size"],
        192,
        (96, 32),
    ),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check, torch};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "Ultralytics YOLO",
                r#"  File "/x/ultralytics/engine/trainer.py", line 3"#,
                "batch=1",
                ("yolo train batch=1 model=yolo11n.pt", "yolo11n"),
            ),
            (
                "YOLO",
                r#"  File "/x/yolov5/train.py", line 3"#,
                "--batch-size 1",
                ("train.py --batch-size 1", "--batch-size"),
            ),
            (
                "YOLOX",
                r#"  File "/x/yolox/core/trainer.py", line 3"#,
                "-b 1",
                ("tools/train.py --fp16", "--fp16"),
            ),
            (
                "detectron2",
                r#"  File "/x/detectron2/engine/train_loop.py", line 3"#,
                "SOLVER.IMS_PER_BATCH 1",
                ("SOLVER.AMP.ENABLED: True", "AMP.ENABLED"),
            ),
            (
                "OpenMMLab",
                r#"  File "/x/mmseg/apis/train.py", line 3"#,
                "data.samples_per_gpu=1",
                ("backbone=dict(with_cp=True)", "with_cp"),
            ),
            (
                "nnU-Net",
                r#"  File "/x/nnunetv2/run/run_training.py", line 3"#,
                "-gpu_memory_target 9",
                ("nnUNetv2_train 3 3d_lowres 0", "3d_lowres"),
            ),
            (
                "timm",
                r#"  File "/x/pytorch-image-models/train.py", line 3"#,
                "-b 1",
                ("--grad-checkpointing", "--grad-checkpointing"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    #[test]
    fn the_batch_is_computed_from_the_figures() {
        let (_, steps) =
            advice(&torch("/x/yolov5/train.py --batch-size 32 --img 640"), Cause::LiveDataFillsDevice);
        // 13.0 GiB are needed of which 11.4 GiB fit, less a margin.
        let batch: u64 = steps[0].command.as_deref().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert!((24..=28).contains(&batch), "{steps:?}");
        assert!(steps[1].command.as_deref().is_some_and(|line| line.contains("--img-size 576")), "{steps:?}");
    }
}
