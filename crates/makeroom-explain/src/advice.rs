//! Things to do that several explanations share, worded once.

use crate::Fix;

/// PyTorch's setting against fragmentation. The older variable name is understood by every version; where both
/// are set it wins.
pub(crate) fn expandable_segments() -> Fix {
    Fix::new("let PyTorch grow segments instead of cutting them up")
        .command("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
}

/// Trade time for memory.
pub(crate) fn checkpointing() -> Fix {
    Fix::new(
        "recompute activations instead of keeping them: torch.utils.checkpoint, or the model's own switch",
    )
    .command("model.gradient_checkpointing_enable()")
}

/// Halve activations.
pub(crate) fn half_precision() -> Fix {
    Fix::new("keep activations in 16 bits").command("with torch.autocast('cuda', dtype=torch.bfloat16): …")
}

/// Look who holds the card.
pub(crate) fn list_holders() -> Fix {
    Fix::new("see who holds the card")
        .command("nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv")
}

/// Look for holders that `nvidia-smi` does not list.
pub(crate) fn find_hidden_holders() -> Fix {
    Fix::new("find processes that have the device open, also those that nvidia-smi does not show")
        .command("sudo fuser -v /dev/nvidia*")
}

/// Go elsewhere.
pub(crate) fn another_device() -> Fix {
    Fix::new("or use another GPU, if the machine has one").command("export CUDA_VISIBLE_DEVICES=1")
}

/// Give another framework's cache back.
pub(crate) fn empty_other_cache() -> Fix {
    Fix::new("give the other framework's cache back before this one asks")
        .command("torch.cuda.empty_cache(); cupy.get_default_memory_pool().free_all_blocks()")
}

/// Stop keeping what each step made.
pub(crate) fn leak() -> Vec<Fix> {
    vec![
        Fix::new("keep numbers, not tensors, from step to step: a kept loss keeps its whole graph")
            .command("total += loss.item()"),
        Fix::new(
            "look for lists, hooks and caches that hold tensors of past steps, and for retain_graph=True",
        ),
    ]
}

/// Record a run so that the next failure can be explained by line.
pub(crate) fn record_snapshot() -> Fix {
    Fix::new(
        "which lines hold the memory: call torch.cuda.memory._record_memory_history() when the program starts and \
         torch.cuda.memory._dump_snapshot('run.pickle') when it fails, then",
    )
    .command("makeroom why run.pickle")
}
