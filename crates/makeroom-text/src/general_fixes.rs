//! The steps for each cause that hold for any program, fitted to the framework or API that wrote the text.

use makeroom_core::{Bytes, Framework};
use makeroom_explain::advice::{self, Maker};
use makeroom_explain::thresholds::CONTEXT_TYPICAL;
use makeroom_explain::{Cause, Fix};

use crate::facts::Resource;
use crate::families::cuda_kernel;
use crate::holders;
use crate::leak_fixes;
use crate::own_code;
use crate::situation::Situation;
use crate::smaller::{self, is_from_pytorch, roughly};
use crate::torch_fixes;

/// Work in more parts than this is a wrong shape rather than a plan.
pub(crate) const MOST_CHUNKS: u64 = 16;
/// Live memory that private pools may be before they are worth a step.
const POOL_SHARE: f64 = 0.5;

/// The steps for a cause.
pub(crate) fn general(cause: Cause, situation: &Situation<'_>) -> Vec<Fix> {
    match cause {
        Cause::Fragmentation => torch_fixes::fragmentation(situation),
        Cause::LiveDataFillsDevice => torch_fixes::live_data(situation),
        Cause::OtherProcesses | Cause::HiddenHolder => holders::others(cause, situation),
        Cause::RequestExceedsDevice => request_too_large(situation),
        Cause::ArtificialLimit => limit(situation),
        Cause::Preallocation => preallocation(situation),
        Cause::NonFrameworkOverhead => overhead(situation),
        Cause::HostMemory => super::host_fixes::steps(situation),
        Cause::SharedMemoryOrKernelResource => kernel(situation),
        Cause::Leak => leak_fixes::steps(situation),
        Cause::IntegerOrShapeBug => shape(situation),
        Cause::CacheHeldByFramework => other_cache(situation),
        Cause::Undetermined | Cause::None => Vec::new(),
    }
}

/// A size that came from a wrong shape or an overflow.
fn shape(situation: &Situation<'_>) -> Vec<Fix> {
    let facts = situation.facts;
    let shown = match facts.framework {
        Framework::Jax | Framework::CuPy => "print(x.shape, x.dtype, x.nbytes)",
        Framework::TensorFlow => "print(x.shape, x.dtype)",
        _ => "print(x.shape, x.dtype, x.numel() * x.element_size())",
    };
    let mut fixes = vec![
        Fix::new(
            "print the shape and data type just before the failing line: an index or a product of sizes overflowed",
        )
        .command(shown),
    ];
    if own_code::is_own_code(facts)
        || matches!(
            facts.framework,
            Framework::Kokkos | Framework::OpenCl | Framework::Vulkan | Framework::Sycl
        )
        || !situation.language.may_be_python()
        || facts.resource == Resource::Host && !situation.language.is_python()
    {
        fixes = vec![
            Fix::new("compute sizes with 64-bit integers: a product of two ints overflows at 2 GiB")
                .command("size_t bytes = static_cast<size_t>(rows) * columns * sizeof(float);"),
        ];
    }
    if ["odm_", "OpenDroneMap", "opendm"].iter().any(|words| situation.settings.mentions(words)) {
        fixes = vec![
            Fix::new("check the extent of the model: a few outlier points or a wrong geo-reference can make the output huge")
                .command("pdal info --summary odm_georeferencing/odm_georeferenced_model.laz"),
            Fix::new("remove outliers and crop the reconstruction").command("--pc-filter 2 --auto-boundary"),
        ];
    }
    if facts.framework == Framework::Jax {
        fixes.push(
            Fix::new("run it once without jit, so that the traceback names the failing line")
                .command(situation.environment.export("JAX_DISABLE_JIT=1")),
        );
    } else if situation.environment.maker == Maker::Nvidia
        && facts.resource != Resource::Host
        && !super::fixes::is_without_cuda(facts)
    {
        fixes.push(
            Fix::new(
                "run it once without asynchronous launches, so that the traceback names the failing call",
            )
            .command(situation.environment.export("CUDA_LAUNCH_BLOCKING=1")),
        );
    }
    fixes
}

/// The other framework in the process keeps a cache.
fn other_cache(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    if settings.mentions("cupy") {
        fixes.push(
            Fix::new("cap CuPy's pool, and release it before PyTorch allocates")
                .command("cupy.get_default_memory_pool().set_limit(fraction=0.3)"),
        );
    }
    if settings.mentions("tensorflow") {
        fixes.push(
            Fix::new("let TensorFlow allocate memory as it needs it")
                .command(situation.environment.export("TF_FORCE_GPU_ALLOW_GROWTH=true")),
        );
    }
    if settings.mentions("jax") {
        fixes.push(
            Fix::new("let JAX allocate memory as it needs it")
                .command(situation.environment.export("XLA_PYTHON_CLIENT_PREALLOCATE=false")),
        );
    }
    fixes.push(advice::empty_other_cache());
    if settings.mentions("torch") {
        fixes.push(
            Fix::new("cap PyTorch's cache, so that it leaves half of the GPU's memory free")
                .command("torch.cuda.set_per_process_memory_fraction(0.5)"),
        );
    }
    fixes
}

/// The arguments of a kernel.
fn parameters(is_julia: bool) -> Vec<Fix> {
    let newer = Fix::new(
        "or compile with CUDA 12.1 or later for compute capability 7.0 or higher, where the limit is 32,764 bytes",
    );
    if is_julia {
        vec![
            Fix::new("put the largest argument into an array on the GPU, and pass the array")
                .command("kernel(CuArray([argument]), …)"),
            newer.command("CUDA.set_runtime_version!(v\"12.4\")"),
        ]
    } else {
        vec![
            Fix::new("copy the largest argument to constant memory, and read it from there")
                .command("__constant__ Params params; cudaMemcpyToSymbol(params, &host, sizeof host);"),
            newer.command("nvcc -arch=sm_70 …"),
        ]
    }
}

/// Registers, shared memory or the heap inside a kernel.
fn kernel(situation: &Situation<'_>) -> Vec<Fix> {
    let facts = situation.facts;
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    if says(&["parameter memory", "parameter space overflowed"]) {
        return parameters(says(&[".jl", "julia", "PTX v"]));
    }
    if facts.framework == Framework::Triton || says(&["triton"]) {
        return triton(situation);
    }
    if says(&["CUDAnative", "CUDAdrv", "CUDA.jl", ".jl:", "julia"]) {
        return vec![
            Fix::new("launch fewer threads per block, each with fewer registers")
                .command("@cuda threads=256 maxregs=64 kernel(…)"),
            Fix::new("or let the driver choose the block size")
                .command("kernel = @cuda launch=false f(…); config = launch_configuration(kernel.fun); kernel(…; threads=config.threads)"),
        ];
    }
    if facts.framework == Framework::Jax || says(&["pallas", "jaxlib", "xla/"]) {
        return vec![
            Fix::new("use smaller blocks in the kernel, and fewer pipeline stages")
                .command("block_q=64, block_k=64, num_stages=1"),
            Fix::new("or let XLA compile the operation without a custom kernel")
                .command(situation.environment.export("XLA_FLAGS=--xla_gpu_enable_triton_gemm=false")),
        ];
    }
    if says(&["MallocHeap", "device-side malloc", "in-kernel", "kernel heap"]) {
        return vec![
            Fix::new("increase the in-kernel heap size before the first launch (default 8 MiB)")
                .command("cudaDeviceSetLimit(cudaLimitMallocHeapSize, 256 << 20);"),
        ];
    }
    if facts.framework == Framework::Numba {
        return vec![
            Fix::new("launch fewer threads per block").command("kernel[(n + 127) // 128, 128](…)"),
            Fix::new("let the compiler use fewer registers").command("@cuda.jit(max_registers=64)"),
        ];
    }
    // A user of a program cannot change its kernels.
    if super::fixes::is_without_cuda(facts) && !situation.program.writes(Framework::OpenCl) {
        let own = super::programs::advise(situation, Cause::LiveDataFillsDevice);
        if !own.is_empty() {
            return own;
        }
    }
    if super::fixes::is_without_cuda(facts) && !own_code::shows_opencl_source(situation) {
        return super::programs::advise(situation, Cause::LiveDataFillsDevice);
    }
    if super::fixes::is_without_cuda(facts) {
        return vec![
            Fix::new("use smaller work groups").command("size_t local_work_size[] = {64};"),
            Fix::new("keep less in local memory: halve the tile").command("#define TILE_SIZE 16"),
        ];
    }
    if let Some((needed, limit)) = static_shared_data(situation) {
        return own_code::smaller_tiles(needed, limit);
    }
    let registers = Fix::new("launch fewer threads per block, or let the compiler use fewer registers")
        .command("nvcc -maxrregcount=64 …   (or __launch_bounds__(256) on the kernel)");
    if !facts.quote.to_ascii_lowercase().contains("shared") {
        return vec![registers];
    }
    let needed = facts.request.filter(|bytes| *bytes <= Bytes::mib(1)).map_or(98_304, Bytes::get);
    vec![
        Fix::new("keep a smaller tile in shared memory: up to 48 KiB per block needs no setting")
            .command("kernel<<<grid, 128, 48 * 1024>>>(…)"),
        Fix::new("allow the kernel more dynamic shared memory, up to the device's limit").command(format!(
            "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, {needed});"
        )),
    ]
}

/// Static shared memory that the compiler rejected, and its limit.
fn static_shared_data(situation: &Situation<'_>) -> Option<(Bytes, Bytes)> {
    let parts = situation.settings.parts();
    parts.into_iter().find_map(cuda_kernel::shared_data)
}

/// A Triton kernel: tiles smaller by what the figures of the text ask for, or heads where a model's size made the tile.
fn triton(situation: &Situation<'_>) -> Vec<Fix> {
    let number = |name: &str| situation.settings.number(&[name]).filter(|&value| value >= 1.0);
    let ratio =
        number("Required").zip(number("Hardware limit")).map_or(2.0, |(needed, limit)| needed / limit);
    // Each halving of a side, and of the stages, halves the tile.
    let halvings = ratio.log2().ceil().clamp(1.0, 4.0) as u32;
    let (rows, columns) = (128 >> halvings.div_ceil(2), 128 >> (halvings / 2));
    let count =
        if halvings == 1 { "once".to_owned() } else { format!("{halvings} times, alternating between them") };
    let tiles = Fix::new(format!(
        "use smaller tiles: the kernel needs {ratio:.1} times the shared memory that a block can have, so halve the BLOCK sizes {count}, and use one stage"
    ))
    .command(format!("triton.Config({{'BLOCK_M': {}, 'BLOCK_N': {}}}, num_stages=1)", rows.max(16), columns.max(16)));
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    let mut fixes = Vec::new();
    if ratio > 2.0
        && says(&["headdim", "head_dim", "model size", "d_state", "chunk_size", "mamba", "attention"])
    {
        fixes.push(
            Fix::new("use more and smaller heads: the tile holds a whole head, and no GPU has enough shared memory for a head of several hundred elements")
                .command("headdim=64   (or 128; d_state=128)"),
        );
    }
    // Options of a kernel are for its author; others choose code that does not use it.
    if says(&["InductorError", "torch/_inductor", "torch\\_inductor", "torch.compile", "inductor"]) {
        fixes.push(
            Fix::new(
                "keep torch.compile from fusing so much into one kernel: run the failing function without it",
            )
            .command("@torch.compiler.disable   (or for all: torch._inductor.config.max_fusion_size = 8)"),
        );
        return fixes;
    }
    let is_author = says(&["@triton.", "tl.load", "triton.Config", "BLOCK_", "num_warps", "tl.dot"]);
    if !is_author && says(&["from_pretrained", "AutoModel", "transformers", "outputs = ", "pipeline("]) {
        fixes.push(
            Fix::new("use PyTorch's attention instead of the model's Triton kernel")
                .command("AutoModel.from_pretrained(…, attn_implementation=\"eager\")"),
        );
        fixes.push(
            Fix::new("or uninstall Triton, if the model falls back to PyTorch without it")
                .command("pip uninstall triton"),
        );
        return fixes;
    }
    if !is_author && says(&["site-packages", "dist-packages"]) {
        fixes.push(
            Fix::new("update Triton and the package that has the kernel: newer versions choose tiles that fit this GPU")
                .command("pip install --upgrade triton PACKAGE"),
        );
    }
    fixes.push(tiles);
    fixes
}

fn request_too_large(situation: &Situation<'_>) -> Vec<Fix> {
    let account = &situation.account;
    let request = account.facts.request.unwrap_or(Bytes::ZERO);
    let room = account.facts.total.map(|total| total - CONTEXT_TYPICAL).filter(|room| !room.is_zero());
    let is_torch = account.facts.framework.is_torch();
    let shape = Fix::new(
        "print the shape of the tensor at the failing line: a request this large often comes from an unintended shape",
    )
    .command("print(x.shape, x.dtype)");
    if own_code::is_own_code(account.facts) {
        return own_code::steps(situation);
    }
    // Half of the memory, because the result needs some too.
    let parts = room
        .filter(|_| !request.is_zero())
        .map(|room| request.get().div_ceil(room.scaled(0.5).get().max(1)).max(2));
    let split = parts.map(|parts| {
        let fix = Fix::new(format!(
            "compute it in {parts} parts of {} each, or spread it across several GPUs",
            roughly(Bytes::new(request.get() / parts))
        ));
        if is_torch {
            fix.command(format!("torch.cat([f(part).cpu() for part in x.chunk({parts})])"))
        } else {
            fix
        }
    });
    let is_python = is_torch
        || [".py", "python", "Traceback", "tensor"].iter().any(|words| situation.settings.mentions(words));
    if !is_python {
        return split.into_iter().chain(smaller::less_data(situation)).collect();
    }
    // A user who did not write the program can give it less, or run it on the CPU.
    let mut around: Vec<Fix> = smaller::smaller_input(situation).into_iter().collect();
    if situation.environment.maker == Maker::Nvidia && situation.batch().is_none() {
        around.push(
            Fix::new("or run it on the CPU, where the machine's memory is the limit")
                .command(situation.environment.export("CUDA_VISIBLE_DEVICES=-1")),
        );
    }
    // Splitting a tensor needs its author.
    let is_library = is_torch && own_code::is_in_a_library(situation);
    if is_library && parts.is_some_and(|parts| parts <= 2 * MOST_CHUNKS) {
        return around;
    }
    let mut fixes = match split {
        Some(split) if parts.is_some_and(|parts| parts <= 2 * MOST_CHUNKS) => vec![split, shape],
        Some(split) => vec![shape, split],
        None => {
            let mut fixes = vec![shape];
            fixes.extend(smaller::less_data(situation));
            fixes
        }
    };
    fixes.extend(around);
    fixes
}

fn limit(situation: &Situation<'_>) -> Vec<Fix> {
    let (account, facts) = (&situation.account, situation.facts);
    let settings = situation.settings;
    if facts.framework.is_torch() {
        let held = account.reserved.or(facts.live).unwrap_or(Bytes::ZERO);
        let needed = facts.request.map(|request| held + request);
        let fraction = match (needed, facts.total) {
            (Some(needed), Some(total)) => (needed.share_of(total) * 1.05).clamp(0.01, 1.0),
            _ => 1.0,
        };
        let mut fix = Fix::new("raise the limit, or remove the call that sets it")
            .command(format!("torch.cuda.set_per_process_memory_fraction({fraction:.2})"));
        fix.frees = match (facts.total, facts.limit) {
            (Some(total), Some(limit)) => Some((total - limit).min(facts.free.unwrap_or(Bytes::MAX))),
            _ => None,
        };
        return vec![fix];
    }
    let mut fixes = Vec::new();
    if ["MIG ", "mig-", "MIG-"].iter().any(|words| settings.mentions(words)) {
        fixes.push(
            Fix::new("use a larger MIG slice: this profile is half of the GPU")
                .command("sudo nvidia-smi mig -cgi 9 -C"),
        );
    }
    let needed = match (facts.limit, facts.request) {
        (Some(limit), Some(request)) if request > limit => Some(request),
        (Some(limit), Some(request)) => Some(limit + request),
        _ => None,
    };
    let value = match (needed, facts.limit) {
        (Some(needed), Some(limit)) => format!(" from {limit} to at least {}", roughly(needed)),
        (None, Some(limit)) => format!(" above {limit}"),
        _ => String::new(),
    };
    fixes.push(Fix::new(format!("raise the limit that the program was given{value}")));
    fixes.extend(smaller::less_data(situation));
    fixes
}

/// A framework took most of the card at its start.
fn preallocation(situation: &Situation<'_>) -> Vec<Fix> {
    let environment = situation.environment;
    let says = |words: &str| situation.settings.mentions(words);
    let mut fixes = Vec::new();
    if situation.facts.framework == Framework::Jax || says("jax") || says("XLA_PYTHON_CLIENT") {
        fixes.push(
            Fix::new("let JAX allocate memory as it needs it")
                .command(environment.export("XLA_PYTHON_CLIENT_PREALLOCATE=false")),
        );
        if situation.settings.number(&["XLA_PYTHON_CLIENT_MEM_FRACTION"]).is_none_or(|share| share > 0.5) {
            fixes.push(
                Fix::new("or let it reserve a smaller share of GPU memory (default .75)")
                    .command(environment.export("XLA_PYTHON_CLIENT_MEM_FRACTION=.50")),
            );
        }
    }
    if situation.facts.framework == Framework::TensorFlow || says("tensorflow") || says("keras") {
        fixes.push(
            Fix::new("let TensorFlow allocate memory as it needs it")
                .command(environment.export("TF_FORCE_GPU_ALLOW_GROWTH=true")),
        );
    }
    if says("vllm") {
        fixes.push(
            Fix::new("give vLLM a smaller share of GPU memory (default 0.9)")
                .command("--gpu-memory-utilization 0.5"),
        );
    }
    if fixes.is_empty() {
        fixes = holders::others(Cause::OtherProcesses, situation);
    }
    fixes
}

fn overhead(situation: &Situation<'_>) -> Vec<Fix> {
    let (account, facts) = (&situation.account, situation.facts);
    let mut fixes = Vec::new();
    if facts.framework == Framework::PyTorchMps {
        fixes.push(torch_fixes::watermark());
        fixes.extend(smaller::less_data(situation));
        return fixes;
    }
    if let Some(pools) =
        facts.private_pools.filter(|pools| pools.share_of(facts.live.unwrap_or(Bytes::MAX)) >= POOL_SHARE)
    {
        fixes.push(
            Fix::new("capture fewer CUDA graphs, or let them share one pool")
                .command("torch.cuda.graph(g, pool=shared_pool)")
                .frees(pools),
        );
    }
    if let Some(overhead) = account.overhead().filter(|&overhead| overhead > CONTEXT_TYPICAL) {
        fixes.push(
            Fix::new("look for a second framework or direct CUDA allocations in this process, and for NCCL buffers")
                .frees(overhead - CONTEXT_TYPICAL),
        );
    }
    let says = |words: &str| situation.settings.mentions(words);
    if says("nccl") {
        fixes.push(
            Fix::new("shrink NCCL's buffers to half of the default 4 MiB per channel")
                .command(situation.environment.export("NCCL_BUFFSIZE=2097152")),
        );
    }
    let is_torch = facts.framework.is_torch() || is_from_pytorch(facts);
    // A small part of the memory is better given up than fought for.
    if let (Some(live), Some(overhead)) = (facts.live, account.overhead())
        && is_torch
        && live.get().saturating_mul(4) < overhead.get()
    {
        fixes.push(
            Fix::new(format!(
                "PyTorch holds only {live} of this process's memory: run its model on the CPU, and leave the GPU to the library that holds the rest"
            ))
            .command("model.to('cpu')   (SentenceTransformer(name, device='cpu'))"),
        );
        if ["gpt4all", "llama_cpp", "llama.cpp", "gguf", "ggml"].iter().any(|words| says(words)) {
            fixes.push(Fix::new("or keep the language model's layers in RAM").command("n_gpu_layers=0"));
        }
    }
    if is_torch || facts.framework == Framework::Nccl && (says("nccl") || says("torch")) {
        fixes.extend(smaller::less_data(situation));
    } else if own_code::is_own_code(facts) {
        fixes.push(advice::fewer_contexts());
        fixes.extend(own_code::steps(situation));
    } else {
        fixes.push(Fix::new("run fewer processes on this GPU: each keeps a context of 300 to 600 MiB"));
        fixes.extend(smaller::less_data(situation));
    }
    fixes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::find;
    use crate::log::Log;

    fn commands(text: &str, cause: Cause) -> String {
        let log = Log::new(text);
        let found = find::failures(&log).unwrap();
        let context = Context::read(&log, found.index);
        let situation = Situation::new(&log, found.index, &found.first, &context);
        let fixes = general(cause, &situation);
        fixes.into_iter().filter_map(|fix| fix.command).collect::<Vec<_>>().join("\n")
    }

    const TORCH: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 20.00 GiB is free.";

    #[test]
    fn a_request_beyond_the_device_is_computed_in_parts() {
        assert!(commands(TORCH, Cause::RequestExceedsDevice).contains("x.chunk(6)"));
    }

    #[test]
    fn a_shape_is_printed_in_the_words_of_the_framework() {
        assert!(commands(TORCH, Cause::IntegerOrShapeBug).contains("x.numel()"));
        let jax =
            "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 281474976710656 bytes.";
        assert_eq!(
            commands(jax, Cause::IntegerOrShapeBug),
            "print(x.shape, x.dtype, x.nbytes)\nexport JAX_DISABLE_JIT=1"
        );
    }

    #[test]
    fn kernels_get_the_settings_of_who_wrote_them() {
        let arguments = "Kernel invocation uses too much parameter memory.\n6.000 KiB exceeds the 4.000 KiB limit imposed by sm_75 / PTX v7.6.";
        assert!(commands(arguments, Cause::SharedMemoryOrKernelResource).contains("CuArray([argument])"));
        let launch = "CUDA error: too many resources requested for launch";
        assert!(commands(launch, Cause::SharedMemoryOrKernelResource).contains("-maxrregcount=64"));
        let pallas = format!("jax/_src/pallas/kernel.py\n{launch}");
        assert!(commands(&pallas, Cause::SharedMemoryOrKernelResource).contains("block_q=64"));
    }

    #[test]
    fn a_leak_is_sought_where_it_is() {
        let native = "leak in solver.cu: every step calls cudaMalloc(&p, n)\nCUDA error: out of memory";
        assert!(commands(native, Cause::Leak).contains("--leak-check full"));
        let training = format!("epoch 3, train.py\n{TORCH}");
        assert!(commands(&training, Cause::Leak).contains("loss.item()"));
    }

    #[test]
    fn another_device_is_not_the_one_in_use() {
        let others = |text: &str| commands(text, Cause::OtherProcesses);
        assert!(others(&format!("trained on 2 GPUs\n{TORCH}")).contains("CUDA_VISIBLE_DEVICES=1"));
        assert!(!others(TORCH).contains("VISIBLE_DEVICES"), "nothing shows a second GPU");
        assert!(
            others(&format!("CUDA_VISIBLE_DEVICES=1 python a.py\n{TORCH}"))
                .contains("CUDA_VISIBLE_DEVICES=0")
        );
        assert!(!others(&format!("C:\\\\Users\\\\me\\\\a.py\n{TORCH}")).contains("VISIBLE_DEVICES"));
    }
}
