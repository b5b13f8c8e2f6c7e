//! Definite failures that are not about running out of memory: an illegal access, a failed assertion, a build for
//! another GPU. Where one stands in a text, talk about memory around it is a guess, and the answer names the
//! failure instead.

use std::sync::LazyLock;

use makeroom_explain::Fix;
use makeroom_search::{Regex, RegexSet, pattern, pattern_set};

use crate::lines::{LineKind, kind, lists_possible_reasons};
use crate::log::{Log, clipped, split_prefix};

/// Another failure in a text.
#[derive(Clone, Debug)]
pub(crate) struct OtherFailure {
    /// What failed, for a sentence.
    pub(crate) what: String,
    /// Its line in the input, counted from 1.
    pub(crate) line: usize,
    /// The line.
    pub(crate) quote: String,
    /// What to do about it.
    pub(crate) fixes: Vec<Fix>,
    /// It is a known failure, or an exception that never follows from another failure.
    pub(crate) is_definite: bool,
    /// A lack of memory can be its reason too, and the text does not say so.
    pub(crate) is_reason_open: bool,
}

/// Browsers drop contexts after a driver reset, with too many of them, and for lack of memory, and print none of it.
const LOST_CONTEXT: &str = "the browser lost its graphics context without printing the reason";

impl OtherFailure {
    /// Whether the CUDA context is gone after this failure, so that later calls fail too, whatever they report.
    pub(crate) fn breaks_context(&self) -> bool {
        const BREAKING: [&str; 4] =
            ["a kernel crashed", "illegal memory access", "misaligned address", "failed inside a kernel"];
        BREAKING.iter().any(|words| self.what.contains(words))
    }
}

/// A failure and its remedy.
struct Known {
    words: &'static str,
    what: &'static str,
    action: &'static str,
    command: Option<&'static str>,
}

const KNOWN: &[Known] = &[
    Known {
        words: r"\b(?i:misaligned address)|MISALIGNED_ADDRESS|MisalignedAddress",
        what: "a kernel accessed memory at an address that is not aligned to the size of the access (misaligned address)",
        action: "find the kernel and the access: a pointer that was offset or cast to a wider type, such as float4, must be a multiple of that type's size",
        command: Some("compute-sanitizer python …   (first: export CUDA_LAUNCH_BLOCKING=1)"),
    },
    Known {
        words: r"illegal memory access|IllegalAddress|ILLEGAL_ADDRESS",
        what: "a kernel accessed memory that it does not own (illegal memory access)",
        action: "find the kernel that reads or writes out of bounds",
        command: Some("compute-sanitizer python …   (first: export CUDA_LAUNCH_BLOCKING=1)"),
    },
    Known {
        words: r"device-side assert|cudaErrorAssert|: block: \[\d+,\d+,\d+\], thread: \[\d+",
        what: "an assertion failed inside a kernel, usually an index out of range",
        action: "run without asynchronous launches and check labels and token ids against the sizes of the tables they index",
        command: Some("export CUDA_LAUNCH_BLOCKING=1"),
    },
    Known {
        words: r"no kernel image is available|NO_BINARY_FOR_GPU|invalid device function|NoKernelImage|not compatible with the current PyTorch installation",
        what: "the program was not built for this GPU's architecture",
        action: "install a build that supports this GPU's compute capability",
        command: Some(
            "python -c 'import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())'",
        ),
    },
    Known {
        words: r"invalid device ordinal|INVALID_DEVICE\b|InvalidDevice\b",
        what: "the program requested a GPU number that does not exist here",
        action: "use a number below the count of visible GPUs",
        command: Some("nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES"),
    },
    Known {
        words: r"(?:unspecified|kernel) launch (?:failure|timed out)|LaunchFailure|LAUNCH_FAILED|LAUNCH_TIMEOUT|illegal instruction",
        what: "a kernel crashed",
        action: "run the failing kernel under the sanitizer",
        command: Some("compute-sanitizer PROGRAM …"),
    },
    Known {
        words: r"Duplicate GPU detected",
        what: "two ranks use the same GPU, which NCCL does not allow",
        action: "give each rank its own GPU before the first collective",
        command: Some("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"),
    },
    Known {
        words: r"driver version is insufficient|forward compatibility was attempted|Found no NVIDIA driver|no CUDA-capable device|Driver/library version mismatch|CUDA driver initialization failed|No CUDA GPUs are available",
        what: "the NVIDIA driver is missing, too old or not visible",
        action: "check the driver against the CUDA version of the program",
        command: Some("nvidia-smi; python -c 'import torch; print(torch.version.cuda)'"),
    },
    Known {
        words: r"uncorrectable ECC|fallen off the bus|NVRM: Xid|Xid \(PCI|hardware stack error|NVLink error",
        what: "the GPU reported a hardware or driver fault",
        action: "look at the kernel log and reset or replace the GPU",
        command: Some("sudo dmesg | grep -i xid"),
    },
    Known {
        words: r"VK_ERROR_DEVICE_LOST|\bvk[A-Z]\w+ failed:? -4\b|ErrorDeviceLost|DXGI_ERROR_DEVICE_(?:REMOVED|HUNG|RESET)|GPU device instance has been suspended|Memory access fault by GPU|page ?fault .{0,40}\bGPU|CallbackError(?:Timeout|PageFault|Hang|InnocentVictim|AccessRevoked|Discarded)|GPU (?:Timeout|Hang) Error|OPTIX_ERROR_(?:INVALID\w*|LAUNCH_FAILURE|INTERNAL_\w+|CUDA_ERROR|UNSUPPORTED_\w+|DISK_\w+|PIPELINE_\w+|VALIDATION_\w+)",
        what: "the GPU or its driver stopped the program (device lost, page fault or timeout)",
        action: "update the driver, and look for the kernel or shader that hangs or reads out of bounds",
        command: Some("sudo dmesg | grep -iE 'xid|amdgpu|i915'"),
    },
    Known {
        words: r"(?i)CONTEXT_LOST_WEBGL|\bwebglcontextlost\b|\bwebgl2? context (?:was |is |has been )?lost\b|\bGPUDevice\b.{0,30}\blost\b|\bWebGPU device (?:was |is )?lost\b|\bGPU device lost\b",
        what: LOST_CONTEXT,
        action: "check what the browser reports about its GPU process, and close other tabs that use the GPU",
        command: Some("chrome://gpu   (Firefox: about:support > Graphics)"),
    },
    Known {
        words: r"(?i)\bNo device available for decoder\b|\bDevice (?:setup|creation) failed(?: for (?:de|en)coder\b.{0,60})?\W{1,4}(?:-12|Cannot allocate memory)|\bNo VA display found\b|Failed to initiali[sz]e VAAPI|\bvaInitialize\b.{0,40}\b(?:fail|error)",
        what: "FFmpeg found no usable device for hardware decoding (it reports this as -12, Cannot allocate memory)",
        action: "use the decoder of this machine's GPU: VAAPI is for Intel and AMD, CUDA for NVIDIA",
        command: Some("vainfo; ffmpeg -hwaccels; ffmpeg -hwaccel cuda -i INPUT …"),
    },
    Known {
        words: r"Watchdog caught collective operation timeout|NCCL .{0,80}timed? ?out|collective operation timeout|Heartbeat monitor timed out|Socket Timeout|Timed out waiting .{0,40}clients",
        what: "a collective operation timed out: one rank stopped or fell behind",
        action: "find the rank that failed first: its own log has the reason",
        command: Some("export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 NCCL_DEBUG=WARN"),
    },
    Known {
        words: r"Cuda failure (?:\d+ )?'(?:invalid|unknown|peer|unspecified|system|driver|not)|unhandled system error|ncclInvalidUsage|ncclInternalError|ncclRemoteError|ncclSystemError",
        what: "NCCL failed for a reason other than memory",
        action: "print NCCL's own diagnosis",
        command: Some("export NCCL_DEBUG=INFO"),
    },
    Known {
        words: r"cannot open shared object file|DLL load failed|LoadLibrary failed with error|Library not loaded:|undefined symbol: ",
        what: "a shared library is missing or has the wrong version",
        action: "install the version of the library that the program was built with, and add its directory to the library path",
        command: Some("ldd LIBRARY | grep 'not found'; echo $LD_LIBRARY_PATH"),
    },
    Known {
        words: r"INTERNAL ASSERT FAILED",
        what: "PyTorch failed one of its own assertions",
        action: "update PyTorch, and report the assertion if it persists",
        command: Some("pip install --upgrade torch"),
    },
    Known {
        words: r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH|INTERNAL_ERROR|MAPPING_ERROR)|cublasLt?\w* .{0,20}INVALID_VALUE",
        what: "a cuBLAS call failed for a reason other than memory",
        action: "check shapes and data types at the failing line without asynchronous launches",
        command: Some("export CUDA_LAUNCH_BLOCKING=1"),
    },
    Known {
        words: r"CUDNN_STATUS_(?:EXECUTION_FAILED|BAD_PARAM|MAPPING_ERROR|ARCH_MISMATCH|VERSION_MISMATCH|SUBLIBRARY\w*|LICENSE\w*)|Loaded runtime CuDNN library",
        what: "a cuDNN call failed for a reason other than memory",
        action: "check that cuDNN's version is the one the framework was built with",
        command: Some("python -c 'import torch; print(torch.backends.cudnn.version())'"),
    },
    Known {
        words: r"CUDA(?: driver)? error(?: \d+)?: (?:invalid|unknown error|initialization error|operation not|named symbol|peer|device kernel image|an? (?:unsupported|exception)|unspecified|system)|cudaErrorInvalid\w+|CUDA_ERROR_(?:INVALID|UNKNOWN|NOT_|SYSTEM|UNSUPPORTED)\w*|cudaErrorUnknown|cudaErrorInitializationError|cudaErrorNotSupported|hipErrorInvalid\w+|hipErrorNoBinaryForGpu",
        what: "a CUDA call failed for a reason other than memory",
        action: "run without asynchronous launches, so that the traceback names the failing call",
        command: Some("export CUDA_LAUNCH_BLOCKING=1"),
    },
    Known {
        words: r"(?i)segmentation fault|\bseg ?fault\b|\bSIGSEGV\b|access violation|signal 11\b|exitcode ?: ?-11|exit code 139",
        what: "the program crashed (segmentation fault)",
        action: "get the native stack of the crash",
        command: Some("gdb --args PROGRAM …   (then: run, bt)"),
    },
];

static WORDS: LazyLock<RegexSet> = LazyLock::new(|| pattern_set(KNOWN.iter().map(|known| known.words)));
/// Any other exception that ends a traceback.
static EXCEPTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^(?:[A-Za-z_][\w.]*\.)?((?:[A-Z]\w*)(?:Error|Exception|Failure))\b(?:: (.{0,160}))?\s*$")
});
/// Exceptions whose text is about memory, or that only pass another failure on.
static MEMORY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)memory|out of m|alloc|oom|buffer size|NOT_INITIALIZED|valid cuDNN algorithm|resource|ChildFailedError|CalledProcessError|ActorDied|WorkerCrashed|EngineDead|DistBackend|EngineCore|exit|killed|RemoteProtocol|Broken",
    )
});

/// Whether a line itself names a definite failure that is not about memory, and no out-of-memory error with it.
pub(crate) fn is_definite(line: &str) -> bool {
    /// Failures that follow from others, or that programs print together with the real one.
    const FOLLOWING: [&str; 3] = ["NCCL", "segmentation", "cuDNN"];
    let line = clipped(line, LONGEST_LINE);
    let is_memory = MEMORY_ERROR.is_match(line);
    !is_memory
        && WORDS
            .matches(line)
            .into_iter()
            .any(|row| !FOLLOWING.iter().any(|following| KNOWN[row].what.contains(following)))
}

/// An error about memory in the same line, which then decides.
static MEMORY_ERROR: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)error:? (?:\d+:? )?out of memory|OUT_OF_MEMORY|OUT_OF_DEVICE_MEMORY|OutOfDeviceMemory|MemoryAllocation|Tried to allocate|CUDA out of memory|ALLOC_FAILED|Cuda failure (?:\d+ )?'out of memory",
    )
});

/// The first definite other failure of a log.
pub(crate) fn find(log: &Log) -> Option<OtherFailure> {
    let mut exception = None;
    let mut best: Option<(usize, usize)> = None;
    for index in 0..log.len().min(LINES_SEARCHED) {
        let line = clipped(log.line(index), LONGEST_LINE);
        if let Some(&row) = WORDS.matches(line).first()
            && best.is_none_or(|(known, _)| row < known)
            && !lists_possible_reasons(line)
            && (kind(line) == LineKind::Error || is_quoted(line))
        {
            best = Some((row, index));
        }
        if exception.is_some() || !["Error", "Exception", "Failure"].iter().any(|word| line.contains(word)) {
            continue;
        }
        let (_, body) = split_prefix(line);
        if let Some(found) = EXCEPTION.captures(body.trim())
            && !MEMORY.is_match(body)
        {
            let message = found.get(2).map_or("", |message| message.as_str()).trim();
            let message: String = message.chars().take(80).collect();
            let stop = if message.is_empty() { String::new() } else { format!(": {message}") };
            exception = Some((index, format!("{}{stop}", &found[1])));
        }
    }
    if let Some((row, index)) = best {
        let known = &KNOWN[row];
        let mut fix = Fix::new(known.action);
        fix.command = known.command.map(str::to_owned);
        let fixes = allocator_options(log, log.line(index)).into_iter().chain([fix]).collect();
        return Some(OtherFailure {
            what: known.what.to_owned(),
            line: log.number(index),
            quote: log.line(index).to_owned(),
            fixes,
            is_definite: true,
            is_reason_open: known.what == LOST_CONTEXT,
        });
    }
    let (index, name) = exception?;
    let is_definite = !FOLLOWING_EXCEPTIONS.iter().any(|following| name.starts_with(following));
    Some(OtherFailure {
        is_definite,
        what: format!("the program stopped with {name}"),
        line: log.number(index),
        quote: log.line(index).to_owned(),
        fixes: Vec::new(),
        is_reason_open: false,
    })
}

/// An assertion of PyTorch's allocator where the text sets the allocator's options: several of them do not work together
/// with expandable segments.
fn allocator_options(log: &Log, line: &str) -> Option<Fix> {
    static ALLOCATOR: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"expandable_segment|CUDACachingAllocator|HIPCachingAllocator|CUDAMallocAsync|AllocatorConfig",
        )
    });
    static OPTIONS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r#"\b(PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF)["'\]]*(?:\s?=\s?|\s*:\s*|,\s*)["']?((?:[a-z_]+:(?:\[[^\]\s]*\]|[\w.]+),?)+)"#,
        )
    });
    if !line.contains("INTERNAL ASSERT") || !ALLOCATOR.is_match(line) {
        return None;
    }
    let found = (0..log.len().min(LINES_SEARCHED)).find_map(|index| {
        OPTIONS
            .captures(clipped(log.line(index), LONGEST_LINE))
            .map(|found| (found[1].to_owned(), found[2].to_owned()))
    });
    let (variable, options) = found?;
    let is_expandable = |option: &&str| option.eq_ignore_ascii_case("expandable_segments:true");
    let options: Vec<&str> = options.split(',').map(str::trim).filter(|option| !option.is_empty()).collect();
    let expandable = options.iter().copied().find(is_expandable);
    let others: Vec<&str> = options.iter().copied().filter(|option| !is_expandable(option)).collect();
    Some(match expandable {
        Some(expandable) if !others.is_empty() => Fix::new(format!(
            "drop one of the allocator's options: {} does not work together with expandable segments in this version",
            others.join(", ")
        ))
        .command(format!("export {variable}={expandable}   (or: {variable}={})", others.join(","))),
        _ => Fix::new(format!("run without the allocator's option {}, which this code path does not support", options.join(", ")))
            .command(format!("unset {variable}")),
    })
}

/// A failure that says little by itself, for a text in which no memory ran out: a library that was not set up, an
/// exception that follows from another one, or a kill.
pub(crate) fn minor(log: &Log) -> Option<OtherFailure> {
    /// One of these stands in every line that is read.
    const WORDS: [&str; 7] =
        ["_NOT_INITIALIZED", "137", "SIGKILL", "Killed", "Error", "Exception", "Failure"];
    static STATUS: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"\bCU(?:DNN|BLAS|SOLVER|SPARSE)_STATUS_NOT_INITIALIZED\b"));
    static KILLED: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)\b(?:exit\w*|status)\b\W{0,3}(?:with )?(?:code|status)?\W{0,8}137\b|\bSIGKILL\b|^\W*Killed\W*$",
        )
    });
    static ABOUT_MEMORY: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)memory|out of m|alloc|oom|buffer size|resource"));
    let failure = |index: usize, what: String, fixes: Vec<Fix>| OtherFailure {
        what,
        line: log.number(index),
        quote: log.line(index).to_owned(),
        fixes,
        is_definite: false,
        is_reason_open: false,
    };
    (0..log.len().min(LINES_SEARCHED)).find_map(|index| {
        let line = clipped(log.line(index), LONGEST_LINE);
        if !WORDS.iter().any(|word| line.contains(word)) {
            return None;
        }
        let (_, body) = split_prefix(line);
        if STATUS.is_match(line) && kind(line) == LineKind::Error {
            let check = Fix::new("check that the library's version is the one the framework was built with")
                .command(
                    "python -c 'import torch; print(torch.version.cuda, torch.backends.cudnn.version())'",
                );
            return Some(failure(index, "a CUDA library could not be initialized".to_owned(), vec![check]));
        }
        if KILLED.is_match(line) {
            let what = "the process was killed from outside (SIGKILL), and the log does not mention a memory shortage";
            return Some(failure(index, what.to_owned(), Vec::new()));
        }
        let name = EXCEPTION.captures(body.trim()).filter(|_| !ABOUT_MEMORY.is_match(body))?;
        Some(failure(index, format!("the program stopped with {}", &name[1]), Vec::new()))
    })
}

/// Exceptions that programs raise when something else failed before.
const FOLLOWING_EXCEPTIONS: [&str; 6] =
    ["RuntimeError", "Exception", "ValueError", "OSError", "ConnectionError", "TimeoutError"];

/// An error that a person quotes in a sentence.
fn is_quoted(line: &str) -> bool {
    line.contains(['`', '"', '\'', ':'])
}

/// Lines of a log that are searched: the first failure decides, and logs of millions of lines are searched for
/// memory first.
const LINES_SEARCHED: usize = 200_000;
const LONGEST_LINE: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definite_failures_are_named() {
        for (text, words) in [
            ("RuntimeError: CUDA error: an illegal memory access was encountered", "illegal"),
            ("RuntimeError: CUDA error: misaligned address", "not aligned"),
            ("cuLaunchKernel returned CUDA_ERROR_MISALIGNED_ADDRESS", "not aligned"),
            ("RuntimeError: CUDA error: device-side assert triggered", "assertion"),
            ("CUDA error: no kernel image is available for execution on the device", "architecture"),
            ("RuntimeError: !block INTERNAL ASSERT FAILED at \"x.cpp\":12", "assertions"),
            ("Cuda failure 1 'invalid argument'", "NCCL"),
            ("ModuleNotFoundError: No module named 'flash_attn'", "ModuleNotFoundError"),
            (
                "[METAL] failed: Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)",
                "device lost",
            ),
            ("vk::Queue::submit: ErrorDeviceLost", "device lost"),
            ("Memory access fault by GPU node-1 on address 0x7f00. Reason: Page not present", "page fault"),
            ("WebGL: CONTEXT_LOST_WEBGL: loseContext: context lost", "lost its graphics context"),
            ("Uncaught: WebGPU device was lost, reason: unknown", "lost its graphics context"),
            (
                "[AVHWDeviceContext @ 0x55] No VA display found for device /dev/dri/renderD128.",
                "hardware decoding",
            ),
            (
                "Device setup failed for decoder on input stream #0:1 : Cannot allocate memory",
                "hardware decoding",
            ),
            ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", "same GPU"),
        ] {
            let other = find(&Log::new(text)).unwrap_or_else(|| panic!("{text}"));
            assert!(other.what.contains(words), "{text}: {}", other.what);
        }
        assert!(find(&Log::new("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB")).is_none());
        assert!(find(&Log::new("torch.OutOfMemoryError: CUDA out of memory.")).is_none());
    }

    #[test]
    fn an_assertion_of_the_allocator_blames_its_options() {
        let assertion = "RuntimeError: !block->expandable_segment_ INTERNAL ASSERT FAILED at \"../c10/cuda/CUDACachingAllocator.cpp\":2401, please report a bug to PyTorch.";
        let command =
            |text: &str| find(&Log::new(text)).unwrap().fixes[0].command.clone().unwrap_or_default();
        for (setting, first) in [
            (
                "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True",
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True   (or: PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64)",
            ),
            (
                "os.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"expandable_segments:True,garbage_collection_threshold:0.8\"",
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True   (or: PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8)",
            ),
            ("PYTORCH_ALLOC_CONF=expandable_segments:True python run.py", "unset PYTORCH_ALLOC_CONF"),
            ("python run.py", "pip install --upgrade torch"),
        ] {
            assert_eq!(command(&format!("{setting}\n{assertion}")), first);
        }
        // Another assertion has nothing to do with the allocator.
        let text = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nRuntimeError: ready INTERNAL ASSERT FAILED at \"reducer.cpp\":9";
        assert_eq!(command(text), "pip install --upgrade torch");
    }

    #[test]
    fn minor_failures_are_named_too() {
        for (text, words) in [
            ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "initialized"),
            ("job ended with exit code 137", "killed"),
            ("BrokenPipeError: [Errno 32] Broken pipe", "BrokenPipeError"),
        ] {
            assert!(minor(&Log::new(text)).is_some_and(|other| other.what.contains(words)), "{text}");
        }
        assert!(minor(&Log::new("| 0 | 3MiB / 11264MiB |\nstep 137")).is_none());
    }
}
