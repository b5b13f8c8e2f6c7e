//! The frameworks, libraries and programs whose messages and recordings are recognized.
//!
//! Logic compares values of [`Framework`]; [`Framework::id`] is for output only (`framework` in `--json`). Ids are a
//! contract: they are never renamed.

macro_rules! frameworks {
    ($($name:ident = $id:literal,)*) => {
        /// A framework, library or program, by the format of its messages or of its recording.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each is documented by its id")]
        pub enum Framework {
            /// The format is general, and shows no framework.
            #[default]
            Unknown,
            $($name,)*
        }

        impl Framework {
            /// The id, as in `--json`; `None` for [`Framework::Unknown`].
            #[must_use]
            pub const fn id(self) -> Option<&'static str> {
                match self {
                    Self::Unknown => None,
                    $(Self::$name => Some($id),)*
                }
            }

            /// All frameworks with an id.
            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

// Sorted by id.
frameworks! {
    Amber = "amber",
    AmRex = "amrex",
    Ascend = "ascend",
    Blender = "blender",
    Caffe = "caffe",
    CatBoost = "catboost",
    Colmap = "colmap",
    CTranslate2 = "ctranslate2",
    CubeCl = "cubecl",
    CuBlas = "cublas",
    Cuda = "cuda",
    CuDnn = "cudnn",
    CuFft = "cufft",
    CuPy = "cupy",
    CuRand = "curand",
    CuSolver = "cusolver",
    CuSparse = "cusparse",
    Dali = "dali",
    Darknet = "darknet",
    Dask = "dask",
    DeepLearning4j = "deeplearning4j",
    Direct3d = "direct3d",
    DirectMl = "directml",
    Dlib = "dlib",
    Ethminer = "ethminer",
    Faiss = "faiss",
    FlashInfer = "flashinfer",
    FluidX3d = "fluidx3d",
    Gromacs = "gromacs",
    Hami = "hami",
    Hashcat = "hashcat",
    HeavyDb = "heavydb",
    Hip = "hip",
    HipBlas = "hipblas",
    Host = "host",
    InvokeAi = "invokeai",
    Jax = "jax",
    Jittor = "jittor",
    Julia = "julia",
    KernelDriver = "kernel driver",
    Kokkos = "kokkos",
    Lammps = "lammps",
    LightGbm = "lightgbm",
    LlamaCpp = "llama.cpp",
    LmStudio = "lm-studio",
    LmDeploy = "lmdeploy",
    Matlab = "matlab",
    Metal = "metal",
    MindSpore = "mindspore",
    Mitsuba = "mitsuba",
    MlcLlm = "mlc-llm",
    Mlx = "mlx",
    MxNet = "mxnet",
    Namd = "namd",
    Nccl = "nccl",
    Numba = "numba",
    Nvenc = "nvenc",
    NvidiaDriver = "nvidia driver",
    NvidiaSmi = "nvidia-smi",
    Ollama = "ollama",
    OnnxRuntime = "onnxruntime",
    OpenCl = "opencl",
    OpenGl = "opengl",
    OpenMm = "openmm",
    OpenVino = "openvino",
    OptiX = "optix",
    PaddlePaddle = "paddlepaddle",
    Parsec = "parsec",
    PhysX = "physx",
    PyTorch = "pytorch",
    PyTorchMps = "pytorch-mps",
    PyTorchRocm = "pytorch-rocm",
    PyTorchXla = "pytorch-xla",
    PyTorchXpu = "pytorch-xpu",
    Redshift = "redshift",
    Relion = "relion",
    Rmm = "rmm",
    Sglang = "sglang",
    SparkRapids = "spark-rapids",
    Sycl = "sycl",
    TensorFlow = "tensorflow",
    TensorRt = "tensorrt",
    TensorRtLlm = "tensorrt-llm",
    Tgi = "tgi",
    Theano = "theano",
    Thrust = "thrust",
    Triton = "triton",
    TritonServer = "triton-server",
    Unreal = "unreal",
    Vllm = "vllm",
    Vulkan = "vulkan",
    Wgpu = "wgpu",
    XgBoost = "xgboost",
}

impl Framework {
    /// Whether it is PyTorch, on any vendor's device.
    #[must_use]
    pub const fn is_torch(self) -> bool {
        matches!(
            self,
            Self::PyTorch | Self::PyTorchMps | Self::PyTorchRocm | Self::PyTorchXla | Self::PyTorchXpu
        )
    }

    /// Whether it is TensorRT or TensorRT-LLM.
    #[must_use]
    pub const fn is_tensorrt(self) -> bool {
        matches!(self, Self::TensorRt | Self::TensorRtLlm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sorted_and_unique() {
        let ids: Vec<&str> = Framework::ALL.iter().filter_map(|framework| framework.id()).collect();
        assert_eq!(ids.len(), Framework::ALL.len());
        assert!(ids.is_sorted_by(|first, second| first < second), "{ids:?}");
        assert_eq!(Framework::default().id(), None);
    }
}
