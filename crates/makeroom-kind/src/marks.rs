//! What the frames of a stack reveal: the parts of frameworks that it passes through.
//!
//! Only files and functions of frameworks count, never names that a user chose. Frames are classified once each, and
//! a stack has the marks of all its frames. Names are read up to [`LONGEST_NAME`] bytes: a hostile file can refer to
//! one name of megabytes from a million frames.

use makeroom_core::{Frame, Library, Stacks};

/// Bytes of a name that are read: the end of a path, the start of a function.
const LONGEST_NAME: usize = 512;

/// A set of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u32);

impl Marks {
    /// No mark.
    pub(crate) const NONE: Self = Self(0);
    /// A module is built or loaded.
    pub(crate) const BUILD: Self = Self(1);
    /// A module is called.
    pub(crate) const FORWARD: Self = Self(1 << 1);
    /// The autograd engine runs.
    pub(crate) const ENGINE: Self = Self(1 << 2);
    /// An optimizer runs, or what runs with it: clipping and scaling of gradients.
    pub(crate) const OPTIMIZER: Self = Self(1 << 3);
    /// An optimizer creates its state.
    pub(crate) const STATE: Self = Self(1 << 4);
    /// Gradients are dropped.
    pub(crate) const ZERO_GRAD: Self = Self(1 << 5);
    /// A checkpoint repeats a forward pass.
    pub(crate) const RECOMPUTE: Self = Self(1 << 6);
    /// A CUDA graph is captured.
    pub(crate) const GRAPH: Self = Self(1 << 7);
    /// The KV cache of an inference framework.
    pub(crate) const CACHE: Self = Self(1 << 8);
    /// A data loader.
    pub(crate) const LOADER: Self = Self(1 << 9);
    /// FSDP gathers full parameters.
    pub(crate) const GATHER: Self = Self(1 << 10);
    /// DDP creates the buckets of its gradients.
    pub(crate) const BUCKET: Self = Self(1 << 11);
    /// A convolution.
    pub(crate) const CONVOLUTION: Self = Self(1 << 12);
    /// A Python frame.
    pub(crate) const PYTHON: Self = Self(1 << 13);
    /// The outermost frame of a program or of a Python thread.
    pub(crate) const ROOT: Self = Self(1 << 14);
    /// cuBLAS.
    pub(crate) const CUBLAS: Self = Self(1 << 15);
    /// cuDNN.
    pub(crate) const CUDNN: Self = Self(1 << 16);
    /// NCCL.
    pub(crate) const NCCL: Self = Self(1 << 17);
    /// Triton.
    pub(crate) const TRITON: Self = Self(1 << 18);
    /// cuFFT, cuSPARSE, cuSOLVER.
    pub(crate) const CUFFT: Self = Self(1 << 19);
    pub(crate) const CUSPARSE: Self = Self(1 << 20);
    pub(crate) const CUSOLVER: Self = Self(1 << 21);
    /// The allocator of a framework whose blocks are not recorded.
    pub(crate) const ARENA: Self = Self(1 << 22);
    /// The parameters of a module are moved or converted.
    pub(crate) const MOVE: Self = Self(1 << 23);

    /// Whether one of these marks is set.
    pub(crate) const fn has(self, marks: Self) -> bool {
        self.0 & marks.0 != 0
    }

    /// Both sets.
    pub(crate) const fn with(self, marks: Self) -> Self {
        Self(self.0 | marks.0)
    }

    /// The library whose functions a stack contains.
    pub(crate) fn library(self) -> Option<Library> {
        [
            (Self::NCCL, Library::Nccl),
            (Self::CUDNN, Library::CuDnn),
            (Self::CUBLAS, Library::CuBlas),
            (Self::CUFFT, Library::CuFft),
            (Self::CUSPARSE, Library::CuSparse),
            (Self::CUSOLVER, Library::CuSolver),
            (Self::TRITON, Library::Triton),
        ]
        .into_iter()
        .find_map(|(mark, library)| self.has(mark).then_some(library))
    }
}

/// The marks of each stack, by its index.
pub(crate) fn of_stacks(stacks: &Stacks) -> Vec<Marks> {
    let frames: Vec<Marks> = stacks.frames().iter().map(|&frame| of_frame(stacks, frame)).collect();
    let of_stack = |stack| {
        let list = stacks.frames_of(stack).iter();
        list.fold(Marks::NONE, |marks, frame| {
            marks.with(frames.get(frame.index()).copied().unwrap_or_default())
        })
    };
    stacks.ids().map(of_stack).collect()
}

fn of_frame(stacks: &Stacks, frame: Frame) -> Marks {
    let file = end_of(stacks.name_text(frame.file));
    let function = start_of(stacks.name_text(frame.function));
    let library = end_of(stacks.name_text(frame.library));
    if frame.line > 0 && library.is_empty() && is_python(file) {
        // Recordings of processes have qualified names: `Module._call_impl`.
        let function = function.rsplit('.').next().unwrap_or(function);
        of_python(file, function).with(Marks::PYTHON)
    } else {
        of_native(library, function)
    }
}

fn is_python(file: &str) -> bool {
    // Interactive cells and generated code have names such as `<ipython-input-3>`.
    file.ends_with('>') || file.rsplit('.').next().is_some_and(|ending| ["py", "ipynb"].contains(&ending))
}

fn of_python(file: &str, function: &str) -> Marks {
    let ends = |path: &str| is_at(file, file.len().wrapping_sub(path.len()), path);
    let within = |directory: &str| file.match_indices(directory).any(|(at, _)| is_at(file, at, directory));
    let mut marks = match function {
        "<module>" | "_bootstrap" | "_bootstrap_inner" | "_run_module_as_main" => Marks::ROOT,
        "zero_grad" => Marks::ZERO_GRAD,
        _ => Marks::NONE,
    };
    if ends("torch/nn/modules/module.py") {
        marks = marks.with(match function {
            "_call_impl" | "_wrapped_call_impl" | "_slow_forward" | "__call__" => Marks::FORWARD,
            "_apply" | "to" | "cuda" | "to_empty" | "half" | "float" | "double" | "bfloat16" | "type" => {
                Marks::MOVE
            }
            "load_state_dict" | "_load_from_state_dict" => Marks::BUILD,
            _ => Marks::NONE,
        });
    } else if within("torch/nn/modules/") {
        marks = marks.with(match function {
            "__init__" | "reset_parameters" | "_reset_parameters" => Marks::BUILD,
            "_conv_forward" => Marks::CONVOLUTION,
            _ => Marks::NONE,
        });
    } else if within("torch/optim/") && !within("torch/optim/swa_utils.py") && function != "zero_grad" {
        marks = marks.with(Marks::OPTIMIZER);
    } else if within("torch/distributed/fsdp/") {
        marks = marks.with(of_fsdp(file, function));
    }
    if is_optimizer(file, function) {
        marks = marks.with(Marks::OPTIMIZER);
    }
    if marks.has(Marks::OPTIMIZER) && creates_state(function) {
        marks = marks.with(Marks::STATE);
    }
    for (path, mark) in FILES {
        if ends(path) {
            marks = marks.with(mark);
        }
    }
    for (path, mark) in DIRECTORIES {
        if within(path) {
            marks = marks.with(mark);
        }
    }
    marks.with(of_function(file, function))
}

/// Functions that only some files' versions count of.
fn of_function(file: &str, function: &str) -> Marks {
    let within = |directory: &str| file.match_indices(directory).any(|(at, _)| is_at(file, at, directory));
    match function {
        "_engine_run_backward" if within("torch/autograd/") => Marks::ENGINE,
        "backward" if within("torch/_tensor.py") => Marks::ENGINE,
        "recompute_fn" | "unpack_hook" | "backward" if within("torch/utils/checkpoint.py") => {
            Marks::RECOMPUTE
        }
        "backward" if file.ends_with("checkpointing.py") => Marks::RECOMPUTE,
        "_ddp_init_helper" | "_init_ddp" if within("torch/nn/parallel/") => Marks::BUCKET,
        "from_pretrained" | "_load_pretrained_model" if within("transformers/") => Marks::BUILD,
        "load_model" | "create_weights" if within("vllm/") || within("sglang/") => Marks::BUILD,
        "initialize_kv_cache"
        | "initialize_kv_cache_tensors"
        | "_allocate_kv_cache_tensors"
        | "_allocate_kv_cache"
        | "_allocate_kv_caches"
            if within("vllm/") || within("sglang/") =>
        {
            Marks::CACHE
        }
        _ => Marks::NONE,
    }
}

fn of_fsdp(file: &str, function: &str) -> Marks {
    match function {
        "_init_sharded_param"
        | "_init_flat_param"
        | "_init_flat_param_and_metadata"
        | "flatten_tensors"
        | "flatten_tensors_into_flat_param"
        | "shard"
        | "init_flat_param_attributes"
        | "reset_sharded_param" => Marks::BUILD,
        "init_all_gather_outputs"
        | "alloc_all_gather_outputs"
        | "alloc_storage"
        | "foreach_all_gather"
        | "_alloc_padded_unsharded_flat_param"
        | "_all_gather_flat_param"
        | "all_gather_copy_in_cuda" => Marks::GATHER,
        _ if file.ends_with("_fsdp_param.py") && function == "__init__" => Marks::BUILD,
        _ => Marks::NONE,
    }
}

/// Whether a function is an optimizer's of a package other than PyTorch.
fn is_optimizer(file: &str, function: &str) -> bool {
    const PACKAGES: [&str; 9] = [
        "apex/optimizers/",
        "bitsandbytes/optim/",
        "deepspeed/ops/adam/",
        "deepspeed/ops/lamb/",
        "deepspeed/ops/lion/",
        "torchao/optim/",
        "galore_torch/",
        "lion_pytorch/",
        "heavyball/",
    ];
    PACKAGES.iter().any(|package| file.contains(package)) && function != "__init__"
}

fn creates_state(function: &str) -> bool {
    matches!(
        function,
        "_init_group"
            | "init_state"
            | "_init_state"
            | "load_state_dict"
            | "_process_value_according_to_param_policy"
            | "share_memory"
    )
}

fn of_native(library: &str, function: &str) -> Marks {
    let library = library.rsplit('/').next().unwrap_or(library);
    let of_library = LIBRARIES.iter().find(|(start, _)| library.starts_with(start));
    let mut marks = of_library.map_or(Marks::NONE, |&(_, mark)| mark);
    for (part, mark) in FUNCTIONS {
        if function.contains(part) {
            marks = marks.with(mark);
        }
    }
    marks
}

/// Whether `part` of a path is at `at`, where a component of the path begins.
fn is_at(path: &str, at: usize, part: &str) -> bool {
    path.get(at..).is_some_and(|rest| rest.starts_with(part))
        && (at == 0 || matches!(path.as_bytes().get(at - 1), Some(b'/' | b'\\')))
}

fn end_of(name: &str) -> &str {
    let mut start = name.len().saturating_sub(LONGEST_NAME);
    while !name.is_char_boundary(start) {
        start += 1;
    }
    &name[start..]
}

fn start_of(name: &str) -> &str {
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

const FILES: [(&str, Marks); 15] = [
    ("torch/nn/parameter.py", Marks::BUILD),
    ("torch/optim/swa_utils.py", Marks::BUILD),
    ("torch/serialization.py", Marks::BUILD),
    ("safetensors/torch.py", Marks::BUILD),
    ("transformers/core_model_loading.py", Marks::BUILD),
    ("accelerate/utils/modeling.py", Marks::BUILD),
    ("torch/autograd/__init__.py", Marks::ENGINE),
    ("torch/nn/utils/clip_grad.py", Marks::OPTIMIZER),
    ("torch/amp/grad_scaler.py", Marks::OPTIMIZER),
    ("torch/cuda/graphs.py", Marks::GRAPH),
    ("torch/_inductor/cudagraph_trees.py", Marks::GRAPH),
    ("transformers/cache_utils.py", Marks::CACHE),
    ("vllm/worker/cache_engine.py", Marks::CACHE),
    ("sglang/srt/mem_cache/memory_pool.py", Marks::CACHE),
    ("transformers/optimization.py", Marks::OPTIMIZER),
];

const DIRECTORIES: [(&str, Marks); 4] = [
    ("torch/utils/data/", Marks::LOADER),
    ("vllm/model_executor/model_loader/", Marks::BUILD),
    ("sglang/srt/model_loader/", Marks::BUILD),
    ("site-packages/triton/", Marks::TRITON),
];

const LIBRARIES: [(&str, Marks); 8] = [
    ("libcublas", Marks::CUBLAS),
    ("libcudnn", Marks::CUDNN),
    ("libnccl", Marks::NCCL),
    ("libcufft", Marks::CUFFT),
    ("libcusparse", Marks::CUSPARSE),
    ("libcusolver", Marks::CUSOLVER),
    ("libtriton", Marks::TRITON),
    ("xla_cuda_plugin", Marks::ARENA),
];

// Names are mangled in recordings of processes, and readable in snapshots.
const FUNCTIONS: [(&str, Marks); 16] = [
    ("autograd::Engine", Marks::ENGINE),
    ("autograd6Engine", Marks::ENGINE),
    ("autograd::Node::operator()", Marks::ENGINE),
    ("getCUDABlasLtWorkspace", Marks::CUBLAS),
    ("getCUDABlasWorkspace", Marks::CUBLAS),
    ("getCurrentCUDABlasHandle", Marks::CUBLAS),
    ("getNewWorkspace", Marks::CUBLAS),
    ("ProcessGroupNCCL", Marks::NCCL),
    ("run_conv_plan", Marks::CUDNN),
    ("cufft", Marks::CUFFT),
    ("cusparse", Marks::CUSPARSE),
    ("cusolver", Marks::CUSOLVER),
    ("BFCAllocator", Marks::ARENA),
    ("Py_RunMain", Marks::ROOT),
    ("__libc_start_main", Marks::ROOT),
    ("fused_adam", Marks::OPTIMIZER),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(file: &str, function: &str) -> Marks {
        let mut stacks = Stacks::default();
        let (file, function) = (stacks.name(file), stacks.name(function));
        of_frame(&stacks, Frame { function, file, line: 7, ..Frame::default() })
    }

    #[test]
    fn frames_of_frameworks_are_recognized_by_file_and_function() {
        for (file, function, mark) in [
            ("/x/site-packages/torch/nn/modules/module.py", "_apply", Marks::MOVE),
            ("torch/nn/modules/module.py", "_call_impl", Marks::FORWARD),
            ("/x/torch/nn/modules/module.py", "Module._wrapped_call_impl", Marks::FORWARD),
            ("/x/torch/nn/modules/linear.py", "__init__", Marks::BUILD),
            ("/x/torch/nn/modules/conv.py", "_conv_forward", Marks::CONVOLUTION),
            ("/x/torch/optim/adam.py", "_init_group", Marks::STATE),
            ("/x/torch/optim/sgd.py", "step", Marks::OPTIMIZER),
            ("/x/torch/autograd/__init__.py", "_make_grads", Marks::ENGINE),
            ("/x/torch/utils/checkpoint.py", "recompute_fn", Marks::RECOMPUTE),
            ("/x/transformers/cache_utils.py", "update", Marks::CACHE),
            ("/x/torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "alloc_storage", Marks::GATHER),
            ("train.py", "<module>", Marks::ROOT),
        ] {
            assert!(marks(file, function).has(mark), "{file} {function}");
        }
    }

    #[test]
    fn names_that_a_user_chose_do_not_count() {
        for (file, function) in [
            ("/home/me/mytorch/optim/adam.py", "step"),
            ("/home/me/torch/nn.py", "_call_impl"),
            ("train.py", "backward"),
            ("train.py", "_init_group"),
            ("model.py", "forward"),
        ] {
            assert_eq!(marks(file, function), Marks::PYTHON, "{file} {function}");
        }
    }

    #[test]
    fn native_frames_are_recognized_mangled_or_not() {
        let engine =
            "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)";
        assert!(of_native("", engine).has(Marks::ENGINE));
        assert!(of_native("/x/libtorch_cpu.so", "_ZN5torch8autograd6Engine11thread_main").has(Marks::ENGINE));
        assert_eq!(of_native("/opt/libnccl.so.2", "").library(), Some(Library::Nccl));
        assert_eq!(of_native("/opt/libcublasLt.so.12", "f").library(), Some(Library::CuBlas));
        assert_eq!(of_native("", "at::native::empty_cuda(c10::ArrayRef<long>)"), Marks::NONE);
    }

    #[test]
    fn names_of_any_length_and_encoding_are_cut() {
        let long = "é".repeat(3000);
        assert!(end_of(&long).len() <= LONGEST_NAME);
        assert!(start_of(&long).len() <= LONGEST_NAME);
        assert_eq!(
            marks(&format!("{long}/torch/optim/adam.py"), &long),
            Marks::OPTIMIZER.with(Marks::PYTHON)
        );
    }
}
