//! Rendering and games: Blender, `OptiX`, Mitsuba, darktable, Vulkan and `WebGPU` programs.

use makeroom_core::Framework;
use makeroom_explain::advice::Maker;
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::environment::System;
use crate::language::Language;
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] =
    &[&BLENDER, &MITSUBA, &OPTIX, &DARKTABLE, &RPCS3, &VKD3D, &DXVK, &UNREAL, &GZDOOM, &RUFFLE, &RESOLVE];
/// Any program on a graphics interface.
pub(super) const LIBRARIES: &[&Program] = &[&WGPU, &VULKAN];

const BLENDER: Program = Program {
    name: "Blender",
    frameworks: &[Framework::Blender],
    marks: &["blender", "intern/cycles", "infinigen"],
    work: Work::Other,
    advise: blender,
};

fn blender(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    // Cycles reports memory where the context is already gone.
    if situation.settings.mentions("Invalid context in cu") && cause == Cause::LiveDataFillsDevice {
        return vec![
            Fix::new("restart Blender: the CUDA context is invalid, which causes the memory errors")
                .command("blender -b FILE.blend -E CYCLES -f 1 -- --cycles-device OPTIX"),
            Fix::new("check that the driver sees a GPU that this Blender version supports")
                .command("nvidia-smi"),
        ];
    }
    let cause = if cause == Cause::HostMemory { Cause::LiveDataFillsDevice } else { cause };
    lever::steps(situation, cause, BLENDER_LEVERS)
}

const BLENDER_LEVERS: &[Lever] = &[
    Lever::new("limit textures to 2048 px: Render Properties > Simplify", "bpy.context.scene.render.use_simplify = True; bpy.context.scene.cycles.texture_limit_render = '2048'").unless_said(&["texture_limit_render"]),
    Lever::new("subdivide less: Render Properties > Simplify", "bpy.context.scene.render.use_simplify = True; bpy.context.scene.render.simplify_subdivision_render = 1").unless_said(&["simplify_subdivision_render"]),
    Lever::new("do not keep the scene between frames: Performance > Persistent Data", "bpy.context.scene.render.use_persistent_data = False").unless_said(&["use_persistent_data = False"]),
    Lever::lower("render in smaller tiles{from}: Performance > Memory", "bpy.context.scene.cycles.use_auto_tile = True; bpy.context.scene.cycles.tile_size = {to}", &["tile_size"], 512).at_least(256, 256),
    Lever::new("use CUDA instead of OptiX, whose BVH is larger", "blender -b FILE.blend -E CYCLES -f 1 -- --cycles-device CUDA").only(|situation| situation.settings.mentions("optix")),
    Lever::new(
        "render on the CPU, which uses the machine's RAM",
        "blender -b FILE.blend -E CYCLES -f 1 -- --cycles-device CPU",
    )
    .only(|situation| !situation.settings.mentions("host memory")),
];

const MITSUBA: Program = Program {
    name: "Mitsuba",
    frameworks: &[Framework::Mitsuba],
    marks: &["mitsuba", "drjit", "enoki", "cuda_malloc_trim"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, MITSUBA_LEVERS),
};

const MITSUBA_LEVERS: &[Lever] = &[
    Lever::lower(
        "render fewer samples at a time{from}, and average several passes",
        "mi.render(scene, spp={to}, seed=i)",
        &["spp", "sample_count", "samples_per_pass"],
        16,
    ),
    Lever::new(
        "split the samples across several passes (Mitsuba 2)",
        "<integer name=\"samples_per_pass\" value=\"8\"/>",
    )
    .unless_said(&["samples_per_pass"]),
    Lever::new(
        "differentiate with path replay, whose memory use does not grow with path depth",
        "mi.load_dict({'type': 'prb'})",
    )
    .unless_said(&["'prb'", "\"prb\""]),
    Lever::new("render a smaller image", "<integer name=\"width\" value=\"512\"/>"),
    Lever::new("release unused memory", "drjit.flush_malloc_cache()").unless_said(&["flush_malloc_cache"]),
];

const OPTIX: Program = Program {
    name: "OptiX",
    frameworks: &[Framework::OptiX],
    marks: &["optixAccel", "OPTIX_ERROR"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, OPTIX_LEVERS),
};

const OPTIX_LEVERS: &[Lever] = &[
    Lever::new(
        "compact the acceleration structures: they shrink to half the size or less",
        "options.buildFlags |= OPTIX_BUILD_FLAG_ALLOW_COMPACTION; optixAccelCompact(…);",
    )
    .unless_said(&["ALLOW_COMPACTION"]),
    Lever::new(
        "prefer small acceleration structures over fast tracing",
        "options.buildFlags &= ~OPTIX_BUILD_FLAG_PREFER_FAST_TRACE;",
    ),
    Lever::new(
        "build one structure at a time and reuse its temporary buffer",
        "cudaFree(temp_buffer) after each optixAccelBuild",
    ),
    Lever::new(
        "instance repeated geometry instead of copying it",
        "OptixInstance per copy, one GAS per mesh",
    ),
];

const DARKTABLE: Program = Program {
    name: "darktable",
    frameworks: &[],
    marks: &["darktable", "[opencl_", "[local laplacian cl]", "[dt_opencl"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::HostMemory => vec![
            Fix::new("use less RAM: preferences > processing").command("darktable resources = small"),
            Fix::new("run fewer threads in the background").command("darktable --conf worker_threads=2"),
        ],
        _ => lever::steps(situation, cause, DARKTABLE_LEVERS),
    },
};

const DARKTABLE_LEVERS: &[Lever] = &[
    Lever::raise(
        "leave more GPU memory free, so that tiling starts earlier (in MB, in darktablerc; per device in 4.0 and later)",
        "opencl_memory_headroom={to}",
        &["opencl_memory_headroom"],
        600,
        1200,
    ),
    Lever::new(
        "use less GPU memory: preferences > processing (4.0 or later)",
        "darktable --conf resourcelevel=small",
    )
    .unless_said(&["as `small'"]),
    Lever::new("turn on memory tuning: preferences > processing", "tune OpenCL performance = memory size")
        .unless_said(&["tune mem: ON"]),
    Lever::new("export on the CPU", "darktable-cli … --core --disable-opencl")
        .unless_said(&["--disable-opencl"]),
];

const RPCS3: Program = Program {
    name: "RPCS3",
    frameworks: &[],
    marks: &["RPCS3", "Emu/RSX"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, RPCS3_LEVERS),
};

const RPCS3_LEVERS: &[Lever] = &[
    Lever::new("render at the console's resolution: Configuration > GPU", "Resolution Scale = 100%")
        .unless_said(&["Resolution Scale: 100"]),
    Lever::new("turn off Write Color Buffers, unless the game needs it", "Write Color Buffers = off")
        .unless_said(&["Write Color Buffers: false"]),
    Lever::new("limit the texture cache", "VRAM allocation limit (MB) = 80 % of the card, in config.yml")
        .unless_said(&["VRAM allocation limit"]),
    Lever::new("use less texture filtering", "Anisotropic Filter = Auto"),
];

const VKD3D: Program = Program {
    name: "vkd3d",
    frameworks: &[],
    marks: &["vkd3d"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::HostMemory => vec![
            Fix::new("keep uploads out of the memory that CPU and GPU share")
                .command("VKD3D_CONFIG=no_upload_hvv %command%"),
        ],
        _ => lever::steps(situation, cause, VKD3D_LEVERS),
    },
};

const VKD3D_LEVERS: &[Lever] = &[
    Lever::new("lower texture quality in the game", "Textures = Low"),
    Lever::new(
        "use the game's Direct3D 11 renderer, if it has one: it needs less memory",
        "LAUNCH OPTIONS: %command% -dx11",
    )
    .unless_said(&["-dx11"]),
    Lever::new("keep upload buffers in system RAM", "VKD3D_CONFIG=no_upload_hvv %command%")
        .unless_said(&["no_upload_hvv"]),
];

const DXVK: Program = Program {
    name: "DXVK",
    frameworks: &[],
    marks: &["DXVK", "d3d9.dll", "DxvkMemoryAllocator", "d8vk", "d9vk"],
    work: Work::Other,
    advise: |situation, cause| {
        match cause {
        Cause::HostMemory => vec![
            Fix::new("unmap textures after use: a 32-bit game runs out of address space, not memory")
                .command("d3d9.textureMemory = 100"),
            Fix::new("let the game use 4 GB of address space: patch it to be large-address aware")
                .command("WINE_LARGE_ADDRESS_AWARE=1"),
        ],
        // A heap with nothing in it is not full: a shared resource could not be opened.
        Cause::LiveDataFillsDevice if situation.settings.mentions("shared_resource") => vec![
            Fix::new("use another version of Wine or Proton: this one cannot share the texture between processes; the heap is not full")
                .command("PROTON_USE_WINED3D=1 %command%   (or Proton-GE in Properties > Compatibility)"),
        ],
        Cause::LiveDataFillsDevice => {
            let mut fixes = reported_memory(situation);
            fixes.extend(lever::steps(situation, cause, DXVK_LEVERS));
            fixes
        }
        _ => lever::steps(situation, cause, DXVK_LEVERS),
    }
    },
};

/// DXVK's caps on the memory that it reports to the game. They help only below what the game has taken; without
/// figures, below the usual size of a card.
fn reported_memory(situation: &Situation<'_>) -> Vec<Fix> {
    /// Memory that a game is to leave free, and the step of the setting, in MB.
    const KEPT: f64 = 0.75;
    const STEP: u64 = 64;
    let facts = situation.facts;
    let most = match (facts.live, facts.total) {
        (Some(live), Some(total)) => Some(live.max(total.scaled(0.5)).scaled(KEPT)),
        (live, total) => total.or(live).map(|bytes| bytes.scaled(KEPT)),
    };
    let megabytes = most.map_or(3072, |most| (most.get() >> 20) / STEP * STEP).max(256);
    let is_old = situation.settings.mentions("d3d9") || situation.settings.mentions("d9vk");
    let (name, what) = if is_old {
        ("d3d9.maxAvailableMemory", "report less memory to the Direct3D 9 game (in MB, in dxvk.conf)")
    } else {
        ("dxgi.maxDeviceMemory", "report less memory to the game (in MB, in dxvk.conf)")
    };
    if situation.settings.mentions(&format!("{name} =")) {
        return Vec::new();
    }
    vec![Fix::new(what).command(format!("{name} = {megabytes}"))]
}

const DXVK_LEVERS: &[Lever] = &[
    Lever::new("lower texture quality in the game", "Textures = Medium"),
    Lever::new("enlarge the memory that the BIOS gives the integrated GPU", "DVMT Pre-Allocated = 512M")
        .only(|situation| situation.environment.maker == Maker::Intel),
    Lever::new("allocate in smaller chunks (DXVK before 2.5, dxvk.conf)", "dxvk.maxChunkSize = 32")
        .unless_said(&["maxChunkSize"]),
];

const UNREAL: Program = Program {
    name: "Unreal Engine",
    frameworks: &[Framework::Unreal],
    marks: &[
        "LogD3D",
        "D3D12RHI",
        "Out of video memory trying to allocate a",
        "UE4Editor",
        "UnrealEditor",
        "VulkanRHI",
    ],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, UNREAL_LEVERS),
};

const UNREAL_LEVERS: &[Lever] = &[
    Lever::lower(
        "use a smaller texture pool{from MB} (Engine.ini, [SystemSettings])",
        "r.Streaming.PoolSize={to}",
        &["r.Streaming.PoolSize"],
        1000,
    )
    .at_least(400, 100),
    Lever::new("limit the pool to the card's memory", "r.Streaming.LimitPoolSizeToVRAM=1")
        .unless_said(&["LimitPoolSizeToVRAM=1"]),
    Lever::new("render at a lower resolution", "r.ScreenPercentage=75").unless_said(&["r.ScreenPercentage"]),
    Lever::new("turn off ray tracing and virtual shadow maps", "r.RayTracing=0, r.Shadow.Virtual.Enable=0")
        .unless_said(&["r.RayTracing=0"]),
];

const GZDOOM: Program = Program {
    name: "GZDoom",
    frameworks: &[],
    marks: &["gzdoom"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, GZDOOM_LEVERS),
};

const GZDOOM_LEVERS: &[Lever] = &[
    Lever::new("render with OpenGL", "gzdoom +vid_preferbackend 0").unless_said(&["vid_preferbackend 0"]),
    Lever::new("do not upscale textures", "gl_texture_hqresize_targets 0")
        .unless_said(&["hqresize_targets 0"]),
];

const RUFFLE: Program = Program {
    name: "Ruffle",
    frameworks: &[],
    marks: &["ruffle"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, RUFFLE_LEVERS),
};

const RUFFLE_LEVERS: &[Lever] = &[
    Lever::new("render at low quality, without multisampling", "ruffle --quality low movie.swf")
        .unless_said(&["--quality low"]),
    Lever::new("use another graphics back end", "ruffle --graphics gl movie.swf")
        .unless_said(&["--graphics gl"]),
    Lever::new("use a smaller window", "ruffle --width 800 --height 600 movie.swf"),
];

const RESOLVE: Program = Program {
    name: "the video editor",
    frameworks: &[],
    marks: &["DaVinci", "Topaz", "Premiere Pro"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, RESOLVE_LEVERS),
};

const RESOLVE_LEVERS: &[Lever] = &[
    Lever::new("edit at half resolution: Playback > Timeline Proxy Mode", "Timeline Proxy Resolution = Half"),
    Lever::new(
        "lower the timeline resolution: Project Settings > Master Settings",
        "Timeline resolution = 1920 x 1080",
    ),
    Lever::new("use less GPU memory in Topaz: Preferences > Processing", "Max memory usage = 50 %")
        .only(|situation| situation.settings.mentions("topaz")),
    Lever::new(
        "turn off noise reduction and optical flow where they are not needed",
        "Temporal NR = 0 frames",
    ),
];

pub(super) const WGPU: Program = Program {
    name: "the WebGPU program",
    frameworks: &[],
    marks: &["wgpu", "GPUOutOfMemoryError", "Device::create_texture", "createTexture(", "webgpu"],
    work: Work::Other,
    advise: |situation, cause| {
        let is_rust = !is_about_textures(situation)
            && (situation.language == Language::Rust
                || ["wgpu-rs", "leak", "every frame", "device.poll"]
                    .iter()
                    .any(|words| situation.settings.mentions(words)));
        lever::steps(situation, cause, if is_rust { WGPU_RUST_LEVERS } else { WGPU_LEVERS })
    },
};

const WGPU_RUST_LEVERS: &[Lever] = &[
    Lever::new(
        "split the buffer that failed into parts of at most 128 MiB, and draw them one after another",
        "for part in vertices.chunks((128 << 20) / std::mem::size_of::<Vertex>()) { device.create_buffer_init(…); }",
    )
    .only(|situation| {
        ["create_buffer", "Vertex Buffer", "Buffer is too"].iter().any(|words| situation.settings.mentions(words))
    }),
    Lever::new(
        "let wgpu free dropped buffers and textures: it does so only when the device is polled",
        "device.poll(wgpu::PollType::Wait)   (up to wgpu 24: wgpu::Maintain::Wait)",
    )
    .unless_said(&["device.poll("]),
    Lever::new(
        "free buffers and textures as soon as they are no longer used",
        "buffer.destroy(); texture.destroy();",
    )
    .unless_said(&[".destroy()"]),
    Lever::new(
        "upload through one buffer instead of creating one per frame",
        "queue.write_buffer(&buffer, 0, bytemuck::cast_slice(&data));",
    )
    .unless_said(&["write_buffer("]),
];

fn is_about_textures(situation: &Situation<'_>) -> bool {
    ["create_texture", "createTexture"].iter().any(|words| situation.settings.mentions(words))
}

const WGPU_LEVERS: &[Lever] = &[
    Lever::new(
        "split the largest buffer into at least 2 parts: the size of a single buffer is capped, often at 2 GiB or less",
        "device.limits.maxBufferSize",
    )
    .only(|situation| !is_about_textures(situation)),
    Lever::new(
        "create a smaller texture: width x height x layers x bytes per pixel must fit",
        "size: [width / 2, height / 2]",
    )
    .only(is_about_textures),
    Lever::new("store pixels in fewer bytes: rgba32 takes 16, rgba8 takes 4", "format: \"rgba8unorm\"")
        .unless_said(&["rgba8unorm"])
        .only(is_about_textures),
    Lever::new("destroy textures and buffers that are no longer used", "texture.destroy()")
        .unless_said(&["texture.destroy()"]),
    Lever::new("try another back end", "WGPU_BACKEND=gl").unless_said(&["WGPU_BACKEND=gl"]).variable(),
];

pub(super) const VULKAN: Program = Program {
    name: "the Vulkan program",
    frameworks: &[],
    marks: &[
        "VK_ERROR_OUT_OF_DEVICE_MEMORY",
        "vkAllocateMemory",
        "ErrorOutOfDeviceMemory",
        "OomError(OutOfDeviceMemory",
        "heaps are exhausted",
        "suitable memory type",
        "vmaAllocateMemory",
        "vmaCreateImage",
        "vmaCreateBuffer",
        "vulkan buffer",
    ],
    work: Work::Other,
    advise: |situation, cause| {
        let shows_source = situation.language == Language::Rust;
        lever::steps(situation, cause, if shows_source { VULKAN_SOURCE_LEVERS } else { VULKAN_LEVERS })
    },
};

/// For the author of a program.
const VULKAN_SOURCE_LEVERS: &[Lever] = &[
    Lever::new(
        "create images with one sample per pixel: each additional sample takes as much memory again",
        "samples: SampleCount::Sample1   (nannou: .msaa_samples(1))",
    ),
    Lever::new("open a smaller window", ".size(1280, 720)"),
    Lever::new(
        "run on the discrete GPU, if the machine has one: an integrated GPU has a small heap",
        "VK_DRIVER_FILES=/usr/share/vulkan/icd.d/nvidia_icd.json",
    )
    .variable(),
];

/// Whether the text shows that the program has settings for textures, as games do.
pub(super) fn has_texture_settings(situation: &Situation<'_>) -> bool {
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    let is_emulator = || says(&["emulat", "PS4", "psOff", "yuzu", "ryujinx"]);
    says(&["texture quality", "texture pool", "CreateTexture", "graphics settings", "Proton", "in-game"])
        || says(&["game", "Steam"]) && !is_emulator()
}

/// The setting that keeps a browser off the GPU.
pub(super) const BROWSER_OFF_GPU: Lever = Lever::new(
    "keep the browser off the GPU while the program runs: it holds up to 1 GB",
    "Chrome, Edge: Settings > System > Use graphics acceleration when available = off",
);
/// The Windows setting that assigns a GPU to a program.
pub(super) const DISCRETE_ON_WINDOWS: Lever = Lever::new(
    "run the program on the discrete GPU, if the machine has two GPUs",
    "Settings > System > Display > Graphics > PROGRAM > Options = High performance",
);

const VULKAN_LEVERS: &[Lever] = &[
    Lever::new(
        "load a smaller model, or its variant with a context of 1024 tokens: weights and KV cache must fit on one GPU",
        "engine.reload(\"Llama-3.2-1B-Instruct-q4f16_1-MLC\", { context_window_size: 1024 })",
    )
    .only(|situation| {
        let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
        says(&["browser", "web-llm", "webllm", "CheckVkOOM"]) && says(&["vicuna", "llama", "-7b", "phi-", "qwen", "mistral", "gemma"])
    }),
    Lever::new("lower texture quality in the program's settings by one level", "Textures = Medium")
        .only(has_texture_settings),
    Lever::new("render at a lower resolution", "Resolution = 1920 x 1080, render scale = 75 %")
        .only(has_texture_settings),
    Lever::new(
        "run on the discrete GPU, if the machine has two GPUs: an integrated one has a small heap",
        "VK_DRIVER_FILES=/usr/share/vulkan/icd.d/nvidia_icd.json",
    )
    .only(|situation| situation.environment.system == System::Linux)
    .variable(),
    DISCRETE_ON_WINDOWS.only(|situation| situation.environment.system == System::Windows),
    BROWSER_OFF_GPU.only(|situation| matches!(situation.environment.system, System::Windows | System::Linux)),
    Lever::new(
        "increase the memory that the BIOS reserves for an integrated GPU",
        "UMA Frame Buffer Size = 4G",
    )
    .only(|situation| {
        ["Vega", "Radeon Graphics", "Iris", "UHD", "integrated"]
            .iter()
            .any(|words| situation.settings.mentions(words))
    }),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        let vulkan = "Vulkan API call failed: VK_ERROR_OUT_OF_DEVICE_MEMORY";
        for (name, log, first, set) in [
            ("Blender", "System is out of GPU memory".to_owned(), "texture_limit_render = '2048'", ("cycles.tile_size = 256", "tile_size")),
            ("Mitsuba", "Caught a critical exception: cuda_malloc(): out of memory!\ncuda_malloc_trim(): freed 168 arrays (6.2381 GiB device memory".to_owned(), "spp=16", ("mi.load_dict({'type': 'prb'})", "prb")),
            ("OptiX", "OPTIX_ERROR_DEVICE_OUT_OF_MEMORY: Device out of memory".to_owned(), "ALLOW_COMPACTION", ("OPTIX_BUILD_FLAG_ALLOW_COMPACTION", "ALLOW_COMPACTION")),
            ("darktable", format!("darktable 4.8\n{vulkan}"), "opencl_memory_headroom=600", ("darktable --disable-opencl", "--disable-opencl")),
            ("RPCS3", format!("RPCS3 v0.0.30\n{vulkan}"), "Resolution Scale", ("Write Color Buffers: false", "Write Color Buffers")),
            ("DXVK", format!("info:  DXVK: v2.3\n{vulkan}"), "dxgi.maxDeviceMemory", ("dxgi.maxDeviceMemory = 2048", "maxDeviceMemory")),
            ("Unreal Engine", format!("LogD3D12RHI: Error\n{vulkan}"), "r.Streaming.PoolSize=1000", ("r.RayTracing=0", "r.RayTracing")),
            ("GZDoom", format!("GZDoom 4.11\n{vulkan}"), "+vid_preferbackend 0", ("gl_texture_hqresize_targets 0", "hqresize")),
            ("Ruffle", format!("ruffle_desktop\n{vulkan}"), "--quality low", ("ruffle --graphics gl", "--graphics gl")),
            ("the video editor", format!("DaVinci Resolve 19, Topaz\n{vulkan}"), "Timeline Proxy", ("", "nothing of the kind")),
            ("the WebGPU program", format!("wgpu error: In Device::create_texture\n{vulkan}"), "smaller texture", ("format: rgba8unorm", "rgba8unorm")),
            ("the Vulkan program", vulkan.to_owned(), "VK_DRIVER_FILES=", ("", "nothing of the kind")),
            ("the Vulkan program", format!("texture quality: ultra\n{vulkan}"), "Textures = Medium", ("", "nothing of the kind")),
            ("the Vulkan program", format!("C:\\tools\\viewer.exe\n{vulkan}"), "High performance", ("", "nothing of the kind")),
        ] {
            if set.0.is_empty() {
                let (program, steps) = advice(&log, Cause::LiveDataFillsDevice);
                assert_eq!(program.name, name);
                assert!(steps[0].action.contains(first) || steps[0].command.as_deref().unwrap_or("").contains(first), "{steps:?}");
            } else {
                check(name, &log, first, set);
            }
        }
    }

    #[test]
    fn an_invalid_context_is_not_about_the_scene() {
        let (_, steps) = advice(
            "Invalid context in cuCtxPopCurrent(NULL) (intern/cycles/device/cuda/util.cpp:31)\nSystem is out of GPU and shared host memory",
            Cause::LiveDataFillsDevice,
        );
        assert!(steps[0].action.contains("restart Blender"), "{steps:?}");
    }
}
