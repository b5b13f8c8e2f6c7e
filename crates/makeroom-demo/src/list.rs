//! All situations, in the order they are shown.

use makeroom_core::Bytes;

use crate::situation::{OnRealCard, Situation};
use crate::situations;

/// What a situation gets of a real card: little, so that whoever else is there does not notice.
const SHARE: OnRealCard = OnRealCard::Within(Bytes::gib(2));
/// The same in software: a card of 2 GiB, of which a context takes a quarter.
const CARD: &str = "memory=2GiB,context=512MiB";

/// All situations.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        name: "fragmentation",
        title: "many sizes, and memory in pieces",
        about: "A training loop whose batches grow a little, and that keeps results of each step. They are cut out of \
                memory that the step has just given back; what is left of that is too small for the next step. Seen as: out of memory with most of the reserved memory unused.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::fragmentation::run,
    },
    Situation {
        name: "large-batch",
        title: "a batch that is too large",
        about: "Weights and optimizer are there, and the batch is doubled until the activations of all layers do not \
                fit beside them. Seen as: out of memory in the forward pass, at any one of its lines.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::large_batch::run,
    },
    Situation {
        name: "missing-free",
        title: "a free that is missing on an error path",
        about: "A server that answers requests. An invalid one returns early, before its input is freed. Seen as: out \
                of memory after hours, at a place that has nothing to do with it.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::missing_free::run,
    },
    Situation {
        name: "stream-ordered-frees",
        title: "freed on a stream, and not back yet",
        about: "Buffers are freed in the order of busy streams, and a large request comes from outside of the pool \
                right afterwards. Seen as: out of memory although everything was freed.",
        software: "memory=2GiB,context=512MiB,kernel=200000000",
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::stream_ordered_frees::run,
    },
    Situation {
        name: "two-frameworks",
        title: "two frameworks in one process",
        about: "The first framework preprocesses and gives its tensors back to its own cache; the second asks the \
                driver. Seen as: out of memory in the second, with nothing alive in either.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::two_frameworks::run,
    },
    Situation {
        name: "context-left-behind",
        title: "contexts that nobody destroys",
        about: "Every worker makes a context of its own and frees all its memory, but not the context. Seen as: memory \
                that is used and that no allocation explains.",
        software: "memory=2GiB,context=384MiB",
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::context_left_behind::run,
    },
    Situation {
        name: "other-process",
        title: "another process holds the card",
        about: "A quarter of the card is asked for while another process has most of it. Seen as: out of memory on the \
                first allocation.",
        software: "memory=2GiB,context=256MiB",
        real: OnRealCard::Never("it would have to fill the card, and others may need it"),
        held_by_other_percent: 80,
        program: situations::other_process::run,
    },
    Situation {
        name: "kernel-heap",
        title: "malloc inside a kernel",
        about: "A kernel asks for 64 MiB of the in-kernel heap, which has 8 MiB unless the program says otherwise. Seen \
                as: a null pointer inside the kernel, and no error anywhere.",
        software: CARD,
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::kernel_heap::run,
    },
    Situation {
        name: "pinned-memory",
        title: "pinned host memory that is never freed",
        about: "A loader pins a new buffer for every batch and frees none. Seen as: out of memory from CUDA while the \
                GPU is empty, or a machine that gets slow.",
        software: "memory=2GiB,context=512MiB,host=128MiB",
        real: SHARE,
        held_by_other_percent: 0,
        program: situations::pinned_memory::run,
    },
];

/// The situation of a name.
pub fn find(name: &str) -> Option<&'static Situation> {
    SITUATIONS.iter().find(|situation| situation.name == name)
}
