//! Steps for programs that call CUDA or HIP themselves: buffers that fit what is free, pools, managed memory.

use makeroom_core::{Bytes, Framework};
use makeroom_explain::Fix;
use makeroom_explain::advice::Maker;
use makeroom_explain::thresholds::CONTEXT_TYPICAL;

use crate::environment::System;
use crate::facts::{Facts, Resource};
use crate::knobs;
use crate::situation::Situation;
use crate::smaller::{is_from_pytorch, roughly, without_a_change};

/// Free memory that buffers may take: the driver rounds, and other allocations follow.
const USABLE: f64 = 0.9;

/// Buffers that fit what is free, in a program that calls the driver itself.
pub(crate) fn smaller_buffers(situation: &Situation<'_>) -> Fix {
    let facts = situation.facts;
    let at = facts.site.as_deref().map_or(String::new(), |site| format!("at {site}: "));
    let room = facts
        .free
        .filter(|_| !situation.account.is_contradictory())
        .or_else(|| facts.total.map(|total| total - CONTEXT_TYPICAL))
        .map(|room| room.scaled(USABLE));
    if let (Some(room), Some(request)) = (room.filter(|&room| room >= Bytes::mib(64)), facts.request) {
        let chunks = request.get().div_ceil(room.get()).max(2);
        let chunk = Bytes::new(request.get().div_ceil(chunks));
        let mib = (chunk.get() >> 20).max(1);
        return Fix::new(format!(
            "{at}process the data in {chunks} chunks of {} instead of {request} at once",
            roughly(chunk)
        ))
        .command(format!("size_t chunk_bytes = {mib}ull << 20;"));
    }
    let query = match situation.environment.maker {
        Maker::Amd => "hipMemGetInfo(&free_bytes, &total_bytes); size_t chunk_bytes = free_bytes / 10 * 9;",
        _ => "cudaMemGetInfo(&free_bytes, &total_bytes); size_t chunk_bytes = free_bytes / 10 * 9;",
    };
    Fix::new(format!(
        "{at}size the buffers to 90 % of the free memory, and process the rest in additional chunks"
    ))
    .command(query)
}

/// The most shared memory that a block can have on any GPU so far: 227 KiB on Hopper and Blackwell.
const LARGEST_SHARED: Bytes = Bytes::kib(227);

/// A kernel whose arrays in shared memory the compiler rejects: their size is fixed in the source, so no launch
/// setting changes it.
pub(crate) fn smaller_tiles(needed: Bytes, limit: Bytes) -> Vec<Fix> {
    let halvings = (needed.get() as f64 / limit.get().max(1) as f64).log2().ceil().clamp(1.0, 8.0) as u32;
    let parts = 1_u32 << halvings;
    let mut fixes = vec![
        Fix::new(format!(
            "make the kernel's __shared__ arrays {parts} times smaller: {needed} must shrink to {limit} (use a smaller tile, fewer items per thread, or a smaller element type)"
        ))
        .command(format!("__shared__ float tile[TILE / {parts}][TILE];   (CUB, Thrust: ITEMS_PER_THREAD / {parts}, or a smaller value type)")),
    ];
    if needed <= LARGEST_SHARED {
        fixes.push(
            Fix::new("or allocate them dynamically, on a GPU that allows this much per block (96 KiB on compute capability 7.0, 99 KiB on 8.6 and 8.9, 163 KiB on 8.0, 227 KiB on 9.0)")
                .command(format!(
                    "extern __shared__ float tile[]; cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, {}); kernel<<<grid, block, {}>>>(…);",
                    needed.get(),
                    needed.get()
                )),
        );
    }
    fixes
}

/// Whether the text shows the source of a program that calls the driver, so that its reader can change it.
pub(crate) fn shows_source(situation: &Situation<'_>) -> bool {
    let says = |marks: &[&str]| marks.iter().any(|mark| situation.settings.mentions(mark));
    // Programs also print the file and line of their checks to users; a bare file name with the call is the author's.
    let is_authors_check = || {
        let is_bare = situation.facts.site.as_deref().is_some_and(|site| !site.contains(['/', '\\']));
        is_bare && says(&["cudaMalloc", "cuMemAlloc", "hipMalloc"])
    };
    let has_source = says(&[
        "cudaMalloc(",
        "cudaMallocAsync",
        "cudaMallocManaged",
        "cuMemAlloc(",
        "cuMemCreate(",
        "hipMalloc(",
        "hipMallocAsync",
        "nvcc",
        "<<<",
        "int main",
        "__global__",
        "#include",
    ]);
    !is_in_a_library(situation) && (has_source || is_authors_check())
}

/// Whether the text shows the source of a program that calls OpenCL.
pub(crate) fn shows_opencl_source(situation: &Situation<'_>) -> bool {
    [
        "clCreateBuffer",
        "pyopencl",
        "sycl",
        "futhark",
        "cl::Buffer",
        "clSetKernelArg",
        "__kernel",
        "cl.Buffer(",
        ".cl:",
        "local_work_size",
        "global_work_size",
        "int main",
    ]
    .iter()
    .any(|mark| situation.settings.mentions(mark))
}

/// Whether the failing line is in the source of a library, which the reader of the text did not write.
pub(crate) fn is_in_a_library(situation: &Situation<'_>) -> bool {
    const LIBRARIES: [&str; 10] = [
        "pip-req-build",
        "site-packages",
        "dist-packages",
        "pytorch/",
        "caffe2/",
        "third_party/",
        "feedstock_root",
        "tiny-cuda-nn",
        "/root/.cargo/",
        "Traceback (most recent call last)",
    ];
    LIBRARIES.iter().any(|words| situation.settings.mentions(words))
}

/// Decoding on the CPU, if the GPU's decoder could not be opened.
fn software_decoder(situation: &Situation<'_>) -> Option<Fix> {
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    says(&["cuvid", "nvdec"]).then(|| {
        let command = if says(&["ffmpeg", "_cuvid", "hwaccel"]) { "ffmpeg -hwaccel none -i …" } else { "--avsw" };
        Fix::new("decode on the CPU and leave the GPU to the encoder: the GPU's decoder also rejects formats and sizes that it does not support")
            .command(command)
    })
}

/// What else a program can do that calls CUDA or HIP itself.
pub(crate) fn steps(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    if !shows_source(situation) {
        let mut fixes = knobs::steps(situation);
        if let Some((device, free)) = situation.emptier_device() {
            fixes.push(
                Fix::new(format!("run it on GPU {device}, which has {free} free"))
                    .command(situation.environment.export(&format!("CUDA_VISIBLE_DEVICES={device}"))),
            );
        }
        fixes.extend(software_decoder(situation));
        fixes.extend(without_a_change(situation));
        let variable = if situation.environment.maker == Maker::Amd { "HIP" } else { "CUDA" };
        let lead = if fixes.is_empty() { "run" } else { "or run" };
        fixes.push(
            Fix::new(format!("{lead} it on the CPU, if the program supports this"))
                .command(situation.environment.export(&format!("{variable}_VISIBLE_DEVICES=-1"))),
        );
        return fixes;
    }
    let mut fixes = Vec::new();
    if ["cudaMallocHost", "cudaHostAlloc", "cuMemHostAlloc", "hipHostMalloc"]
        .iter()
        .any(|call| settings.mentions(call))
    {
        fixes.push(
            Fix::new(
                "the call allocates pinned host memory: copy through one pinned buffer of 64 MiB instead",
            )
            .command("cudaMallocHost(&staging, 64 << 20);"),
        );
    }
    fixes.push(smaller_buffers(situation));
    let is_hip = situation.environment.maker == Maker::Amd;
    if settings.mentions("MallocAsync") {
        fixes.push(
            Fix::new("return the memory that the stream-ordered pool keeps after frees").command(if is_hip {
                "hipMemPoolTrimTo(pool, 0);"
            } else {
                "cudaMemPoolTrimTo(pool, 0);"
            }),
        );
    }
    // Managed memory goes beyond the GPU on Linux only.
    if situation.environment.system == System::Linux
        && !["cudaMallocManaged", "hipMallocManaged", "managed memory"]
            .iter()
            .any(|words| settings.mentions(words))
    {
        fixes.push(
            Fix::new("use managed memory, which pages to RAM when the GPU is full (limited to PCIe speed)")
                .command(if is_hip {
                    "hipMallocManaged(&pointer, bytes);"
                } else {
                    "cudaMallocManaged(&pointer, bytes);"
                }),
        );
    }
    fixes
}

/// Whether a program calls CUDA or HIP itself, without a framework.
pub(crate) fn is_own_code(facts: &Facts) -> bool {
    matches!(facts.framework, Framework::Cuda | Framework::Hip | Framework::Thrust)
        && facts.resource != Resource::Host
        && !is_from_pytorch(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::find;
    use crate::log::Log;

    fn lines(text: &str) -> Vec<String> {
        let log = Log::new(text);
        let found = find::failures(&log).unwrap();
        let context = Context::read(&log, found.index);
        let situation = Situation::new(&log, found.index, &found.first, &context);
        steps(&situation)
            .into_iter()
            .map(|fix| format!("{} | {}", fix.action, fix.command.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn buffers_of_a_program_of_ones_own() {
        let steps = lines("solver.cu:88: cudaMalloc failed: out of memory");
        assert!(
            steps[0].contains("at solver.cu:88") && steps[0].contains("free_bytes / 10 * 9"),
            "{steps:?}"
        );
        assert!(steps.iter().any(|step| step.contains("cudaMallocManaged")), "{steps:?}");
    }

    #[test]
    fn the_user_of_a_program_is_not_told_to_change_its_source() {
        for text in [
            "500 Internal Server Error: CUDA error: out of memory",
            "CUDA error in /opt/solver/src/memory/block.h:114: out of memory",
        ] {
            let steps = lines(text);
            assert!(steps.iter().all(|step| !step.contains("cudaM")), "{steps:?}");
            assert!(steps.iter().any(|step| step.contains("CUDA_VISIBLE_DEVICES=-1")), "{steps:?}");
        }
    }
}
