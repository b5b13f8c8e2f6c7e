//! TensorFlow and Keras. TensorFlow preallocates nearly the whole GPU unless memory growth is on.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Fix};
use makeroom_search::{Regex, pattern};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::environment::System;
use crate::figures::captured_number;
use crate::host_fixes;
use crate::situation::Situation;

pub(super) const APPLICATIONS: &[&Program] = &[&ITEX, &SLEAP];
pub(super) const PROGRAMS: &[&Program] = &[&TENSORFLOW];

const TENSORFLOW: Program = Program {
    name: "TensorFlow",
    frameworks: &[Framework::TensorFlow],
    marks: &[
        "tensorflow/",
        "tf.keras",
        "import tensorflow",
        "keras/",
        "OOM when allocating tensor",
        "from device: CUDA_ERROR_OUT_OF_MEMORY",
        "initializing StreamExecutor",
    ],
    work: Work::Other,
    advise: tensorflow,
};

fn grows(situation: &Situation<'_>) -> bool {
    situation.settings.is_on(&["TF_FORCE_GPU_ALLOW_GROWTH", "allow_growth"])
        || situation.settings.mentions("set_memory_growth(")
}

/// The limit that fits what was free, in MiB.
fn limit(situation: &Situation<'_>) -> u64 {
    let free = situation.facts.free.or_else(|| situation.facts.total.map(|total| total.scaled(0.5)));
    free.map_or(4096, |free| (free.scaled(0.9).get() >> 20).max(256))
}

pub(super) fn tensorflow(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let growth = (!grows(situation)).then(|| {
        let fix = Fix::new("let TensorFlow allocate memory as it needs it");
        if is_first(situation) {
            fix.command("config.gpu_options.allow_growth = True; tf.Session(config=config)")
        } else {
            fix.command(situation.environment.export("TF_FORCE_GPU_ALLOW_GROWTH=true"))
        }
    });
    let cap = || {
        let limit = limit(situation);
        if is_first(situation) {
            let share = situation
                .facts
                .free
                .zip(situation.facts.total)
                .map_or(0.4, |(free, total)| free.share_of(total) * 0.9);
            return Fix::new("cap the share of GPU memory that each process uses")
                .command(format!("config.gpu_options.per_process_gpu_memory_fraction = {share:.2}"));
        }
        Fix::new(format!("cap each process at {limit} MiB"))
            .command(format!("tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit={limit})])"))
    };
    match cause {
        Cause::Preallocation | Cause::OtherProcesses | Cause::HiddenHolder | Cause::NonFrameworkOverhead => {
            let compiled = (situation.facts.framework == Framework::Jax
                && !situation.settings.mentions("jit_compile=False"))
            .then(|| {
                Fix::new("compile the step without XLA, which plans its memory as one block")
                    .command("model.compile(…, jit_compile=False)")
            });
            compiled.into_iter().chain(growth).chain([cap()]).chain(next_to_torch(situation)).collect()
        }
        Cause::ArtificialLimit => vec![raised_limit(situation)],
        Cause::HostMemory => host(situation),
        // Allocating on demand takes no less.
        _ => {
            let mut fixes = lever::steps(situation, cause, TENSORFLOW_LEVERS);
            let image = image_tensor(situation);
            if situation.batch().is_none()
                && let Some(first) = fixes.first_mut()
                && let Some(batch) = image.map(|image| image.batch).filter(|&batch| batch > 1)
            {
                let half = batch / 2;
                *first = Fix::new(format!(
                    "lower the batch size from {batch}, the first dimension of the tensor that failed, to {half}"
                ))
                .command(if is_first(situation) {
                    format!("batch_size = {half}")
                } else {
                    format!("model.fit(…, batch_size={half})")
                });
            }
            if let Some(image) = image.filter(|image| image.batch == 1) {
                fixes.retain(|fix| !fix.action.starts_with("lower the batch size"));
                fixes.insert(0, image.smaller(situation));
            }
            fixes
        }
    }
}

static SHAPE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"allocating tensor (?:with )?(?:of )?shape ?\[(\d{1,4}), ?(\d{1,5}), ?(\d{1,5}), ?(\d{1,5})\]")
});

/// A tensor of images or of their features.
#[derive(Clone, Copy)]
struct ImageTensor {
    batch: u64,
    height: u64,
    width: u64,
    channels: u64,
}

impl ImageTensor {
    /// Half of both sides, where the batch cannot be smaller.
    fn smaller(self, situation: &Situation<'_>) -> Fix {
        let resize = if is_first(situation) { "tf.image.resize_images" } else { "tf.image.resize" };
        let (height, width) = (self.height / 2, self.width / 2);
        if self.channels > MOST_COLORS {
            return Fix::new(
                "the tensor that failed has a batch of 1: halve the height and width of the images, which makes it a quarter of the size",
            )
            .command(format!("image = {resize}(image, [height // 2, width // 2])"));
        }
        Fix::new(format!(
            "the tensor that failed is one image: resize it from {} x {} to {height} x {width}",
            self.height, self.width
        ))
        .command(format!("image = {resize}(image, [{height}, {width}])"))
    }
}

/// An image has at most this many channels; features have more.
const MOST_COLORS: u64 = 4;

/// The image tensor that failed. Its first dimension is the batch in most networks.
fn image_tensor(situation: &Situation<'_>) -> Option<ImageTensor> {
    let found = situation.settings.parts().into_iter().find_map(|part| SHAPE.captures(part))?;
    let side = |group: usize| captured_number::<u64>(&found, group);
    let (batch, second, third, fourth) = (side(1)?, side(2)?, side(3)?, side(4)?);
    // The weights of a convolution have four sides too: two of them are the few pixels of its kernel.
    let has_image = third >= KERNEL && (second >= KERNEL || fourth >= KERNEL);
    let is_kernel = batch == second && batch <= KERNEL;
    // Two equal sides are channels.
    let is_square = batch == second && batch >= 64;
    // Channels come second or last: the two sides of an image are closer to each other than to them.
    let (height, width, channels) = if second.abs_diff(third) <= third.abs_diff(fourth) {
        (second, third, fourth)
    } else {
        (third, fourth, second)
    };
    let is_image = (1..=1024).contains(&batch) && has_image && !is_kernel && !is_square;
    (is_image && height >= KERNEL && width >= KERNEL).then_some(ImageTensor {
        batch,
        height,
        width,
        channels,
    })
}

/// Kernels of convolutions are smaller than this.
const KERNEL: u64 = 12;

/// Whether the text comes from TensorFlow 1: sessions, its wording, or its years.
pub(crate) fn is_first(situation: &Situation<'_>) -> bool {
    const MARKS: [&str; 10] = [
        "[[Node:",
        "tf.Session",
        "(see above for traceback)",
        "client/session.py",
        "tensorflow-gpu==1",
        "tf.ConfigProto",
        "gpu_options",
        "tf.contrib",
        "tensorflow_backend.py",
        "tf.placeholder",
    ];
    MARKS.iter().any(|mark| situation.settings.mentions(mark))
        || situation.settings.parts().iter().any(|part| {
            YEARS.is_match(part)
                || WITHOUT_TIMES.is_match(part)
                || VERSION_1.is_match(part)
                || OLD_DRIVER.is_match(part)
        })
}

/// Whether the text shows TensorFlow 2: eager operations, its modules, its version.
fn is_second(situation: &Situation<'_>) -> bool {
    const MARKS: [&str; 9] = [
        "[Op:",
        "StatefulPartitionedCall",
        "tf.function",
        "local_xla",
        "keras/src",
        "set_memory_growth",
        "TF_GPU_ALLOCATOR",
        "eager/execute.py",
        "xla/tsl",
    ];
    !is_first(situation)
        && (MARKS.iter().any(|mark| situation.settings.mentions(mark))
            || situation.settings.parts().iter().any(|part| VERSION_2.is_match(part)))
}

/// Drivers up to 2018, before TensorFlow 2.
static OLD_DRIVER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\bNVIDIA-SMI 3\d\d\.\d"));
static VERSION_2: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\btensorflow(?:[-_ ]gpu)?(?: version)?(?: is|:|=|==)? ?v?2\.\d|\bTF ?2\b")
});
/// A version in words: "tensorflow is 1.4.0", "tensorflow-gpu 1.12".
static VERSION_1: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:tensorflow|tf)(?:[-_ ]gpu)?(?: version)?(?: is|:|=|==|-)? ?v?1\.\d"));
static YEARS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?m)^\W{0,4}20(?:1[5-9]|20)-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] "));

/// TensorFlow before 1.4 writes no times.
static WITHOUT_TIMES: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^[\W]{0,4}[IWEF] tensorflow/"));

/// The class or vocabulary side of the tensor that failed, where it has one.
fn has_large_vocabulary(situation: &Situation<'_>) -> bool {
    situation.settings.parts().into_iter().any(|part| VOCABULARY.is_match(part))
}

static VOCABULARY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"allocating tensor (?:with )?(?:of )?shape ?\[(?:\d+, ?)*[1-9]\d{5,}\]"));

/// Limits of the pinned pool are multiples of this.
const POOL_STEP: Bytes = Bytes::gib(8);

/// Host memory, most of it pinned for copies to the GPU in a pool that grows by doubling.
fn host(situation: &Situation<'_>) -> Vec<Fix> {
    let (facts, environment) = (situation.facts, situation.environment);
    let mut fixes = Vec::new();
    if let Some(limit) = facts.limit {
        let needed =
            facts.live.map_or(limit.scaled(2.0), |live| live + facts.request.unwrap_or(limit.scaled(0.25)));
        let gib =
            needed.max(limit).get() / POOL_STEP.get() * (POOL_STEP.get() >> 30) + (POOL_STEP.get() >> 30);
        fixes.push(
            Fix::new(format!(
                "raise the limit of TensorFlow's pinned pool from {limit}, if the machine has more than {gib} GiB of RAM"
            ))
            .command(environment.export(&format!("TF_CUDA_HOST_MEM_LIMIT_IN_MB={}", gib << 10))),
        );
    } else if let Some(request) = facts.request.filter(|&request| request >= Bytes::gib(2)) {
        let limit = request.get() >> 21;
        fixes.push(
            Fix::new(format!("cap TensorFlow's pinned pool, which requested {request} more"))
                .command(environment.export(&format!("TF_CUDA_HOST_MEM_LIMIT_IN_MB={limit}"))),
        );
    }
    let is_pinned =
        ["pinned", "on host", "cuda_host", "host_bfc"].iter().any(|words| facts.quote.contains(words));
    if is_pinned && environment.system == System::Linux {
        fixes.push(Fix::new("let the container lock memory").command("docker run --ulimit memlock=-1 …"));
    }
    fixes.push(
        Fix::new("keep fewer examples in memory: use a smaller shuffle buffer, and prefetch only one batch")
            .command("dataset.shuffle(1000).batch(batch_size).prefetch(1)"),
    );
    if !is_pinned || environment.system != System::Linux {
        fixes.extend(host_fixes::steps(situation).into_iter().take(2));
    }
    fixes
}

fn raised_limit(situation: &Situation<'_>) -> Fix {
    let needed = situation.facts.limit.map(|limit| limit + situation.facts.request.unwrap_or_default());
    let value = needed.map_or(8192, |needed| needed.scaled(1.1).get() >> 20);
    Fix::new("raise the limit that the program set (per_process_gpu_memory_fraction in TensorFlow 1)")
        .command(format!("LogicalDeviceConfiguration(memory_limit={value})"))
}

/// A logger or a data pipeline needs no GPU.
fn next_to_torch(situation: &Situation<'_>) -> Option<Fix> {
    situation.settings.mentions("torch").then(|| {
        Fix::new("hide the GPU from TensorFlow, if only PyTorch needs it")
            .command("tf.config.set_visible_devices([], 'GPU')")
    })
}

const TENSORFLOW_LEVERS: &[Lever] = &[
    Lever::new(
        "one dimension of the tensor is a vocabulary of over 100000: train on a sample of its classes (or check that the alphabet is meant to be that large)",
        "tf.nn.sampled_softmax_loss(weights, biases, labels, inputs, num_sampled=1024, num_classes=classes)",
    )
    .only(has_large_vocabulary),
    Lever::new("compile the step without XLA, which plans its memory as one block", "model.compile(…, jit_compile=False)")
        .unless_said(&["jit_compile=False"])
        .only(|situation| situation.facts.framework == Framework::Jax),
    Lever::batch(
        "lower the batch size{from}",
        "model.fit(…, batch_size={to})",
        &["batch_size", "--batch_size"],
    )
    .only(|situation| !is_first(situation) || situation.settings.mentions("keras") || situation.settings.mentions("model.fit")),
    Lever::batch(
        "lower the batch size{from}: the number of examples in each feed_dict or queue",
        "batch_size = {to}",
        &["batch_size", "--batch_size"],
    )
    .only(|situation| is_first(situation) && !situation.settings.mentions("keras") && !situation.settings.mentions("model.fit")),
    Lever::new(
        "keep large tables in RAM: only the rows that a batch uses go to the GPU",
        "with tf.device('/cpu:0'): table = tf.get_variable('table', [rows, columns])",
    )
    .unless_said(&["/cpu:0"])
    .only(|situation| is_first(situation) && situation.facts.request.is_some_and(|request| request >= Bytes::gib(1))),
    Lever::new(
        "use CUDA's stream-ordered allocator, which fragments less",
        "TF_GPU_ALLOCATOR=cuda_malloc_async",
    )
    .unless_said(&[
        "TF_GPU_ALLOCATOR=cuda_malloc_async is set",
        "export TF_GPU_ALLOCATOR=cuda_malloc_async",
        "gpu_cudamallocasync",
    ])
    .only(is_second)
    .variable(),
    Lever::new("train in 16-bit precision", "tf.keras.mixed_precision.set_global_policy('mixed_float16')")
        .unless_said(&["mixed_float16", "mixed_bfloat16"])
        .only(is_second),
    Lever::new(
        "TensorFlow 2.4 and later: train in 16-bit precision",
        "tf.keras.mixed_precision.set_global_policy('mixed_float16')",
    )
    .unless_said(&["mixed_float16", "mixed_bfloat16"])
    .only(|situation| !is_first(situation) && !is_second(situation)),
    Lever::new("train in 16-bit precision (TensorFlow 1.14 and later)", "TF_ENABLE_AUTO_MIXED_PRECISION=1")
        .unless_said(&["AUTO_MIXED_PRECISION=1"])
        .only(|situation| {
            is_first(situation) && !situation.settings.parts().iter().any(|part| WITHOUT_TIMES.is_match(part))
        })
        .variable(),
    Lever::new("swap the activations of recurrent layers to RAM", "tf.nn.dynamic_rnn(…, swap_memory=True)")
        .unless_said(&["swap_memory=True"])
        .only(|situation| is_first(situation) && situation.settings.mentions("rnn")),
    Lever::new("free the graphs of earlier models between runs", "tf.keras.backend.clear_session()")
        .unless_said(&["clear_session"])
        .only(|situation| {
            ["training_", "model_1", "_10/", "fold"].iter().any(|words| situation.settings.mentions(words))
        }),
    Lever::side(
        "pass smaller images{from}",
        "image_size=({to}, {to})",
        &["image_size", "img_size", "input_size"],
        0,
        (64, 32),
    ),
];

const ITEX: Program = Program {
    name: "Intel Extension for TensorFlow",
    frameworks: &[],
    marks: &["itex/", "intel_extension_for_tensorflow", "device:XPU"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, ITEX_LEVERS),
};

const ITEX_LEVERS: &[Lever] = &[
    Lever::switch(
        "compute in 16-bit precision",
        "ITEX_AUTO_MIXED_PRECISION=1",
        &["ITEX_AUTO_MIXED_PRECISION"],
    )
    .variable(),
    Lever::new("allocate in steps of 1 GiB instead of one large block", "ITEX_LIMIT_MEMORY_SIZE_IN_MB=1024")
        .unless_said(&["ITEX_LIMIT_MEMORY_SIZE_IN_MB="])
        .variable(),
    Lever::batch("lower the batch size{from}", "batch_size={to}", &["batch_size"]),
];

const SLEAP: Program = Program {
    name: "SLEAP",
    frameworks: &[],
    marks: &["sleap"],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::HostMemory => vec![
            Fix::new("read images as they are needed instead of caching them in RAM")
                .command("Data Pipeline Framework = stream"),
            Fix::new("lower the batch size in the training profile").command("\"batch_size\": 2"),
        ],
        _ => lever::steps(situation, cause, SLEAP_LEVERS),
    },
};

const SLEAP_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from} in the training profile",
        "\"batch_size\": {to}",
        &["batch_size"],
    ),
    Lever::new("scale the images down in the training profile", "\"input_scaling\": 0.5")
        .unless_said(&["input_scaling\": 0.5"]),
    Lever::lower("use a smaller network in the training profile", "\"filters\": {to}", &["filters"], 16)
        .at_least(8, 8),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check};
    use super::*;

    const OOM: &str = "ResourceExhaustedError: OOM when allocating tensor with shape[64,256,56,56] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]";

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "TensorFlow",
                "model.fit(x, y, batch_size=64)",
                "batch_size=32",
                ("set_global_policy('mixed_float16')", "mixed_float16"),
            ),
            (
                "Intel Extension for TensorFlow",
                "E itex/core/devices/bfc_allocator.cc:98]",
                "ITEX_AUTO_MIXED_PRECISION=1",
                ("ITEX_AUTO_MIXED_PRECISION=1", "ITEX_AUTO_MIXED_PRECISION"),
            ),
            ("SLEAP", "sleap-train a.json b.slp", "\"batch_size\": 1", ("\"batch_size\": 1", "batch_size")),
        ] {
            check(name, &format!("{line}\n{OOM}"), first, set);
        }
    }

    #[test]
    fn the_batch_is_the_first_side_of_an_image_not_of_a_kernel() {
        let first = |shape: &str| {
            let text = format!(
                "OOM when allocating tensor with shape[{shape}] and type float on /device:GPU:0 by allocator GPU_0_bfc"
            );
            advice(&text, Cause::LiveDataFillsDevice).1.remove(0).command.unwrap_or_default()
        };
        assert_eq!(first("48,112,112,64"), "model.fit(…, batch_size=24)");
        assert_eq!(first("64,32,3,3"), "model.fit(…, batch_size=1)");
        assert_eq!(first("3,3,512,512"), "model.fit(…, batch_size=1)");
    }

    #[test]
    fn a_batch_of_one_leaves_the_images() {
        let text = |version: &str| {
            format!(
                "{version}\nOOM when allocating tensor with shape[1,2400,1800,3] and type float on /device:GPU:0 by allocator GPU_0_bfc"
            )
        };
        let commands = |version: &str| format!("{:?}", advice(&text(version), Cause::LiveDataFillsDevice).1);
        assert!(commands("tensorflow 2.9").contains("tf.image.resize(image, [1200, 900])"));
        assert!(commands("tensorflow 1.12").contains("tf.image.resize_images(image, [1200, 900])"));
        assert!(!commands("tensorflow 2.9").contains("batch_size"), "{}", commands("tensorflow 2.9"));
        let features = text("tensorflow 2.9").replace("2400,1800,3", "120,160,256");
        let steps = format!("{:?}", advice(&features, Cause::LiveDataFillsDevice).1);
        assert!(steps.contains("[height // 2, width // 2]"), "{steps}");
    }

    #[test]
    fn growth_that_is_on_is_not_advised() {
        let (_, steps) =
            advice(&format!("TF_FORCE_GPU_ALLOW_GROWTH=true python a.py\n{OOM}"), Cause::OtherProcesses);
        assert!(
            steps.iter().all(|fix| !fix.command.as_deref().unwrap_or("").contains("ALLOW_GROWTH")),
            "{steps:?}"
        );
        assert!(
            steps.iter().any(|fix| fix.command.as_deref().unwrap_or("").contains("memory_limit=4096")),
            "{steps:?}"
        );
    }
}
