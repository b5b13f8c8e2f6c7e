//! Host memory that ran out, in the words of the operating system and of language runtimes.
//!
//! | wording | who |
//! |---|---|
//! | `The paging file is too small for this operation to complete. (os error 1455)` | Windows |
//! | `Out of memory: Killed process 123 (python)`, `oom-kill:constraint=…`, `Memory cgroup out of memory` | Linux |
//! | `Killed`, `exit code 137`, `signal 9` | a shell or launcher: most often the kernel did it, but it does not say |
//! | `OOMKilled`, `oom_kill event`, `Exceeded job memory limit`, `node running low on memory` | Kubernetes, Slurm, Ray |
//! | `[Errno 12] Cannot allocate memory`, `fork: Cannot allocate memory` | any program |
//! | `No space left on device: '/dev/shm/…'`, `/dev/shm/nccl-…` | shared memory |
//! | `MemoryError: Unable to allocate 31.5 GiB for an array with shape` | NumPy |
//! | `java.lang.OutOfMemoryError: Java heap space`, `JavaScript heap out of memory` | Java, Node |
//! | `cannot allocate vector of size 2.0 Gb`, `memory allocation of 123 bytes failed` | R, Rust |
//! | `Failed to allocate 123 bytes in function 'OutOfMemoryError'` | OpenCV |
//! | `std::bad_alloc`, `MemoryError`, `LLVM ERROR: out of memory`, `CL_OUT_OF_HOST_MEMORY` | vague: at most possible |

use std::sync::LazyLock;

use makeroom_core::Bytes;
use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::{binary_size, pattern};
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "paging file is too small",
        "os error 1455",
        "WinError 1455",
        "Killed",
        "oom-kill",
        "oom_kill",
        "exit code 137",
        "exitcode: -9",
        "exitcode : -9",
        "signal 9",
        "SIGKILL",
        "Exceeded job memory limit",
        "running low on memory",
        "Cannot allocate memory",
        "/dev/shm",
        "RLIMIT_MEMLOCK",
        "memlock",
        "Unable to allocate",
        "ArrayMemoryError",
        "MemoryError",
        "java.lang.OutOfMemoryError",
        "heap out of memory",
        "cannot allocate vector of size",
        "memory allocation of ",
        "in function 'OutOfMemoryError'",
        "virtual memory exhausted",
        "bad_alloc",
        "LLVM ERROR: out of memory",
        "OutOfHostMemory",
        "OUT_OF_HOST_MEMORY",
    ],
    read,
};

/// A wording, how sure it makes host memory, and what to say. The first that fits a line is taken.
struct Wording {
    certainty: Certainty,
    words: &'static str,
    summary: &'static str,
}

const WORDINGS: &[Wording] = &[
    Wording {
        certainty: Certainty::Certain,
        words: r"(?i)paging file is too small|(?:os|win)[ ]?error 1455",
        summary: "Windows could not promise the memory: RAM and paging file together are too small. The GPU was not asked.",
    },
    Wording {
        certainty: Certainty::Certain,
        words: r"Out of memory: Killed? process|[Mm]emory cgroup out of memory|oom-kill:|oom[-_]kill event|oom_reaper|OOMKilled|Exceeded job memory limit|running low on memory",
        summary: "The machine, or the share of it that this job was given, ran out of memory and the process was killed. The GPU was not asked.",
    },
    Wording {
        certainty: Certainty::Certain,
        words: r"No space left on device.*/dev/shm|/dev/shm.*No space left|(?:extend|creating shared memory segment|allocat\w+) /dev/shm/",
        summary: "Shared memory (/dev/shm) is full, which is a part of the machine's memory.",
    },
    Wording {
        certainty: Certainty::Certain,
        words: r"Unable to allocate ([\d.]+) ?([KMGTP]i?B) for an array|ArrayMemoryError",
        summary: "NumPy asked the machine for an array that it cannot give. The GPU was not asked.",
    },
    Wording {
        certainty: Certainty::Certain,
        words: r"java\.lang\.OutOfMemoryError|JavaScript heap out of memory",
        summary: "The heap of the language's runtime is full, which is host memory under a limit of its own.",
    },
    Wording {
        certainty: Certainty::Certain,
        words: r"cannot allocate vector of size ([\d.]+) ?([KMGT]b)|memory allocation of (\d+) (bytes) failed|Failed to allocate (\d+) (bytes) in function 'OutOfMemoryError'",
        summary: "The machine refused ordinary memory. The GPU was not asked.",
    },
    Wording {
        certainty: Certainty::Certain,
        words: r"virtual memory exhausted|\[Errno 12\] Cannot allocate memory|(?:fork|mmap|clone)\w*(?:\(\))?: .*Cannot allocate memory",
        summary: "The operating system refused ordinary memory. The GPU was not asked.",
    },
    Wording {
        certainty: Certainty::Likely,
        words: r"(?i)RLIMIT_MEMLOCK|memlock.*(?:too (?:small|low)|limit)|Killed signal terminated program",
        summary: "The limit on locked memory, or the machine's memory, refused; the GPU was not asked.",
    },
    Wording {
        certainty: Certainty::Possible,
        words: r"Cannot allocate memory",
        summary: "These are the words of the operating system for host memory, and some drivers borrow them.",
    },
    Wording {
        certainty: Certainty::Possible,
        words: r"^\s*(?:\S+: line \d+: +)?(?:\d+ +)?Killed(?: {3}|\s*$)|(?i:exit ?code ?:? ?(?:137|-9)\b|signal 9\b|SIGKILL)",
        summary: "The process was killed from outside, which the kernel does when the machine's memory runs out; the text does not say that it did.",
    },
    Wording {
        certainty: Certainty::Possible,
        words: r"LLVM ERROR: out of memory",
        summary: "A compiler ran out of memory, which is the host's; the text gives no figures.",
    },
    Wording {
        certainty: Certainty::Possible,
        words: r"CL_OUT_OF_HOST_MEMORY|ErrorOutOfHostMemory|VK_ERROR_OUT_OF_HOST_MEMORY",
        summary: "OpenCL's and Vulkan's status for host memory, which drivers return for other reasons too.",
    },
    Wording {
        certainty: Certainty::Possible,
        words: r"^\s*(?:\w+\.)*MemoryError\s*:?\s*$",
        summary: "Python's own error, which is about host memory unless an extension raised it.",
    },
    Wording {
        certainty: Certainty::Possible,
        words: r#"bad_alloc['"]?\s*$"#,
        summary: "C++ reports in these words that ordinary memory was refused; libraries for GPUs use them too.",
    },
    Wording {
        certainty: Certainty::Possible,
        words: r"MemoryError: (?:Unable|Could not|[Cc]annot) ",
        summary: "Python's own error, which is about host memory unless an extension raised it.",
    },
];

static PATTERNS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| WORDINGS.iter().map(|wording| pattern(wording.words)).collect());
/// Words of a GPU's library in the line: then ordinary memory is not what it speaks of.
static DEVICE_WORDS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)cuda|\bgpu|\brmm\b|\bhip|thrust|cumem|device memory|nvenc"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    // The CPU allocator of PyTorch has figures of its own.
    if line.contains("CPUAllocator") {
        return None;
    }
    let (words, wording) = PATTERNS.iter().zip(WORDINGS).find(|(words, _)| words.is_match(line))?;
    if wording.certainty < Certainty::Certain && DEVICE_WORDS.is_match(line) {
        return None;
    }
    let is_sure = wording.certainty >= Certainty::Likely;
    let mut facts = Facts::new("host", if is_sure { Resource::Host } else { Resource::Unknown }, passage);
    facts.request = words.captures(line).and_then(|found| request(&found));
    facts.state(Cause::HostMemory, wording.certainty, wording.summary);
    Some(facts)
}

/// The size that a wording captured, in whichever of its alternatives.
fn request(found: &regex::Captures<'_>) -> Option<Bytes> {
    let mut groups = found.iter().skip(1).flatten();
    binary_size(groups.next()?.as_str(), groups.next()?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    fn certainty(text: &str) -> Certainty {
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.framework, "host", "{text}");
        assert_eq!(facts.statements[0].cause, Cause::HostMemory);
        facts.statements[0].certainty
    }

    #[test]
    fn words_that_are_about_host_memory_alone() {
        for text in [
            "OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading \"c10.dll\"",
            "Jun  1 10:00:00 box kernel: Out of memory: Killed process 4242 (python) total-vm:98765432kB, anon-rss:64000000kB",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=77",
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.batch. Some of your processes may have been killed",
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
            "OSError: [Errno 28] No space left on device: '/dev/shm/torch_99'",
            "box:1:2 [6] misc/shmutils.cc:71 NCCL WARN Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes",
            "java.lang.OutOfMemoryError: Java heap space",
            "OSError: [Errno 12] Cannot allocate memory",
            "fatal error: CALL_AND_RETRY_LAST Allocation failed - JavaScript heap out of memory",
        ] {
            assert_eq!(certainty(text), Certainty::Certain, "{text}");
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            (
                "numpy.core._exceptions.MemoryError: Unable to allocate 31.5 GiB for an array with shape (65536, 64512) and data type float64",
                Bytes::mib(32256),
            ),
            ("Error: cannot allocate vector of size 2.0 Gb", Bytes::gib(2)),
            ("memory allocation of 1073741824 bytes failed", Bytes::gib(1)),
            (
                "error: (-4:Insufficient memory) Failed to allocate 1048576 bytes in function 'OutOfMemoryError'",
                Bytes::mib(1),
            ),
        ] {
            assert_eq!(certainty(text), Certainty::Certain, "{text}");
            assert_eq!(facts_in(text).unwrap().request, Some(bytes), "{text}");
        }
    }

    #[test]
    fn vague_words_stay_vague() {
        for text in [
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "MemoryError",
            "LLVM ERROR: out of memory",
            "clCreateContext(): CL_OUT_OF_HOST_MEMORY",
            "train.sh: line 12:  4242 Killed                  python train.py",
            "worker exited with exit code 137",
        ] {
            assert_eq!(certainty(text), Certainty::Possible, "{text}");
            assert_eq!(facts_in(text).unwrap().resource, Resource::Unknown);
        }
    }

    #[test]
    fn words_of_a_gpus_library_are_not_taken() {
        let text = "MemoryError: std::bad_alloc: cudaErrorMemoryAllocation: out of memory";
        assert_ne!(facts_in(text).unwrap().framework, "host");
        assert!(facts_in("Killed the old process before training").is_none());
        let text = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes. Error code 12 (Cannot allocate memory)";
        assert_eq!(facts_in(text).unwrap().framework, "pytorch");
    }
}
