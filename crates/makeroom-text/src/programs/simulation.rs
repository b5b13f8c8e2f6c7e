//! Simulations on meshes and lattices, structure prediction on PyTorch, renderers and emulators with settings of their own.

use makeroom_explain::Cause;

use super::lever::{self, Lever};
use super::{Program, Work};

pub(super) const PROGRAMS: &[&Program] =
    &[&FLUIDX3D, &QUDA, &GRID, &SPECFEM, &PICONGPU, &BOLTZ, &LUXCORE, &PCSX2, &SWITCH, &DGVOODOO];

const FLUIDX3D: Program = Program {
    name: "FluidX3D",
    frameworks: &[],
    marks: &["FluidX3D"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, FLUIDX3D_LEVERS),
        _ => lever::steps(situation, cause, FLUIDX3D_LEVERS),
    },
};

const FLUIDX3D_LEVERS: &[Lever] = &[
    Lever::new(
        "choose a box that fits: the last argument is the memory in MB (setup.cpp)",
        "const uint3 lbm_N = resolution(float3(1.0f, 2.0f, 0.5f), 2000u);",
    ),
    Lever::new(
        "store populations in 16-bit precision, which nearly halves the memory (defines.hpp)",
        "#define FP16S",
    )
    .unless_said(&["FP16S", "FP16C"]),
    Lever::new("split the box across two GPUs", "LBM lbm(lbm_N, 2u, 1u, 1u, nu);"),
];

const QUDA: Program = Program {
    name: "QUDA",
    frameworks: &[],
    marks: &["QUDA", "quda/"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, QUDA_LEVERS),
};

const QUDA_LEVERS: &[Lever] = &[
    Lever::new(
        "return freed fields to the driver instead of keeping them in a pool",
        "QUDA_ENABLE_DEVICE_MEMORY_POOL=0",
    )
    .unless_said(&["DEVICE_MEMORY_POOL=0"])
    .variable(),
    Lever::new("split the lattice across twice as many GPUs", "--gridsize 1 1 1 2"),
    Lever::new("compress the gauge field: store fewer numbers per link", "--recon 12 --recon-sloppy 8")
        .unless_said(&["--recon "]),
];

const GRID: Program = Program {
    name: "Grid",
    frameworks: &[],
    marks: &["Grid/lattice", "Grid::Lattice", "Test_hmc", "--accelerator-threads", "SharedMemoryMPI"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, GRID_LEVERS),
};

const GRID_LEVERS: &[Lever] = &[
    Lever::lower("cache fewer fields on the device{from MB}", "--device-mem {to}", &["--device-mem"], 4096)
        .at_least(1024, 256),
    Lever::new("split the lattice across twice as many GPUs", "--mpi 1.1.1.2")
        .unless_said(&["--mpi 1.1.1.2"]),
    Lever::lower("reserve smaller communication buffers{from MB}", "--shm {to}", &["--shm"], 1024)
        .at_least(256, 256),
];

const SPECFEM: Program = Program {
    name: "SPECFEM",
    frameworks: &[],
    marks: &["specfem", "xspecfem3D", "xmeshfem3D", "Par_file", "NSPEC_AB"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, SPECFEM_LEVERS),
};

const SPECFEM_LEVERS: &[Lever] = &[
    Lever::raise(
        "cut the mesh into more slices{from}, one per GPU (DATA/Par_file)",
        "NPROC = {to}",
        &["NPROC"],
        4,
        4096,
    ),
    Lever::new(
        "simulate without attenuation, which doubles the arrays (DATA/Par_file)",
        "ATTENUATION = .false.",
    )
    .unless_said(&["ATTENUATION = .false."]),
    Lever::new(
        "run one slice per GPU",
        "mpirun -np 4 bash -c 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec ./bin/xspecfem3D'",
    ),
];

const PICONGPU: Program = Program {
    name: "PIConGPU",
    frameworks: &[],
    marks: &["picongpu", "picongpu/"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, PICONGPU_LEVERS),
};

const PICONGPU_LEVERS: &[Lever] = &[
    Lever::new("spread the box across more GPUs (.cfg)", "TBG_devices_x=1 TBG_devices_y=4 TBG_devices_z=1"),
    Lever::new("simulate a smaller box (.cfg)", "TBG_gridSize=\"128 512 128\""),
    Lever::new(
        "reserve more memory for communication buffers (memory.param)",
        "reservedGpuMemorySize = 1024 * 1024 * 1024",
    ),
];

const BOLTZ: Program = Program {
    name: "Boltz",
    frameworks: &[],
    marks: &["boltz", "chai_lab", "chai-lab", "protenix"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, BOLTZ_LEVERS),
};

const BOLTZ_LEVERS: &[Lever] = &[
    Lever::lower(
        "sample fewer structures{from}",
        "boltz predict … --diffusion_samples {to}",
        &["--diffusion_samples"],
        1,
    )
    .only(|situation| situation.settings.mentions("boltz")),
    Lever::new("sample one structure at a time", "boltz predict … --max_parallel_samples 1")
        .unless_said(&["--max_parallel_samples 1"])
        .only(|situation| situation.settings.mentions("boltz")),
    Lever::new("use fewer recycling steps", "--recycling_steps 1")
        .unless_said(&["--recycling_steps 1"])
        .only(|situation| situation.settings.mentions("boltz")),
    Lever::new("keep idle modules in RAM", "chai-lab fold --low-memory …")
        .unless_said(&["--low-memory"])
        .only(|situation| situation.settings.mentions("chai")),
    Lever::new(
        "let PyTorch's cache use segments that can grow",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    )
    .unless_said(&["expandable_segments:True"])
    .only(|situation| situation.environment.has_expandable_segments())
    .variable(),
];

const LUXCORE: Program = Program {
    name: "LuxCoreRender",
    frameworks: &[],
    marks: &["luxcore", "luxrays"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, LUXCORE_LEVERS),
};

const LUXCORE_LEVERS: &[Lever] = &[
    Lever::new("run the image pipeline on the CPU: Render > Image Pipeline", "film.opencl.enable = 0")
        .unless_said(&["film.opencl.enable = 0", "film.opencl.enable = \"0\""]),
    Lever::new("render at a lower resolution: Output > Resolution", "film.width = 1280, film.height = 720"),
    Lever::new("render on the CPU", "renderengine.type = \"PATHCPU\"").unless_said(&["PATHCPU"]),
];

const PCSX2: Program = Program {
    name: "PCSX2",
    frameworks: &[],
    marks: &["PCSX2", "GS: Memory allocation failure", "emuLog"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::Leak => lever::steps(situation, Cause::LiveDataFillsDevice, PCSX2_LEVERS),
        _ => lever::steps(situation, cause, PCSX2_LEVERS),
    },
};

const PCSX2_LEVERS: &[Lever] = &[
    Lever::new(
        "render at the console's resolution: Settings > Graphics > Rendering",
        "Internal Resolution = Native (PS2)",
    ),
    Lever::new(
        "load textures as they are needed: Settings > Graphics > Texture Replacement",
        "Texture Preloading = Partial",
    ),
    Lever::new("do not keep replacement textures in memory", "Precache Textures = off"),
    Lever::new("or render in software: Settings > Graphics", "Renderer = Software"),
];

const SWITCH: Program = Program {
    name: "the emulator",
    frameworks: &[],
    marks: &["Ryujinx", "yuzu", "suyu", "dolphin-emu", "cemu"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, SWITCH_LEVERS),
};

const SWITCH_LEVERS: &[Lever] = &[
    Lever::new("render at the console's resolution: Settings > Graphics", "Resolution Scale = Native (1x)"),
    Lever::new("use less texture filtering: Settings > Graphics", "Anisotropic Filtering = Auto"),
    Lever::new(
        "recompress textures, if the emulator supports it: Settings > Graphics",
        "Texture Recompression = on",
    ),
];

const DGVOODOO: Program = Program {
    name: "dgVoodoo",
    frameworks: &[],
    marks: &["dgVoodoo"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, DGVOODOO_LEVERS),
        _ => lever::steps(situation, cause, DGVOODOO_LEVERS),
    },
};

const DGVOODOO_LEVERS: &[Lever] = &[
    Lever::new(
        "give the virtual card more memory (in MB, in the [DirectX] section of dgVoodoo.conf)",
        "VRAM = 1024",
    ),
    Lever::new("render at the game's resolution", "Resolution = unforced")
        .unless_said(&["Resolution = unforced"]),
    Lever::new("turn off forced multisampling", "Antialiasing = off").unless_said(&["Antialiasing = off"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            ("FluidX3D", "FluidX3D Version 2.14", "2000u", ("#define FP16S", "FP16S")),
            ("QUDA", "QUDA 1.1.0", "QUDA_ENABLE_DEVICE_MEMORY_POOL=0", ("--recon 12", "--recon")),
            ("Grid", "Test_hmc --device-mem 16000", "--device-mem", ("--mpi 1.1.1.2", "--mpi")),
            ("SPECFEM", "bin/xspecfem3D", "NPROC = 4", ("ATTENUATION = .false.", "ATTENUATION")),
            (
                "Boltz",
                "boltz predict in.yaml",
                "--diffusion_samples 1",
                ("--max_parallel_samples 1", "--max_parallel_samples"),
            ),
            (
                "LuxCoreRender",
                "[LuxCore] renderengine.type = PATHOCL",
                "film.opencl.enable = 0",
                ("renderengine.type = PATHCPU", "PATHCPU"),
            ),
            ("dgVoodoo", "dgVoodoo.conf", "VRAM = 1024", ("Antialiasing = off", "Antialiasing")),
        ] {
            check(name, &torch(line), first, set);
        }
    }
}
