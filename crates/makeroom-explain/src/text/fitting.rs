//! The last filter for steps: drops those that the version, framework or operating system in the text does not support. A
//! step that cannot work costs the reader more than a missing one.

use super::environment::System;
use super::situation::Situation;
use crate::Fix;

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
/// Frameworks whose programs read their data without PyTorch's loader.
const OWN_LOADERS: [&str; 7] = ["tensorflow", "jax", "mxnet", "paddlepaddle", "theano", "caffe", "darknet"];

/// Drops the steps that cannot work here.
pub(crate) fn keep(fixes: &mut Vec<Fix>, situation: &Situation<'_>) {
    fixes.retain(|fix| fix.command.as_deref().is_none_or(|command| fits(command, situation)));
}

fn fits(command: &str, situation: &Situation<'_>) -> bool {
    let has = |words: &[&str]| words.iter().any(|words| command.contains(words));
    if situation.is_early_torch() && has(&LATER_TORCH) {
        return false;
    }
    let is_python_code = has(&PYTHON_ONLY) || command == "batch_size=1";
    if is_python_code && !situation.language.may_be_python() {
        return false;
    }
    let environment = situation.environment;
    if (environment.is_hosted || environment.system == System::Windows) && has(&ROOT_ON_LINUX) {
        return environment.system == System::Windows && command.contains("docker run");
    }
    let has_torch = || situation.settings.mentions("torch") || situation.settings.mentions("DataLoader");
    let is_elsewhere = OWN_LOADERS.contains(&situation.facts.framework)
        || ["isaac", "tensorflow", "keras"].iter().any(|name| situation.settings.mentions(name));
    !(has(&["DataLoader("]) && is_elsewhere && !has_torch())
}

#[cfg(test)]
mod tests {
    use super::super::context::Context;
    use super::super::find;
    use super::super::log::Log;
    use super::*;

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
