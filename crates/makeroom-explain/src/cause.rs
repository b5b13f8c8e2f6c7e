//! The causes `why` can name, and how sure it may be. The names are a contract: `--json` prints them.

use std::fmt;

/// Why memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The request alone is larger than the device, or than free memory plus all that this process has reserved.
    RequestExceedsDevice,
    /// The request alone could fit; with what is live it cannot.
    LiveDataFillsDevice,
    /// Free plus cached memory would be enough, no piece is large enough, and the slack is at least 5 %.
    Fragmentation,
    /// Another allocator in the process holds cached memory that this one needs.
    CacheHeldByFramework,
    /// Other listed processes hold the missing memory.
    OtherProcesses,
    /// Memory is used and no listed process holds it.
    HiddenHolder,
    /// Contexts, NCCL, cuDNN workspaces, private pools of CUDA graphs.
    NonFrameworkOverhead,
    /// A fraction, a limit, MIG, vGPU or a container cap refuses although the device has room.
    ArtificialLimit,
    /// A framework took most of the card up front.
    Preallocation,
    /// Host or pinned memory ran out, not the GPU.
    HostMemory,
    /// A kernel asks for more shared memory, registers or in-kernel heap than there is.
    SharedMemoryOrKernelResource,
    /// Live memory grows step by step without bound.
    Leak,
    /// An absurd request: wrap-around, wrong shape.
    IntegerOrShapeBug,
    /// The input does not decide it.
    Undetermined,
    /// Nothing failed in this input.
    None,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 15] = [
        Self::RequestExceedsDevice,
        Self::LiveDataFillsDevice,
        Self::Fragmentation,
        Self::CacheHeldByFramework,
        Self::OtherProcesses,
        Self::HiddenHolder,
        Self::NonFrameworkOverhead,
        Self::ArtificialLimit,
        Self::Preallocation,
        Self::HostMemory,
        Self::SharedMemoryOrKernelResource,
        Self::Leak,
        Self::IntegerOrShapeBug,
        Self::Undetermined,
        Self::None,
    ];

    /// The cause with this name in `--json`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }

    /// The name in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestExceedsDevice => "request_exceeds_device",
            Self::LiveDataFillsDevice => "live_data_fills_device",
            Self::Fragmentation => "fragmentation",
            Self::CacheHeldByFramework => "cache_held_by_framework",
            Self::OtherProcesses => "other_processes",
            Self::HiddenHolder => "hidden_holder",
            Self::NonFrameworkOverhead => "non_framework_overhead",
            Self::ArtificialLimit => "artificial_limit",
            Self::Preallocation => "preallocation",
            Self::HostMemory => "host_memory",
            Self::SharedMemoryOrKernelResource => "shared_memory_or_kernel_resource",
            Self::Leak => "leak",
            Self::IntegerOrShapeBug => "integer_or_shape_bug",
            Self::Undetermined => "undetermined",
            Self::None => "none",
        }
    }

    /// The name as a person reads it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::RequestExceedsDevice => "REQUEST EXCEEDS THE DEVICE",
            Self::LiveDataFillsDevice => "LIVE DATA FILLS THE MEMORY",
            Self::Fragmentation => "FRAGMENTATION",
            Self::CacheHeldByFramework => "CACHE HELD BY ANOTHER FRAMEWORK",
            Self::OtherProcesses => "OTHER PROCESSES HOLD THE MEMORY",
            Self::HiddenHolder => "A HIDDEN HOLDER HAS THE MEMORY",
            Self::NonFrameworkOverhead => "OVERHEAD OUTSIDE THE FRAMEWORK",
            Self::ArtificialLimit => "AN ARTIFICIAL LIMIT",
            Self::Preallocation => "PREALLOCATION",
            Self::HostMemory => "HOST MEMORY RAN OUT",
            Self::SharedMemoryOrKernelResource => "SHARED MEMORY OR KERNEL RESOURCE",
            Self::Leak => "A LEAK",
            Self::IntegerOrShapeBug => "INTEGER OR SHAPE BUG",
            Self::Undetermined => "UNDETERMINED",
            Self::None => "NOTHING FAILED",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How sure an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// The input does not decide it.
    Undetermined,
    /// Consistent with the input, and so are other causes.
    Possible,
    /// The figures fit this best, with something taken for granted that is named in the evidence.
    Likely,
    /// It follows from the figures or from what the input states.
    Certain,
}

impl Certainty {
    /// All certainties, the least first.
    pub const ALL: [Self; 4] = [Self::Undetermined, Self::Possible, Self::Likely, Self::Certain];

    /// The name in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Undetermined => "undetermined",
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}

impl fmt::Display for Certainty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
