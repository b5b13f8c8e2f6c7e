//! Biology, chemistry, physics, rendering: programs that need only a few settings.

use super::{Program, program};
use crate::programs::Work;
use crate::programs::lever::{self, Lever};

pub(in crate::programs) const PROGRAMS: &[&Program] = &[
    &OPEN_FOLD,
    &ESM_FOLD,
    &RF_DIFFUSION,
    &DIFF_DOCK,
    &NEQUIP,
    &MACE,
    &SCHNET_PACK,
    &SCVI,
    &CELL_BENDER,
    &DORADO,
    &GUPPY,
    &PARABRICKS,
    &QUANTUM_ESPRESSO,
    &VASP,
    &CP2K,
    &AMGX,
    &MAX_TEXT,
    &BRAX,
    &NUMPYRO,
    &OCTANE,
    &REDSHIFT,
    &METASHAPE,
    &UNITY,
    &MINECRAFT,
    &PADDLE_DETECTION,
    &KILOSORT,
    &MASK_RCNN,
    &LLM_FOUNDRY,
];

program!(
    KILOSORT,
    "Kilosort",
    Other,
    &["kilosort", "fullMPMU", "fitTemplates", "run_kilosort", "ops.NT"],
    &[
        Lever::new(
            "sort in shorter batches (Kilosort 4: half of the default 60000 samples)",
            "settings['batch_size'] = 30000; run_kilosort(settings, clear_cache=True)"
        )
        .only(|situation| situation.language.is_python()),
        Lever::new(
            "sort in shorter batches: half of the usual 64*1024 samples (in the config file)",
            "ops.NT = 32*1024 + ops.ntbuff;"
        )
        .only(|situation| !situation.language.is_python()),
        Lever::new(
            "fit fewer templates: a multiple of 32, 2 to 4 per channel (in the config file)",
            "ops.Nfilt = 512;"
        )
        .only(|situation| !situation.language.is_python()),
        Lever::new("clear the GPU before the run", "gpuDevice(1);   % resets it")
            .unless_said(&["gpuDevice(1)"])
            .only(|situation| !situation.language.is_python()),
    ]
);

program!(
    MASK_RCNN,
    "Mask R-CNN",
    Training,
    &["mrcnn/", "mrcnn_", "Mask_RCNN", "IMAGES_PER_GPU"],
    &[
        Lever::batch(
            "lower the number of images per GPU{from}",
            "IMAGES_PER_GPU = {to}",
            &["IMAGES_PER_GPU"]
        ),
        Lever::side(
            "use smaller images{from} (a multiple of 64)",
            "IMAGE_MAX_DIM = {to}; IMAGE_MIN_DIM = {to}",
            &["IMAGE_MAX_DIM"],
            512,
            (128, 64)
        ),
        Lever::lower(
            "train on fewer regions per image{from| (default 200)}",
            "TRAIN_ROIS_PER_IMAGE = {to}",
            &["TRAIN_ROIS_PER_IMAGE"],
            32
        ),
        Lever::new("use a smaller backbone", "BACKBONE = \"resnet50\"").unless_said(&["resnet50"]),
    ]
);

program!(
    LLM_FOUNDRY,
    "LLM Foundry",
    Training,
    &["llm-foundry", "llmfoundry", "device_train_microbatch_size"],
    &[
        Lever::lower(
            "use smaller microbatches{from}: the global batch size stays the same",
            "device_train_microbatch_size: {to}",
            &["device_train_microbatch_size"],
            1
        ),
        Lever::new("shard the model across all GPUs, and recompute activations", "fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision: PURE, activation_checkpointing: true}")
            .unless_said(&["activation_checkpointing: true"]),
        Lever::lower("shorten the sequences{from| (default 2048)}", "max_seq_len: {to}", &["max_seq_len"], 1024)
            .at_least(256, 256),
    ]
);

program!(
    OPEN_FOLD,
    "OpenFold",
    Inference,
    &["openfold/"],
    &[
        Lever::switch(
            "turn on offloading and chunking for long sequences",
            "run_pretrained_openfold.py --long_sequence_inference",
            &["--long_sequence_inference"]
        ),
        Lever::lower(
            "compute attention in smaller chunks{from} (in the config)",
            "globals.chunk_size = {to}",
            &["chunk_size"],
            4
        ),
        Lever::switch(
            "use an attention kernel that does not store the attention matrix",
            "--use_deepspeed_evoformer_attention",
            &["--use_deepspeed_evoformer_attention"]
        ),
    ]
);

program!(
    ESM_FOLD,
    "ESMFold",
    Inference,
    &["esmfold", "esm-fold"],
    &[
        Lever::lower(
            "compute the trunk in smaller chunks{from}",
            "model.set_chunk_size({to})   (esm-fold --chunk-size {to})",
            &["--chunk-size", "chunk_size", "set_chunk_size"],
            64
        )
        .at_least(16, 16),
        Lever::switch("keep idle parameters in RAM", "esm-fold --cpu-offload", &["--cpu-offload"]),
        Lever::lower(
            "fold fewer residues at a time{from}",
            "esm-fold --max-tokens-per-batch {to}",
            &["--max-tokens-per-batch"],
            512
        ),
    ]
);

program!(
    RF_DIFFUSION,
    "RFdiffusion",
    Inference,
    &["rfdiffusion"],
    &[
        Lever::new(
            "crop the target to the residues near the interface: memory grows with the square of the length",
            "'contigmap.contigs=[A1-150/0 70-100]'"
        ),
        Lever::new("design shorter chains", "'contigmap.contigs=[100-150]'"),
    ]
);

program!(
    DIFF_DOCK,
    "DiffDock",
    Inference,
    &["DiffDock"],
    &[
        Lever::lower(
            "dock fewer samples at a time{from| (default 10)}",
            "--batch_size {to}",
            &["--batch_size"],
            4
        ),
        Lever::lower("sample fewer poses{from}", "--samples_per_complex {to}", &["--samples_per_complex"], 5),
    ]
);

program!(
    NEQUIP,
    "NequIP",
    Training,
    &["nequip", "allegro/"],
    &[
        Lever::batch("lower the batch size{from} (in the config)", "batch_size: {to}", &["batch_size"]),
        Lever::lower(
            "validate in smaller batches{from} (in the config)",
            "validation_batch_size: {to}",
            &["validation_batch_size"],
            1
        ),
        Lever::new(
            "connect atoms within a shorter radius: the number of edges grows with its cube (in the config)",
            "r_max: 4.0"
        )
        .unless_said(&["r_max: 4"]),
    ]
);

program!(
    MACE,
    "MACE",
    Training,
    &["mace/cli", "mace_run_train", "mace/tools"],
    &[
        Lever::batch("lower the batch size{from}", "--batch_size={to}", &["--batch_size", "batch_size"]),
        Lever::lower(
            "validate in smaller batches{from}",
            "--valid_batch_size={to}",
            &["--valid_batch_size"],
            1
        ),
        Lever::new("compute in 32-bit precision", "--default_dtype=float32")
            .unless_said(&["dtype=float32", "dtype float32"]),
        Lever::new("use smaller messages between atoms", "--num_channels=64 --max_L=0")
            .unless_said(&["max_L=0"]),
    ]
);

program!(
    SCHNET_PACK,
    "SchNetPack",
    Training,
    &["schnetpack"],
    &[
        Lever::batch("lower the batch size{from}", "data.batch_size={to}", &["batch_size"]),
        Lever::lower("validate in smaller batches{from}", "data.val_batch_size={to}", &["val_batch_size"], 1),
        Lever::new("connect atoms within a shorter radius", "globals.cutoff=4.0").unless_said(&["cutoff=4"]),
    ]
);

program!(
    SCVI,
    "scvi-tools",
    Training,
    &["scvi/", "scvi-tools"],
    &[
        Lever::lower(
            "train on fewer cells at a time{from| (default 128)}",
            "model.train(batch_size={to})",
            &["batch_size"],
            64
        ),
        Lever::new(
            "keep only variable genes",
            "sc.pp.highly_variable_genes(adata, n_top_genes=2000, subset=True)"
        )
        .unless_said(&["highly_variable_genes"]),
        Lever::new("query in smaller batches", "model.get_latent_representation(batch_size=64)")
            .unless_said(&["representation(batch_size"]),
    ]
);

program!(
    CELL_BENDER,
    "CellBender",
    Inference,
    &["cellbender"],
    &[
        Lever::lower(
            "sample the posterior in smaller batches{from| (default 128)}",
            "--posterior-batch-size {to}",
            &["--posterior-batch-size"],
            32
        ),
        Lever::raise(
            "leave out genes with little ambient RNA{from}",
            "--projected-ambient-count-threshold {to}",
            &["--projected-ambient-count-threshold"],
            2,
            8
        ),
        Lever::lower(
            "model fewer droplets{from}",
            "--total-droplets-included {to}",
            &["--total-droplets-included"],
            15_000
        ),
    ]
);

program!(
    DORADO,
    "Dorado",
    Inference,
    &["dorado basecaller", "dorado duplex", "dorado:"],
    &[
        Lever::lower(
            "basecall fewer chunks at a time{from|: by default, as many as fit at startup}",
            "dorado basecaller --batchsize {to} …",
            &["--batchsize", "-b"],
            64
        )
        .at_least(16, 16),
        Lever::new("use the fast model", "dorado basecaller fast …").unless_said(&["basecaller fast"]),
        Lever::lower("use shorter chunks{from}", "--chunksize {to}", &["--chunksize", "-c"], 5000),
    ]
);

program!(
    GUPPY,
    "Guppy",
    Inference,
    &["guppy_basecaller", "ont_core_cpp"],
    &[
        Lever::lower(
            "basecall fewer chunks per runner{from}",
            "--chunks_per_runner {to}",
            &["--chunks_per_runner"],
            160
        ),
        Lever::lower(
            "use fewer runners per GPU{from}",
            "--gpu_runners_per_device {to}",
            &["--gpu_runners_per_device"],
            2
        ),
    ]
);

program!(
    PARABRICKS,
    "Parabricks",
    Other,
    &["pbrun", "ParaBricks"],
    &[
        Lever::switch(
            "use low-memory mode (for 16 GB GPUs)",
            "pbrun fq2bam --low-memory …",
            &["--low-memory"]
        ),
        Lever::lower("use fewer streams per GPU", "--bwa-nstreams {to}", &["--bwa-nstreams"], 1),
    ]
);

program!(
    QUANTUM_ESPRESSO,
    "Quantum ESPRESSO",
    Other,
    &["pw.x", "PWSCF", "cp.x"],
    &[
        Lever::new("keep a smaller Davidson basis (&ELECTRONS)", "diago_david_ndim = 2, mixing_ndim = 4")
            .unless_said(&["diago_david_ndim"]),
        Lever::new(
            "run one rank per GPU, across more GPUs: each holds its share of the plane waves",
            "mpirun -np 4 pw.x -nk 1 -in scf.in"
        ),
        Lever::new("distribute the band matrices across the ranks", "pw.x -nd 4 …").unless_said(&["-nd "]),
    ]
);

program!(
    VASP,
    "VASP",
    Other,
    &["vasp.6", "vasp.5", "vasp_std", "vasp_gam"],
    &[
        Lever::lower("work on fewer k-points at a time{from} (in INCAR)", "KPAR = {to}", &["KPAR"], 1),
        Lever::lower(
            "work on fewer bands at a time{from| (default 4)} (in INCAR)",
            "NSIM = {to}",
            &["NSIM"],
            1
        ),
        Lever::new("run one rank per GPU, across more GPUs", "mpirun -np 2 vasp_std   (one rank per GPU)"),
    ]
);

program!(
    CP2K,
    "CP2K",
    Other,
    &["CP2K|", "cp2k.psmp", "offload_library.c"],
    &[
        Lever::new(
            "run one multithreaded rank per GPU: the memory of ranks that share a GPU adds up",
            "OMP_NUM_THREADS=8 mpirun -np 1 cp2k.psmp -i run.inp"
        ),
        Lever::new("use a coarser grid (&MGRID)", "CUTOFF 300\nREL_CUTOFF 40").unless_said(&["CUTOFF 300"]),
    ]
);

program!(
    AMGX,
    "AmgX",
    Other,
    &["AMGX", "amgx_c"],
    &[
        Lever::new(
            "aggregate more rows per level, for a smaller hierarchy (in the JSON file)",
            "\"algorithm\": \"AGGREGATION\", \"selector\": \"SIZE_8\""
        )
        .unless_said(&["SIZE_8"]),
        Lever::new("store the matrix in 32-bit precision", "AMGX_mode_dDFI").unless_said(&["dDFI"]),
    ]
);

program!(
    MAX_TEXT,
    "MaxText",
    Training,
    &["MaxText"],
    &[
        Lever::lower(
            "lower the batch size per device{from}",
            "per_device_batch_size={to}",
            &["per_device_batch_size"],
            1
        ),
        Lever::new("recompute all activations", "remat_policy=full").unless_said(&["remat_policy=full"]),
        Lever::new("shard parameters across all devices", "ici_fsdp_parallelism=-1")
            .unless_said(&["ici_fsdp_parallelism"]),
        Lever::lower(
            "shorten the sequences{from tokens}",
            "max_target_length={to}",
            &["max_target_length"],
            1024
        )
        .at_least(128, 128),
    ]
);

program!(
    BRAX,
    "Brax",
    Training,
    &["brax/", "mujoco_playground", "mujoco/mjx"],
    &[
        Lever::lower(
            "simulate fewer environments at once{from}",
            "num_envs={to}",
            &["num_envs", "--num_envs"],
            1024
        ),
        Lever::lower(
            "train on smaller batches{from}",
            "batch_size={to}",
            &["batch_size", "--batch_size"],
            256
        ),
        Lever::lower("evaluate fewer environments{from}", "num_eval_envs={to}", &["num_eval_envs"], 32),
    ]
);

program!(
    NUMPYRO,
    "NumPyro",
    Other,
    &["numpyro/"],
    &[
        Lever::new(
            "run the chains one after another",
            "MCMC(kernel, …, num_chains=4, chain_method='sequential')"
        )
        .unless_said(&["'sequential'"]),
        Lever::new("keep only every tenth sample", "MCMC(kernel, …, thinning=10)")
            .unless_said(&["thinning="]),
        Lever::new(
            "predict in batches instead of all samples at once",
            "Predictive(model, samples, parallel=False)"
        )
        .unless_said(&["parallel=False"]),
    ]
);

program!(
    OCTANE,
    "Octane",
    Other,
    &["OctaneRender", "Octane Render", "octane:"],
    &[
        Lever::new(
            "let textures and geometry stay in RAM: Preferences > Out of core",
            "Enable out of core = on, System RAM usage limit = 16384 MB"
        ),
        Lever::new(
            "render fewer samples at a time (kernel settings)",
            "Max. tile samples = 8, Parallel samples = 8"
        ),
        Lever::new("compress textures", "Texture type = 8-bit compressed"),
    ]
);

program!(
    REDSHIFT,
    "Redshift",
    Other,
    &["Redshift"],
    &[
        Lever::new(
            "leave more GPU memory for geometry: Render Settings > System > Memory",
            "Maximum Texture Cache Size = 4 GB, Percentage of GPU memory to use = 90"
        ),
        Lever::new("render in smaller buckets", "Bucket Size = 64"),
        Lever::new("reserve less memory for rays", "Ray Reserved Memory = 256 MB"),
    ]
);

program!(
    METASHAPE,
    "Metashape",
    Other,
    &["Metashape", "PhotoScan"],
    &[
        Lever::new("build depth maps from half-size images: Build Depth Maps", "Quality = Medium"),
        Lever::new("match fewer points: Align Photos", "Key point limit = 20000, Tie point limit = 2000"),
        Lever::new("use one fewer GPU: Preferences > GPU", "uncheck the GPU that drives the display"),
    ]
);

program!(
    UNITY,
    "Unity",
    Other,
    &["Unity 20", "UnityEditor", "Progressive GPU", "Unity 6"],
    &[
        Lever::new("bake on the CPU: Lighting > Lightmapping Settings", "Lightmapper = Progressive CPU")
            .unless_said(&["Progressive CPU"]),
        Lever::new("bake fewer texels", "Lightmap Resolution = 20, Max Lightmap Size = 1024"),
    ]
);

program!(
    MINECRAFT,
    "Minecraft",
    Other,
    &["net.minecraft", "minecraft/client", "optifine"],
    &[
        Lever::new("render less of the world: Video Settings", "Render Distance = 12"),
        Lever::new(
            "use smaller textures",
            "a 32x resource pack instead of 128x or higher, Mipmap Levels = 0"
        ),
        Lever::new("turn off shaders", "Shaders = OFF")
            .only(|situation| situation.settings.mentions("shader")),
    ]
);

program!(
    PADDLE_DETECTION,
    "PaddleDetection",
    Training,
    &["ppdet/", "PaddleDetection", "ppyoloe"],
    &[
        Lever::batch(
            "lower the batch size{from}, and the learning rate by the same factor",
            "-o TrainReader.batch_size={to}",
            &["batch_size"]
        )
        .unless_said(&["paddlex"]),
        Lever::batch("lower the batch size{from}", "-o Train.batch_size={to}", &["batch_size"])
            .only(|situation| situation.settings.mentions("paddlex")),
        Lever::switch("train in 16-bit precision", "tools/train.py --amp", &["--amp"]),
        Lever::new("evaluate in smaller batches", "-o EvalReader.batch_size=1")
            .unless_said(&["EvalReader.batch_size=1"]),
    ]
);

#[cfg(test)]
mod tests {
    use crate::programs::testing::{check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        let cuda = "CUDA error: out of memory";
        for (name, log, first, set) in [
            (
                "ESMFold",
                torch("esm/esmfold/v1/esmfold.py in infer"),
                "set_chunk_size(64)",
                ("--cpu-offload", "--cpu-offload"),
            ),
            (
                "MACE",
                torch("mace/cli/run_train.py --batch_size=32"),
                "--batch_size=",
                ("--default_dtype=float32", "default_dtype"),
            ),
            (
                "Dorado",
                format!("dorado basecaller hac pod5/\n{cuda}"),
                "--batchsize 64",
                ("dorado basecaller fast", "basecaller fast"),
            ),
            ("VASP", format!("running vasp_std\n{cuda}"), "KPAR = 1", ("NSIM = 1", "NSIM")),
        ] {
            check(name, &log, first, set);
        }
    }
}
