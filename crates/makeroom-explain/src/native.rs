//! Whose machine code a stack frame is: the program's own, a library's that people know by name, or only the way from
//! there to the driver.
//!
//! A native frame knows the file it lies in. The way to the driver (the CUDA runtime, the driver, the C library, the
//! recorder) says nothing about who asked and is passed over, also where the runtime is a part of the program: nvcc links
//! it statically, with names of its own. What lies where systems and packages install their libraries is a library's;
//! everything else is the program's.

use std::borrow::Cow;

use cpp_demangle::{DemangleOptions, Symbol};
use makeroom_core::Library;

/// Whose code a native frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The program's.
    Program,
    /// A library's, and which one, if it is known.
    Library(Option<Library>),
    /// Neither: it only leads to the driver.
    Passage,
}

/// Libraries by the beginnings of their files' names, the longer ones first.
const KNOWN: [(&str, Library); 24] = [
    ("libcublas", Library::CuBlas),
    ("libcudnn", Library::CuDnn),
    ("libnccl", Library::Nccl),
    ("libcufft", Library::CuFft),
    ("libcusparse", Library::CuSparse),
    ("libcusolver", Library::CuSolver),
    ("libcurand", Library::CuRand),
    ("libcutensor", Library::CuTensor),
    ("libnvrtc", Library::Nvrtc),
    ("libnvinfer", Library::TensorRt),
    ("libnvjpeg", Library::NvJpeg),
    ("libnvshmem", Library::Nvshmem),
    ("libnpp", Library::Npp),
    ("libcupti", Library::Cupti),
    ("libc10", Library::PyTorch),
    ("libtorch", Library::PyTorch),
    ("libonnxruntime", Library::OnnxRuntime),
    ("libtensorflow", Library::TensorFlow),
    ("_pywrap_tensorflow", Library::TensorFlow),
    ("libpaddle", Library::PaddlePaddle),
    ("xla_", Library::Jax),
    ("libjax", Library::Jax),
    ("librmm", Library::Rmm),
    ("libggml-cuda", Library::LlamaCpp),
];

/// Packages by their directories.
const PACKAGES: [(&str, Library); 5] = [
    ("/cupy_backends/", Library::CuPy),
    ("/cupy/", Library::CuPy),
    ("/jaxlib/", Library::Jax),
    ("/jax_plugins/", Library::Jax),
    ("/numba/", Library::Numba),
];

/// Files that only lead to the driver, by the beginnings of their names.
const PASSAGES: [&str; 11] = [
    "libcuda.so",
    "libcudart",
    "libmakeroom_preload",
    "libc.so",
    "libc-2",
    "ld-linux",
    "ld-2",
    "libpthread",
    "libdl.so",
    "libstdc++",
    "libgcc_s",
];

/// Functions of the runtime and of the beginning of a program, wherever they were linked into.
const PASSAGE_FUNCTIONS: [&str; 5] =
    ["libcudart_static_", "__cudart", "__libc_start", "__device_stub__", "__cudaRegister"];

/// Libraries of Rust code that are linked into the program and lead to the driver, by the beginnings of their functions'
/// names. Of those that others may build on, such as cudarc, only the callers know which they are.
const RUST_PASSAGES: [&str; 2] = ["makeroom_cuda::", "makeroom_pool::"];

/// C++ functions in PyTorch's snapshots that say nothing about what the memory is for, by the beginnings of their names: the
/// code that recorded the stack, the allocator, the dispatcher, the functions that create empty tensors, and the interpreter.
const TORCH_PASSAGES: [&str; 16] = [
    "torch::unwind::",
    "torch::CapturedTraceback::",
    "torch::cuda::(anonymous namespace)::gather",
    "c10::cuda::CUDACachingAllocator::",
    "c10::impl::",
    "c10::Dispatcher::",
    "c10::StorageImpl::",
    "at::detail::empty_",
    "at::native::empty_",
    "at::empty",
    "at::_ops::",
    "at::(anonymous namespace)::",
    "std::",
    "Py",
    "_Py",
    "__libc_",
];

/// Whether a frame without a library, from a snapshot with C++ frames, says nothing about what the memory is for.
pub(crate) fn is_torch_passage(function: &str) -> bool {
    let name = function.strip_prefix("void ").unwrap_or(function);
    name == "_start" || TORCH_PASSAGES.iter().any(|start| name.starts_with(start))
}

/// The runtime's functions that take or give memory, start kernels or make contexts, by the beginnings of their names.
const RUNTIME: [&str; 12] = [
    "cudaMalloc",
    "cudaFree",
    "cudaHost",
    "cudaMem",
    "cudaLaunch",
    "cudaGraph",
    "cudaSetDevice",
    "cudaInitDevice",
    "cudaDevice",
    "cudaStream",
    "cudaFunc",
    "cudaGet",
];

/// Where systems and packages install.
const INSTALLED: [&str; 7] =
    ["/usr/", "/lib/", "/lib64/", "site-packages/", "dist-packages/", "/lib/python", "/opt/conda/"];

/// Programs that run other programs' code.
const INTERPRETERS: [&str; 5] = ["python", "julia", "node", "ruby", "R"];

/// Whose code a function of a file is. `executable`: the recorded program's own file.
pub(crate) fn owner(file: &str, function: &str, executable: &str) -> Owner {
    let name = file.rsplit('/').next().unwrap_or(file);
    if PASSAGES.iter().any(|passage| name.starts_with(passage)) || is_passage(function) {
        return Owner::Passage;
    }
    if let Some(known) = known_library(file) {
        return Owner::Library(Some(known));
    }
    let is_interpreter = INTERPRETERS.iter().any(|interpreter| {
        name.strip_prefix(interpreter)
            .is_some_and(|rest| rest.chars().all(|character| character.is_ascii_digit() || character == '.'))
    });
    let is_installed = INSTALLED.iter().any(|directory| file.contains(directory));
    if is_interpreter || is_installed && file != executable {
        return Owner::Library(None);
    }
    Owner::Program
}

/// The library that a file belongs to, if it is known.
pub(crate) fn known_library(file: &str) -> Option<Library> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let by_name = KNOWN.iter().find(|(beginning, _)| name.starts_with(beginning));
    let by_directory = || PACKAGES.iter().find(|(directory, _)| file.contains(directory));
    by_name.or_else(by_directory).map(|(_, known)| *known)
}

/// Whether a function is the runtime's or starts programs.
fn is_passage(function: &str) -> bool {
    if function == "_start" || PASSAGE_FUNCTIONS.iter().any(|start| function.contains(start)) {
        return true;
    }
    if let Some(name) = rust_name(function) {
        // `<makeroom_pool::Pool as Drop>::drop`
        let name = name.trim_start_matches('<');
        return RUST_PASSAGES.iter().any(|start| name.starts_with(start));
    }
    let name = if function.starts_with("_Z") { template_name(function) } else { Some(function) };
    name.is_some_and(|name| RUNTIME.iter().any(|start| name.starts_with(start)))
}

/// The name of a mangled template: the runtime's header defines `cudaMalloc<float>` and others in the program itself.
fn template_name(function: &str) -> Option<&str> {
    let name = function.strip_prefix("_Z")?.trim_start_matches('L');
    let text = name.trim_start_matches(|character: char| character.is_ascii_digit());
    let length: usize = name.strip_suffix(text)?.parse().ok()?;
    text.get(length..)?.starts_with('I').then(|| text.get(..length))?
}

/// The name of a Rust function, without the hash that distinguishes versions.
fn rust_name(function: &str) -> Option<String> {
    // The older form is C++'s with a hash at its end.
    let has_hash = || {
        let hash = function.strip_suffix('E').and_then(|name| name.get(name.len().checked_sub(19)?..));
        hash.and_then(|hash| hash.strip_prefix("17h"))
            .is_some_and(|hash| hash.chars().all(|digit| digit.is_ascii_hexdigit()))
    };
    let is_rust = function.starts_with("_R") || function.starts_with("_ZN") && has_hash();
    is_rust.then(|| rustc_demangle::try_demangle(function).ok()).flatten().map(|name| format!("{name:#}"))
}

/// A function's name as its author wrote it, without parameters.
pub(crate) fn readable(function: &str) -> Cow<'_, str> {
    if let Some(name) = rust_name(function) {
        return Cow::Owned(name);
    }
    if !function.starts_with("_Z") {
        return Cow::Borrowed(if is_torch(function) { without_parameters(function) } else { function });
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let name = Symbol::new(function).ok().and_then(|symbol| symbol.demangle_with_options(&options).ok());
    name.map_or(Cow::Borrowed(function), Cow::Owned)
}

/// Whether a demangled name is one of PyTorch's C++ functions. Their parameters fill lines and say nothing.
fn is_torch(function: &str) -> bool {
    let name = function.strip_prefix("void ").unwrap_or(function);
    ["at::", "c10::", "torch::"].iter().any(|space| name.starts_with(space))
}

/// A demangled C++ name up to its parameters: `at::(anonymous namespace)::f<int (*)(int)>(long)` without `(long)`.
fn without_parameters(name: &str) -> &str {
    let mut depth = 0_usize;
    for (position, character) in name.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && position > 0 => {
                let is_name =
                    name[position..].starts_with("(anonymous ") || name[..position].ends_with("operator");
                if !is_name {
                    return &name[..position];
                }
            }
            _ => {}
        }
    }
    name
}

/// How the functions that nvcc makes to launch kernels begin.
const STUB: &str = "__device_stub__";

/// The mangled name of the kernel that a function launches, if nvcc made it for that: `_Z23__device_stub__Z4sortPfPf`
/// launches `_Z4sortPf`.
pub(crate) fn launched_by(function: &str) -> Option<&str> {
    let at = function.find(STUB)?;
    let digits = function[..at].trim_end_matches(|character: char| character.is_ascii_digit()).len();
    let rest = &function[at..];
    // A mangled name says how long the stub's own is.
    let own = match function[digits..at].parse() {
        Ok(length) => rest.get(..length)?,
        Err(_) => rest,
    };
    // C++ names begin with an underscore, of which the stub's has only one more.
    let kernel =
        if own[STUB.len()..].starts_with('Z') { own.get(STUB.len() - 1..)? } else { own.get(STUB.len()..)? };
    (!kernel.is_empty()).then_some(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "/home/me/solver";

    #[test]
    fn the_way_to_the_driver_is_passed_over() {
        for (file, function) in [
            (PROGRAM, "libcudart_static_2ed1f6ec"),
            (PROGRAM, "cudaMalloc"),
            (PROGRAM, "_ZL10cudaMallocIfE9cudaErrorPPT_m"),
            (PROGRAM, "_start"),
            (PROGRAM, "_ZN13makeroom_cuda6memory12DeviceMemory8allocate17h0123456789abcdefE"),
            (
                PROGRAM,
                "_ZN67_$LT$makeroom_pool..pool..Pool$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE",
            ),
            (PROGRAM, "_Z32__device_stub__Z6kernelPfS_iPfS_i"),
            ("/usr/local/cuda/lib64/libcudart.so.12", "cudaMalloc"),
            ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", ""),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", "__libc_start_main"),
            ("/run/user/1/makeroom/libmakeroom_preload-00ff.so", "cuMemAlloc_v2"),
        ] {
            assert_eq!(owner(file, function, PROGRAM), Owner::Passage, "{file} {function}");
        }
    }

    #[test]
    fn the_programs_own_code_is_told_from_libraries() {
        assert_eq!(owner(PROGRAM, "main", PROGRAM), Owner::Program);
        assert_eq!(owner(PROGRAM, "_Z17allocate_and_freem", PROGRAM), Owner::Program);
        assert_eq!(owner("/home/me/libsolver.so", "solve", PROGRAM), Owner::Program);
        assert_eq!(owner("/usr/bin/solver", "main", "/usr/bin/solver"), Owner::Program);
        assert_eq!(owner("/usr/lib/libgomp.so.1", "", PROGRAM), Owner::Library(None));
        assert_eq!(
            owner("/home/me/env/bin/python3.12", "", "/home/me/env/bin/python3.12"),
            Owner::Library(None)
        );
        for (file, known) in [
            ("/opt/cuda/libcublasLt.so.12", Library::CuBlas),
            ("libnccl.so.2", Library::Nccl),
            ("/x/site-packages/torch/lib/libc10_cuda.so", Library::PyTorch),
            ("/x/site-packages/cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so", Library::CuPy),
        ] {
            assert_eq!(owner(file, "f", PROGRAM), Owner::Library(Some(known)), "{file}");
        }
    }

    #[test]
    fn the_recorder_and_the_allocator_of_pytorch_are_passed_over() {
        for function in [
            "torch::unwind::unwind()",
            "torch::CapturedTraceback::gather(bool, bool, bool)",
            "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)",
            "void c10::impl::wrap_kernel_functor_unboxed_<int>(int)",
            "_PyEval_EvalFrameDefault",
            "PyObject_Vectorcall",
        ] {
            assert!(is_torch_passage(function), "{function}");
        }
        for function in
            ["at::native::_to_copy(at::Tensor const&)", "torch::autograd::Engine::thread_main", "step"]
        {
            assert!(!is_torch_passage(function), "{function}");
        }
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        assert_eq!(readable("_Z17allocate_and_freem"), "allocate_and_free");
        assert_eq!(readable("_ZN6solver4gridIfE4growEm"), "solver::grid<float>::grow");
        assert_eq!(readable("main"), "main");
        assert_eq!(readable("_Z!"), "_Z!");
        assert_eq!(readable("_ZN6solver4grid4grow17h0123456789abcdefE"), "solver::grid::grow");
        assert_eq!(readable("_RNvCs15kBYyAo9fc_7mycrate7example"), "mycrate::example");
        assert_eq!(
            readable("_ZN6solver4grid4grow17hnot_sixteen_digiE"),
            "solver::grid::grow::hnot_sixteen_digi"
        );
        for (name, written) in [
            ("at::native::_to_copy(at::Tensor const&, bool)", "at::native::_to_copy"),
            (
                "at::(anonymous namespace)::f<int (*)(int)>(long)",
                "at::(anonymous namespace)::f<int (*)(int)>",
            ),
            ("at::less::operator()(int, int) const", "at::less::operator()"),
            ("at::less::operator<(int", "at::less::operator<(int"),
            ("void at::f(int)", "void at::f"),
            // Others' names stay as they are: JAX calls a program `jit(step)`.
            ("jit(step)", "jit(step)"),
            ("Grid::resize(unsigned long)", "Grid::resize(unsigned long)"),
        ] {
            assert_eq!(readable(name), written);
        }
    }

    #[test]
    fn stubs_tell_the_kernel_they_launch() {
        for (function, kernel) in [
            ("_Z28__device_stub__Z6kernelPfS_iPfS_i", Some("_Z6kernelPfS_i")),
            ("_ZL23__device_stub__Z4sortPfPf", Some("_Z4sortPf")),
            ("__device_stub__saxpy", Some("saxpy")),
            ("_Z999__device_stub__Z4sortPf", None),
            ("_Z6kernelPfS_i", None),
            ("__device_stub__", None),
        ] {
            assert_eq!(launched_by(function), kernel, "{function}");
        }
    }
}
