//! The language of the program that failed. Advice in another language is worse than none.
//!
//! Tracebacks, file names and runtimes show it. A Python traceback decides against everything else, because other
//! languages are called from Python and not the other way around; the names of PyTorch alone do not, because its
//! allocator has bindings for .NET, R, Java and C++.

use std::sync::LazyLock;

use makeroom_search::{Regex, pattern};

use crate::searched::Searched;

/// The languages that programs on GPUs are written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Language {
    #[default]
    Unknown,
    Python,
    Matlab,
    Julia,
    R,
    DotNet,
    /// In a browser or in Node.js.
    JavaScript,
    Rust,
    Java,
    Lua,
    /// C, C++ or Fortran.
    Native,
}

static TRACEBACK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"Traceback \(most recent call last\)|File "[^"\n]{1,200}\.py", line \d|site-packages|dist-packages|<ipython-input|\.py:\d+ in "#,
    )
});
static PYTHON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bpython3?\b|\bpip3? install|\w\.py\b|\bconda\b|\bimport torch\b|\btorch\.(?:cuda|nn|OutOf)|\bRuntimeError: |\bipynb\b|\bjupyter\b|\bcolab\b|\bkeras\b|\btensorflow\b|\bpytorch\b",
    )
});

/// What shows each of the other languages, in the order in which they decide.
static MARKS: LazyLock<[(Language, Regex); 9]> = LazyLock::new(|| {
    [
        (
            Language::Matlab,
            pattern(
                r"\bgpuArray\b|parallel\.gpu|\bgpuDevice\b|\bMATLAB\b|(?m)^Error in [\w./+]+ \(line \d+\)|\bmexcuda\b|\btrainNetwork\b|\btrainnet\(",
            ),
        ),
        (
            Language::Julia,
            pattern(
                r"\bCUDA\.jl\b|\bjulia> |\bCuArray\b|\w\.jl:\d+|\bFlux\.jl\b|\bLux\.jl\b|@ CUDA |(?m)^\s*using CUDA\s*(?:,|$)|\bERROR: LoadError:",
            ),
        ),
        (
            Language::R,
            pattern(
                r"\blibrary\((?:torch|luz|tabnet|keras|tensorflow)\)|\btorch_tensor\(|\bnn_module\(|\bcpp_torch_|\blantern\b|\btabnet_(?:fit|pretrain)|\bluz::|\w\.R:\d+|\bRStudio\b|(?m)^\w+ (?:in|dans|en) \(?function ?\(|\bcall_c_function\b",
            ),
        ),
        (
            Language::DotNet,
            pattern(
                r"\bTorchSharp\b|\bSystem\.(?:Runtime|Exception|OutOfMemory|Collections|Threading)|\w\.(?:cs|fs):line \d+|\bManagedCuda\b|\bILGPU\b|\bMicrosoft\.ML\b|\.csproj\b|\bdotnet (?:run|build|add)\b|\bDotNet\b|Emgu\.CV|\bOpenCvSharp\b",
            ),
        ),
        (
            Language::Rust,
            pattern(
                r"thread '[^'\n]{1,80}' (?:\(\d+\) )?panicked at|\bcargo run\b|\w\.rs:\d+:\d+|\bRUST_BACKTRACE\b|\.cargo/registry",
            ),
        ),
        (
            Language::Java,
            pattern(r"\bjava\.lang\.|(?m)^\s*at (?:org|com|ai|net)\.[\w.$]+\(|\bdeeplearning4j\b|\bnd4j\b"),
        ),
        (Language::Lua, pattern(r"\bluajit\b|\w\.lua\b|\bcutorch\b|\bcunn\b|\btorch7\b")),
        (
            Language::JavaScript,
            pattern(
                r"\bWebGL2?\b|\bthree(?:\.module)?\.js\b|\bTHREE\.\w|\bWebLLM\b|\bweb-llm\b|\bGPUDeviceLostInfo\b|\bnavigator\.gpu\b|\btfjs\b|\btf\.tidy\b|\btransformers\.js\b|\bonnxruntime-web\b|\w\.(?:js|mjs|ts|tsx):\d+|\bnode_modules\b|\bGPUBuffer\b|\bGPUOutOfMemoryError\b|\bBabylonJS\b|\bCesium\b|\bMapbox\b|\bElectron\b|\bPixi(?:JS)?\b|(?i:chrome|firefox|safari)\b.{0,200}(?i:tab|browser|page|webgpu|website)",
            ),
        ),
        (
            Language::Native,
            pattern(
                r"\w\.(?:cu|cpp|cc|cxx|hpp|cuh|c|f90|F90):\d+|\bcudaMalloc|\bcuMemAlloc|\bhipMalloc|\bnvcc\b|\bCMake|\bvkAllocateMemory\b|\bVma[A-Z]\w+|\bint main\(|\bmpirun\b|\bKokkos\b",
            ),
        ),
    ]
});

impl Language {
    /// The language that a text shows.
    pub(crate) fn from_text(text: Searched<'_>) -> Self {
        let matches = |words: &Regex| text.any(|part| words.is_match(part));
        if matches(&TRACEBACK) {
            return Self::Python;
        }
        let marked = MARKS.iter().find(|(_, marks)| matches(marks)).map(|(language, _)| *language);
        match marked {
            // C++ is below every framework: its names decide only where nothing shows Python.
            Some(Self::Native) | None if matches(&PYTHON) => Self::Python,
            marked => marked.unwrap_or_default(),
        }
    }

    pub(crate) fn is_python(self) -> bool {
        self == Self::Python
    }

    /// Whether nothing rules out Python.
    pub(crate) fn may_be_python(self) -> bool {
        matches!(self, Self::Python | Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_told_apart() {
        for (text, language) in [
            ("Traceback (most recent call last):\n  File \"a.py\", line 3", Language::Python),
            ("torch.cuda.OutOfMemoryError: CUDA out of memory.", Language::Python),
            ("Error using gpuArray/zeros\nOut of memory on device.", Language::Matlab),
            ("ERROR: Out of GPU memory trying to allocate 2.0 GiB\n @ CUDA ~/x/pool.jl:219", Language::Julia),
            ("Error in (function (self, other) : CUDA out of memory.", Language::R),
            ("System.Runtime.InteropServices.ExternalException: CUDA out of memory.", Language::DotNet),
            ("thread 'main' panicked at src/main.rs:7:3: OutOfDeviceMemory", Language::Rust),
            ("THREE.WebGLRenderer: GL_OUT_OF_MEMORY", Language::JavaScript),
            ("train.lua:88: cuda runtime error (2) : out of memory", Language::Lua),
            ("solver.cu:88: cudaMalloc failed: out of memory", Language::Native),
            ("out of memory", Language::Unknown),
        ] {
            assert_eq!(Language::from_text(text.into()), language, "{text}");
        }
    }

    #[test]
    fn a_python_traceback_decides() {
        let text =
            "Traceback (most recent call last):\n  File \"a.py\", line 3\nerror at kernel.cu:12: cudaMalloc";
        assert_eq!(Language::from_text(text.into()), Language::Python);
    }
}
