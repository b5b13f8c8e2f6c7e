//! llama.cpp and everything on ggml (Ollama, LM Studio, koboldcpp, whisper.cpp, stable-diffusion.cpp): CUDA, ROCm,
//! Vulkan, SYCL and Metal.
//!
//! | wording | what it gives |
//! |---|---|
//! | `allocating 2048.00 MiB on device 0: cudaMalloc failed: out of memory` | the request |
//! | `failed to allocate CUDA0 buffer of size 2147483648`, `unable to allocate CUDA0 buffer` | the request |
//! | `failed to allocate compute buffers`, `… compute pp buffers`, `failed to allocate buffer for kv cache` | which buffer it is |
//! | `compute buffer allocation failed, retrying without pipeline parallelism` | that it was handled |
//! | `CUDA error 2 at ggml-cuda.cu:359: out of memory`, `CUDA error: out of memory` + `current device: 0, in function …` | nothing |
//! | `ggml_vulkan: Device memory allocation of size 123 failed`, `ErrorOutOfDeviceMemory` | the request |
//! | `Requested buffer size exceeds device memory allocation limit` | Vulkan's cap on one buffer |
//! | `error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)`, `error: failed to allocate buffer, size = 1024.00 MiB` | Metal |
//! | `can't allocate 123 Bytes of memory on device`, `can't malloc 123 Bytes memory on device`, `PI_ERROR_OUT_OF_HOST_MEMORY` | SYCL |
//! | `projected to use 30720 MiB of device memory vs. 23552 MiB of free device memory` | the need and what is free |
//! | `not enough space in the context's memory pool (needed 17670662, available 10171055)` | ggml's own fixed pool |
//! | `failed to allocate 1024.00 MiB of pinned memory`, `failed to mlock 123-byte buffer` | a warning: pageable memory serves too |
//! | `unable to allocate CPU buffer` | host memory |
//!
//! The account of the device stands in the lines above ([`super::llama_cpp_account`]).

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::{Cause, Certainty, Fix};
use makeroom_search::{Regex, contains_folded, pattern};

use super::llama_cpp_account::{read_account, state_buffer};
use crate::facts::{Facts, Resource, Severity, Statement};
use crate::family::Family;
use crate::figures::{binary_size, captured_number, captured_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "Malloc failed: out of memory",
        "unable to allocate",
        "failed to allocate",
        "failed to mlock",
        "RLIMIT_MEMLOCK",
        "can't allocate",
        "ErrorOutOfDeviceMemory",
        "memory allocation of size",
        "buffer size exceeds device",
        "of device memory vs.",
        "CUDA error 2 at",
        "error: out of memory",
        "insufficient memory (attempted to allocate",
        "kIOGPUCommandBufferCallbackErrorOutOfMemory",
        "PI_ERROR_OUT_OF_",
        "UR_RESULT_ERROR_OUT_OF_",
        "not enough space in the context's memory pool",
        "not enough space in the scratch memory pool",
        "can't malloc",
        "not enough space in the buffer",
    ],
    read,
};

/// The lines after a failure in which llama.cpp says that it retries.
const LINES_TO_RETRY: usize = 8;

static ALLOCATING: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)allocating ([\d.,]+) ?(MiB) on device (\d+): \w+Malloc failed"));
static BUFFER_REFUSED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:failed|unable) to allocate (CUDA|ROCm|HIP|Vulkan|SYCL|MUSA|CANN|Metal|backend|CPU|\w+_Host)(\d*) buffer(?: of size (\d+))?|ggml\w*: failed to allocate buffer of size (\d+)",
    )
});
static METAL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)failed to allocate buffer, size = *([\d.,]+) ?(MiB|MB)"));
static VULKAN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)memory allocation of size (\d+) failed|can't (?:allocate|malloc) (\d+) Bytes (?:of )?memory on device",
    )
});
static PROJECTED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)projected to use (\d+) (MiB) of device memory vs\. (\d+) (MiB) of free device memory")
});
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:failed to allocate|attempted to allocate) +([\d.,]+) ?(MiB|MB)(?: of pinned memory|\))")
});
static MLOCK: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)failed to mlock (\d+)-byte buffer"));
static POOL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)not enough space in the (?:context's memory pool|scratch memory pool|buffer).*?\(needed (\d+), (?:largest block )?available (\d+)\)",
    )
});
static SPEAKER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:ggml|llama|llm_load|whisper|load_tensors)|ggml-"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let mut facts = read_line(passage)?;
    let is_retried = passage
        .onward()
        .take(LINES_TO_RETRY)
        .any(|line| contains_folded(line, "retrying without pipeline parallelism"));
    if is_retried {
        facts.severity = Severity::Warning;
    }
    Some(facts)
}

fn read_line(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let has = |words: &str| contains_folded(line, words);
    let mut facts = Facts::new(Framework::LlamaCpp, Resource::Device, passage);
    // A pinned buffer without a size, and a graph that is allocated at the second try, are not failures.
    if has("ggml_vulkan: Failed to allocate pinned memory") || has("failed to allocate graph, reserving") {
        facts.severity = Severity::Warning;
        return Some(facts);
    }
    if let Some(found) = ALLOCATING.captures(line) {
        facts.request = decimal_size(&found[1], &found[2]);
        facts.device = captured_number(&found, 3).map(DeviceIndex);
    } else if let Some(found) = PROJECTED.captures(line) {
        (facts.request, facts.free) = (captured_size(&found, 1), captured_size(&found, 3));
        facts.severity = Severity::Warning;
        return Some(facts);
    } else if let Some(found) = HOST.captures(line) {
        return Some(read_host(facts, line, decimal_size(&found[1], &found[2])));
    } else if let Some(found) = MLOCK.captures(line).or_else(|| {
        // The advice below the warning belongs to it.
        passage.before().take(2).find_map(|above| MLOCK.captures(above)).filter(|_| has("RLIMIT_MEMLOCK"))
    }) {
        return Some(read_host(facts, line, captured_number(&found, 1).map(Bytes::new)));
    } else if let Some(found) = POOL.captures(line) {
        state_pool(&mut facts, captured_number(&found, 1)?, captured_number(&found, 2)?);
        return Some(facts);
    } else if let Some(found) = VULKAN.captures(line) {
        facts.request = captured_number(&found, 1).or_else(|| captured_number(&found, 2)).map(Bytes::new);
    } else if let Some(found) = METAL.captures(line) {
        facts.request = decimal_size(&found[1], &found[2]);
    } else if has("buffer size exceeds device") {
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Certain,
            "The buffer is larger than the driver's cap on a single buffer; the GPU's memory is not the limit.",
        );
        return Some(facts);
    } else if let Some(found) = BUFFER_REFUSED.captures(line) {
        let bytes = captured_number(&found, 3).or_else(|| captured_number(&found, 4)).map(Bytes::new);
        let backend = found.get(1).map_or("CPU", |backend| backend.as_str());
        if backend.eq_ignore_ascii_case("CPU") || backend.ends_with("_Host") {
            return Some(read_host(facts, line, bytes));
        }
        facts.request = bytes;
        facts.device = captured_number(&found, 2).map(DeviceIndex);
    } else if !is_spoken_here(passage) || is_repeated(passage) {
        return None;
    } else if has("OUT_OF_HOST_MEMORY") {
        facts.lead(
            Cause::HostMemory,
            "The GPU's driver ran out of host memory; with integrated graphics, the CPU and the GPU share it.",
        );
        return Some(facts);
    } else if has("pinned memory") {
        facts.severity = Severity::Warning;
        return Some(facts);
    }
    if facts.request.is_none() && pins_the_model(passage) {
        facts.statements.push(
            Statement::leading(
                Cause::HostMemory,
                "No layer is on the GPU, and without memory mapping llama.cpp loads the model into pinned host memory: the driver returns this error when it cannot pin that much, as under WSL.",
            )
            .mended_by(vec![
                Fix::new("load the model into ordinary memory instead of pinned memory")
                    .command("export GGML_CUDA_NO_PINNED=1"),
                Fix::new("map the model file into memory: remove this option").command("--no-mmap"),
                Fix::new("under WSL: give it more memory in %UserProfile%\\.wslconfig, then run `wsl --shutdown`")
                    .command("[wsl2]\nmemory=24GB"),
            ]),
        );
        return Some(facts);
    }
    read_account(&mut facts, passage);
    state_buffer(&mut facts, passage);
    Some(facts)
}

/// Whether the program keeps the whole model in pinned host memory: no mapping of the file, and no layer on the GPU.
fn pins_the_model(passage: &Passage<'_>) -> bool {
    static LAYERS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)(?:-ngl|--n-gpu-layers|--gpu-layers|n_gpu_layers)[ =]+[1-9-]|offload(?:ed|ing) [1-9]|CUDA\d+ (?:KV|model) buffer size",
        )
    });
    let says = |words: &str| passage.all().any(|line| contains_folded(line, words));
    (says("--no-mmap") || says("use_mmap=False") || says("CUDA_Host"))
        && !passage.all().any(|line| LAYERS.is_match(line))
}

/// A line that any CUDA program may print is this family's when its neighbors are.
fn is_spoken_here(passage: &Passage<'_>) -> bool {
    passage.onward().take(5).chain(passage.before().take(8)).any(|line| SPEAKER.is_match(line))
}

/// A line without a size that only says again what a line above it says.
fn is_repeated(passage: &Passage<'_>) -> bool {
    passage
        .before()
        .take(3)
        .any(|line| ALLOCATING.is_match(line) || BUFFER_REFUSED.is_match(line) || VULKAN.is_match(line))
}

/// A size as C's `%.2f` prints it, with the locale's decimal comma.
fn decimal_size(number: &str, unit: &str) -> Option<Bytes> {
    binary_size(&number.replace(',', "."), unit)
}

fn read_host(mut facts: Facts, line: &str, request: Option<Bytes>) -> Facts {
    let has = |words: &str| contains_folded(line, words);
    facts.resource = Resource::Host;
    facts.request = request;
    let is_locked = has("mlock") || has("MEMLOCK");
    let is_pinned = has("pinned") || line.contains("_Host");
    if is_pinned || is_locked {
        // ggml continues with ordinary memory.
        facts.severity = Severity::Warning;
    }
    if has("invalid argument") {
        return facts;
    }
    let asked = request.map_or("An allocation".to_owned(), |bytes| bytes.to_string());
    let kind = if is_locked {
        "locked host memory"
    } else if is_pinned {
        "pinned host memory"
    } else {
        "host memory"
    };
    let summary = format!("{asked} of {kind} failed; the GPU's memory is not the limit.");
    facts.state(Cause::HostMemory, Certainty::Certain, summary);
    facts
}

/// ggml's pool for graph metadata has a size that the program computes in advance.
fn state_pool(facts: &mut Facts, needed: u64, available: u64) {
    facts.resource = Resource::Host;
    facts.state(
        Cause::ArtificialLimit,
        Certainty::Likely,
        format!(
            "ggml's own fixed-size pool is full: {} needed, {} available. Neither RAM nor GPU memory ran out.",
            Bytes::new(needed),
            Bytes::new(available)
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn a_buffer_that_is_refused() {
        let text = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 1: cudaMalloc failed: out of memory\nllama_model_load: error loading model: unable to allocate CUDA1 buffer";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.device), ("llama.cpp", Some(DeviceIndex(1))));
        assert_eq!((facts.request, facts.line), (Some(Bytes::gib(2)), 1));
        assert!(facts.statements.is_empty());
        let text = "ggml_gallocr_reserve_n: failed to allocate ROCm0 buffer of size 1073741824\ngraph_reserve: failed to allocate compute buffers";
        assert_eq!(facts_in(text).unwrap().request, Some(Bytes::gib(1)));
    }

    #[test]
    fn the_lines_above_give_the_account() {
        let text = "Feb 21 01:41:02 box ollama[7]: ggml_cuda_init: found 1 CUDA devices:\n\
            Feb 21 01:41:02 box ollama[7]:   Device 0: NVIDIA X, compute capability 8.9, VMM: yes, VRAM: 24576 MiB\n\
            Feb 21 01:41:02 box ollama[7]: llama_model_load_from_file_impl: using device CUDA0 (NVIDIA X) - 23552 MiB free\n\
            Feb 21 01:41:02 box ollama[7]: load_tensors:        CUDA0 model buffer size = 20480.00 MiB\n\
            Feb 21 01:41:02 box ollama[7]: llama_kv_cache_init:      CUDA0 KV buffer size =  1024.00 MiB\n\
            Feb 21 01:41:02 box ollama[7]: llama_context:  CUDA_Host  output buffer size =     0.49 MiB\n\
            Feb 21 01:41:02 box ollama[7]: ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.total, facts.free), (Some(Bytes::gib(24)), Some(Bytes::gib(2))));
        assert_eq!((facts.live, facts.line), (Some(Bytes::gib(21)), 7));
        assert_eq!(facts.statements[0].cause, Cause::LiveDataFillsDevice);
    }

    #[test]
    fn one_buffer_larger_than_all_that_is_free() {
        let text = "time=2025-02-04T07:56:25.534+10:00 level=INFO msg=offload memory.available=\"[23.5 GiB]\" memory.required.full=\"30.1 GiB\"\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 40960.00 MiB on device 0: cudaMalloc failed: out of memory";
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.free, Some(Bytes::mib(24064)));
        assert_eq!(facts.statements[0].cause, Cause::RequestExceedsDevice);
    }

    #[test]
    fn old_wordings_need_their_neighbours() {
        let text = "llama_model_load_internal: mem required  = 9000.00 MB (+ 1000.00 MB per state)\nCUDA error 2 at ggml-cuda.cu:359: out of memory";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.request), ("llama.cpp", None));
        assert!(facts.statements.is_empty());
        assert_ne!(facts_in("RuntimeError: CUDA error: out of memory").unwrap().framework_id(), "llama.cpp");
        assert_ne!(facts_in("failed to allocate frame buffer").unwrap().framework_id(), "llama.cpp");
    }

    #[test]
    fn vulkan_and_host_memory() {
        let text = "ggml_vulkan: Device memory allocation of size 1073741824 failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory";
        assert_eq!(facts_in(text).unwrap().request, Some(Bytes::gib(1)));
        let text = "ggml_vulkan: Requested buffer size exceeds device memory allocation limit: ErrorOutOfDeviceMemory";
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.statements[0].cause, Cause::ArtificialLimit);
        let text = "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 1073741824\nllama_model_load: error loading model: unable to allocate CPU buffer";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.resource, facts.request), (Resource::Host, Some(Bytes::gib(1))));
        assert_eq!(facts.statements[0].certainty, Certainty::Certain);
        let text = "WARNING: failed to allocate 512.00 MB of pinned memory: out of memory";
        assert_eq!(facts_in(text).unwrap().severity, Severity::Warning);
    }

    #[test]
    fn decimal_commas_and_any_case() {
        let text = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048,00 MiB on device 0: CUDAMALLOC FAILED: out of memory";
        assert_eq!(facts_in(text).unwrap().request, Some(Bytes::gib(2)));
        let text = "ggml_cuda_host_malloc: failed to allocate 1536,00 MiB of pinned memory: invalid argument";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.severity, facts.request), (Severity::Warning, Some(Bytes::mib(1536))));
        assert!(facts.statements.is_empty());
    }

    #[test]
    fn a_retry_without_pipeline_parallelism_is_a_warning() {
        let failed = "E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 30000.00 MiB on device 1: cudaMalloc failed: out of memory\nE ggml_gallocr_reserve_n_impl: failed to allocate CUDA1 buffer of size 31457280000\nE graph_reserve: failed to allocate compute buffers\n";
        let retried = format!(
            "{failed}W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
        );
        assert_eq!(
            facts_in(&format!("{retried}I srv load_model: ready")).unwrap().severity,
            Severity::Warning
        );
        assert_eq!(facts_in(&format!("{retried}{failed}")).unwrap().severity, Severity::Failure);
    }

    #[test]
    fn metal_sycl_and_ggml_pools() {
        let text = "ggml_metal_synchronize: error: command buffer 1 failed with status 5\nerror: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)";
        assert_eq!(facts_in(text).unwrap().framework_id(), "llama.cpp");
        let text = "ggml_metal_buffer_init: error: failed to allocate buffer, size =  1024.00 MiB";
        assert_eq!(facts_in(text).unwrap().request, Some(Bytes::gib(1)));
        let text = "Native API returns: -6 (PI_ERROR_OUT_OF_HOST_MEMORY)\nException caught at file:ggml/src/ggml-sycl.cpp, line:5066";
        assert_eq!(facts_in(text).unwrap().statements[0].cause, Cause::HostMemory);
        let largest = "ggml_allocr_alloc: not enough space in the buffer (needed 2097152, largest block available 1048576)";
        assert!(facts_in(largest).is_some_and(|facts| !facts.statements.is_empty()));
        let text = "ggml_new_object: not enough space in the context's memory pool (needed 2097152, available 1048576)";
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.statements[0].cause, Cause::ArtificialLimit);
        assert!(facts.statements[0].summary.contains("2.00 MiB needed"), "{}", facts.statements[0].summary);
        let text = "warning: failed to mlock 827228160-byte buffer (after previously locking 0 bytes): Cannot allocate memory\nTry increasing RLIMIT_MEMLOCK ('ulimit -l' as root).\nload_tensors: offloaded 65/65 layers to GPU";
        assert_eq!(facts_in(text).unwrap().severity, Severity::Warning);
    }
}
