//! llama.cpp and everything on ggml (Ollama, LM Studio, whisper.cpp, stable-diffusion.cpp): CUDA, ROCm and Vulkan.
//!
//! | wording | what it gives |
//! |---|---|
//! | `allocating 2048.00 MiB on device 0: cudaMalloc failed: out of memory` | the request |
//! | `failed to allocate CUDA0 buffer of size 2147483648`, `unable to allocate CUDA0 buffer` | the request |
//! | `CUDA error 2 at ggml-cuda.cu:359: out of memory`, `CUDA error: out of memory` + `current device: 0, in function …` | nothing |
//! | `ggml_vulkan: Device memory allocation of size 123 failed`, `ErrorOutOfDeviceMemory` | the request |
//! | `Requested buffer size exceeds device memory allocation limit` | Vulkan's cap on one buffer |
//! | `projected to use 30720 MiB of device memory vs. 23552 MiB of free device memory` | the need and what is free |
//! | `failed to allocate 1024.00 MiB of pinned memory`, `unable to allocate CPU buffer` | host memory |
//! | `Device 0: …, VRAM: 24576 MiB` | the device's memory |
//! | `using device CUDA0 (…) - 23552 MiB free`, Ollama's `memory.available="[23.0 GiB]"` | what was free at the start |
//! | `CUDA0 model buffer size = 20480.00 MiB`, `… KV buffer size`, `… compute buffer size` | what is live |

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex};
use regex::Regex;

use crate::text::facts::{Facts, Resource, Severity};
use crate::text::family::Family;
use crate::text::figures::{binary_size, captured_number, captured_size, pattern};
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "Malloc failed: out of memory",
        "unable to allocate",
        "failed to allocate",
        "ErrorOutOfDeviceMemory",
        "Device memory allocation of size",
        "buffer size exceeds device",
        "of device memory vs.",
        "CUDA error 2 at",
        "error: out of memory",
        "insufficient memory (attempted to allocate",
    ],
    read,
};

static ALLOCATING: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"allocating ([\d.]+) ?(MiB) on device (\d+): \w+Malloc failed"));
static BUFFER_REFUSED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?:failed|unable) to allocate (CUDA|ROCm|HIP|Vulkan|SYCL|MUSA|CANN|Metal|backend|CPU|\w+_Host)(\d*) buffer(?: of size (\d+))?|ggml\w*: failed to allocate buffer of size (\d+)",
    )
});
static VULKAN: LazyLock<Regex> = LazyLock::new(|| pattern(r"Device memory allocation of size (\d+) failed"));
static PROJECTED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"projected to use (\d+) (MiB) of device memory vs\. (\d+) (MiB) of free device memory")
});
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?:failed to allocate|attempted to allocate) +([\d.]+)(?:,\d+)? ?(MiB|MB)(?: of pinned memory|\))",
    )
});
static TOTAL: LazyLock<Regex> = LazyLock::new(|| pattern(r"Device (\d+): .*VRAM: ([\d.]+) ?(MiB)"));
static FREE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"using device (?:CUDA|ROCm|Vulkan|SYCL)(\d+) .* - ([\d.]+) ?(MiB) free"));
static OLLAMA_FREE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"memory\.available="\[?([\d.]+) ([KMGT]iB)"#));
static BUFFER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?:CUDA|ROCm|Vulkan|SYCL)(\d+)(?: [A-Za-z]+)? buffer size *= *([\d.]+) ?(MiB)")
});
static SPEAKER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b(?:ggml|llama|llm_load|whisper|load_tensors)|ggml-"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let mut facts = Facts::new("llama.cpp", Resource::Device, passage);
    if let Some(found) = ALLOCATING.captures(line) {
        facts.request = captured_size(&found, 1);
        facts.device = captured_number(&found, 3).map(DeviceIndex);
    } else if let Some(found) = PROJECTED.captures(line) {
        (facts.request, facts.free) = (captured_size(&found, 1), captured_size(&found, 3));
        facts.severity = Severity::Warning;
        return Some(facts);
    } else if let Some(found) = HOST.captures(line) {
        return Some(read_host(facts, line, binary_size(&found[1], &found[2])));
    } else if let Some(found) = VULKAN.captures(line) {
        facts.request = captured_number(&found, 1).map(Bytes::new);
    } else if line.contains("buffer size exceeds device") {
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Certain,
            "The buffer is larger than the driver's cap on a single buffer; the device's memory was not asked.",
        );
        return Some(facts);
    } else if let Some(found) = BUFFER_REFUSED.captures(line) {
        let bytes = captured_number(&found, 3).or_else(|| captured_number(&found, 4)).map(Bytes::new);
        let backend = found.get(1).map_or("CPU", |backend| backend.as_str());
        if backend == "CPU" || backend.ends_with("_Host") {
            return Some(read_host(facts, line, bytes));
        }
        facts.request = bytes;
        facts.device = captured_number(&found, 2).map(DeviceIndex);
    } else if !is_spoken_here(passage) {
        return None;
    }
    read_surroundings(&mut facts, passage);
    Some(facts)
}

/// A line that any CUDA program may print is this family's when its neighbours are.
fn is_spoken_here(passage: &Passage<'_>) -> bool {
    passage.onward().take(5).chain(passage.before().take(8)).any(|line| SPEAKER.is_match(line))
}

fn read_host(mut facts: Facts, line: &str, request: Option<Bytes>) -> Facts {
    facts.resource = Resource::Host;
    facts.request = request;
    let asked = request.map_or("Memory".to_owned(), |bytes| bytes.to_string());
    let is_pinned = line.contains("pinned") || line.contains("_Host");
    if is_pinned {
        // ggml goes on with ordinary memory.
        facts.severity = Severity::Warning;
    }
    let kind = if is_pinned { "pinned host memory" } else { "host memory" };
    facts.state(
        Cause::HostMemory,
        Certainty::Certain,
        format!("{asked} of {kind} was refused, not of the GPU's."),
    );
    facts
}

/// What the lines above say about the card: its size, what was free at the start, what has been loaded since.
fn read_surroundings(facts: &mut Facts, passage: &Passage<'_>) {
    let device = facts.device.map_or(0, |device| device.0);
    let is_here = |number: Option<u32>| number == Some(device);
    let sized = |figure: &Regex, line: &str| {
        let found = figure.captures(line)?;
        is_here(captured_number(&found, 1)).then(|| captured_size(&found, 2)).flatten()
    };
    facts.total = passage.before().find_map(|line| sized(&TOTAL, line));
    let live: Bytes = passage.before().filter_map(|line| sized(&BUFFER, line)).sum();
    let at_start = passage.before().find_map(|line| sized(&FREE, line)).or_else(|| {
        let found = passage.before().find_map(|line| OLLAMA_FREE.captures(line))?;
        captured_size(&found, 1).filter(|_| device == 0)
    });
    if !live.is_zero() {
        facts.live = Some(live);
        facts.cached = Some(Bytes::ZERO);
    }
    let Some(at_start) = at_start else { return };
    // What was free at the start is the only such figure; the buffers were taken from it.
    facts.free = Some(at_start - live);
    let Some(request) = facts.request.filter(|&request| live + request > at_start) else { return };
    if live.is_zero() {
        let summary =
            format!("{request} was asked for in one piece; {at_start} was free before anything was loaded.");
        facts.state(Cause::RequestExceedsDevice, Certainty::Likely, summary);
    } else {
        let summary = format!(
            "{live} was loaded; with the {request} asked for it exceeds the {at_start} that were free."
        );
        facts.state(Cause::LiveDataFillsDevice, Certainty::Likely, summary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn a_buffer_that_is_refused() {
        let text = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 1: cudaMalloc failed: out of memory\nllama_model_load: error loading model: unable to allocate CUDA1 buffer";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework, facts.device), ("llama.cpp", Some(DeviceIndex(1))));
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
        assert_eq!((facts.framework, facts.request), ("llama.cpp", None));
        assert!(facts.statements.is_empty());
        assert_ne!(facts_in("RuntimeError: CUDA error: out of memory").unwrap().framework, "llama.cpp");
        assert_ne!(facts_in("failed to allocate frame buffer").unwrap().framework, "llama.cpp");
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
}
