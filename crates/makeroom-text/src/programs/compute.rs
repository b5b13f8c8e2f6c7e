//! Programs that call CUDA, HIP or OpenCL themselves: Thrust, `OpenCV`, task runtimes, vGPU layers, plain programs.

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::knobs;
use crate::own_code;
use crate::situation::Situation;

pub(super) const APPLICATIONS: &[&Program] = &[&HAMI, &OPENCV, &PARSEC];
pub(super) const PROGRAMS: &[&Program] = &[&THRUST, &OPENCL];
/// Any program whose CUDA call failed.
pub(super) const FALLBACK: &[&Program] = &[&CUDA];

const THRUST: Program = Program {
    name: "Thrust",
    frameworks: &[Framework::Thrust],
    marks: &["thrust::"],
    work: Work::Other,
    advise: |situation, cause| chunked(situation, cause, THRUST_LEVERS),
};

const THRUST_LEVERS: &[Lever] = &[
    Lever::new(
        "check the free memory before a vector grows: resize() holds both the old and the new copy",
        "cudaMemGetInfo(&free_bytes, &total_bytes); v.reserve(n)",
    )
    .unless_said(&["cudaMemGetInfo"]),
    Lever::new("let vectors spill to the host", "thrust::universal_vector<T> v;")
        .unless_said(&["universal_vector", "managed"]),
    Lever::new(
        "sort and reduce in place with a temporary buffer of your own",
        "thrust::sort(thrust::cuda::par_nosync(allocator), …)",
    ),
];

const OPENCV: Program = Program {
    name: "OpenCV",
    frameworks: &[],
    marks: &["cv::cuda", "cv::gpu", "gpu_mat.cu", "gpumat", "Gpu API call"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, OPENCV_LEVERS),
};

const OPENCV_LEVERS: &[Lever] = &[
    Lever::new(
        "allocate the GpuMats once, outside the loop, and release the rest",
        "frame.upload(image, stream); … ; buffer.release();",
    ),
    Lever::new("scale the images down first", "cv::resize(image, image, cv::Size(), 0.5, 0.5)")
        .unless_said(&["cv::resize("]),
    Lever::new(
        "use fewer pyramid levels and features",
        "cv::cuda::SparsePyrLKOpticalFlow::create(cv::Size(21, 21), 2)",
    )
    .only(|situation| ["flow", "LK", "vins"].iter().any(|words| situation.settings.mentions(words))),
    Lever::new(
        "limit OpenCV's buffer pool to two stacks of 64 MiB",
        "cv::cuda::setBufferPoolConfig(cv::cuda::getDevice(), 1024 * 1024 * 64, 2)",
    )
    .unless_said(&["setBufferPoolConfig"]),
];

const PARSEC: Program = Program {
    name: "PaRSEC",
    frameworks: &[],
    marks: &["PaRSEC", "dplasma", "bytes of memory on the GPU device failed"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::LiveDataFillsDevice
        | Cause::OtherProcesses
        | Cause::Preallocation
        | Cause::RequestExceedsDevice => vec![
            Fix::new("reserve less GPU memory: each PaRSEC process reserves nearly all of it")
                .command("-- --mca device_cuda_memory_use 40"),
            Fix::new("run one process per GPU").command("mpirun --map-by ppr:1:gpu …"),
        ],
        _ => lever::steps(situation, cause, &[]),
    },
};

const HAMI: Program = Program {
    name: "HAMi",
    frameworks: &[Framework::Hami],
    marks: &["HAMi-core", "libvgpu.so", "4pdvGPU", "nvidia.com/gpumem", "libvgpu.c"],
    work: Work::Other,
    advise: |situation, cause| {
        let used = situation.settings.number(&["usage"]).filter(|bytes| (1e8..1e13).contains(bytes));
        let needed = used.map(|bytes| Bytes::new((bytes * 1.2) as u64));
        let raised = situation.facts.limit.map(|limit| limit.scaled(1.5));
        let wanted = needed.max(raised).map_or(16_000, |bytes| bytes.get() >> 20);
        let scaling = situation.settings.number(&["deviceMemoryScaling"]).filter(|&factor| factor > 1.0);
        let update = || {
            Fix::new("update HAMi, then restart the pod: its count of used memory went below zero, which no limit can fix")
                .command("helm repo update && helm upgrade hami hami-charts/hami -n kube-system")
        };
        match cause {
            Cause::ArtificialLimit | Cause::LiveDataFillsDevice | Cause::IntegerOrShapeBug
                if situation.settings.mentions("184467440737") =>
            {
                vec![update()]
            }
            Cause::LiveDataFillsDevice if scaling.is_some() => vec![
                Fix::new(format!(
                    "do not oversubscribe the card's memory: pods share it, and the scaling factor is {}",
                    scaling.unwrap_or_default()
                ))
                .command("helm upgrade hami hami-charts/hami -n kube-system --set devicePlugin.deviceMemoryScaling=1"),
            ],
            Cause::OtherProcesses => vec![
                Fix::new("limit each pod to a share of the card's memory, so that pods do not compete for it")
                    .command("nvidia.com/gpumem-percentage: 50"),
                Fix::new("do not oversubscribe the card's memory").command("devicePlugin.deviceMemoryScaling: 1"),
            ],
            Cause::ArtificialLimit | Cause::LiveDataFillsDevice => vec![
                Fix::new("raise the pod's memory limit").command(format!("nvidia.com/gpumem: {wanted}")),
                Fix::new("or raise the container's own limit, outside Kubernetes")
                    .command(format!("CUDA_DEVICE_MEMORY_LIMIT={wanted}m")),
            ],
            _ => Vec::new(),
        }
    },
};

pub(super) const OPENCL: Program = Program {
    name: "the OpenCL program",
    frameworks: &[Framework::OpenCl],
    marks: &[
        "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        "clCreateBuffer",
        "CL_OUT_OF_RESOURCES",
        "pyopencl",
        "clEnqueue",
        "CL_INVALID_BUFFER_SIZE",
    ],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::LiveDataFillsDevice if !own_code::shows_opencl_source(situation) => {
            let mut fixes = knobs::steps(situation);
            fixes.extend(lever::steps(situation, cause, OPENCL_USER_LEVERS));
            fixes
        }
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, OPENCL_LEVERS),
        _ => lever::steps(situation, cause, OPENCL_LEVERS),
    },
};

fn is_amd(situation: &Situation<'_>) -> bool {
    ["amd", "radeon", "gfx", "rx "].iter().any(|words| situation.settings.mentions(words))
}

/// For users of a program whose source the text does not show.
const OPENCL_USER_LEVERS: &[Lever] = &[
    Lever::new(
        "lift AMD's cap on the size of a single buffer",
        "GPU_MAX_ALLOC_PERCENT=100 GPU_SINGLE_ALLOC_PERCENT=100",
    )
    .unless_said(&["GPU_MAX_ALLOC_PERCENT=100"])
    .only(is_amd)
    .variable(),
    Lever::lower(
        "lower the program's memory limit{from GB}",
        "memory limit: {to} GB",
        &["memory limit", "--memory-limit", "--mem-limit"],
        0,
    ),
    Lever::new(
        "delete kernels that were compiled for another driver: they fail with this status too",
        "rm -rf ~/.nv/ComputeCache cache-opencl*",
    )
    .only(|situation| {
        ["nvidia", "geforce", "rtx", "precompiled", "binary"]
            .iter()
            .any(|words| situation.settings.mentions(words))
    }),
    Lever::new(
        "show the driver's limit for a single buffer: a larger request fails even on an empty GPU",
        "clinfo | grep -iE 'max memory allocation|global memory size'",
    ),
];

const OPENCL_LEVERS: &[Lever] = &[
    Lever::new(
        "split the largest buffer to stay below the driver's cap on a single buffer, often a quarter of the GPU's memory (`clinfo` shows it)",
        "clGetDeviceInfo(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(most), &most, NULL); size_t chunk = most / 10 * 9;",
    ),
    Lever::new(
        "on Intel: build kernels for buffers above 4 GB, and allocate with CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL",
        "clBuildProgram(program, 1, &device, \"-cl-intel-greater-than-4GB-buffer-required\", NULL, NULL);",
    )
    .only(|situation| ["Intel(R)", "Intel Arc", "Arc(TM)", "UHD Graphics"].iter().any(|words| situation.settings.mentions(words))),
    Lever::new("lift AMD's cap on the size of a single buffer", "GPU_MAX_ALLOC_PERCENT=100 GPU_SINGLE_ALLOC_PERCENT=100")
        .unless_said(&["GPU_MAX_ALLOC_PERCENT=100"])
        .only(is_amd)
        .variable(),
    Lever::new("process half as many items per kernel launch", "global_work_size /= 2"),
];

const CUDA: Program = Program {
    name: "the program",
    frameworks: &[Framework::Cuda, Framework::Hip, Framework::Unknown],
    marks: &[],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice
            if own_code::is_own_code(situation.facts) =>
        {
            let mut fixes = ranks(situation, cause);
            fixes.extend(own_code::steps(situation));
            fixes
        }
        _ => Vec::new(),
    },
};

/// Ranks that share a GPU need the sum of their parts.
fn ranks(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let settings = situation.settings;
    let is_slurm = ["srun ", "sbatch", "slurm"].iter().any(|words| settings.mentions(words));
    let is_mpi = is_slurm
        || ["mpirun", "mpiexec", "MPI_", "MPI rank", "Open MPI", "OpenMPI", "MPI process", "[Rank 0]"]
            .iter()
            .any(|words| settings.mentions(words));
    if !is_mpi || cause != Cause::LiveDataFillsDevice {
        return Vec::new();
    }
    let ranks = settings.shown(&["-np", "--np", "-n", "--ntasks", "--ntasks-per-node"]);
    let fewer = ranks.filter(|ranks| ranks.value >= 2.0).map(|ranks| {
        let (from, to) = (ranks.value as u64, ranks.value as u64 / 2);
        Fix::new(format!("run {to} ranks instead of {from}, if several share a GPU: their memory adds up"))
            .command(ranks.with(to))
    });
    let one_each = Fix::new("run one rank per GPU, on twice as many GPUs: each then holds half of the mesh")
        .command(if is_slurm {
            "srun --ntasks-per-gpu=1 --gpus=8 …"
        } else {
            "mpirun -np 8 bash -c 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec ./program'"
        });
    fewer.into_iter().chain([one_each]).collect()
}

/// A table, with chunks in the first place.
fn chunked(situation: &Situation<'_>, cause: Cause, levers: &[Lever]) -> Vec<Fix> {
    let mut fixes = lever::steps(situation, cause, levers);
    if matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice) {
        fixes.insert(
            0,
            Fix::new(
                "process the data in at least 2 chunks, and free each vector before allocating the next",
            )
            .command("v.clear(); v.shrink_to_fit();"),
        );
    }
    fixes
}

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, log, first, set) in [
            (
                "Thrust",
                "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
                "at least 2 chunks",
                ("cudaMemGetInfo(&f, &t)", "cudaMemGetInfo"),
            ),
            (
                "OpenCV",
                "OpenCV(4.9.0) modules/core/src/cuda/gpu_mat.cu:121: error: (-217:Gpu API call) out of memory in function 'allocate'",
                "outside the loop",
                ("cv::resize(a, b)", "cv::resize("),
            ),
            (
                "the OpenCL program",
                "clCreateBuffer(context, …) failed: CL_MEM_OBJECT_ALLOCATION_FAILURE: out of memory on AMD Radeon",
                "MAX_MEM_ALLOC_SIZE",
                ("GPU_MAX_ALLOC_PERCENT=100", "GPU_MAX_ALLOC_PERCENT"),
            ),
        ] {
            check(name, log, first, set);
        }
    }

    #[test]
    fn reserved_cards_and_ranks() {
        let (_, steps) = advice("PaRSEC: CUDA error 2: out of memory", Cause::OtherProcesses);
        assert!(
            steps.iter().any(|fix| fix
                .command
                .as_deref()
                .unwrap_or("")
                .contains("device_cuda_memory_use 40")),
            "{steps:?}"
        );
        let (_, steps) =
            advice("mpirun -np 8 ./solver\nCUDA error 2: out of memory", Cause::LiveDataFillsDevice);
        assert_eq!(steps[0].command.as_deref(), Some("-np 4"));
        assert!(steps[1].action.contains("one rank per GPU"), "{steps:?}");
        let (_, steps) =
            advice("compiled with nvcc\nCUDA error 2: out of memory", Cause::LiveDataFillsDevice);
        assert!(steps.iter().all(|fix| !fix.action.contains("rank")), "{steps:?}");
    }
}
