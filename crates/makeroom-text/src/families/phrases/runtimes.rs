//! Host memory that ran out, in the words of language runtimes, compilers, databases and their tools.

use makeroom_core::Framework;
use makeroom_explain::Cause::HostMemory;

use super::{GPU_WORDS, Phrase, family};

const COMPILER: &str = "The compiler ran out of host memory; building needs RAM, not GPU memory.";
const DATABASE: &str = "The database reached its host memory limit. The GPU is not involved.";
const RUNTIME: &str = "The program's data does not fit in the machine's memory, or exceeds the limit set for it. The GPU is not involved.";

pub(super) const ROWS: &[Phrase] = &[
    // Language runtimes.
    Phrase::host(
        Framework::Host,
        &["ArrowMemoryError", "malloc of size"],
        r"\bmalloc of size (?P<request>\d+) failed|realloc of size (?P<grown>\d+) failed",
    )
    .certain(HostMemory, "Arrow could not allocate host memory. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &[
            "Out of Memory Error: failed to",
            "C error: out of memory",
            "vector memory exhausted",
            "vector memory limit of",
        ],
        r"Out of Memory Error: failed to (?:allocate|pin|offload)|Error tokenizing data\. C error: out of memory|vector memory (?:exhausted|limit of)",
    )
    .certain(
        HostMemory,
        RUNTIME,
    ),
    Phrase::host(
        Framework::Host,
        &["Unable to allocate", "ArrayMemoryError"],
        r"Unable to allocate (?:(?P<request>[\d.]+) ?(?P<request_unit>[KMGTPE]?i?B|bytes) for an |an? )?array\b|ArrayMemoryError",
    )
    .certain(
        HostMemory,
        "NumPy requested an array that does not fit in the machine's memory. The GPU is not involved.",
    ),
    Phrase::host(
        Framework::Host,
        &[
            "java.lang.OutOfMemoryError",
            "heap out of memory",
            "GC overhead limit",
            "memory for the Java Runtime",
        ],
        r"java\.lang\.OutOfMemoryError|JavaScript heap out of memory|GC overhead limit exceeded|insufficient memory for the Java Runtime",
    )
    // A library on the GPU throws the same exception.
    .unless(r"(?i)RMM failure|\bcuda|\bgpu\b|\bdevice memory\b|\brmm\b|\bcudf\b")
    .certain(
        HostMemory,
        "The language runtime's heap is full: it is host memory, often with its own limit (-Xmx, --max-old-space-size).",
    ),
    Phrase::host(
        Framework::Host,
        &["cannot allocate vector of size"],
        r"cannot allocate vector of size (?P<request>[\d.]+) ?(?P<request_unit>[KMGT]b)",
    )
    .certain(HostMemory, "R could not allocate a vector in the machine's memory. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &["memory allocation of "],
        r"memory allocation of (?P<request>\d+) (?P<request_unit>bytes) failed",
    )
    .certain(HostMemory, "A Rust program could not allocate host memory. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &[
            "in function 'OutOfMemoryError'",
            "Insufficient memory) Failed to allocate",
            "Insufficient memory (Failed to allocate",
        ],
        r"Failed to allocate (?P<request>\d+) (?P<request_unit>bytes)",
    )
    .certain(HostMemory, "OpenCV could not allocate host memory. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &["you tried to allocate"],
        r"Torch: not enough memory: you tried to allocate (?P<request>[\d.]+) ?(?P<request_unit>[KMGT]?B)",
    )
    .certain(
        HostMemory,
        "Torch could not allocate host memory: the tensor is on the CPU. The GPU is not involved.",
    ),
    Phrase::host(
        Framework::Host,
        &[
            "insufficient virtual memory",
            "No more memory available",
            "maximum array size preference",
            "\"help memory\"",
            "OutOfMemoryError()",
            "Error code: Out of Memory",
            "mem_buffer != NULL",
            "Allowed memory size of",
        ],
        r"insufficient virtual memory|^\W*No more memory available\b|exceeds maximum array size preference|Out of memory\. Type .help memory|\bOutOfMemoryError\(\)|^\W*(?:Aw, Snap!.*)?Error code: Out of Memory\b|ctx->mem_buffer != NULL|Allowed memory size of \d+ bytes exhausted",
    )
    .unless(GPU_WORDS)
    .certain(HostMemory, RUNTIME),
    Phrase::host(
        Framework::Host,
        &["enough space for", "os::commit_memory", "out of process memory", "Heap exhausted", "memory exhausted", "CircuitBreakingException", "cache resources exhausted", "allocation would exceed", "ORA-0403", "Stack limit (", "failed; errno 12"],
        r"Could not reserve enough space for .{0,24}object heap|os::commit_memory\(.*failed|\bORA-0403[01]\b|\bHeap exhausted\b|^\W*(?:\w+: ){1,2}(?:virtual )?memory exhausted\b|CircuitBreakingException.*Data too large|cache resources exhausted|Allocation would exceed memory limit|\bStack limit \([\d.]+ ?[KMG]b\) exceeded|\bmmap\(\d+ bytes\) failed; errno 12",
    )
    .unless(GPU_WORDS)
    .certain(HostMemory, RUNTIME),
    Phrase::host(
        Framework::Host,
        &["malloc failed (tried to allocate"],
        r"malloc failed \(tried to allocate (?P<request>\d+) bytes\)",
    )
    .certain(HostMemory, RUNTIME),
    Phrase::host(
        Framework::Host,
        &[
            "ENOMEM: not enough memory",
            "packed object: out of memory",
            "fatal error: out of memory",
            "an infinite recursion",
            "refuses to provide memory",
            "killed due to memory usage",
        ],
        r"ENOMEM: not enough memory|packed object: out of memory|^\W*(?:go: )?fatal error: out of memory|Out of memory\. The likely cause is an infinite recursion|op\. sys\. refuses to provide memory|Container killed due to memory usage",
    )
    .unless(GPU_WORDS)
    .certain(HostMemory, RUNTIME),
    // Databases.
    Phrase::host(
        Framework::Host,
        &[
            "Failed on request of size",
            "OOM command not allowed",
            "Memory limit (total)",
            "Memory limit (for",
            "ERR_OUT_OF_CPU_MEM",
        ],
        r"Failed on request of size \d+|OOM command not allowed|Memory limit \((?:total|for query|for user)\) exceeded|ERR_OUT_OF_CPU_MEM",
    )
    .certain(HostMemory, DATABASE),
    // Compilers.
    Phrase::host(
        Framework::Host,
        &[
            "Killed signal terminated program",
            "internal compiler error: Killed",
            "terminated with signal 9",
            "died due to signal 9",
            "cc1plus: out of memory",
            "LNK1102",
            "out of heap space",
            "build stopped: subcommand failed. Killed",
        ],
        r"LNK1102: out of memory|compiler is out of heap space|subcommand failed\. Killed|Killed signal terminated program|internal compiler error: Killed|terminated with signal 9|died due to signal 9|cc1plus: out of memory",
    )
    .likely(HostMemory, COMPILER),
    Phrase::either(Framework::Host, &["LLVM ERROR: out of memory"], r"LLVM ERROR: out of memory")
        .leads(HostMemory, COMPILER),
];

family!();

#[cfg(test)]
mod tests {
    use makeroom_explain::{Cause, Certainty};

    use crate::find::facts_in;

    #[test]
    fn runtimes_databases_and_compilers_are_about_host_memory() {
        for (text, certainty) in [
            ("fatal: Out of memory, malloc failed (tried to allocate 1048576 bytes)", Certainty::Certain),
            ("Error: ENOMEM: not enough memory, read", Certainty::Certain),
            ("fatal error: out of memory allocating heap arena metadata", Certainty::Certain),
            ("PHP Fatal error:  Allowed memory size of 1048576 bytes exhausted", Certainty::Certain),
            ("forrtl: severe (41): insufficient virtual memory", Certainty::Certain),
            (
                "Requested 90000x90000 (60.3GB) array exceeds maximum array size preference.",
                Certainty::Certain,
            ),
            ("ERROR: LoadError: OutOfMemoryError()", Certainty::Certain),
            ("GGML_ASSERT: ggml.c:4900: ctx->mem_buffer != NULL", Certainty::Certain),
            ("DB::Exception: Memory limit (total) exceeded: would use 9.31 GiB", Certainty::Certain),
            ("ERROR: out of memory DETAIL:  Failed on request of size 65536", Certainty::Certain),
            ("LINK : fatal error LNK1102: out of memory", Certainty::Likely),
            ("fatal error C1060: compiler is out of heap space", Certainty::Likely),
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            let stated = &facts.statements[0];
            assert_eq!((stated.cause, stated.certainty), (Cause::HostMemory, certainty), "{text}");
        }
        assert!(facts_in("CUDA fatal error: out of memory").unwrap().statements.is_empty());
        for text in [
            "java.lang.OutOfMemoryError: Could not allocate native memory: std::bad_alloc: RMM failure at:/rmm/arena.hpp:90: Maximum pool size exceeded",
            "java.lang.OutOfMemoryError: Could not allocate native memory: std::bad_alloc: out_of_memory: CUDA error at: /rmm/cuda_memory_resource.hpp: cudaErrorMemoryAllocation out of memory",
        ] {
            let facts = facts_in(text).unwrap();
            let is_host = |stated: &crate::facts::Statement| stated.cause == Cause::HostMemory;
            assert!(!facts.statements.iter().any(is_host), "{text}");
        }
    }
}
