//! The machine behind a text: its operating system, its GPU's maker, PyTorch's version. Advice differs by all of
//! them, and a setting that the platform does not have is worse than none.

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::advice::Maker;
use makeroom_search::{Captures, Regex, pattern};

use crate::figures::captured_number;
use crate::searched::Searched;

/// Words of hosted notebooks.
const HOSTED: [&str; 6] = [
    "kaggle notebook",
    "/kaggle/",
    "google.colab",
    "google/colab",
    "Your notebook tried to allocate",
    "crashed after using all available RAM",
];

/// Interfaces that every maker's GPUs have.
const RUNS_ON_ANY: [Framework; 7] = [
    Framework::Vulkan,
    Framework::OpenCl,
    Framework::Sycl,
    Framework::Direct3d,
    Framework::OpenGl,
    Framework::Wgpu,
    Framework::Unreal,
];

/// The operating system that a text shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum System {
    /// Linux, or nothing says otherwise.
    #[default]
    Linux,
    Windows,
    /// Linux inside Windows.
    Wsl,
    MacOs,
    /// A board with memory that CPU and GPU share.
    Jetson,
}

/// What kind of device ran out of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Device {
    /// A GPU, or nothing says otherwise.
    #[default]
    Gpu,
    Tpu,
    /// Huawei's Ascend.
    Npu,
}

impl Device {
    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gpu => "GPU",
            Self::Tpu => "TPU",
            Self::Npu => "NPU",
        }
    }
}

/// The machine behind a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) system: System,
    pub(crate) maker: Maker,
    pub(crate) device: Device,
    /// PyTorch's version, major and minor.
    pub(crate) torch: Option<(u32, u32)>,
    /// Python's version, major and minor.
    pub(crate) python: Option<(u32, u32)>,
    /// A hosted notebook, where the user is not root.
    pub(crate) is_hosted: bool,
    /// The text itself uses the allocator variable's new name.
    names_new_variable: bool,
}

static WINDOWS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b[A-Z]:\\{1,2}[\w. ()+-]+\\|\bWinError\b|\bWindows-1[01]|\bMicrosoft Windows\b|\bwin32\b|\.\.\\c10\\|\.exe\b|\.bat\b|\.dll\b|\bWindows (?:XP|7|8|1[01]|Server)\b|\bCreateProcess[AW]?\b|\b(?:os )?error\W{0,3}1455\b|\bpag(?:e|ing) ?file\b|\bDDERR_|\bD3D1[12]\b|\bTask Manager\b|Allocator: not enough memory: you tried",
    )
});
static WSL: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bwsl2?\b|microsoft-standard|/mnt/[c-f]/"));
static MAC: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\bMPS backend|\bmacOS\b|\bDarwin\b|/Users/\w|/opt/homebrew/|Apple M\d"));
static JETSON: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\bjetson\b|\btegra\b|\bjetpack\b|\bL4T\b|\bNvMap|\bOrin\b"));
static TPU: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bmemory space hbm\b|CompileTimeHbmOom|\bhbm capacity\b|XLA:TPU|_HBM0\b|\bdevice=TPU\b|\btpu_execute|at the bottom of memory\b|PJRT_DEVICE=TPU|\bTPU ?(?:v\d|cores?\b|chips?\b|VM\b|pods?\b|slices?\b)",
    )
});
static NPU: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bNPU out of memory|\bnpu-smi\b|\btorch_npu\b|\bAscend ?(?:910|310|Error|kernel)|\bnpu ?(?:内存|显存|memory)",
    )
});
/// Makers of GPUs in texts of programs that run on any of them.
static NVIDIA_GPU: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\bnvidia\b|\bgeforce\b|\b[rg]tx ?-?\d|\bquadro\b|\btesla\b|\bcuda\b|\b\d{3}MX?\b")
});
static INTEL_GPU: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bIntel(?:\(R\))?[^\n]{0,24}\b(?:graphics|iris|arc|u?hd|igpu)\b|\biris (?:xe|plus|pro)\b|\bu?hd graphics\b|\b(?:haswell|broadwell|skylake|tiger ?lake|alder ?lake|meteor ?lake)\b|\bi915\b|\barc (?:a|b)?\d{3}\b|level_zero backend|\b(?:UR|ZE)_RESULT_ERROR|\btorch[/\\.]xpu\b",
    )
});
static AMD_GPU: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\bradeon\b|\bRADV\b|\bamdgpu\b|\bRX ?-?[4-9]\d{2,3}\b|\bvega ?\d|\bAMD [^\n]{0,16}graphics")
});
static TORCH: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:py)?torch(?: version)?[\x22']?(?:==| ?[:=]? ?v?|-)(\d)\.(\d{1,2})(?:\.\d|\b|\+)")
});
static PYTHON: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\bpython(?:-| version:? ?| ?)([23])\.(\d{1,2})\b"));

impl Environment {
    /// Reads it from a text. `framework` is the one that failed.
    pub(crate) fn read(text: Searched<'_>, framework: Framework) -> Self {
        const AMD: [&str; 6] =
            ["HIP out of memory", "hipErrorOutOfMemory", "rocm-smi", "/opt/rocm", "gfx1", "gfx90"];
        let maker = match Maker::of_framework(framework) {
            Maker::Nvidia if AMD.iter().any(|mark| text.contains(mark)) => Maker::Amd,
            maker => maker,
        };
        let matches = |words: &Regex| text.any(|part| words.is_match(part));
        let maker = if maker == Maker::Nvidia && RUNS_ON_ANY.contains(&framework) && !matches(&NVIDIA_GPU) {
            match (matches(&INTEL_GPU), matches(&AMD_GPU)) {
                (true, _) => Maker::Intel,
                (false, true) => Maker::Amd,
                (false, false) => maker,
            }
        } else {
            maker
        };
        let system = if maker == Maker::Apple || matches(&MAC) {
            System::MacOs
        } else if matches(&JETSON) {
            System::Jetson
        } else if matches(&WSL) {
            System::Wsl
        } else if matches(&WINDOWS) {
            System::Windows
        } else {
            System::Linux
        };
        // Only Apple has Metal.
        let is_metal = ["kIOGPU", "ggml_metal", "MTLCommandBuffer", "Metal Performance"]
            .iter()
            .any(|mark| text.contains(mark));
        let (system, maker) = if is_metal && !text.contains("CUDA error") {
            (System::MacOs, Maker::Apple)
        } else {
            (system, maker)
        };
        let device = if matches(&TPU) {
            Device::Tpu
        } else if matches(&NPU) {
            Device::Npu
        } else {
            Device::Gpu
        };
        let version = |found: Captures<'_>| Some((captured_number(&found, 1)?, captured_number(&found, 2)?));
        Self {
            system,
            maker,
            device,
            torch: text.parts().iter().find_map(|part| TORCH.captures(part).and_then(version)),
            python: text.parts().iter().find_map(|part| PYTHON.captures(part).and_then(version)),
            is_hosted: HOSTED.iter().any(|mark| text.contains(mark)),
            names_new_variable: text.contains("PYTORCH_ALLOC_CONF"),
        }
    }

    /// The variable that configures PyTorch's allocator: from 2.10 on `PYTORCH_ALLOC_CONF`, before that one per maker. 2.9
    /// documents the new one and does not read it.
    pub(crate) fn allocator_variable(&self) -> &'static str {
        let is_new = self.torch.map_or(self.names_new_variable, |version| version >= (2, 10));
        match self.maker {
            _ if is_new => "PYTORCH_ALLOC_CONF",
            Maker::Amd => "PYTORCH_HIP_ALLOC_CONF",
            _ => "PYTORCH_CUDA_ALLOC_CONF",
        }
    }

    /// Whether PyTorch has expandable segments here: not on Windows, WSL2 and Jetson, and not before 2.1.
    pub(crate) fn has_expandable_segments(&self) -> bool {
        matches!(self.system, System::Linux)
            && matches!(self.maker, Maker::Nvidia | Maker::Amd)
            && self.torch.is_none_or(|version| version >= (2, 1))
    }

    /// Whether PyTorch 2.1 can be installed, which has expandable segments and needs Python 3.8.
    pub(crate) fn can_update_torch(&self) -> bool {
        self.python.is_none_or(|version| version >= (3, 8))
    }

    /// The shell's way to set a variable.
    pub(crate) fn export(&self, assignment: &str) -> String {
        match self.system {
            System::Windows => format!("set {assignment}"),
            _ => format!("export {assignment}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_told_apart() {
        for (text, system) in [
            (r#"File "D:\ComfyUI\execution.py", line 3"#, System::Windows),
            ("OSError: [WinError 1455] The paging file is too small", System::Windows),
            ("Linux 5.15.90.1-microsoft-standard-WSL2", System::Wsl),
            ("MPS backend out of memory", System::MacOs),
            ("NvMapMemAllocInternalTagged: 1075072515 error 12", System::Jetson),
            (r#"File "/home/user/train.py", line 3"#, System::Linux),
        ] {
            assert_eq!(Environment::read(text.into(), Framework::PyTorch).system, system, "{text}");
        }
    }

    #[test]
    fn the_variable_follows_maker_and_version() {
        let variable = |text: &str| Environment::read(text.into(), Framework::PyTorch).allocator_variable();
        assert_eq!(variable("torch 2.5.1"), "PYTORCH_CUDA_ALLOC_CONF");
        assert_eq!(variable("PyTorch version: 2.9.0"), "PYTORCH_CUDA_ALLOC_CONF");
        assert_eq!(variable("torch==2.10.0"), "PYTORCH_ALLOC_CONF");
        assert_eq!(variable("try setting PYTORCH_ALLOC_CONF=expandable_segments:True"), "PYTORCH_ALLOC_CONF");
        assert_eq!(variable("HIP out of memory"), "PYTORCH_HIP_ALLOC_CONF");
        assert!(
            !Environment::read(r"C:\Users\x\main.py".into(), Framework::PyTorch).has_expandable_segments()
        );
    }
}
