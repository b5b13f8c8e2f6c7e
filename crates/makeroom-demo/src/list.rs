//! All situations, in the order they are shown.

use makeroom_core::Bytes;

use crate::situation::{OnRealCard, Situation};
use crate::situations;

/// The memory of a situation on a real GPU: little, so that other users do not notice.
const SHARE: OnRealCard = OnRealCard::Within(Bytes::gib(2));
/// The same on the software GPU: 2 GiB, a quarter of which is for a context.
const CARD: &str = "memory=2GiB,context=512MiB";

/// All situations.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        name: "fragmentation",
        title: "growing batches fragment the memory",
        about: "A training loop whose batches grow slightly and that keeps one result from each step. The results are placed in \
                memory that the step has just freed, and the free blocks between them are too small for the next \
                step. Symptom: out of memory although most of the reserved memory is free.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::fragmentation::run,
    },
    Situation {
        name: "large-batch",
        title: "the batch is too large",
        about: "With weights and optimizer state loaded, the batch doubles until the activations of all layers no longer \
                fit. Symptom: out of memory in the forward pass, at any of its lines.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::large_batch::run,
    },
    Situation {
        name: "missing-free",
        title: "an error path does not free its memory",
        about: "A server whose handler returns early on an invalid request, before it frees the input. Symptom: out of \
                memory after hours, at an unrelated line.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::missing_free::run,
    },
    Situation {
        name: "stream-ordered-frees",
        title: "memory freed on a stream is not available yet",
        about: "Buffers are freed in stream order on busy streams, and a large allocation outside the pool follows \
                immediately. Symptom: out of memory although everything was freed.",
        software: "memory=2GiB,context=512MiB,kernel=200000000",
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::stream_ordered_frees::run,
    },
    Situation {
        name: "two-frameworks",
        title: "two frameworks in one process",
        about: "The first framework preprocesses and frees its tensors into its own cache; the second allocates from \
                the driver. Symptom: out of memory in the second framework, with no live tensors in either.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::two_frameworks::run,
    },
    Situation {
        name: "context-left-behind",
        title: "CUDA contexts that are never destroyed",
        about: "Every worker creates its own context and frees its memory, but not the context. Symptom: memory in use \
                that no allocation explains.",
        software: "memory=2GiB,context=384MiB",
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::context_left_behind::run,
    },
    Situation {
        name: "other-process",
        title: "another process fills the GPU",
        about: "The program allocates a quarter of the GPU's memory while another process holds most of it. Symptom: out of memory \
                on the first allocation.",
        software: "memory=2GiB,context=256MiB",
        real: OnRealCard::Never("it would fill the GPU, which other users may need"),
        held_by_other_percent: 80,
        program: situations::other_process::run,
    },
    Situation {
        name: "kernel-heap",
        title: "malloc inside a kernel",
        about: "A kernel allocates 64 MiB from the device heap, which has 8 MiB by default. Symptom: a null pointer \
                inside the kernel, and no error anywhere.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::kernel_heap::run,
    },
    Situation {
        name: "pinned-memory",
        title: "pinned host memory that is never freed",
        about: "A data loader pins a new buffer for every batch and frees none. Symptom: out of memory from CUDA while \
                the GPU is empty, or a machine that slows down.",
        software: "memory=2GiB,context=512MiB,host=128MiB",
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::pinned_memory::run,
    },
];

/// The situation with this name.
pub fn find(name: &str) -> Option<&'static Situation> {
    SITUATIONS.iter().find(|situation| situation.name == name)
}
