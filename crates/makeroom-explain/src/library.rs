//! Whose code a stack frame is: the program's own, or a library's.
//!
//! People look for their own lines. A frame counts as a library's when its file lies where packages are
//! installed, belongs to a framework by its path, or is not source at all.

/// Path fragments that only installed packages have.
const INSTALLED: [&str; 7] = [
    "site-packages/",
    "dist-packages/",
    "/lib/python",
    "\\lib\\site-packages\\",
    "<frozen ",
    "<string>",
    "<__array_function__",
];

/// Path fragments of what systems install.
const SYSTEM: [&str; 8] = [
    "/usr/",
    ".so",
    "/cuda/include/",
    "/include/c++/",
    "/build/glibc",
    "/rustc/",
    "/rustlib/",
    "/.cargo/registry/",
];

/// Packages whose files are recognized by their first directory, for paths that were shortened.
const PACKAGES: [&str; 24] = [
    "torch/",
    "transformers/",
    "accelerate/",
    "deepspeed/",
    "lightning/",
    "pytorch_lightning/",
    "torchvision/",
    "torchaudio/",
    "diffusers/",
    "peft/",
    "trl/",
    "vllm/",
    "sglang/",
    "megatron/",
    "flash_attn/",
    "xformers/",
    "triton/",
    "jax/",
    "jaxlib/",
    "cupy/",
    "numpy/",
    "numba/",
    "tensorflow/",
    "keras/",
];

/// Whether a source file belongs to a library rather than to the program.
pub fn is_library_file(file: &str) -> bool {
    file.is_empty()
        || file == "??"
        || INSTALLED.iter().any(|fragment| file.contains(fragment))
        || PACKAGES.iter().any(|package| file.starts_with(package))
        || is_native(file)
}

/// Whether a file is native source of the program itself: it has an extension of C++, CUDA or Rust, and lies where no system
/// and no package puts its headers.
pub(crate) fn is_own_source(file: &str) -> bool {
    let is_installed = INSTALLED.iter().chain(&SYSTEM).any(|fragment| file.contains(fragment));
    is_native(file) && !is_installed
}

/// Whether a file that an error text names is native source of the program, not of a framework that was built elsewhere.
pub fn is_program_source(file: &str) -> bool {
    const BUILT_ELSEWHERE: [&str; 5] = ["aten/", "c10/", "/torch/", "/tensorflow/", "external/"];
    is_own_source(file)
        && !PACKAGES.iter().any(|package| file.starts_with(package))
        && !BUILT_ELSEWHERE.iter().any(|directory| file.contains(directory))
}

/// Whether a file is native source or an object: frames of the interpreter and of C++ libraries.
fn is_native(file: &str) -> bool {
    let extension = file.rsplit('.').next().unwrap_or("");
    matches!(
        extension,
        "cpp" | "cc" | "cxx" | "c" | "h" | "hpp" | "cu" | "cuh" | "hip" | "rs" | "pyx" | "pxi" | "so" | "S"
    ) || file.contains(".so.")
}

/// A file's name as people say it: what follows the installation directory, or the last two parts of a path.
pub(crate) fn short_file(file: &str) -> &str {
    for marker in ["site-packages/", "dist-packages/"] {
        if let Some(position) = file.find(marker) {
            return &file[position + marker.len()..];
        }
    }
    let mut slashes = file.rmatch_indices('/');
    match slashes.nth(1) {
        Some((position, _)) => &file[position + 1..],
        None => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_files_are_told_from_libraries() {
        for file in ["train.py", "/home/me/project/model.py", "src/torch_utils/net.py", "notebook.ipynb"] {
            assert!(!is_library_file(file), "{file}");
        }
        for file in [
            "site-packages/torch/nn/modules/module.py",
            "torch/autograd/graph.py",
            "??",
            "",
            "a/CUDAGuard.h",
            "libc.so.6",
        ] {
            assert!(is_library_file(file), "{file}");
        }
    }

    #[test]
    fn files_are_shortened_to_what_people_know() {
        assert_eq!(
            short_file("/opt/lib/python3.12/site-packages/torch/nn/functional.py"),
            "torch/nn/functional.py"
        );
        assert_eq!(short_file("/home/me/project/train.py"), "project/train.py");
        assert_eq!(short_file("train.py"), "train.py");
    }
}
