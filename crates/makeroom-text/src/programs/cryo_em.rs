//! Reconstruction from images: RELION, `cryoSPARC`, COLMAP, Meshroom. Memory grows with the box or image size, in
//! RELION also with the classes and with the orientations that one particle leaves open.

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[&RELION, &CRYOSPARC, &COLMAP, &MESHROOM];

const RELION: Program = Program {
    name: "RELION",
    frameworks: &[],
    marks: &["relion", "CudaCustomAllocator", "custom_allocator.cuh"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, RELION_LEVERS),
};

const RELION_LEVERS: &[Lever] = &[
    Lever::new("limit the orientations kept per particle (2D: 50, 3D: 2000)", "--maxsig 2000")
        .unless_said(&["--maxsig"]),
    Lever::new("run one MPI rank per GPU, plus the leader rank", "mpirun -n 3 … --gpu \"0:1\"")
        .only(|situation| situation.settings.mentions("split between") || situation.settings.mentions("mpi")),
    Lever::lower("work on fewer particles at a time{from}", "--pool {to}", &["--pool"], 1),
    Lever::lower("use fewer threads per rank{from}: each keeps its own buffers", "--j {to}", &["--j"], 4),
    Lever::new("keep memory free for temporary buffers (in MB)", "--free_gpu_memory 1024")
        .unless_said(&["--free_gpu_memory"]),
    Lever::lower("use fewer classes{from}", "--K {to}", &["--K"], 0),
    Lever::new("pad volumes by a factor of 1 instead of 2, which takes an eighth of the memory", "--pad 1")
        .unless_said(&["--pad 1"]),
];

const CRYOSPARC: Program = Program {
    name: "cryoSPARC",
    frameworks: &[],
    marks: &["cryosparc"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, CRYOSPARC_LEVERS),
};

const CRYOSPARC_LEVERS: &[Lever] = &[
    Lever::new(
        "use low-memory mode, if the job has it (non-uniform refinement, motion correction)",
        "Low-memory mode = true",
    )
    .unless_said(&["low-memory mode"]),
    Lever::side(
        "Fourier-crop to a smaller box when extracting{from px}",
        "Fourier crop to box size (pix) = {to}",
        &["box size", "box_size"],
        256,
        (64, 32),
    ),
    Lever::lower(
        "refine fewer classes{from}",
        "Number of classes = {to}",
        &["Number of classes", "class2D_K", "abinit_K"],
        0,
    ),
    Lever::new("run only one job on the GPU", "queue to a specific free GPU"),
];

const COLMAP: Program = Program {
    name: "COLMAP",
    frameworks: &[],
    marks: &[
        "colmap",
        "SiftExtraction",
        "PatchMatchStereo",
        "PatchMatchOptions",
        "SiftGPU",
        "patch_match_cuda",
    ],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, COLMAP_LEVERS),
};

/// Whether depth maps are computed, which is the last stage; features come before.
fn is_stereo(situation: &Situation<'_>) -> bool {
    ["stereo", "patch_match", "PatchMatch"].iter().any(|words| situation.settings.mentions(words))
}

const COLMAP_LEVERS: &[Lever] = &[
    Lever::side(
        "extract features from smaller images{from px| (default 3200)}",
        "--SiftExtraction.max_image_size {to}",
        &["--SiftExtraction.max_image_size"],
        2000,
        (800, 100),
    )
    .only(|situation| !is_stereo(situation)),
    Lever::side(
        "compute depth maps from smaller images{from px}",
        "--PatchMatchStereo.max_image_size {to}",
        &["--PatchMatchStereo.max_image_size"],
        1600,
        (600, 100),
    )
    .only(is_stereo),
    Lever::lower(
        "match fewer features at a time{from| (default 32768)}",
        "--SiftMatching.max_num_matches {to}",
        &["--SiftMatching.max_num_matches"],
        16_384,
    )
    .at_least(4096, 1024)
    .only(|situation| situation.settings.mentions("match") && !is_stereo(situation)),
    Lever::lower(
        "use fewer source images per depth map",
        "--PatchMatchStereo.cache_size {to}",
        &["--PatchMatchStereo.cache_size"],
        8,
    )
    .only(is_stereo),
    Lever::new("run on the CPU", "--SiftExtraction.use_gpu 0 --SiftMatching.use_gpu 0")
        .unless_said(&["use_gpu 0", "use_gpu=0"])
        .only(|situation| !is_stereo(situation)),
];

const MESHROOM: Program = Program {
    name: "Meshroom",
    frameworks: &[],
    marks: &["meshroom", "aliceVision", "alicevision"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, MESHROOM_LEVERS),
};

const MESHROOM_LEVERS: &[Lever] = &[
    Lever::raise(
        "downscale the images more for depth maps{from} (DepthMap node)",
        "Downscale = {to}",
        &["--downscale", "downscale"],
        4,
        16,
    ),
    Lever::lower(
        "use smaller tiles{from} (DepthMap node)",
        "Tile Buffer Width/Height = {to}",
        &["--tileBufferWidth"],
        512,
    )
    .at_least(128, 64),
    Lever::lower("use fewer neighbor cameras{from} (DepthMap node)", "Max TCams = {to}", &["--maxTCams"], 6)
        .at_least(3, 1),
];

#[cfg(test)]
mod tests {
    use super::super::testing::check;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        let cuda = "CUDA error 2: out of memory";
        for (name, line, first, set) in [
            (
                "RELION",
                "/opt/relion/src/acc/cuda/custom_allocator.cuh, line 436",
                "--maxsig 2000",
                ("relion_refine_mpi --maxsig 500", "--maxsig"),
            ),
            (
                "cryoSPARC",
                "cryosparc_compute.run",
                "Low-memory mode",
                ("Fourier crop: box size: 64", "Fourier crop to box size"),
            ),
            (
                "COLMAP",
                "colmap feature_extractor --image_path i",
                "--SiftExtraction.max_image_size 2000",
                ("--SiftExtraction.use_gpu 0", "use_gpu 0"),
            ),
            ("Meshroom", "aliceVision_depthMapEstimation", "Downscale = 4", ("--downscale 16", "Downscale")),
        ] {
            check(name, &format!("{line}\n{cuda}"), first, set);
        }
    }
}
