//! Simulation, cryo-EM, photogrammetry and other programs with their own wording for device memory.

use makeroom_core::Framework;
use makeroom_explain::Cause::{
    ArtificialLimit, HostMemory, IntegerOrShapeBug, Leak, LiveDataFillsDevice, OtherProcesses, Preallocation,
};

use super::{Phrase, family};

pub(super) const ROWS: &[Phrase] = &[
    Phrase::device(Framework::PyTorch, &["Allocation on device", "Got an OOM"], r"Allocation on device(?: \d+)?(?: would exceed|\W*$)|Got an OOM, unloading"),
    Phrase::device(
        Framework::PyTorch,
        &["valid cuDNN algorithm", "unable to find an engine"],
        r"Unable to find a valid cuDNN algorithm|\b(?:FIND|GET) was unable to find an engine to execute",
    ),
    Phrase::device(
        Framework::Unknown,
        &["maxing out", "maxes out", "maxed out", "vram and", "gpu memory and", "card memory", "video memory and", "vram until", "gpu memory until"],
        r"\b(?:max(?:es|ed|ing)? out|fill(?:s|ed|ing)?(?: up)?|exhaust(?:s|ed|ing)?|eat(?:s|ing)?(?: up)?|us(?:es|ed|ing) (?:up )?all(?: of)?|consum(?:es|ed|ing) all(?: of)?)\b.{0,40}\b(?:vram|(?:gpu|video|graphics?(?: card)?)(?:['’]s)? memory|gpu ram)\b.{0,40}\b(?:crash\w*|dies|died|kill(?:s|ed|ing)?|abort\w*|freez\w*)",
    )
    .unless(r"\b(?:no longer|fix(?:es|ed|ing)?|would|could|might|may|if|without|avoid\w*|prevent\w*|never)\b|n['’]t\b")
    .leads(LiveDataFillsDevice, "According to the log, GPU memory fills up until the program crashes."),
    Phrase::device(
        Framework::Cuda,
        &["PxgCudaDeviceMemoryAllocator"],
        r"PxgCudaDeviceMemoryAllocator fail\w* to allocate memory (?P<request>\d+) bytes",
    ),
    Phrase::device(
        Framework::Jax,
        &["has not been initialized"],
        r"XlaRuntimeError.{0,80}\bcu(?:Solver|BLAS|DNN|FFT|SPARSE) has not been initialized",
    )
    .leads(
        Preallocation,
        "A CUDA library failed to initialize. It allocates outside JAX's pool, and each JAX process reserves 75 % of GPU memory at startup.",
    ),
    Phrase::device(Framework::PyTorch, &["OOM during optimization"], r"OOM during optimization, irrecoverable"),
    Phrase::device(Framework::TensorFlow, &["Dst tensor is not initialized"], r"Dst tensor is not initialized"),
    Phrase::device(Framework::Cuda, &["NvMapMem"], r"NvMapMem\w*: .{0,40}error 12\b"),
    Phrase::device(Framework::Lammps, &["Insufficient memory on accelerator"], r"Insufficient memory on accelerator"),
    Phrase::device(Framework::HeavyDb, &["ERR_OUT_OF_GPU_MEM"], r"ERR_OUT_OF_GPU_MEM"),
    Phrase::device(
        Framework::Lammps,
        &["geryon"],
        r"Cuda driver error 2 in call at file '[^']*geryon|OpenCL error in file '[^']*geryon[^']*' in line \d+ : -(?:4|61)\b",
    ),
    Phrase::host(
        Framework::Gromacs,
        &["cudaMallocHost of size", "allocation of the pinned"],
        r"cudaMallocHost of size (?P<request>\d+) bytes failed",
    )
        .certain(HostMemory, "GROMACS could not allocate pinned host memory. The GPU is not involved."),
    Phrase::device(
        Framework::Gromacs,
        &["of the device buffer failed", "cudaMalloc of size"],
        r"(?:Allocation|Freeing|Reallocation) of the device buffer failed.*(?:MemoryAllocation|out of memory)|cudaMalloc of size (?P<request>\d+) bytes failed",
    ),
    Phrase::device(
        Framework::OpenMm,
        &["Error initializing context", "Error creating CUDA context"],
        r"(?:Error initializing context|Error creating CUDA context):? .*OUT_OF_MEMORY",
    )
        .leads(
            OtherProcesses,
            "The driver had no memory for a context. This process holds nothing yet, so other processes hold the GPU's memory.",
        ),
    Phrase::device(
        Framework::OpenMm,
        &["Error creating array", "Error uploading array"],
        r"Error (?:creating|uploading) array \w+: (?:CUDA_ERROR_OUT_OF_M|clCreateBuffer|hipErrorOutOfMemory|out of memory)",
    ),
    Phrase::device(
        Framework::Amber,
        &["GpuBuffer::Allocate failed", "Allocate failed out of memory"],
        r"(?:cudaMalloc )?(?:Gpu|gpu_)?\w*::?Allocate failed,? out of memory",
    ),
    Phrase::device(
        Framework::Namd,
        &["CUDA error "],
        r"CUDA error (?:cuda)?malloc\b.* on Pe \d+.*out of memory|CUDA error in .*on Pe \d+.*out of memory",
    ),
    Phrase::device(
        Framework::Relion,
        &["CustomAllocator out of memory"],
        r"CustomAllocator out of memory.{0,40}?requestedSpace:\s*(?P<request>\d+) ?(?P<request_unit>B).{0,40}?largestContinuousFreeSpace:\s*(?P<largest>\d+).{0,40}?totalFreeSpace:\s*(?P<cached>\d+)",
    )
    .spanning_lines()
    .leads(
        LiveDataFillsDevice,
        "RELION's GPU pool is full: {request} was requested with {cached} free; the largest free block is {largest}.",
    ),
    Phrase::device(
        Framework::Relion,
        &["CustomAllocator out of memory", "out of memory in /"],
        r"CustomAllocator out of memory|^\W*(?:ERROR: ?)?out of memory in \S*(?:cuda|acc|gpu)\S* at line \d+",
    )
        .near(r"relion|CustomAllocator"),
    Phrase::device(
        Framework::AmRex,
        &["Out of gpu memory. Free:"],
        r"Out of gpu memory\. Free: (?P<free>\d+) Asked: (?P<request>\d+)",
    ),
    Phrase::device(
        Framework::AmRex,
        &["AMReX_Arena", "amrex::Abort"],
        r"CUDA error 2 in file \S*Arena\S*.*out of memory|AMReX_\w*Arena\S* .*out of memory",
    )
        .leads(
            Preallocation,
            "AMReX reserves most of the GPU's memory for its arena when it starts (amrex.the_arena_init_size), and that memory was not free.",
        ),
    Phrase::device(
        Framework::Parsec,
        &["bytes of memory on the GPU device failed"],
        r"Allocating (?P<request>\d+) bytes of memory on the GPU device failed",
    )
        .leads(Preallocation, "PaRSEC reserves most of the GPU's memory when it starts, and {request} was not free."),
    Phrase::device(
        Framework::Jittor,
        &["B Used:"],
        r"Total: (?P<total>[\d.]+) ?(?P<total_unit>[KMGT]B) Used: (?P<used>[\d.]+) ?(?P<used_unit>[KMGT]B)",
    )
    .near(r"GPU memory is overflow")
    .leads(LiveDataFillsDevice, "Jittor uses {used} of a GPU with {total}."),
    Phrase::device(Framework::Jittor, &["GPU memory is overflow"], r"GPU memory is overflow"),
    Phrase::device(
        Framework::CubeCl,
        &["No pool handles allocation of size"],
        r"No pool handles allocation of size (?P<request>\d+)",
    )
        .leads(
            ArtificialLimit,
            "{request} is more than any of CubeCL's pools allows in one allocation (the backend's maximum buffer size).",
        ),
    Phrase::device(
        Framework::Colmap,
        &["Not enough GPU memory to match", "Not enough GPU memory for"],
        r"Not enough GPU memory (?:to match|for) \d+",
    ),
    Phrase::device(
        Framework::PyTorch,
        &["dispatched on the CPU or the disk", "any GPU's remaining memory", "No executable batch size found"],
        r"modules are dispatched on the CPU or the disk|not fit any GPU's remaining memory|No executable batch size found",
    )
    .leads(LiveDataFillsDevice, "The model or its batch does not fit in the GPU memory that Accelerate may use."),
    Phrase::device(
        Framework::Hip,
        &["rocblas_status_memory_error", "miopenStatusAllocFailed", "Hip error creating buffer"],
        r"rocblas_status_memory_error|miopenStatusAllocFailed|Hip error creating buffer(?: (?P<request>\d+))?",
    ),
    // A person reports memory that grows until the program ends.
    Phrase::either(
        Framework::Unknown,
        &["usage goes up", "memory goes up", "memory keeps", "usage keeps", "memory grows", "usage grows", "memory increases", "usage increases", "memory leak", "泄露", "泄漏", "升高"],
        r"\b(?:memory|v?ram)\b.{0,60}\b(?:goes up|keeps? (?:growing|increasing|rising)|grows|increases|climbs)\b.{0,80}\b(?:until|crash\w*|killed)\b|\bthere (?:is|should be|seems to be|must be) (?:a|some) (?:\w+ ){0,2}memory leak|(?:memory|显存|内存).{0,20}(?:升高|增长|泄[露漏]).{0,60}(?:炸|卡掉|爆|崩)",
    )
    .unless(r"(?i)\b(?:fix|no|not|without|avoid|prevent)\w*\b.{0,30}(?:leak|grow|increas)")
    .leads(Leak, "The log says that memory grows until the program ends: something from every step stays alive."),
    Phrase::either(
        Framework::LmStudio,
        &["due to insufficient system resources"],
        r"aborted due to insufficient system resources",
    )
    .possible(
        LiveDataFillsDevice,
        "LM Studio estimated that the model does not fit in this machine's memory and did not load it.",
    ),
    Phrase::device(Framework::Redshift, &["cannot operate with less than"], r"cannot operate with less than .{0,20}of free VRAM"),
    Phrase::device(
        Framework::FluidX3d,
        &["does not have enough memory"],
        r"does not have enough memory\W+Allocating another (?P<request>\d+) (?P<request_unit>MB) would use a total of \d+ MB / (?P<total>\d+) (?P<total_unit>MB)",
    )
    .spanning_lines()
    .leads(LiveDataFillsDevice, "The grid needs {request} more; the GPU has {total}."),
    Phrase::device(
        Framework::Unknown,
        &[" but only ", "but you have", ", but "],
        r"\b(?:requires|needs?|needed|required)\b.{0,24}?(?P<request>\d[\d.]*) ?(?P<request_unit>[GM]i?B) (?:of )?(?:free )?(?:GPU memory|VRAM|video memory|device memory).{0,24}? but (?:only |you have (?:only )?)?(?P<free>\d[\d.]*) ?(?P<free_unit>[GM]i?B)",
    ),
    Phrase::device(
        Framework::PhysX,
        &["PxGpuDynamicsMemoryConfig"],
        r"need to increase PxGpuDynamicsMemoryConfig::(?P<setting>\w+) to (?P<value>\d+)",
    )
    .likely(
        ArtificialLimit,
        "A buffer of the GPU simulation has a fixed size and is full: {setting} must be at least {value}. The GPU's memory is not the limit.",
    ),
    Phrase::device(
        Framework::InvokeAi,
        &["Insufficient GPU memory to load model"],
        r"Insufficient GPU memory to load model",
    ),
    Phrase::device(
        Framework::TritonServer,
        &["Failed to allocate CUDA memory with byte size"],
        r"Failed to allocate CUDA memory with byte size (?P<request>\d+) on GPU (?P<device>\d+)",
    )
    .leads(
        ArtificialLimit,
        "Triton's pool of CUDA memory is full. --cuda-memory-pool-byte-size sets its size (64 MiB by default); the GPU's memory is not the limit.",
    ),
    Phrase::device(
        Framework::Ascend,
        &["rtMalloc", "drvMemAlloc", "EL0004"],
        r"rtMalloc\w*.{0,40}fail|drvMemAlloc\w*.{0,40}fail|EL0004: .*allocate",
    ),
    Phrase::device(
        Framework::MindSpore,
        &["Malloc device memory failed", "memory isn't enough and alloc failed"],
        r"Malloc device memory failed, size\[(?P<request>\d+)\].*?(?:HBM size:(?P<total>\d+) free size:(?P<free>\d+)|$)|memory isn't enough and alloc failed.*?(?:alloc size: (?P<needed>\d+)|$)",
    ),
    Phrase::device(Framework::PyTorch, &["more than 1EB memory"], r"Tried to allocate more than 1EB memory")
        .certain(
            IntegerOrShapeBug,
            "More than 2⁶⁰ bytes were requested. No GPU has that much: a size overflowed or a shape is wrong.",
        ),
    Phrase::device(Framework::PyTorch, &["Invalid buffer size of"], r"Invalid buffer size of -\d+")
        .certain(
            IntegerOrShapeBug,
            "A negative size was requested: a size overflowed or a shape is wrong.",
        ),
];

family!();

#[cfg(test)]
mod tests {
    use makeroom_core::{Bytes, DeviceIndex};
    use makeroom_explain::{Cause, Certainty};

    use crate::facts::Resource;
    use crate::find::facts_in;

    #[test]
    fn memory_that_fills_up_in_a_persons_words() {
        for text in [
            "After a few songs it fills up my GPU memory and the server crashes",
            "long chapters are maxing out the card's 8GB VRAM and crashing the run",
        ] {
            let stated = facts_in(text).unwrap().statements;
            assert_eq!(stated[0].cause, Cause::LiveDataFillsDevice, "{text}");
        }
        for text in [
            "it no longer fills up my GPU memory and crashes",
            "This could fill up the GPU memory and crash the server",
        ] {
            assert!(facts_in(text).is_none(), "{text}");
        }
    }

    #[test]
    fn libraries_and_engines_without_room() {
        let physx = "PxgCudaDeviceMemoryAllocator fail to allocate memory 268435456 bytes!! Result = 2\nPxgCudaMemoryAllocator.cpp (59) : warning : Failed to allocate pinned memory.";
        let facts = facts_in(physx).unwrap();
        assert_eq!((facts.resource, facts.request), (Resource::Device, Some(Bytes::mib(256))));
        let jax = "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: cuBLAS has not been initialized";
        assert_eq!(facts_in(jax).unwrap().statements[0].cause, Cause::Preallocation);
        let ram =
            "After an hour the RAM usage climbs to 100% and the job is killed, the GPU is not the problem";
        assert_eq!(facts_in(ram).unwrap().statements[0].cause, Cause::HostMemory);
    }

    #[test]
    fn programs_that_give_no_figures() {
        for (text, framework) in [
            ("ERROR: Insufficient memory on accelerator (src/GPU/gpu_extra.h:38)", "lammps"),
            (
                "Allocation of the device buffer failed. CUDA error #2 (cudaErrorMemoryAllocation): out of memory.",
                "gromacs",
            ),
            ("openmm.OpenMMException: Error creating array posq: CUDA_ERROR_OUT_OF_MEMORY (2)", "openmm"),
            ("cudaMalloc GpuBuffer::Allocate failed out of memory", "amber"),
            ("FATAL ERROR: CUDA error malloc everything on Pe 3 (node7 device 1): out of memory", "namd"),
            (
                "ERROR: out of memory in /opt/relion/src/acc/cuda/cuda_mem_utils.h at line 12 (error-code 2)",
                "relion",
            ),
            ("RuntimeError: FIND was unable to find an engine to execute this computation", "pytorch"),
            ("ERROR | trainer | OOM during optimization, irrecoverable", "pytorch"),
            ("Cuda driver error 2 in call at file 'lib/gpu/geryon/nvd_memory.h' in line 15.", "lammps"),
            ("OpenCL error in file 'lib/gpu/geryon/ocl_timer.h' in line 15 : -4.", "lammps"),
            ("ERR_OUT_OF_GPU_MEM: the working set of columns does not fit", "heavydb"),
            (
                "ERROR: Not enough GPU memory to match 32768 features. Reduce the maximum number of matches.",
                "colmap",
            ),
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((facts.framework_id(), facts.resource), (framework, Resource::Device), "{text}");
            assert!(facts.statements.is_empty(), "{text}");
        }
    }

    #[test]
    fn pools_that_programs_reserve() {
        let facts = facts_in(
            "amrex::Abort::0::CUDA error 2 in file ../Src/Base/AMReX_Arena.cpp line 12: out of memory !!!",
        )
        .unwrap();
        assert_eq!((facts.framework_id(), facts.statements[0].cause), ("amrex", Cause::Preallocation));
        assert!(facts.statements[0].leads);
        let facts = facts_in("amrex::Abort::3::Out of gpu memory. Free: 1048576 Asked: 4194304 !!!").unwrap();
        assert_eq!((facts.free, facts.request), (Some(Bytes::mib(1)), Some(Bytes::mib(4))));
        let facts = facts_in("W0101 1 memory.cc:212] Failed to allocate CUDA memory with byte size 1048576 on GPU 2: CNMEM_STATUS_OUT_OF_MEMORY").unwrap();
        assert_eq!((facts.device, facts.statements[0].cause), (Some(DeviceIndex(2)), Cause::ArtificialLimit));
    }

    #[test]
    fn needs_are_compared_with_the_card() {
        let facts = facts_in("The model requires 14.5 GB of VRAM but only 11.0 GB is available").unwrap();
        assert_eq!((facts.request, facts.free), (Some(Bytes::mib(14_848)), Some(Bytes::gib(11))));
        let facts = facts_in("Error: Device \"GPU\" does not have enough memory.   |\n|    Allocating another 9000 MB would use a total of 12000 MB / 8000 MB.").unwrap();
        assert_eq!((facts.request, facts.total), (Some(Bytes::mib(9000)), Some(Bytes::mib(8000))));
        let facts = facts_in("RuntimeError: Malloc device memory failed, size[1073741824], ret[207001], Device 0 Available HBM size:34359738368 free size:4194304").unwrap();
        assert_eq!((facts.framework_id(), facts.free), ("mindspore", Some(Bytes::mib(4))));
        let facts = facts_in("PhysX error: the application need to increase PxGpuDynamicsMemoryConfig::foundLostPairsCapacity to 4096").unwrap();
        assert_eq!(facts.statements[0].cause, Cause::ArtificialLimit);
    }

    #[test]
    fn memory_that_grows_until_the_end_is_a_leak() {
        for text in [
            "the ram usage goes up all the time until it crashes",
            "More and more is used, there must be a GPU memory leak",
        ] {
            let stated = &facts_in(text).unwrap_or_else(|| panic!("not read: {text}")).statements[0];
            assert_eq!((stated.cause, stated.leads), (Cause::Leak, true), "{text}");
        }
        assert!(facts_in("This release fixes a memory leak that grows until the crash").is_none());
        assert!(facts_in("memory increases with the batch size").is_none());
    }

    #[test]
    fn relions_pool_is_read_over_several_lines() {
        let facts = facts_in("cudaCustomAllocator out of memory\n [requestedSpace:             8388608 B]\n [largestContinuousFreeSpace: 2097152 B]\n [totalFreeSpace:             4194304 B]").unwrap();
        assert_eq!(
            (facts.framework_id(), facts.request, facts.cached),
            ("relion", Some(Bytes::mib(8)), Some(Bytes::mib(4)))
        );
        assert!(facts.statements[0].summary.contains("the largest free block is 2.00 MiB"));
    }

    #[test]
    fn sizes_that_no_gpu_has() {
        let facts =
            facts_in("RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.").unwrap();
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::IntegerOrShapeBug, Certainty::Certain)
        );
    }

    #[test]
    fn pinned_memory_of_gromacs_is_host_memory() {
        let facts = facts_in("cudaMallocHost of size 1048576 bytes failed: out of memory").unwrap();
        assert_eq!((facts.framework_id(), facts.resource), ("gromacs", Resource::Host));
    }
}
