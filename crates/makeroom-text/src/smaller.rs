//! Less data at once, in the words of the text: a smaller batch, shorter sequences, smaller images, smaller buffers.
//!
//! For programs whose own options are not known. Where the text shows an option that memory grows with, the step
//! repeats its spelling with the value to try; where it does not, the step names the setting of the framework or
//! the call of the API.

use makeroom_core::{Bytes, Framework};
use makeroom_explain::Fix;
use makeroom_explain::advice::Maker;

use crate::environment::{Device, System};
use crate::facts::Facts;
use crate::fixes::is_without_cuda;
use crate::knobs;
use crate::own_code::{self, is_own_code};
use crate::situation::Situation;

/// The batch size under its usual names.
pub(crate) const BATCH: &[&str] = &[
    "per_device_train_batch_size",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "micro_batch_size",
    "batch_size",
    "batchsize",
    "bsz",
    "-batch",
    "-bs",
    "-b",
];

/// Less data at once: a smaller batch, or smaller inputs where the batch is 1 already.
pub(crate) fn less_data(situation: &Situation<'_>) -> Vec<Fix> {
    if is_own_code(situation.facts) && own_code::shows_source(situation) {
        let mut fixes = knobs::steps(situation);
        fixes.push(own_code::smaller_buffers(situation));
        return fixes;
    }
    match situation.batch() {
        Some(batch) if batch > 1 => vec![batch_from(situation, batch)],
        Some(_) => {
            let mut fixes = knobs::steps(situation);
            if fixes.is_empty() {
                fixes.extend(smaller_input(situation));
            }
            if let Some(first) = fixes.first_mut() {
                first.action = format!("the batch size is already 1: {}", first.action);
            }
            fixes
        }
        None => {
            let mut fixes: Vec<Fix> = knobs::batch_step(situation).into_iter().collect();
            fixes.extend(knobs::steps(situation));
            if !fixes.is_empty() {
                return fixes;
            }
            if has_batches(situation) && !is_whole_graph(situation) {
                return vec![batch_of_one(situation)];
            }
            fixes.extend(smaller_input(situation).filter(|_| situation.language.may_be_python()));
            if fixes.is_empty() && situation.settings.mentions("cuda") && !is_python(situation) {
                fixes.extend(without_a_change(situation));
            }
            if fixes.is_empty() && !is_python(situation) {
                fixes.push(Fix::new(
                    "give the program less work at once: smaller inputs, a lower resolution or quality setting, fewer jobs in parallel",
                ));
            }
            fixes
        }
    }
}

/// Whether the program is written in Python, or on a framework that is used from Python.
pub(crate) fn is_python(situation: &Situation<'_>) -> bool {
    situation.language.is_python()
}

/// Whether the program trains on a graph, which is one sample.
fn is_whole_graph(situation: &Situation<'_>) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| situation.settings.mentions(word));
    says(&["gcn", "graphsage", "edge_index", "adjacency", "gnn"]) && !says(&["batch_size", "NeighborLoader"])
}

/// Whether anything shows that the program works on batches: another one has none to make smaller.
pub(crate) fn has_batches(situation: &Situation<'_>) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| situation.settings.mentions(word));
    situation.language.may_be_python()
        && !says(&["hashrate", "mining", "miner", "kawpow", " DAG "])
        && (situation.is_training() && !situation.settings.mentions("full batch")
            || says(&[
                "batch_size",
                "batchsize",
                "batch size",
                "minibatch",
                "mini-batch",
                "DataLoader",
                "collate",
            ]))
}

/// The batch size from its present value to one that fits.
fn batch_from(situation: &Situation<'_>, batch: u64) -> Fix {
    let is_training = situation.is_training();
    let smaller = if is_training { situation.smaller_batch(batch) } else { situation.smaller(batch) };
    let accumulate = if is_training {
        format!(
            ", and accumulate gradients over {} steps to keep the effective batch",
            batch.div_ceil(smaller)
        )
    } else {
        String::new()
    };
    let shown = situation.settings.shown(BATCH).filter(|shown| shown.value as u64 == batch);
    // The option has another name, and perhaps counts the batches of several GPUs.
    if shown.is_none()
        && let Some(fix) = knobs::batch_step(situation)
    {
        return fix;
    }
    let option = shown.map_or_else(|| format!("batch_size={smaller}"), |shown| shown.with(smaller));
    Fix::new(format!("reduce the batch size from {batch} to {smaller}{accumulate}")).command(option)
}

/// The least batch, where the text does not show the present one.
fn batch_of_one(situation: &Situation<'_>) -> Fix {
    let aim = situation.to_free().map_or(String::new(), |bytes| {
        let margin = situation.margin(bytes).map_or(String::new(), |margin| {
            format!(", preferably {} (5 % of the GPU) to leave room for later allocations", roughly(margin))
        });
        format!("; free at least {}{margin}", roughly(bytes))
    });
    let is_torch = situation.facts.framework.is_torch() || is_from_pytorch(situation.facts);
    if situation.is_training() {
        let command = if is_torch { "DataLoader(dataset, batch_size=1)" } else { "batch_size=1" };
        return Fix::new(format!(
            "set the batch size to 1, double it while it fits, and accumulate gradients to keep the effective batch{aim}"
        ))
        .command(command);
    }
    Fix::new(format!("pass one input at a time, and double the batch while it fits{aim}"))
        .command("batch_size=1")
}

/// Host memory for what does not fit, for any program on an NVIDIA GPU under Linux: twice the shortfall, at least 4 GiB.
pub(crate) fn spill(situation: &Situation<'_>) -> Option<Fix> {
    let environment = situation.environment;
    let is_here = environment.maker == Maker::Nvidia
        && environment.device == Device::Gpu
        && environment.system == System::Linux
        && !environment.is_hosted
        && !situation.account.is_contradictory()
        && !is_without_cuda(situation.facts);
    let gib = |bytes: Bytes| bytes.get().div_ceil(1 << 30);
    // Without the device's size, the whole request may have to spill.
    let request = situation.facts.request.filter(|_| situation.facts.total.is_none()).unwrap_or_default();
    let missing = situation.account.missing().map_or(gib(request), |missing| gib(missing) * 2);
    let size = missing.clamp(4, MOST_SPILLED + 1).next_power_of_two();
    (is_here && size <= MOST_SPILLED).then(|| {
        Fix::new("or spill the rest to host memory: slower, but no code changes")
            .command(format!("makeroom run --pool --spill {size}GiB -- python …"))
    })
}

/// What the driver or the pool can do for a program of which nothing is known.
pub(crate) fn without_a_change(situation: &Situation<'_>) -> Option<Fix> {
    let environment = situation.environment;
    if environment.system == System::Windows && environment.maker == Maker::Nvidia {
        return Some(
            Fix::new(
                "let the driver spill to system memory (slower): NVIDIA Control Panel > Manage 3D settings",
            )
            .command("CUDA - Sysmem Fallback Policy = Prefer Sysmem Fallback"),
        );
    }
    spill(situation).map(|fix| Fix {
        action: fix.action.trim_start_matches("or ").to_owned(),
        command: fix.command.map(|command| command.replace("python …", "PROGRAM …")),
        ..fix
    })
}

/// What is left where nothing can be made smaller: memory of the machine, or the CPU.
pub(crate) fn around_the_gpu(situation: &Situation<'_>) -> Option<Fix> {
    without_a_change(situation).or_else(|| on_the_cpu(situation))
}

/// The CPU, for a program that uses CUDA.
pub(crate) fn on_the_cpu(situation: &Situation<'_>) -> Option<Fix> {
    let environment = situation.environment;
    let is_cuda = environment.maker == Maker::Nvidia && environment.device == Device::Gpu;
    (is_cuda && !is_without_cuda(situation.facts)).then(|| {
        Fix::new("run it on the CPU, if the program can")
            .command(environment.export("CUDA_VISIBLE_DEVICES=-1"))
    })
}

/// More than this in host memory is slower than the CPU.
const MOST_SPILLED: u64 = 64;

/// What a program reads, by words in the text, and the step that makes it smaller. The first that fits is given.
const INPUTS: &[(&[&str], &str, &str)] = &[
    (
        &[".mp4", "video", "ffmpeg", ".avi", ".mov"],
        "halve the width and height of the video, or cut it into parts: all frames of a part are on the GPU at once",
        "ffmpeg -i in.mp4 -t 5 -vf scale=iw/2:-2 out.mp4",
    ),
    (
        &[".wav", ".mp3", "audio", "asr", "speech", "transcri", "diariz"],
        "split the recording into 30-second segments",
        "ffmpeg -i in.wav -f segment -segment_time 30 part%03d.wav",
    ),
    (
        &[
            "conv3d",
            "nifti",
            ".nii",
            "cbct",
            "dicom",
            "monai",
            "ct scan",
            " mri",
            "volume rendering",
            "3d slicer",
            "slicer",
        ],
        "crop the volume to the region of interest, or resample it to half the resolution",
        "scipy.ndimage.zoom(volume, 0.5, order=1)",
    ),
    (
        &[
            "gcn",
            "graphsage",
            "edge_index",
            "gnn",
            "torch_geometric",
            "pyg",
            "dgl",
            "adjacency",
            " adj ",
            "adj.to",
        ],
        "train on sampled neighborhoods instead of the whole graph, with a sparse adjacency",
        "NeighborLoader(data, num_neighbors=[10, 5], batch_size=1024)   (adj = adj.to_sparse())",
    ),
    (
        &["point cloud", "pointnet", "lidar", "kitti", ".ply", ".las"],
        "sample fewer points from each cloud",
        "points = points[np.random.choice(len(points), 4096, replace=False)]",
    ),
    (
        &[
            "tokenizer",
            "input_ids",
            "bert",
            "llama",
            "gpt",
            "seq_len",
            "self_attn",
            "decoder_layer",
            "lm_head",
        ],
        "truncate the sequences: memory grows with their length",
        "tokenizer(texts, truncation=True, max_length=512)",
    ),
    (
        &[
            "conv2d",
            "image",
            "img",
            "resnet",
            "unet",
            "vae",
            "segmentation",
            "backbone",
            "pixel",
            ".png",
            ".jpg",
        ],
        "halve the width and height of the images: activations shrink to a quarter",
        "image = image.resize((image.width // 2, image.height // 2))",
    ),
];

/// A smaller input where nothing shows its size: by what the program reads.
pub(crate) fn smaller_input(situation: &Situation<'_>) -> Option<Fix> {
    let (_, action, command) =
        INPUTS.iter().find(|(words, ..)| words.iter().any(|word| situation.settings.mentions(word)))?;
    Some(Fix::new(*action).command(*command))
}

/// A size without more precision than a step needs: to a tenth of a gibibyte, or to 50 MiB, rounded up.
pub(crate) fn roughly(bytes: Bytes) -> String {
    if bytes >= Bytes::gib(1) {
        format!("{:.1} GiB", (bytes.get() as f64 / f64::from(1 << 30) * 10.0).ceil() / 10.0)
    } else {
        format!("{} MiB", bytes.get().div_ceil(50 << 20) * 50)
    }
}

/// Whether PyTorch on an NVIDIA GPU wrote a text, which it also does without its allocator.
pub(crate) fn is_from_pytorch(facts: &Facts) -> bool {
    let words = [
        "RuntimeError: CUDA error",
        "RuntimeError: CUDA driver error",
        "torch.",
        "/THC/",
        "THCudaCheck",
        "cuda runtime error (",
        "c10/cuda",
    ];
    facts.framework == Framework::PyTorch
        || (matches!(
            facts.framework,
            Framework::Cuda | Framework::CuBlas | Framework::CuDnn | Framework::Nccl
        ) && words.iter().any(|words| facts.quote.contains(words)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::find;
    use crate::log::Log;

    fn steps(text: &str) -> Vec<String> {
        let log = Log::new(text);
        let found = find::failures(&log).unwrap();
        let context = Context::read(&log, found.index);
        let situation = Situation::new(&log, found.index, &found.first, &context);
        less_data(&situation)
            .into_iter()
            .map(|fix| format!("{} | {}", fix.action, fix.command.unwrap_or_default()))
            .collect()
    }

    const TORCH: &str = "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB";

    #[test]
    fn the_texts_own_options_get_values() {
        assert!(steps(&format!("python train.py --bs 24\n{TORCH}"))[0].ends_with("| --bs 12"));
        assert!(steps(&format!("python demo.py --img_size 1024\n{TORCH}"))[0].ends_with("| --img_size 768"));
        assert!(
            steps(&format!("batch_size=1, max_seq_length=2048\n{TORCH}"))[0]
                .ends_with("| max_seq_length=1024")
        );
        assert!(steps(&format!("python play.py --num_envs=4096\n{TORCH}"))[0].ends_with("| --num_envs=2048"));
    }

    #[test]
    fn without_options_the_least_batch() {
        assert!(steps(&format!("python train.py\n{TORCH}"))[0].ends_with("batch_size=1)"));
        assert!(steps(&format!("the batch size does not matter\n{TORCH}"))[0].ends_with("| batch_size=1"));
        assert!(steps(TORCH).iter().all(|step| !step.contains("batch_size")), "{:?}", steps(TORCH));
        let images = steps(&format!("batch_size=1\nin Conv2d forward\n{TORCH}"));
        assert!(images[0].contains("already 1") && images[0].contains("image.width // 2"), "{images:?}");
    }
}
