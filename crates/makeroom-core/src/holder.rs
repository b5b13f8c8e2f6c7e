//! Who holds memory of the driver: the allocator of a recording, or a library with memory of its own.
//!
//! Logic compares these values; their names are for output only.

use std::fmt;

/// Who took a recording's memory from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// PyTorch's caching allocator.
    PyTorch,
    /// A pool with a limit of its own, or makeroom's.
    Pool,
    /// The program itself.
    Program,
}

/// As the subject of a sentence.
impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::PyTorch => "PyTorch",
            Self::Pool => "the pool",
            Self::Program => "the program",
        })
    }
}

macro_rules! libraries {
    ($($variant:ident = $name:literal,)*) => {
        /// A library that allocates device memory, recognized by its file. Sorted by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each is documented by its name")]
        pub enum Library {
            $($variant,)*
        }

        impl Library {
            /// Its name, as people write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$variant),*];
        }
    };
}

libraries! {
    Cupti = "CUPTI",
    CuPy = "CuPy",
    Jax = "JAX",
    Nccl = "NCCL",
    Npp = "NPP",
    Nvrtc = "NVRTC",
    Nvshmem = "NVSHMEM",
    Numba = "Numba",
    OnnxRuntime = "ONNX Runtime",
    PaddlePaddle = "PaddlePaddle",
    PyTorch = "PyTorch",
    Rmm = "RMM",
    TensorFlow = "TensorFlow",
    TensorRt = "TensorRT",
    Triton = "Triton",
    CuBlas = "cuBLAS",
    CuDnn = "cuDNN",
    CuFft = "cuFFT",
    CuRand = "cuRAND",
    CuSolver = "cuSOLVER",
    CuSparse = "cuSPARSE",
    CuTensor = "cuTENSOR",
    LlamaCpp = "llama.cpp",
    NvJpeg = "nvJPEG",
}

impl Library {
    /// Whether it is a framework that caches the memory it frees.
    #[must_use]
    pub const fn caches(self) -> bool {
        matches!(
            self,
            Self::PyTorch | Self::CuPy | Self::Jax | Self::TensorFlow | Self::Rmm | Self::PaddlePaddle
        )
    }

    /// Whether it allocates on behalf of its callers, who are responsible for the free.
    #[must_use]
    pub const fn allocates_for_callers(self) -> bool {
        matches!(self, Self::Npp | Self::Rmm)
    }
}

impl fmt::Display for Library {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_sorted_by_name() {
        assert!(Library::ALL.is_sorted_by_key(|library| library.name()));
        assert!(Library::ALL.is_sorted());
    }
}
