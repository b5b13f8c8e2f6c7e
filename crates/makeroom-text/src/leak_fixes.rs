//! Steps against memory that grows from step to step, in the terms of the language, the framework or the program.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix, advice};

use crate::facts::Resource;
use crate::fixes::is_without_cuda;
use crate::own_code;
use crate::programs;
use crate::situation::Situation;
use crate::smaller;

/// Memory that grows from step to step.
pub(crate) fn steps(situation: &Situation<'_>) -> Vec<Fix> {
    if let Some(fixes) = programs::leak_in_its_language(situation) {
        return fixes;
    }
    let facts = situation.facts;
    if let Some(fixes) = leak_elsewhere(situation) {
        return fixes;
    }
    let is_native = [".cpp", ".cu", "cudaMalloc", "malloc(", "cudaFree", "chprintf", "C++"]
        .iter()
        .any(|words| situation.settings.mentions(words));
    let is_python = facts.framework.is_torch()
        || ["torch", "epoch", ".py", "python"].iter().any(|words| situation.settings.mentions(words));
    if facts.framework == Framework::TensorFlow || situation.settings.mentions("keras") {
        return vec![
            Fix::new("free the graph of earlier models after each fold or trial")
                .command("tf.keras.backend.clear_session()"),
            Fix::new("do not build operations in the training loop: build the graph before the loop")
                .command("tf.compat.v1.get_default_graph().finalize()"),
        ];
    }
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    if says(&["xgboost", "lightgbm", "catboost"]) && !says(&["torch"]) {
        let restart = if says(&["dask"]) { "; client.restart()" } else { "" };
        return vec![
            Fix::new("free the data and the model of each trial before the next one")
                .command(format!("del dtrain, booster; gc.collect(){restart}")),
            Fix::new("or run each trial in its own process, so that the system reclaims its memory")
                .command("with multiprocessing.get_context('spawn').Pool(1, maxtasksperchild=1) as pool: pool.map(trial, trials)"),
        ];
    }
    if own_code::is_own_code(facts) || is_native && !is_python {
        return vec![
            advice::leak_without_tensors(),
            Fix::new("list the allocations that are never freed, with their lines")
                .command("compute-sanitizer --tool memcheck --leak-check full ./program"),
        ];
    }
    let is_torch = facts.framework.is_torch()
        || situation.settings.mentions("torch")
        || situation.language.is_python()
        // Loops over batches are nearly always PyTorch's where nothing says otherwise.
        || situation.language.may_be_python()
            && (situation.is_training()
                || ["iteration", "inference", "testing", "batch", "model"]
                    .iter()
                    .any(|words| situation.settings.mentions(words)));
    if !is_torch {
        return vec![
            advice::leak_without_tensors(),
            Fix::new("see which process grows, and restart it before the GPU is full")
                .command("nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv -l 10"),
        ];
    }
    if !situation.is_training() {
        let mut fixes = vec![
            Fix::new("run the model without gradients, and move results to the CPU before keeping them")
                .command("with torch.inference_mode(): results.append(model(x).cpu())"),
        ];
        fixes.extend(smaller::less_data(situation).into_iter().take(1));
        fixes.push(
            Fix::new("record allocations with their lines, and compare two requests")
                .command("torch.cuda.memory._record_memory_history(max_entries=100000)"),
        );
        return fixes;
    }
    let mut fixes = advice::leak();
    if facts.resource == Resource::Host {
        fixes.push(
            Fix::new("load data in the main process: each worker's copy of the dataset grows")
                .command("DataLoader(…, num_workers=0, persistent_workers=False)"),
        );
    } else {
        fixes.push(
            Fix::new("record allocations with their lines, and compare two steps")
                .command("torch.cuda.memory._record_memory_history(max_entries=100000)"),
        );
    }
    fixes
}

/// Leaks of programs that do not hold PyTorch's tensors, or whose users cannot change the code.
fn leak_elsewhere(situation: &Situation<'_>) -> Option<Vec<Fix>> {
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    let has_torch = situation.facts.framework.is_torch() || says(&["torch"]);
    if says(&["paddle"]) && !has_torch {
        return Some(vec![
            Fix::new("run the model without gradients, and release unused blocks after each input")
                .command("with paddle.no_grad(): …; paddle.device.cuda.empty_cache()"),
        ]);
    }
    if situation.program.is_open_mmlab() {
        let is_engine = says(&["mmengine"]);
        return Some(vec![
            Fix::new("until you find the tensors that stay alive, restart from the last checkpoint before the GPU fills up")
                .command(if is_engine {
                    "tools/train.py CONFIG --resume"
                } else {
                    "tools/train.py CONFIG --resume-from work_dirs/CONFIG/latest.pth"
                }),
            Fix::new("detach tensors that a module or a hook stores between iterations: a stored loss keeps its whole graph")
                .command("self.history.append(loss.detach().item())"),
            Fix::new("record allocations with their lines, and compare two iterations")
                .command("torch.cuda.memory._record_memory_history(max_entries=100000)"),
        ]);
    }
    // The user of a known program cannot change how it frees memory, but can give it less and start it again.
    if is_without_cuda(situation.facts) || situation.program.is_lammps() {
        let own = programs::advise(situation, Cause::LiveDataFillsDevice);
        let is_known = !situation.program.name.starts_with("the ") && !own.is_empty();
        if is_known {
            let restart = if situation.program.is_lammps() {
                Fix::new("write restart files, and continue from the last one in a new process")
                    .command("restart 1000 run.*.restart")
            } else {
                Fix::new("restart the program every few hours: leaked memory is freed when it exits")
            };
            // Learned potentials allocate with PyTorch, for a graph that changes with the atoms.
            let pieces = says(&["mace", "nequip", "allegro", "torch"]).then(|| {
                let export = situation.environment.export("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
                Fix { command: Some(export), ..advice::expandable_segments() }
            });
            return Some(std::iter::once(restart).chain(pieces).chain(own.into_iter().take(2)).collect());
        }
    }
    let is_graphics = is_without_cuda(situation.facts)
        || says(&["vulkan", "VkBuffer", "VMA", "vuk", "d3d12", "swapchain", "frames in flight"])
            && !has_torch;
    if is_graphics && !says(&["python", ".py"]) {
        return Some(vec![
            Fix::new("free each frame's buffers and images once the GPU is done with them")
                .command("vmaDestroyBuffer(allocator, buffer, allocation);   (without VMA: vkDestroyBuffer, vkFreeMemory)"),
            Fix::new("list the allocations that are still alive: name them, and dump the allocator's statistics")
                .command("vmaBuildStatsString(allocator, &text, VK_TRUE);"),
        ]);
    }
    None
}
