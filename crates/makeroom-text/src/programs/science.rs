//! Simulation: LAMMPS, GROMACS, `OpenMM`, AMBER, NAMD, `AMReX`, Kokkos. Memory grows with particles or cells per GPU.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[&LAMMPS, &GROMACS, &OPENMM, &AMBER, &NAMD, &AMREX, &KOKKOS];

/// Ranks that share a GPU each hold their own buffers.
const FEWER_RANKS: Lever = Lever::new(
    "run one rank per GPU: ranks that share a GPU each hold their own buffers",
    "mpirun -np 1 …   (as many ranks as GPUs)",
);

pub(super) const LAMMPS: Program = Program {
    name: "LAMMPS",
    frameworks: &[],
    marks: &[
        "LAMMPS (",
        "lammps/src",
        "lammps/lib",
        "insufficient memory on accelerator",
        "gpu_extra.h",
        "lmp -",
        "lmp_mpi",
        "lmp_kokkos",
        "pair_style",
    ],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, LAMMPS_LEVERS),
};

fn is_kokkos(situation: &Situation<'_>) -> bool {
    situation.settings.mentions("kokkos")
}

const LAMMPS_LEVERS: &[Lever] = &[
    Lever::new(
        "build neighbor lists on the CPU: they take the most memory",
        "lmp -sf gpu -pk gpu 1 neigh no",
    )
    .unless_said(&["neigh no"])
    .only(|situation| !is_kokkos(situation)),
    Lever::new("use half neighbor lists", "lmp -k on g 1 -sf kk -pk kokkos neigh half newton on")
        .unless_said(&["neigh half"])
        .only(is_kokkos),
    Lever::raise(
        "spread the atoms across more GPUs{from}",
        "-pk gpu {to}",
        &["-pk gpu", "package gpu"],
        2,
        8,
    )
    .only(|situation| !is_kokkos(situation)),
    Lever::raise(
        "spread the atoms across more GPUs{from}",
        "mpirun -np {to} lmp -k on g {to} -sf kk",
        &["-k on g"],
        2,
        8,
    )
    .only(is_kokkos),
    Lever::new("compute part of the forces on the CPU", "package gpu 1 split 0.7")
        .unless_said(&["split "])
        .only(|situation| !is_kokkos(situation)),
    Lever::new("use a smaller skin: shorter neighbor lists, rebuilt more often", "neighbor 1.0 bin"),
    Lever::new("compute long-range forces on the CPU", "suffix off\nkspace_style pppm 1.0e-4")
        .only(|situation| situation.settings.mentions("pppm")),
];

const GROMACS: Program = Program {
    name: "GROMACS",
    frameworks: &[],
    marks: &["gromacs", "gmx mdrun", "gmx_mpi", "mdrun"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, GROMACS_LEVERS),
};

const GROMACS_LEVERS: &[Lever] = &[
    Lever::new("compute long-range forces on the CPU", "gmx mdrun -nb gpu -pme cpu -bonded cpu -update cpu")
        .unless_said(&["-pme cpu"]),
    Lever::lower(
        "run fewer ranks per GPU{from}: each holds its own buffers",
        "gmx mdrun -ntmpi {to}",
        &["-ntmpi"],
        1,
    ),
    Lever::new("run one simulation per GPU", "gmx mdrun -gpu_id 1").unless_said(&["-gpu_id"]),
    Lever::new("compute everything on the CPU", "gmx mdrun -nb cpu").unless_said(&["-nb cpu"]),
];

const OPENMM: Program = Program {
    name: "OpenMM",
    frameworks: &[],
    marks: &["openmm", "simtk", "CudaArray", "Error initializing CUDA"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, OPENMM_LEVERS),
};

const OPENMM_LEVERS: &[Lever] = &[
    Lever::new(
        "compute in single precision (half the memory of double precision)",
        "properties = {'Precision': 'single'}",
    )
    .unless_said(&["Precision': 'single'", "Precision\": \"single\""]),
    Lever::new(
        "run PME on the main stream, so that it needs no separate buffers",
        "properties = {'DisablePmeStream': 'true'}",
    )
    .unless_said(&["DisablePmeStream"]),
    Lever::new(
        "delete each Context before creating the next: it holds its memory until it is deleted",
        "del simulation, simulation.context",
    ),
    Lever::new("use an idle GPU", "properties = {'DeviceIndex': '1'}").unless_said(&["DeviceIndex"]),
    Lever::new("use a smaller water box", "modeller.addSolvent(forcefield, padding=1.0*nanometer)"),
];

const AMBER: Program = Program {
    name: "AMBER",
    frameworks: &[],
    marks: &["pmemd.cuda", "pmemd", "gpuMemoryInfo", "cudaMalloc GpuBuffer"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, AMBER_LEVERS),
};

const AMBER_LEVERS: &[Lever] = &[
    Lever::new("use the mixed-precision build", "pmemd.cuda_SPFP").unless_said(&["SPFP"]),
    Lever::new("shorten the cutoff, which sets the size of the neighbor list", "cut=8.0")
        .unless_said(&["cut=8"]),
    Lever::new("use a smaller box or a truncated octahedron (tleap)", "solvateoct mol TIP3PBOX 10.0")
        .unless_said(&["solvateoct"]),
    Lever::new("use an idle GPU", "CUDA_VISIBLE_DEVICES=1").unless_said(&["CUDA_VISIBLE_DEVICES"]).variable(),
];

const NAMD: Program = Program {
    name: "NAMD",
    frameworks: &[],
    marks: &["namd2", "namd3", "NAMD", "CudaTileListKernel", "CudaPme"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::SharedMemoryOrKernelResource => vec![
            Fix::new("split the box into more patches: one has too many atoms").command("twoAwayX yes"),
            Fix::new("shorten the pair list").command("pairlistdist 13.5"),
        ],
        _ => lever::steps(situation, cause, NAMD_LEVERS),
    },
};

const NAMD_LEVERS: &[Lever] = &[
    Lever::new("spread the patches across more GPUs", "namd3 +p8 +devices 0,1").unless_said(&["+devices"]),
    Lever::new("integrate on the CPU: GPU-resident mode keeps all atoms on one GPU", "GPUresident off")
        .only(|situation| situation.settings.is_on(&["CUDASOAintegrate", "GPUresident"])),
    Lever::new("compute PME on the CPU", "usePMECUDA off").unless_said(&["usePMECUDA off"]),
    Lever::lower("run fewer processes per GPU{from}", "+p{to}", &["+p"], 4),
];

const AMREX: Program = Program {
    name: "AMReX",
    frameworks: &[],
    marks: &["amrex", "AMReX_", "warpx"],
    work: Work::Other,
    advise: amrex,
};

fn amrex(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::OtherProcesses | Cause::Preallocation | Cause::HiddenHolder => {
            let size = situation.facts.free.map_or(4_000_000_000, |free| free.scaled(0.8).get());
            vec![
                Fix::new("reserve less at startup (by default, three quarters of the GPU's memory per rank)")
                    .command(format!("amrex.the_arena_init_size={size}")),
                Fix::new("run one rank per GPU").command("mpirun -np 1 …   (as many ranks as GPUs)"),
            ]
        }
        _ => lever::steps(situation, cause, AMREX_LEVERS),
    }
}

const AMREX_LEVERS: &[Lever] = &[
    Lever::new(
        "reserve nothing at startup: ranks that share a GPU each reserve three quarters of its memory",
        "amrex.the_arena_init_size=0",
    )
    .unless_said(&["the_arena_init_size=0", "the_arena_init_size = 0"]),
    FEWER_RANKS,
    Lever::lower(
        "use smaller grids{from}",
        "amr.max_grid_size={to}",
        &["amr.max_grid_size", "max_grid_size"],
        64,
    )
    .at_least(32, 32),
    Lever::new("let arrays spill to the host", "amrex.the_arena_is_managed=1")
        .unless_said(&["the_arena_is_managed=1", "the_arena_is_managed = 1"]),
    Lever::lower("use fewer refinement levels{from}", "amr.max_level={to}", &["amr.max_level"], 0),
];

const KOKKOS: Program = Program {
    name: "the Kokkos program",
    frameworks: &[Framework::Kokkos],
    marks: &["Kokkos::", "Kokkos_", "Kokkos ERROR", "Kokkos failed"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, KOKKOS_LEVERS),
};

const KOKKOS_LEVERS: &[Lever] = &[
    FEWER_RANKS,
    Lever::new(
        "spread the mesh across twice as many GPUs",
        "mpirun -np 2 … --kokkos-map-device-id-by=mpi_rank",
    ),
    Lever::new("let views spill to the host", "Kokkos::View<double*, Kokkos::SharedSpace>")
        .unless_said(&["SharedSpace", "CudaUVM"]),
    Lever::new("free views before the next phase allocates memory", "view = decltype(view)();"),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        let cuda = "CUDA error 2: out of memory";
        for (name, line, first, set) in [
            ("LAMMPS", "LAMMPS (2 Aug 2023)", "neigh no", ("lmp -sf gpu -pk gpu 1 neigh no", "neigh no")),
            (
                "GROMACS",
                ":-) GROMACS - gmx mdrun, 2024.2 (-:",
                "-pme cpu",
                ("gmx mdrun -gpu_id 0", "-gpu_id"),
            ),
            (
                "OpenMM",
                "openmm.OpenMMException: Error creating array savedForces",
                "'Precision': 'single'",
                ("{'DisablePmeStream': 'true'}", "DisablePmeStream"),
            ),
            (
                "AMBER",
                "pmemd.cuda: cudaMalloc GpuBuffer::Allocate failed",
                "pmemd.cuda_SPFP",
                ("&cntrl cut=8.0", "cut=8.0"),
            ),
            (
                "NAMD",
                "Info: NAMD 3.0 for Linux-x86_64-multicore-CUDA",
                "+devices 0,1",
                ("namd3 +devices 0", "+devices"),
            ),
            (
                "AMReX",
                "amrex::Abort::0::CUDA error 2",
                "amrex.the_arena_init_size=0",
                ("amrex.the_arena_is_managed=1", "the_arena_is_managed"),
            ),
            (
                "the Kokkos program",
                "Kokkos failed to allocate memory for label \"x\". Allocation using MemorySpace named \"Cuda\" failed with the following error: Allocation of size 1.5 G failed, likely due to insufficient memory.",
                "one rank per GPU",
                ("Kokkos::SharedSpace", "SharedSpace"),
            ),
        ] {
            check(name, &format!("{line}\n{cuda}"), first, set);
        }
    }

    #[test]
    fn kokkos_lists_are_halved_in_lammps() {
        let (_, steps) = advice(
            "LAMMPS (2 Aug 2023)\nKokkos::Cuda\nCUDA error 2: out of memory",
            Cause::LiveDataFillsDevice,
        );
        assert!(steps[0].command.as_deref().is_some_and(|line| line.contains("neigh half")), "{steps:?}");
    }
}
