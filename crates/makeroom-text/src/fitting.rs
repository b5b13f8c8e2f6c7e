//! The last filter for steps: drops those that the version, framework or operating system in the text does not support. A
//! step that cannot work costs the reader more than a missing one.

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::Fix;
use makeroom_search::{Regex, pattern};

use crate::environment::{Device, System};
use crate::programs;
use crate::situation::Situation;

/// What PyTorch before 1.10 does not have: allocator settings, `autocast`, `inference_mode`; and what needs a later one.
const LATER_TORCH: [&str; 7] = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "autocast",
    "inference_mode",
    "bitsandbytes",
    "gradient_checkpointing_enable",
    "load_in_4bit",
    "mmap=True",
];
/// What needs root on Linux.
const ROOT_ON_LINUX: [&str; 5] = ["swapon", "sudo ", "sysctl", "ulimit", "docker run"];
/// What only a Python program can do.
const PYTHON_ONLY: [&str; 14] = [
    "with torch",
    "torch.cuda",
    "torch.cat",
    "torch.load",
    "torch.nn",
    "torch.utils",
    "model.half()",
    "DataLoader(",
    "from_pretrained",
    "bitsandbytes",
    "gradient_checkpointing_enable",
    "np.load",
    "print(",
    "-- python",
];
/// What only a program on PyTorch can do.
const TORCH_ONLY: [&str; 10] = [
    "torch.",
    "torch_dtype",
    "model.half()",
    "bitsandbytes",
    "BitsAndBytes",
    "load_in_4bit",
    "gradient_checkpointing_enable",
    "attn_implementation",
    "PYTORCH_",
    "DataLoader(",
];
/// Modules of other frameworks, which a program uses instead of PyTorch where nothing names that one.
const OTHER_FRAMEWORKS: [&str; 12] = [
    "modeling_flax_",
    "modeling_tf_",
    "flax/linen",
    "flax/nnx",
    "jax/_src",
    "jaxlib",
    "tensorflow/python",
    "keras/",
    "paddle",
    "mindspore",
    "mxnet",
    "chainer",
];
/// What only an NVIDIA or AMD GPU has.
const GPU_ONLY: [&str; 11] = [
    "CUDA_",
    "TF_GPU_",
    "TF_FORCE_GPU",
    "TF_FORCE_UNIFIED",
    "XLA_PYTHON_CLIENT",
    "xla_gpu",
    "nvidia-smi",
    "torch.cuda",
    "'cuda'",
    "load_in_4bit",
    "bitsandbytes",
];
/// What TensorFlow has only since version 2.
const TENSORFLOW_2: [&str; 5] = [
    "TF_GPU_ALLOCATOR",
    "set_global_policy",
    "set_logical_device_configuration",
    "set_memory_growth",
    "jit_compile",
];
/// What only a GPU's video engines do.
const VIDEO_ENGINES: [&str; 6] = ["nvenc", "nvdec", "cuvid", "NVEncC", "h264_amf", "_vaapi"];
/// A program that a browser runs.
const IN_BROWSER: [&str; 7] =
    ["webgpu", "web-llm", "webllm", "browser console", "CheckVkOOM", "transformers.js", "onnxruntime-web"];
/// A batch of one.
static BATCH_OF_ONE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)^(?:--?|["'])?(?:[\w.]*[_.])?batch_?size(?:_per_\w+)?["']?(?: = |: |=| )1$|\bbatch_size=1\)$|^SOLVER\.IMS_PER_BATCH 1$"#,
    )
});
/// A command that is one option or variable with its value, or one flag.
static ONE_SETTING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"^(?:export |set )?(--?[A-Za-z][\w-]*|[A-Za-z_][\w.]*)(?:(?: = |: |=| )["']?([\w.:/+-]+)["']?)?$"#,
    )
});
/// Frameworks whose programs read their data without PyTorch's loader.
const OWN_LOADERS: [Framework; 7] = [
    Framework::TensorFlow,
    Framework::Jax,
    Framework::MxNet,
    Framework::PaddlePaddle,
    Framework::Theano,
    Framework::Caffe,
    Framework::Darknet,
];

/// Drops the steps that cannot work here.
pub(crate) fn keep(fixes: &mut Vec<Fix>, situation: &Situation<'_>) {
    fixes.retain(|fix| fix.command.as_deref().is_none_or(|command| fits(command, situation)));
}

fn fits(command: &str, situation: &Situation<'_>) -> bool {
    let has = |words: &[&str]| words.iter().any(|words| command.contains(words));
    if situation.is_early_torch() && has(&LATER_TORCH) {
        return false;
    }
    let environment = situation.environment;
    if environment.device != Device::Gpu && has(&GPU_ONLY)
        || has(&TORCH_ONLY) && is_without_torch(situation)
        || has(&TENSORFLOW_2) && programs::is_tensorflow_1(situation)
        || BATCH_OF_ONE.is_match(command) && situation.batch() == Some(1)
        || is_set(command, situation)
    {
        return false;
    }
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    // The program encodes or decodes on the GPU, runs in the browser, or is not built on wgpu.
    if command.contains("VISIBLE_DEVICES=-1") && says(&VIDEO_ENGINES)
        || command.contains("Use graphics acceleration") && says(&IN_BROWSER)
        || command.contains("WGPU_BACKEND") && says(&["dawn"])
    {
        return false;
    }
    let is_python_code = has(&PYTHON_ONLY) || command == "batch_size=1";
    if is_python_code && !situation.language.may_be_python() {
        return false;
    }
    if (environment.is_hosted || environment.system == System::Windows) && has(&ROOT_ON_LINUX) {
        return environment.system == System::Windows && command.contains("docker run");
    }
    let has_torch = || situation.settings.mentions("torch") || situation.settings.mentions("DataLoader");
    let is_elsewhere = OWN_LOADERS.contains(&situation.facts.framework)
        || ["isaac", "tensorflow", "keras"].iter().any(|name| situation.settings.mentions(name));
    !(has(&["DataLoader("]) && is_elsewhere && !has_torch())
}

/// Whether the program computes with another framework than PyTorch.
fn is_without_torch(situation: &Situation<'_>) -> bool {
    let framework = situation.facts.framework;
    let says = |words: &str| situation.settings.mentions(words);
    !framework.is_torch()
        && !says("torch")
        && (OWN_LOADERS.contains(&framework) || OTHER_FRAMEWORKS.iter().any(|words| says(words)))
}

/// Whether a command only sets what the text shows to be set.
fn is_set(command: &str, situation: &Situation<'_>) -> bool {
    let Some(found) = ONE_SETTING.captures(command) else { return false };
    let name = &found[1];
    match found.get(2) {
        Some(value) => {
            situation.settings.value(&[name]).is_some_and(|set| set.eq_ignore_ascii_case(value.as_str()))
        }
        None => name.starts_with("--") && situation.settings.is_on(&[name]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::find;
    use crate::log::Log;

    fn is_kept(text: &str, command: &str) -> bool {
        let log = Log::new(text);
        let found = find::failures(&log).unwrap();
        let context = Context::read(&log, found.index);
        let situation = Situation::new(&log, found.index, &found.first, &context);
        let mut fixes = vec![Fix::new("a step").command(command)];
        keep(&mut fixes, &situation);
        !fixes.is_empty()
    }

    #[test]
    fn an_early_pytorch_has_no_later_settings() {
        let early = "RuntimeError: CUDA out of memory. Tried to allocate 48.00 MiB (GPU 0; 7.93 GiB total capacity; 6.70 GiB already allocated; 40.00 MiB free; 410.00 MiB cached)";
        let later = early.replace("410.00 MiB cached", "7.10 GiB reserved in total by PyTorch");
        for command in
            ["export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "with torch.inference_mode(): …"]
        {
            assert!(!is_kept(early, command), "{command}");
            assert!(is_kept(&later, command), "{command}");
        }
    }

    #[test]
    fn other_languages_get_no_python() {
        let text = "System.Runtime.InteropServices.ExternalException: CUDA out of memory. Tried to allocate 2.00 MiB";
        assert!(!is_kept(text, "with torch.inference_mode(): …"));
        assert!(is_kept(text, "GC.Collect();"));
        assert!(is_kept("RuntimeError: CUDA out of memory", "with torch.inference_mode(): …"));
    }

    #[test]
    fn other_frameworks_get_nothing_of_pytorch() {
        let flax = "  File \"transformers/models/gemma/modeling_flax_gemma.py\", line 88\nRESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.";
        for command in ["from_pretrained(…, torch_dtype=torch.bfloat16)", "DataLoader(dataset, batch_size=1)"]
        {
            assert!(!is_kept(flax, command), "{command}");
            assert!(is_kept(&format!("import torch\n{flax}"), command), "{command}");
        }
        assert!(is_kept(flax, "dtype=jax.numpy.bfloat16"));
    }

    #[test]
    fn a_tpu_gets_nothing_of_a_gpu() {
        let tpu = "RESOURCE_EXHAUSTED: Attempting to reserve 6.25G at the bottom of memory. That was not possible. There are 4.10G free, 0B reserved, and 4.10G reservable.\nExecute on TPU v3 cores";
        assert!(!is_kept(tpu, "export XLA_PYTHON_CLIENT_PREALLOCATE=false"));
        assert!(!is_kept(tpu, "export CUDA_VISIBLE_DEVICES=1"));
        assert!(is_kept(tpu, "--per_device_train_batch_size 1"));
    }

    #[test]
    fn tensorflow_1_gets_nothing_of_version_2() {
        let oom = "ResourceExhaustedError: OOM when allocating tensor with shape[8,256,64,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc";
        let old = format!("python 3.6, tensorflow gpu 1.13.1\n{oom}");
        assert!(!is_kept(&old, "export TF_GPU_ALLOCATOR=cuda_malloc_async"));
        assert!(is_kept(&format!("{oom} [Op:Conv2D]"), "export TF_GPU_ALLOCATOR=cuda_malloc_async"));
        let advised = format!(
            "If the cause is memory fragmentation maybe the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation.\n{oom}"
        );
        assert!(is_kept(&advised, "export TF_GPU_ALLOCATOR=cuda_malloc_async"));
    }

    #[test]
    fn what_the_text_shows_to_be_set_is_dropped() {
        let oom = "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB";
        for (text, command) in [
            ("OLLAMA_NUM_PARALLEL=1 ollama serve", "export OLLAMA_NUM_PARALLEL=1"),
            ("{\"num_workers\": 0, \"max_len\": 512}", "max_len: 512"),
            ("python main.py --lowvram --port 8188", "--lowvram"),
            ("train --batch_size 1", "DataLoader(dataset, batch_size=1)"),
            ("batch size is 1", "--per_device_train_batch_size 1"),
        ] {
            assert!(!is_kept(&format!("{text}\n{oom}"), command), "{text}");
            assert!(is_kept(oom, command), "{command}");
        }
        assert!(is_kept(&format!("try setting --max_len 512\n{oom}"), "--max_len 512"));
        assert!(is_kept(&format!("python main.py --tile 512\n{oom}"), "--tile 256"));
    }

    #[test]
    fn a_hosted_notebook_has_no_root() {
        let hosted = "/kaggle/working\nOut of memory: Killed process 12 (python)";
        assert!(!is_kept(hosted, "sudo swapon /swapfile"));
        assert!(is_kept("Out of memory: Killed process 12 (python)", "sudo swapon /swapfile"));
    }

    #[test]
    fn tensorflow_does_not_read_data_with_pytorchs_loader() {
        let text = "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,1024,1024]";
        assert!(!is_kept(text, "DataLoader(…, num_workers=0)"));
        assert!(is_kept(&format!("import torch\n{text}"), "DataLoader(…, num_workers=0)"));
    }
}
