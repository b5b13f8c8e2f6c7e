//! Any program on PyTorch that none of the other files knows: training loops and inference.

use makeroom_core::{Bytes, Framework};
use makeroom_explain::advice::Maker;
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::phases::{self, Phase};
use crate::situation::Situation;
use crate::{knobs, smaller, torch_fixes};

pub(super) const APPLICATIONS: &[&Program] = &[&TRANSFORMERS];
pub(super) const PROGRAMS: &[&Program] = &[&PYTORCH];

pub(super) const PYTORCH: Program = Program {
    name: "PyTorch",
    frameworks: &[Framework::PyTorch, Framework::PyTorchRocm, Framework::PyTorchXpu, Framework::PyTorchMps],
    marks: &[
        "torch/nn/modules",
        "torch/_tensor.py",
        "torch/autograd",
        "torch/cuda/",
        "import torch",
        "torch.cuda.",
        "torch.OutOfMemory",
        "torch/hub",
        "TORCH_USE_CUDA_DSA",
        "CUDA kernel errors might be asynchronously",
    ],
    work: Work::Other,
    advise,
};

fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    if cause == Cause::ArtificialLimit {
        return relaxed_limits(situation).into_iter().collect();
    }
    if !matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice) {
        return Vec::new();
    }
    if Phase::from_situation(situation) == Some(Phase::PlaceWeights)
        && situation.environment.maker != Maker::Apple
    {
        return phases::smaller_weights(situation);
    }
    let mut fixes = smaller::less_data(situation);
    if weights_fill_gpu(situation) && !phases::is_in_a_step(situation) {
        fixes.splice(0..0, phases::fewer_weights_on_gpu(situation));
    }
    if situation.settings.mentions("would exceed allowed memory")
        && !situation.settings.configures_allocator("backend:native")
    {
        let variable = situation.environment.allocator_variable();
        let command = situation.environment.export(&format!("{variable}=backend:native"));
        fixes.push(
            Fix::new(
                "use PyTorch's own allocator: the message is from cudaMallocAsync, which ComfyUI turns on",
            )
            .command(format!("{command}   (ComfyUI: python main.py --disable-cuda-malloc --lowvram)")),
        );
    }
    fixes.splice(0..0, relaxed_limits(situation).into_iter().chain(larger_frame_buffer(situation)));
    if situation.is_training() {
        fixes.extend(torch_fixes::training_steps(situation));
        fixes.extend(knobs::steps(situation));
    } else if situation.is_inference() {
        fixes.extend(knobs::steps(situation));
        fixes.extend(lever::steps(situation, cause, INFERENCE_LEVERS));
    } else {
        fixes.extend(lever::steps(situation, cause, OPEN_LEVERS));
        fixes.extend(smaller::spill(situation));
    }
    fixes
}

/// Level Zero caps one allocation, whatever is free.
fn relaxed_limits(situation: &Situation<'_>) -> Option<Fix> {
    let is_capped = situation.environment.maker == Maker::Intel
        && situation.facts.request.is_some_and(|request| request >= Bytes::gib(4))
        && !situation.settings.mentions("RELAXED_ALLOCATION_LIMITS=1");
    is_capped.then(|| {
        Fix::new("allow single allocations above the driver's default of 4 GB")
            .command(situation.environment.export("UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1"))
    })
}

/// The part of the machine's memory that the firmware gives to AMD's integrated GPUs.
fn larger_frame_buffer(situation: &Situation<'_>) -> Option<Fix> {
    /// No discrete card that ROCm runs on has less.
    const LARGEST_INTEGRATED: Bytes = Bytes::gib(3);
    let total = situation.facts.total.filter(|&total| total <= LARGEST_INTEGRATED)?;
    let larger = (total.get().div_ceil(1 << 30) * 4).next_power_of_two().max(4);
    (situation.environment.maker == Maker::Amd).then(|| {
        Fix::new(format!(
            "increase the memory that the BIOS reserves for the integrated GPU, now {total} (UMA frame buffer size)"
        ))
        .command(format!("UMA Frame Buffer Size = {larger}G"))
    })
}

/// Where nothing shows whether the program trains.
const OPEN_LEVERS: &[Lever] = &[
    Lever::new(
        "for training: set the batch size to 1, double it while it fits, and accumulate gradients to keep the effective batch",
        "DataLoader(dataset, batch_size=1)",
    )
    .only(|situation| {
        situation.batch().is_none() && !smaller::has_batches(situation) && !generates(situation)
    }),
    Lever::new(
        "for inference only: turn off gradients and run in 16-bit precision",
        "with torch.inference_mode(), torch.autocast('cuda', dtype=torch.float16): …",
    )
    .unless_said(&["inference_mode", "no_grad", "autocast", "float16", ".half()", "fp16"])
    .only(|situation| matches!(situation.environment.maker, Maker::Nvidia | Maker::Amd)),
    Lever::new("for inference only: turn off gradients (PyTorch 0.4 and later)", "with torch.no_grad(): …")
        .unless_said(&["inference_mode", "no_grad"])
        .only(is_early_torch),
    Lever::new("for inference only: turn off gradients", "with torch.inference_mode(): …")
        .unless_said(&["inference_mode", "no_grad"])
        .only(|situation| {
            !matches!(situation.environment.maker, Maker::Nvidia | Maker::Amd)
                || ["autocast", "float16", ".half()", "fp16"]
                    .iter()
                    .any(|words| situation.settings.mentions(words))
        }),
    Lever::new(
        "for training: recompute activations instead of keeping them",
        "model.gradient_checkpointing_enable()   (or torch.utils.checkpoint.checkpoint(block, x))",
    )
    .unless_said(&["checkpoint("])
    .only(|situation| situation.settings.mentions("train")),
];

fn is_early_torch(situation: &Situation<'_>) -> bool {
    situation.is_early_torch()
}

/// Whether the program makes images, sound or text for its user.
fn generates(situation: &Situation<'_>) -> bool {
    const WORDS: [&str; 11] = [
        "gradio",
        "webui",
        "web ui",
        "diffusion",
        "upscal",
        "comfy",
        "inpaint",
        "txt2img",
        "whisper",
        "transcri",
        "chatbot",
    ];
    WORDS.iter().any(|words| situation.settings.mentions(words))
}

/// Whether weights of some size fill the GPU to the last: activations would leave more of it.
fn weights_fill_gpu(situation: &Situation<'_>) -> bool {
    let facts = situation.facts;
    matches!((facts.live, facts.total), (Some(live), Some(total)) if total >= Bytes::gib(12) && live.share_of(total) >= FULL_OF_WEIGHTS)
        && facts.request.is_some_and(|request| request <= Bytes::mib(256))
}

/// A model that loads layer by layer fails with this share of the GPU in use.
const FULL_OF_WEIGHTS: f64 = 0.96;

const INFERENCE_LEVERS: &[Lever] = &[
    Lever::new("turn off gradients, so that no activations are kept", "with torch.inference_mode(): …")
        .unless_said(&["inference_mode", "no_grad"]),
    Lever::new("load the weights in 16-bit precision", "model.half()")
        .unless_said(&[".half()", "float16", "bfloat16", "fp16", "autocast"]),
    Lever::new(
        "process the input in parts and move each result to the CPU",
        "torch.cat([model(part).cpu() for part in x.split(1)])",
    ),
];

const TRANSFORMERS: Program = Program {
    name: "Transformers",
    frameworks: &[],
    marks: &[
        "transformers/models",
        "transformers/generation",
        "transformers/modeling_utils",
        "AutoModelFor",
        "model.generate(",
        "transformers_modules",
        "transformers/pipelines",
    ],
    work: Work::Other,
    advise: transformers,
};

fn transformers(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let says = |words: &str| situation.settings.mentions(words);
    if !says("torch") && (says("modeling_flax_") || says("FlaxAuto")) {
        return lever::steps(situation, cause, FLAX_LEVERS);
    }
    if !says("torch") && says("modeling_tf_") {
        return super::tensorflow::tensorflow(situation, cause);
    }
    if situation.is_training() {
        return advise(situation, cause);
    }
    let mut fixes = lever::steps(situation, cause, TRANSFORMERS_LEVERS);
    // Weights get what activations and the KV cache leave of the card.
    let cap =
        situation.facts.total.map(|total| total.scaled(WEIGHTS_SHARE).get() >> 30).filter(|&cap| cap >= 1);
    if let Some(cap) =
        cap.filter(|_| cause == Cause::LiveDataFillsDevice && !situation.settings.mentions("max_memory"))
    {
        let is_mapped = situation.settings.mentions("device_map=\"auto\"")
            || situation.settings.mentions("device_map='auto'");
        let map = if is_mapped { "" } else { "device_map=\"auto\", " };
        fixes.retain(|fix| !fix.command.as_deref().is_some_and(|command| command.contains("device_map")));
        fixes.insert(
            fixes.len().min(1),
            Fix::new(format!("keep {cap} GiB of the weights on the GPU and the rest in RAM")).command(
                format!("from_pretrained(…, {map}max_memory={{0: \"{cap}GiB\", \"cpu\": \"64GiB\"}})"),
            ),
        );
    }
    fixes
}

/// The part of a GPU that weights may take.
const WEIGHTS_SHARE: f64 = 0.75;

/// Transformers' models on JAX, which load without PyTorch's options.
const FLAX_LEVERS: &[Lever] = &[
    Lever::new(
        "load the weights without initializing a second copy of them, and compute in 16-bit precision",
        "model, params = FlaxAutoModelForCausalLM.from_pretrained(name, dtype=jax.numpy.bfloat16, _do_init=False)",
    )
    .unless_said(&["_do_init=False"]),
    Lever::new("convert the weights to 16-bit precision (half the size)", "params = model.to_bf16(params)")
        .unless_said(&["to_bf16", "to_fp16"]),
    Lever::new(
        "create the weights in RAM, and move them to the device once they are converted",
        "with jax.default_device(jax.devices('cpu')[0]): model, params = …",
    )
    .unless_said(&["devices('cpu')", "devices(\"cpu\")"]),
];

const TRANSFORMERS_LEVERS: &[Lever] = &[
    Lever::new(
        "load the weights in 4-bit precision (a quarter of the 16-bit size)",
        "from_pretrained(…, quantization_config=BitsAndBytesConfig(load_in_4bit=True))",
    )
    .unless_said(&["load_in_4bit", "gptq", "awq", "4bit"])
    .only(|situation| situation.environment.maker == Maker::Nvidia),
    Lever::new("load the weights in 16-bit precision", "from_pretrained(…, torch_dtype=torch.bfloat16)")
        .unless_said(&["float16", "load_in_4bit", "load_in_8bit", "gptq", "awq", "4bit", ".half()"]),
    Lever::new(
        "move the layers that do not fit to other GPUs or the CPU",
        "from_pretrained(…, device_map=\"auto\")",
    )
    .unless_said(&["device_map=\"auto\"", "device_map='auto'", "accelerate/hooks.py"]),
    Lever::lower(
        "generate fewer tokens{from}: the KV cache grows with each token",
        "model.generate(…, max_new_tokens={to})",
        &["max_new_tokens", "max_length"],
        512,
    )
    .at_least(64, 64)
    .only(|situation| situation.settings.mentions("generat")),
    Lever::lower("use fewer beams{from}: each has its own KV cache", "num_beams={to}", &["num_beams"], 0),
    Lever::batch("pass fewer inputs at a time{from}", "batch_size={to}", &["batch_size"])
        .only(|situation| situation.batch().is_some()),
    Lever::new(
        "use an attention kernel that does not store the attention matrix",
        "from_pretrained(…, attn_implementation=\"sdpa\")",
    )
    .unless_said(&["flash_attention_2", "attn_implementation=\"sdpa\"", "sdpa_attention"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check, torch};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "Transformers",
                "model.generate(input_ids, max_new_tokens=2048)",
                "load_in_4bit",
                ("device_map=\"auto\"", "device_map"),
            ),
            (
                "PyTorch",
                "python train.py --batch_size 16",
                "from 16 to",
                ("loss.backward() under autocast", "torch.autocast"),
            ),
            (
                "PyTorch",
                "python demo.py: inference on 4 images, batch_size=4",
                "batch_size=3",
                ("model.half()", "model.half()"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    #[test]
    fn training_and_inference_differ() {
        let commands =
            |text: &str| -> String { format!("{:?}", advice(&torch(text), Cause::LiveDataFillsDevice).1) };
        assert!(commands("python train.py --crop_size 512").contains("--crop_size 3"));
        assert!(commands("python train.py").contains("checkpoint.checkpoint("));
        assert!(!commands("python demo.py inference").contains("gradient_checkpointing"));
    }
}
