//! Programs that are known only by the API they allocate through: SYCL, Metal, `DirectML`, Direct3D, OpenGL, Ascend. Advice
//! names the settings of the API's runtime and driver, and the usual ones of programs on it.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Fix};
use makeroom_search::{Regex, pattern};

use super::graphics;
use super::lever::{self, Lever};
use super::{Program, Work};
use crate::environment::System;
use crate::figures::captured_number;
use crate::situation::Situation;
use crate::{knobs, smaller};

pub(super) const FALLBACK: &[&Program] = &[&SYCL, &METAL, &DIRECTML, &DIRECT3D, &ASCEND];

const SYCL: Program = Program {
    name: "the SYCL program",
    frameworks: &[Framework::Sycl],
    marks: &[],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, SYCL_LEVERS),
        _ => lever::steps(situation, cause, SYCL_LEVERS),
    },
};

const SYCL_LEVERS: &[Lever] = &[
    Lever::new(
        "allow single allocations above the driver's default of 4 GB",
        "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1",
    )
    .unless_said(&["RELAXED_ALLOCATION_LIMITS=1"])
    .variable(),
    Lever::new(
        "limit each buffer to the size that the device allows",
        "size_t most = device.get_info<sycl::info::device::max_mem_alloc_size>() / 10 * 9;",
    )
    .unless_said(&["max_mem_alloc_size"]),
    Lever::new("keep data in host memory and migrate it on use", "sycl::malloc_shared<float>(count, queue)")
        .unless_said(&["malloc_shared"]),
];

const METAL: Program = Program {
    name: "the Metal program",
    frameworks: &[Framework::Metal],
    marks: &[],
    work: Work::Other,
    advise: metal,
};

/// The machine's memory, as people write it.
static RAM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(\d{1,3}) ?GB(?: of)?(?: unified| system)? (?:memory|RAM)\b"));
/// RAM that macOS needs for itself, in mebibytes.
const LEFT_TO_MACOS: u64 = 8192;

fn metal(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    if !matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice | Cause::ArtificialLimit) {
        return Vec::new();
    }
    let mut fixes = knobs::steps(situation);
    // No limit on RAM serves a request beyond any machine.
    let is_absurd = situation.facts.request.is_some_and(|request| request > Bytes::gib(512));
    if !situation.settings.mentions("iogpu.wired_limit_mb") && !is_absurd {
        let in_words = || {
            let found = situation.settings.parts().into_iter().find_map(|part| RAM.captures(part))?;
            captured_number::<u64>(&found, 1).map(|gigabytes| gigabytes << 10)
        };
        let ram = situation.facts.total.map(|total| total.get() >> 20).or_else(in_words);
        let ram = ram.filter(|&ram| ram >= 2 * LEFT_TO_MACOS);
        let (machine, limit) = ram
            .map_or(("a 32 GB Mac".to_owned(), 24_576), |ram| ("this Mac".to_owned(), ram - LEFT_TO_MACOS));
        fixes.push(
            Fix::new(format!(
                "raise the share of RAM that the GPU may use: all but 8 GB on {machine} (default about two thirds; resets at reboot)"
            ))
            .command(format!("sudo sysctl iogpu.wired_limit_mb={limit}")),
        );
    }
    if situation.settings.mentions("mlx") {
        fixes.push(Fix::new("release MLX's cache of freed buffers").command("mx.set_cache_limit(0)"));
    }
    fixes.extend(smaller::less_data(situation).into_iter().take(1));
    fixes
}

pub(super) const DIRECTML: Program = Program {
    name: "the DirectML program",
    frameworks: &[Framework::DirectMl],
    marks: &[],
    work: Work::Inference,
    advise: |situation, cause| {
        let is_web_ui = ["webui", "web ui", "stable-diffusion", "--medvram", "--no-half", "sd_"]
            .iter()
            .any(|words| situation.settings.mentions(words));
        let is_torch = ["torch-directml", "torch_directml", "import torch", "self."]
            .iter()
            .any(|words| situation.settings.mentions(words));
        lever::steps(
            situation,
            cause,
            if is_torch && !is_web_ui { TORCH_DIRECTML_LEVERS } else { DIRECTML_LEVERS },
        )
    },
};

const TORCH_DIRECTML_LEVERS: &[Lever] = &[
    Lever::new(
        "update torch-directml: early versions do not free memory between the operations of a step",
        "pip install --upgrade torch-directml",
    ),
    Lever::new(
        "run recurrent layers on the CPU: DirectML keeps all of their time steps on the GPU",
        "x = x.cpu(); x, _ = self.lstm.cpu()(x); x = x.to(torch_directml.device())",
    )
    .only(|situation| ["lstm", "gru", "rnn"].iter().any(|words| situation.settings.mentions(words))),
    Lever::batch("lower the batch size{from}", "DataLoader(dataset, batch_size={to})", &["batch_size"]),
];

const DIRECTML_LEVERS: &[Lever] = &[
    Lever::switch(
        "Stable Diffusion web UI: keep one part of the model on the GPU at a time, and compute attention in chunks",
        "--lowvram --opt-sub-quad-attention",
        &["--lowvram"],
    ),
    Lever::new("drop --no-half and --precision full: they double the model's size", "--upcast-sampling")
        .only(|situation| {
            situation.settings.mentions("--no-half ") || situation.settings.mentions("--precision full")
        }),
    Lever::new("generate at the model's native resolution", "width = 512, height = 512"),
    Lever::new(
        "ONNX Runtime: turn off memory patterns, which DirectML does not support",
        "session_options.enable_mem_pattern = False",
    )
    .only(|situation| situation.settings.mentions("onnx")),
];

pub(super) const DIRECT3D: Program = Program {
    name: "the graphics program",
    frameworks: &[Framework::Direct3d, Framework::OpenGl],
    marks: &[],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, DIRECT3D_LEVERS),
        _ => lever::steps(situation, cause, DIRECT3D_LEVERS),
    },
};

const DIRECT3D_LEVERS: &[Lever] = &[
    Lever::new("lower texture quality in the program's settings by one level", "Textures = Medium")
        .only(graphics::has_texture_settings),
    Lever::new("render at a lower resolution", "Resolution = 1920 x 1080, render scale = 75 %")
        .only(graphics::has_texture_settings),
    graphics::DISCRETE_ON_WINDOWS.only(|situation| situation.environment.system == System::Windows),
    graphics::BROWSER_OFF_GPU,
    Lever::new(
        "enlarge the page file: Windows backs video memory with it (SystemPropertiesPerformance > Advanced > Virtual memory)",
        "Initial size = Maximum size = 32768",
    )
    .only(|situation| situation.environment.system == System::Windows),
];

const ASCEND: Program = Program {
    name: "the Ascend program",
    frameworks: &[Framework::Ascend],
    marks: &[],
    work: Work::Other,
    advise: ascend,
};

fn ascend(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice | Cause::Fragmentation => {
            let mut fixes = Vec::new();
            let is_mindspore =
                ["mindspore", "Ascend kernel runtime"].iter().any(|words| situation.settings.mentions(words));
            if is_mindspore {
                fixes.push(
                    Fix::new("let MindSpore reuse memory between operations (default O0)")
                        .command("mindspore.runtime.set_memory(optimize_level=\"O1\")   (before 2.5: mindspore.set_context(memory_optimize_level=\"O1\"))"),
                );
            } else if !situation.settings.mentions("PYTORCH_NPU_ALLOC_CONF") {
                fixes.push(
                    Fix::new("turn on expandable segments, so that the NPU's cache fragments less")
                        .command("export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"),
                );
            }
            fixes.splice(0..0, smaller::less_data(situation));
            fixes
        }
        Cause::OtherProcesses | Cause::HiddenHolder => vec![
            Fix::new("list the processes on the NPUs, and stop those that are yours").command("npu-smi info"),
            Fix::new("or use another NPU").command("export ASCEND_RT_VISIBLE_DEVICES=1"),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::advice;
    use super::*;

    fn commands(text: &str) -> (&'static str, Vec<String>) {
        let (program, steps) = advice(text, Cause::LiveDataFillsDevice);
        (program.name, steps.into_iter().filter_map(|fix| fix.command).collect())
    }

    #[test]
    fn each_api_has_settings_with_values() {
        for (text, name, first) in [
            (
                "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
                "the SYCL program",
                "export UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1",
            ),
            (
                "Execution of the command buffer was aborted: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
                "the Metal program",
                "sudo sysctl iogpu.wired_limit_mb=24576",
            ),
            (
                "RuntimeError: Could not allocate tensor with 1048576 bytes. There is not enough GPU video memory available!",
                "the DirectML program",
                "--lowvram --opt-sub-quad-attention",
            ),
            (
                "D3D11 device lost: CreateTexture2D failed: E_OUTOFMEMORY",
                "the graphics program",
                "Textures = Medium",
            ),
        ] {
            let (program, steps) = commands(text);
            assert_eq!(program, name, "{text}");
            assert_eq!(steps.first().map(String::as_str), Some(first), "{steps:?}");
        }
    }
}
