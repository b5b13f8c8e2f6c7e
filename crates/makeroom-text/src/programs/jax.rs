//! JAX and the structure predictors on it. XLA takes three quarters of the GPU at the start and plans each compiled
//! program's memory as a whole.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::advice::Maker;
use makeroom_explain::{Cause, Fix};
use makeroom_search::{Regex, pattern};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::environment::System;
use crate::figures::{binary_size, captured_number};
use crate::situation::Situation;
use crate::{knobs, smaller};

pub(super) const APPLICATIONS: &[&Program] = &[&COLABFOLD, &ALPHAFOLD, &TPU];
pub(super) const PROGRAMS: &[&Program] = &[&JAX];

const JAX: Program = Program {
    name: "JAX",
    frameworks: &[Framework::Jax],
    marks: &["jaxlib", "jax/_src", "import jax", "XlaRuntimeError", "gpu_cudamallocasync_allocator"],
    work: Work::Other,
    advise: jax,
};

/// Whether the text shows that XLA does not take the GPU up front.
fn grows_on_demand(situation: &Situation<'_>) -> bool {
    situation
        .settings
        .value(&["XLA_PYTHON_CLIENT_PREALLOCATE"])
        .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
}

/// The share of the GPU to preallocate so that it fits what is free, in hundredths.
fn share(situation: &Situation<'_>) -> u64 {
    match (situation.facts.free, situation.facts.total) {
        (Some(free), Some(total)) if free.share_of(total) >= 0.1 => {
            ((free.share_of(total) * 90.0) as u64).min(90)
        }
        _ => 50,
    }
}

/// The share of the GPU that the text shows to be set.
fn present_share(situation: &Situation<'_>) -> Option<f64> {
    situation.settings.number(&["XLA_PYTHON_CLIENT_MEM_FRACTION"])
}

/// A larger share for a program that needs nearly all of the GPU.
fn larger_share(situation: &Situation<'_>) -> Option<Fix> {
    let present = present_share(situation).unwrap_or(0.75);
    (present < 0.9).then(|| {
        Fix::new(format!("let XLA use a larger share of GPU memory (now {present:.2})"))
            .command(situation.environment.export("XLA_PYTHON_CLIENT_MEM_FRACTION=.95"))
    })
}

fn jax(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let environment = situation.environment;
    match cause {
        Cause::OtherProcesses | Cause::HiddenHolder | Cause::Preallocation | Cause::NonFrameworkOverhead => {
            let share = share(situation);
            let mut fixes = Vec::new();
            if present_share(situation).is_none_or(|present| (present * 100.0) as u64 > share) {
                fixes.push(
                    Fix::new("reserve a smaller share of GPU memory at startup (default .75)")
                        .command(environment.export(&format!("XLA_PYTHON_CLIENT_MEM_FRACTION=.{share:02}"))),
                );
            }
            if situation.settings.mentions("FAILED tests/") {
                fixes.insert(
                    0,
                    Fix::new(
                        "run the tests in one process: each worker reserves its share of GPU memory at startup",
                    )
                    .command("pytest -n 1 …"),
                );
            }
            if !grows_on_demand(situation) {
                fixes.insert(
                    0,
                    Fix::new("let JAX allocate memory as it needs it")
                        .command(environment.export("XLA_PYTHON_CLIENT_PREALLOCATE=false")),
                );
            }
            fixes
        }
        Cause::ArtificialLimit => larger_share(situation).into_iter().collect(),
        Cause::Fragmentation => vec![
            Fix::new("allocate each array directly from the driver, without a pool (slower)")
                .command(environment.export("XLA_PYTHON_CLIENT_ALLOCATOR=platform")),
        ],
        _ => {
            let mut fixes = lever::steps(situation, cause, JAX_LEVERS);
            if fixes.is_empty() {
                return fixes;
            }
            // A share below the default was set by the user, and limits the program more than anything else.
            let is_lowered = present_share(situation).is_some_and(|share| share < 0.7);
            let larger = larger_share(situation);
            if is_lowered {
                return larger.into_iter().chain(fixes).collect();
            }
            fixes.extend(larger);
            fixes
        }
    }
}

const JAX_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "batch_size = {to}",
        &["batch_size", "--batch_size", "per_device_batch_size"],
    )
    .only(smaller::has_batches),
    Lever::new(
        "let results reuse the memory of arguments that are not needed afterward",
        "jax.jit(step, donate_argnums=(0,))",
    )
    .unless_said(&["donate_argnums", "donate_argnames"]),
    Lever::new(
        "keep parameters and activations in 16-bit precision",
        "params = jax.tree.map(lambda x: x.astype(jax.numpy.bfloat16), params)",
    )
    .unless_said(&["bfloat16", "float16"]),
    Lever::new(
        "recompute activations instead of keeping them, if the program computes gradients",
        "loss_fn = jax.checkpoint(loss_fn)",
    )
    .unless_said(&["jax.checkpoint", "jax.remat", "nn.remat"])
    .only(|situation| !situation.is_inference()),
    Lever::new(
        "make XLA's scheduler aim for less memory (default 95 %)",
        "XLA_FLAGS=--xla_gpu_memory_limit_slop_factor=80",
    )
    .unless_said(&["slop_factor"])
    .variable(),
];

/// What XLA plans for a compiled program.
static PLANNED: LazyLock<Regex> = LazyLock::new(|| pattern(r"total allocation: +([\d.]+)([MG])iB"));

/// Lets a compiled program that is larger than the GPU spill to the host, unless it does already.
pub(crate) fn add_unified_memory(fixes: &mut Vec<Fix>, situation: &Situation<'_>) {
    let facts = situation.facts;
    let is_jax = facts.framework == Framework::Jax && situation.program.writes(Framework::Jax);
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    if !is_jax
        || says(&["unified memory", "UNIFIED_MEMORY", "TPU", " hbm", "Reactant"])
        || situation.environment.maker != Maker::Nvidia
        || situation.environment.system != System::Linux
    {
        return;
    }
    let planned = situation.settings.parts().into_iter().find_map(|part| {
        let found = PLANNED.captures(part)?;
        binary_size(&found[1], &found[2])
    });
    let Some(planned) = planned.filter(|&planned| planned >= Bytes::gib(2)) else { return };
    let share = facts.total.map_or(4.0, |total| (planned.share_of(total) * 13.0).ceil() / 10.0).max(1.5);
    let fix = Fix::new(format!("let the program's {planned} spill to host memory (unified memory; slower)"))
        .command(
            situation
                .environment
                .export(&format!("TF_FORCE_UNIFIED_MEMORY=1 XLA_PYTHON_CLIENT_MEM_FRACTION={share:.1}")),
        );
    let place = if situation.is_training() { fixes.len().min(2) } else { 0 };
    fixes.insert(place, fix);
}

const TPU: Program = Program {
    name: "XLA",
    frameworks: &[Framework::PyTorchXla],
    marks: &["memory space hbm", "CompileTimeHbmOom", "hbm capacity", "XLA:TPU", "_HBM0"],
    work: Work::Other,
    advise: tpu,
};

static HBM: LazyLock<Regex> = LazyLock::new(|| pattern(r"Used ([\d.]+)([MG]) of ([\d.]+)([MG]) hbm"));
/// An array that the tiles of 8 x 128 elements blow up.
static PADDED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"Shape: (\w+)\[([\d,]+)\][^\n]*\n(?:[^\n]*\n){0,3}?[^\n]*\(([\d.]+)x expansion\)")
});
/// Padding below this is not worth another shape.
const MUCH_PADDING: f64 = 2.0;

fn tpu(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    if !matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice) {
        return Vec::new();
    }
    let parts = situation.settings.parts();
    let mut fixes = Vec::new();
    if let Some(found) = parts.iter().find_map(|part| PADDED.captures(part)) {
        let factor: f64 = captured_number(&found, 3).unwrap_or(1.0);
        let mut sides: Vec<u64> = found[2].split(',').filter_map(|side| side.parse().ok()).collect();
        if factor >= MUCH_PADDING && sides.len() > 1 {
            sides.sort_unstable();
            let shape: Vec<String> = sides.iter().map(u64::to_string).collect();
            fixes.push(
                Fix::new(format!(
                    "put the longest dimension of {}[{}] last: the last two dimensions are padded to multiples of 8 and 128, here to {factor} times the size",
                    &found[1], &found[2]
                ))
                .command(format!("x = x.reshape({})", shape.join(", "))),
            );
        }
    }
    fixes.extend(knobs::steps(situation));
    let ratio = parts.iter().find_map(|part| {
        let found = HBM.captures(part)?;
        let (used, limit) = (binary_size(&found[1], &found[2])?, binary_size(&found[3], &found[4])?);
        Some(used.share_of(limit))
    });
    let chips = ratio.map_or(2, |ratio| (ratio.ceil() as u64).next_power_of_two().clamp(2, 1024));
    let mentions = |word: &str| situation.settings.mentions(word);
    let is_torch = situation.facts.framework == Framework::PyTorchXla
        || mentions("torch_xla")
        || (mentions("torch") || mentions("requires_grad_")) && !mentions("jax");
    if is_torch {
        fixes.splice(0..0, torch_xla(situation));
    } else if mentions("keras") {
        fixes.push(
            Fix::new(format!("shard the weights across at least {chips} chips before the model is created"))
                .command("keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name=\"batch\"))"),
        );
        if !mentions("bfloat16") {
            fixes.push(
                Fix::new("load the weights in 16-bit precision (half the size)")
                    .command("keras.config.set_floatx(\"bfloat16\")"),
            );
        }
    } else if !situation.settings.mentions("Reactant") {
        fixes.push(
            Fix::new("recompute activations in the backward pass instead of keeping them")
                .command("jax.checkpoint(step, policy=jax.checkpoint_policies.nothing_saveable)"),
        );
        fixes.push(Fix::new(format!("shard the arrays across at least {chips} chips")).command(format!(
            "jax.device_put(x, NamedSharding(jax.make_mesh(({chips},), ('x',)), PartitionSpec('x')))"
        )));
    }
    if fixes.is_empty() {
        fixes.push(Fix::new(format!(
            "run on a slice of at least {chips} chips, with the arrays sharded across them"
        )));
    }
    fixes
}

/// PyTorch on XLA: a smaller batch per core, then shards of the model.
fn torch_xla(situation: &Situation<'_>) -> Vec<Fix> {
    let mentions = |word: &str| situation.settings.mentions(word);
    let has_trainer = ["transformers/", "Trainer", "run_clm", "run_mlm", "per_device_train_batch_size"]
        .iter()
        .any(|word| mentions(word));
    let mut fixes = match situation.batch() {
        Some(1) => Vec::new(),
        Some(_) => smaller::less_data(situation),
        None if has_trainer => vec![
            Fix::new("lower the batch size per core, and accumulate gradients to keep the effective batch")
                .command("--per_device_train_batch_size 1 --gradient_accumulation_steps 8"),
        ],
        None => vec![Fix::new("lower the batch size per core").command("batch_size=1")],
    };
    if has_trainer {
        fixes.push(
            Fix::new("shard the model across the cores, and recompute activations in the backward pass")
                .command("--fsdp full_shard --fsdp_config '{\"xla\": true, \"xla_fsdp_grad_ckpt\": true}'"),
        );
    } else {
        fixes.push(
            Fix::new("shard the model across the cores, and recompute activations in the backward pass")
                .command("model = XlaFullyShardedDataParallel(checkpoint_module(model), flatten_parameters=True)   (from torch_xla.distributed.fsdp)"),
        );
    }
    fixes
}

/// Unified memory lets a long sequence spill to the host.
const UNIFIED: Lever = Lever::new(
    "let arrays spill to host memory (unified memory)",
    "TF_FORCE_UNIFIED_MEMORY=1 XLA_PYTHON_CLIENT_MEM_FRACTION=4.0",
)
.unless_said(&[
    "bytes unified memory",
    "TF_FORCE_UNIFIED_MEMORY=1",
    "TF_FORCE_UNIFIED_MEMORY'] = '1",
    "TF_FORCE_UNIFIED_MEMORY\"] = \"1",
])
.variable();

const ALPHAFOLD: Program = Program {
    name: "AlphaFold",
    frameworks: &[],
    marks: &["alphafold", "run_docker.py", "openfold"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, ALPHAFOLD_LEVERS),
};

const ALPHAFOLD_LEVERS: &[Lever] = &[
    UNIFIED,
    Lever::new(
        "unified memory is already on, but RAM and GPU memory together are too small for its pool: halve the pool",
        "XLA_PYTHON_CLIENT_MEM_FRACTION=2.0",
    )
    .unless_said(&["MEM_FRACTION=2.0"])
    .only(|situation| situation.settings.mentions("bytes unified memory"))
    .variable(),
    Lever::new(
        "compute attention over the pair representation in smaller chunks",
        "config.model.global_config.subbatch_size = 4",
    )
    .unless_said(&["subbatch_size = 4"]),
    Lever::new("predict one structure per model", "--num_multimer_predictions_per_model=1")
        .unless_said(&["predictions_per_model=1"]),
    Lever::new(
        "split the sequence into domains: memory grows with the square of its length",
        "at most 1200 residues on a GPU with 16 GB",
    ),
];

const COLABFOLD: Program = Program {
    name: "ColabFold",
    frameworks: &[],
    marks: &["colabfold", "predict_structure(", "localcolabfold"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, COLABFOLD_LEVERS),
};

const COLABFOLD_LEVERS: &[Lever] = &[
    Lever::new("use fewer sequences from the alignment", "--max-msa 256:512").unless_said(&[
        "max-msa 256:512",
        "max_msa 256:512",
        "max_msa: 256:512",
    ]),
    UNIFIED,
    Lever::lower(
        "use fewer recycling steps{from}",
        "--num-recycle {to}",
        &["--num-recycle", "num_recycles", "num_recycle"],
        1,
    ),
    Lever::new("predict with one model", "--num-models 1").unless_said(&["num-models 1"]),
    Lever::new(
        "split the sequence: memory grows with the square of its length",
        "at most 1000 residues on a T4 with 16 GB",
    ),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check};
    use super::*;

    const OOM: &str = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9663676416 bytes.";

    #[test]
    fn a_share_that_is_small_already_is_raised() {
        let text = format!("os.environ[\"XLA_PYTHON_CLIENT_MEM_FRACTION\"] = \".20\"\n{OOM}");
        let commands = |cause| -> Vec<String> {
            advice(&text, cause).1.into_iter().filter_map(|fix| fix.command).collect()
        };
        let live = commands(Cause::LiveDataFillsDevice);
        assert!(live.first().is_some_and(|first| first.contains("MEM_FRACTION=.95")), "{live:?}");
        let shared = commands(Cause::OtherProcesses);
        assert!(shared.iter().all(|command| !command.contains("MEM_FRACTION")), "{shared:?}");
    }

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            ("JAX", "epoch 1", "batch_size = 1", ("f = jax.checkpoint(f)", "jax.checkpoint")),
            (
                "AlphaFold",
                r#"  File "/app/alphafold/run_alphafold.py", line 3"#,
                "TF_FORCE_UNIFIED_MEMORY=1",
                ("export TF_FORCE_UNIFIED_MEMORY=1", "TF_FORCE_UNIFIED_MEMORY"),
            ),
            (
                "ColabFold",
                "colabfold_batch in.fasta out",
                "--max-msa 256:512",
                ("colabfold_batch --max-msa 256:512", "--max-msa"),
            ),
        ] {
            check(name, &format!("{line}\n{OOM}"), first, set);
        }
    }

    #[test]
    fn preallocation_that_is_off_is_not_advised() {
        let (_, steps) =
            advice(&format!("XLA_PYTHON_CLIENT_PREALLOCATE=false python a.py\n{OOM}"), Cause::OtherProcesses);
        assert!(
            steps.iter().all(|fix| !fix.command.as_deref().unwrap_or("").contains("PREALLOCATE")),
            "{steps:?}"
        );
    }
}
