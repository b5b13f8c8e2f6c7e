//! Less data at once, in the words of the text: a smaller batch, shorter sequences, smaller images, smaller buffers.
//!
//! For programs whose own options are not known. Where the text shows an option that memory grows with, the step
//! repeats its spelling with the value to try; where it does not, the step names the setting of the framework or
//! the call of the API.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use makeroom_core::Bytes;

use super::environment::System;
use super::facts::Facts;
use super::fixes::is_without_cuda;
use super::own_code::{self, is_own_code};
use super::situation::Situation;
use crate::Fix;
use crate::advice::Maker;

/// Options that memory grows with, by the words that advice has for them.
const SIZES: &[Size] = &[
    Size::count(
        "pass fewer images per GPU",
        &[
            "samples_per_gpu",
            "imgs_per_gpu",
            "ims_per_batch",
            "images_per_gpu",
            "batch_size_per_gpu",
            "videos_per_gpu",
        ],
    ),
    Size::count("run fewer environments at once", &["num_envs", "num_environments", "num_agents"]),
    Size::length("generate fewer frames", &["num_frames", "video_length", "n_frames"], 1),
    Size::side(
        "use smaller images",
        &[
            "img_size",
            "image_size",
            "imgsz",
            "resolution",
            "crop_size",
            "input_size",
            "imsize",
            "-img",
            "load_size",
            "fine_size",
            "max_size",
            "image_height",
            "train_size",
        ],
    ),
    Size::side("use smaller tiles", &["tile_size", "tilesize", "-tile", "-crop", "-patch"]),
    Size::length(
        "shorten the sequences",
        &[
            "max_seq_length",
            "max_seq_len",
            "seq_length",
            "seq_len",
            "cutoff_len",
            "block_size",
            "max_length",
            "max_len",
            "context_length",
            "model_max_length",
            "max_source_length",
            "max_prompt_length",
        ],
        64,
    ),
    Size::length("generate fewer tokens", &["max_new_tokens", "max_tokens"], 64),
    Size::count(
        "generate fewer results at once",
        &[
            "num_images_per_prompt",
            "num_samples",
            "num_return_sequences",
            "num_generations",
            "num_beams",
            "beam_size",
        ],
    ),
    Size::length(
        "process fewer rays or points at once",
        &[
            "chunk_size",
            "netchunk",
            "-chunk",
            "N_rand",
            "num_rays",
            "num_points",
            "npoints",
            "max_points",
            "n_points",
        ],
        1,
    ),
    Size::count("sample fewer neighbors", &["num_neighbors", "fanout", "fan_out"]),
    Size::length(
        "put fewer tokens or frames in a batch",
        &[
            "batch_bins",
            "max_tokens_per_batch",
            "tokens_per_batch",
            "batch_tokens",
            "batch_frames",
            "frames_per_batch",
            "max_frames",
        ],
        1,
    ),
    Size::length(
        "compute on a smaller grid",
        &["grid_x", "grid_y", "grid_size", "grid_resolution", "-nx", "-ny", "-grid", "octree_resolution"],
        8,
    ),
];

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

/// One kind of size.
struct Size {
    action: &'static str,
    names: &'static [&'static str],
    kind: Kind,
    /// There is no step below this value.
    least: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Count,
    /// Memory grows with the square.
    Side,
}

impl Size {
    const fn count(action: &'static str, names: &'static [&'static str]) -> Self {
        Self { action, names, kind: Kind::Count, least: 1 }
    }

    const fn length(action: &'static str, names: &'static [&'static str], least: u64) -> Self {
        Self { action, names, kind: Kind::Count, least }
    }

    const fn side(action: &'static str, names: &'static [&'static str]) -> Self {
        Self { action, names, kind: Kind::Side, least: 64 }
    }

    /// The step, where the text shows the option.
    fn step(&self, situation: &Situation<'_>) -> Option<Fix> {
        let shown = situation.settings.shown(self.names)?;
        let is_size = (2.0..1e7).contains(&shown.value) && shown.value.fract() == 0.0;
        let from = if is_size { shown.value as u64 } else { return None };
        let factor = situation.shrink_factor().unwrap_or(0.5);
        let to = match self.kind {
            // A step that is too small to matter is not worth a run.
            Kind::Count => (from as f64 * factor.min(0.75)) as u64,
            // A side below 32 is not a number of pixels; the others are multiples of 32 in most networks.
            Kind::Side if from < 2 * self.least => return None,
            Kind::Side => (from as f64 * factor.min(0.75).sqrt()) as u64 / 32 * 32,
        };
        let to = rounded(to).max(self.least);
        (to < from).then(|| Fix::new(format!("{} from {from} to {to}", self.action)).command(shown.with(to)))
    }
}

/// Large values are multiples of 64, as lengths usually are.
fn rounded(value: u64) -> u64 {
    if value >= 256 { value / 64 * 64 } else { value }
}

/// All names of all sizes, to look for them in one pass, and the size that each belongs to.
static NAMES: LazyLock<(Option<AhoCorasick>, Vec<usize>)> = LazyLock::new(|| {
    let (owners, names): (Vec<usize>, Vec<String>) = SIZES
        .iter()
        .enumerate()
        .flat_map(|(owner, size)| {
            let words = size.names.iter().map(|name| name.trim_start_matches('-'));
            words.flat_map(move |name| [(owner, name.to_owned()), (owner, name.replace('_', "-"))])
        })
        .unzip();
    let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(names);
    debug_assert!(automaton.is_ok(), "{automaton:?}");
    (automaton.ok(), owners)
});

/// The steps for the sizes that the text shows, besides the batch.
pub(crate) fn shown_sizes(situation: &Situation<'_>) -> Vec<Fix> {
    let (Some(automaton), owners) = &*NAMES else { return Vec::new() };
    let mut is_named = vec![false; SIZES.len()];
    for part in situation.settings.parts() {
        for found in automaton.find_overlapping_iter(part) {
            is_named[owners[found.pattern().as_usize()]] = true;
        }
    }
    let named = SIZES.iter().zip(is_named).filter(|(_, is_named)| *is_named);
    named.filter_map(|(size, _)| size.step(situation)).take(2).collect()
}

/// Less data at once: a smaller batch, or smaller inputs where the batch is 1 already.
pub(crate) fn less_data(situation: &Situation<'_>) -> Vec<Fix> {
    if is_own_code(situation.facts) && own_code::shows_source(situation) {
        return vec![own_code::smaller_buffers(situation)];
    }
    match situation.batch() {
        Some(batch) if batch > 1 => vec![batch_from(situation, batch)],
        Some(_) => {
            let mut fixes = shown_sizes(situation);
            if fixes.is_empty() {
                fixes.extend(smaller_input(situation));
            }
            if let Some(first) = fixes.first_mut() {
                first.action = format!("the batch size is already 1: {}", first.action);
            }
            fixes
        }
        None => {
            let mut fixes = shown_sizes(situation);
            if !has_batches(situation) {
                let is_cuda = situation.settings.mentions("cuda");
                if fixes.is_empty() && is_cuda {
                    fixes.extend(without_a_change(situation));
                }
                if fixes.is_empty() {
                    fixes.push(Fix::new(
                        "give the program less at once: smaller inputs, a lower resolution or quality setting, fewer jobs side by side",
                    ));
                }
            } else if fixes.is_empty() || situation.is_training() {
                fixes.push(batch_of_one(situation));
            }
            fixes
        }
    }
}

/// Whether anything shows a network, which works on batches: another program has none to make smaller.
fn has_batches(situation: &Situation<'_>) -> bool {
    const NETWORKS: [&str; 14] = [
        "batch",
        "train",
        "epoch",
        "torch",
        "tensor",
        "model",
        "keras",
        "inference",
        "gradient",
        "network",
        "cudnn",
        "predict",
        "embedding",
        "jax",
    ];
    let framework = situation.facts.framework;
    let is_learning = framework.starts_with("pytorch")
        || ["tensorflow", "jax", "paddlepaddle", "mxnet", "onnxruntime"].contains(&framework);
    is_learning || NETWORKS.iter().any(|word| situation.settings.mentions(word))
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
    let option = shown.map_or_else(|| format!("batch_size={smaller}"), |shown| shown.with(smaller));
    Fix::new(format!("reduce the batch size from {batch} to {smaller}{accumulate}")).command(option)
}

/// The least batch, where the text does not show the present one.
fn batch_of_one(situation: &Situation<'_>) -> Fix {
    let aim =
        situation.to_free().map_or(String::new(), |bytes| format!("; about {} must go", roughly(bytes)));
    let is_torch = situation.facts.framework.starts_with("pytorch") || is_from_pytorch(situation.facts);
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

/// Host memory for what does not fit, for any program on an NVIDIA GPU under Linux: twice what is missing, at least 4 GiB.
pub(crate) fn spill(situation: &Situation<'_>) -> Option<Fix> {
    let environment = situation.environment;
    let is_here = environment.maker == Maker::Nvidia
        && environment.system == System::Linux
        && !environment.is_hosted
        && !situation.account.is_contradictory()
        && !is_without_cuda(situation.facts);
    let missing = situation.account.missing().unwrap_or_default().get().div_ceil(1 << 30) * 2;
    let size = missing.max(4).next_power_of_two();
    (is_here && size <= MOST_SPILLED).then(|| {
        Fix::new(
            "or let the part that does not fit spill to host memory, slowly, without a change to the program",
        )
        .command(format!("makeroom run --pool --spill {size}GiB -- python …"))
    })
}

/// What the driver or the pool can do for a program of which nothing is known.
pub(crate) fn without_a_change(situation: &Situation<'_>) -> Option<Fix> {
    let environment = situation.environment;
    if environment.system == System::Windows && environment.maker == Maker::Nvidia {
        return Some(
            Fix::new(
                "let the driver spill to system memory, slowly: NVIDIA Control Panel > Manage 3D settings",
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

/// More than this in host memory is slower than the CPU.
const MOST_SPILLED: u64 = 64;

/// A smaller input where nothing shows its size: by what the network reads.
fn smaller_input(situation: &Situation<'_>) -> Option<Fix> {
    let mentions = |words: &[&str]| words.iter().any(|word| situation.settings.mentions(word));
    if mentions(&[
        "tokenizer",
        "input_ids",
        "bert",
        "llama",
        "gpt",
        "seq_len",
        "self_attn",
        "decoder_layer",
        "lm_head",
    ]) {
        return Some(
            Fix::new("truncate the sequences: memory grows with their length")
                .command("tokenizer(texts, truncation=True, max_length=512)"),
        );
    }
    mentions(&["conv2d", "image", "img", "resnet", "unet", "vae", "segmentation", "backbone", "pixel"]).then(
        || {
            Fix::new("halve the sides of the images: a quarter of the activations")
                .command("x = torch.nn.functional.interpolate(x, scale_factor=0.5)")
        },
    )
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
    facts.framework == "pytorch"
        || (matches!(facts.framework, "cuda" | "cublas" | "cudnn" | "nccl")
            && words.iter().any(|words| facts.quote.contains(words)))
}

#[cfg(test)]
mod tests {
    use super::super::context::Context;
    use super::super::find;
    use super::super::log::Log;
    use super::*;

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
        assert!(steps(&format!("python demo.py --img_size 1024\n{TORCH}"))[0].ends_with("| --img_size 704"));
        assert!(
            steps(&format!("batch_size=1, max_seq_length=2048\n{TORCH}"))[0]
                .ends_with("| max_seq_length=1024")
        );
        assert!(steps(&format!("python play.py --num_envs=4096\n{TORCH}"))[0].ends_with("| --num_envs=2048"));
    }

    #[test]
    fn without_options_the_least_batch() {
        assert!(steps(&format!("python train.py\n{TORCH}"))[0].ends_with("batch_size=1)"));
        assert!(steps(TORCH)[0].ends_with("| batch_size=1"));
        let images = steps(&format!("batch_size=1\nin Conv2d forward\n{TORCH}"));
        assert!(images[0].contains("already 1") && images[0].contains("scale_factor=0.5"), "{images:?}");
    }
}
