//! Things to do that several explanations share, worded once.

use makeroom_core::{Bytes, DeviceIndex, Framework};

use crate::Fix;

/// PyTorch's setting against fragmentation. The older variable name is understood by every version; where both
/// are set it wins.
pub fn expandable_segments() -> Fix {
    Fix::new("turn on expandable segments, so that PyTorch grows a segment instead of splitting it")
        .command("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
}

/// Why returning the cache would not help.
pub fn told_cached(cached: Bytes) -> String {
    if cached == Bytes::ZERO { "nothing is cached".to_owned() } else { format!("only {cached} is cached") }
}

/// Trade time for memory.
pub fn checkpointing() -> Fix {
    Fix::new("recompute activations in the backward pass instead of storing them (gradient checkpointing)")
        .command("model.gradient_checkpointing_enable()")
}

/// Train in half precision.
pub fn half_precision(maker: Maker) -> Fix {
    let device = match maker {
        Maker::Intel => "xpu",
        Maker::Apple => "mps",
        Maker::Nvidia | Maker::Amd => "cuda",
    };
    Fix::new("run the forward pass in 16-bit precision, which halves activation memory")
        .command(format!("with torch.autocast('{device}', dtype=torch.bfloat16): …"))
}

/// Whose GPU it is: the commands differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// NVIDIA; also if the text does not name a vendor.
    #[default]
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// Apple.
    Apple,
}

impl Maker {
    /// The maker of the devices that a framework's format is for.
    pub fn of_framework(framework: Framework) -> Self {
        match framework {
            Framework::PyTorchRocm | Framework::Hip => Self::Amd,
            Framework::PyTorchXpu => Self::Intel,
            Framework::PyTorchMps | Framework::Metal => Self::Apple,
            _ => Self::Nvidia,
        }
    }
}

/// List the processes that hold memory on the GPU.
pub fn list_holders(maker: Maker) -> Fix {
    match maker {
        Maker::Nvidia => Fix::new("list the processes that hold GPU memory, and stop those that are yours")
            .command("makeroom ps"),
        Maker::Amd => Fix::new("list the processes that hold GPU memory, and stop those that are yours")
            .command("rocm-smi --showpids"),
        Maker::Intel => Fix::new("list the processes that hold GPU memory, and stop those that are yours")
            .command("xpu-smi ps"),
        Maker::Apple => Fix::new(
            "close the programs that use the most memory (Activity Monitor, Memory tab): the GPU shares it with them",
        ),
    }
}

/// Look for holders that `nvidia-smi` does not list.
pub fn find_hidden_holders() -> Fix {
    Fix::new("list the processes that have the device open, including those that nvidia-smi does not show")
        .command("sudo fuser -v /dev/nvidia*")
}

/// Use a GPU other than the full one.
pub fn another_device(maker: Maker, full: Option<DeviceIndex>) -> Option<Fix> {
    let variable = match maker {
        Maker::Nvidia => "CUDA_VISIBLE_DEVICES",
        Maker::Amd => "HIP_VISIBLE_DEVICES",
        Maker::Intel => "ZE_AFFINITY_MASK",
        Maker::Apple => return None,
    };
    let other = u32::from(full.is_none_or(|full| full.0 == 0));
    Some(Fix::new("or use another GPU").command(format!("export {variable}={other}")))
}

/// Give another framework's cache back.
pub fn empty_other_cache() -> Fix {
    Fix::new("release the other framework's cache before this one allocates")
        .command("torch.cuda.empty_cache(); cupy.get_default_memory_pool().free_all_blocks()")
}

/// Give PyTorch's cache back before others ask.
pub(crate) fn empty_own_cache() -> Fix {
    Fix::new("release PyTorch's cache before other libraries allocate").command("torch.cuda.empty_cache()")
}

/// One context for all.
pub fn fewer_contexts() -> Fix {
    Fix::new(
        "share the device's primary context between workers, or destroy each context when its work is done",
    )
    .command("cuCtxDestroy(context);   (or cuDevicePrimaryCtxRetain instead of cuCtxCreate)")
}

/// Give back what each step took, in a program without PyTorch.
pub fn leak_without_tensors() -> Fix {
    Fix::new(
        "free every allocation of a step on every path: use an owning type (RAII) in C++ and Rust, and keep no references across steps in Python",
    )
}

/// Stop keeping what each step made.
pub fn leak() -> Vec<Fix> {
    vec![
        Fix::new("accumulate numbers, not tensors: a stored loss keeps its whole graph alive")
            .command("total += loss.item()"),
        Fix::new(
            "look for lists, hooks and caches that hold tensors of past steps, and for retain_graph=True",
        ),
    ]
}

/// Make room for kernels that call malloc.
pub(crate) fn raise_kernel_heap() -> Fix {
    Fix::new("increase the in-kernel heap size before the first launch, or allocate outside kernels")
        .command("cudaDeviceSetLimit(cudaLimitMallocHeapSize, BYTES);")
}

/// For kernels that allocate from a heap whose size the program has set.
pub(crate) fn check_kernel_malloc() -> Fix {
    Fix::new("check in the kernel whether malloc returns NULL: nothing else shows that the heap is full")
}

/// Pinned memory is the machine's, and it has a limit.
pub(crate) fn host_memory_in_pieces() -> Fix {
    Fix::new(
        "copy through one pinned buffer of a few megabytes instead of pinning all the data, and free pinned buffers with cudaFreeHost",
    )
}

/// Wait for frees in stream order.
pub(crate) fn wait_for_streams() -> Fix {
    Fix::new(
        "synchronize before allocating outside the stream-ordered pool, or allocate with cudaMallocAsync too",
    )
    .command("cudaDeviceSynchronize();")
}

/// Free memory that another stream used as soon as it is freed.
pub(crate) fn avoid_record_stream() -> Fix {
    Fix::new(
        "instead of calling record_stream, which delays the free, make the tensor's own stream wait for the stream that uses it, then free the tensor",
    )
    .command("torch.cuda.current_stream().wait_stream(side_stream)")
}

/// Compare allocator settings for a recording.
pub fn tune() -> Fix {
    Fix::new(
        "replay this recording under other allocator settings to find those that reserve the least memory",
    )
    .command("makeroom tune …")
}

/// Who asked for memory is known only with stacks.
pub(crate) fn record_with_stacks() -> Fix {
    Fix::new("record again with stacks, which this recording lacks, to see which lines allocate")
        .command("makeroom run -- …")
}

/// Record everything, whatever framework it is: the recording knows who took what.
pub fn record_run() -> Fix {
    Fix::new("record the program: the recording shows which line allocated what, and explains the failure")
        .command("makeroom run -- PROGRAM …")
}

/// Record a run so that the next failure can be explained by line.
pub fn record_snapshot() -> Fix {
    Fix::new(
        "take a snapshot: call torch.cuda.memory._record_memory_history() at the start and \
         torch.cuda.memory._dump_snapshot('run.pickle') in the exception handler, then",
    )
    .command("makeroom why run.pickle")
}
