//! The rules that determine a kind. Every allocation has one, so that a report can state why memory counts as what.
//!
//! A rule is certain if a framework's own frame or pool identifies the memory, likely if order, sizes and lifetimes
//! leave one explanation, and possible if others fit too.

use makeroom_core::Library;

/// How sure a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// The recording identifies the memory.
    Certain,
    /// Order, sizes and lifetimes leave one explanation.
    Likely,
    /// Other explanations fit too.
    Possible,
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $rule:ident = $id:literal, $certainty:ident;)*) => {
        /// Why an allocation has its kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[doc = $doc])+ $rule,)*
            /// Workspaces: the stack contains a function of this library.
            LibraryStack(Library),
        }

        impl Rule {
            /// Its ID in JSON.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$rule => $id,)*
                    Self::LibraryStack(_) => "library_stack",
                }
            }

            /// How sure it is.
            #[must_use]
            pub const fn certainty(self) -> Certainty {
                match self {
                    $(Self::$rule => Certainty::$certainty,)*
                    Self::LibraryStack(_) => Certainty::Certain,
                }
            }

            /// All rules; of those with a library, one.
            pub const ALL: &'static [Self] = &[$(Self::$rule,)* Self::LibraryStack(Library::CuBlas)];
        }
    };
}

rules! {
    /// Parameters: allocated while a module was built, moved or loaded.
    ModuleStack = "module_stack", Certain;
    /// Parameters: full parameters that FSDP gathered from their shards.
    GatheredParameters = "gathered_parameters", Certain;
    /// Parameters: older than the first step, and their sizes are those of the gradients.
    SizeOfGradient = "size_of_gradient", Likely;
    /// Parameters: allocated before the first forward pass of a run without gradients, and kept.
    KeptFromStart = "kept_from_start", Possible;
    /// Gradients: allocated in the backward pass, outlived it, and has the size of a parameter.
    OutlivedBackward = "outlived_backward", Likely;
    /// Gradients: allocated in the backward pass and outlived it; no parameter has this size.
    OutlivedBackwardOtherSize = "outlived_backward_other_size", Possible;
    /// Gradients: freed by `zero_grad`.
    FreedByZeroGrad = "freed_by_zero_grad", Certain;
    /// Gradients: buckets of DistributedDataParallel or buffers of FSDP's reduction.
    GradientBucket = "gradient_bucket", Certain;
    /// Gradients: the recording ends during the backward pass, and this has the size of a parameter.
    SizeOfParameter = "size_of_parameter", Possible;
    /// Optimizer state: allocated by the optimizer and kept after its step.
    OptimizerStack = "optimizer_stack", Certain;
    /// Optimizer state: allocated during the optimizer's step and kept after it.
    OptimizerPhase = "optimizer_phase", Likely;
    /// Optimizer state: same sizes as the parameters.
    RepeatsParameters = "repeats_parameters", Likely;
    /// Activations: allocated before the backward pass and freed in it.
    SavedForBackward = "saved_for_backward", Likely;
    /// Activations: allocated in the forward pass and kept through the backward pass.
    ForwardOutput = "forward_output", Likely;
    /// Activations: allocated in the forward pass; the recording has no backward pass after it.
    ForwardStack = "forward_stack", Likely;
    /// Activations: allocated by a forward pass that a checkpoint repeated during the backward pass.
    Recomputed = "recomputed", Certain;
    /// The kind that earlier allocations of this stack had; this one's step is incomplete.
    LikeEarlier = "like_earlier", Likely;
    /// Inputs: allocated by the program's own code between steps and kept through the backward pass.
    BetweenSteps = "between_steps", Likely;
    /// Inputs: allocated by the program's own code before the first step and kept; no gradient has this size.
    BeforeFirstStep = "before_first_step", Possible;
    /// Inputs: allocated by a data loader.
    DataLoader = "data_loader", Certain;
    /// KV cache: allocated by the cache of an inference framework.
    CacheStack = "cache_stack", Certain;
    /// KV cache: grows by the same amount again and again, each block replacing the previous one.
    GrowsPerToken = "grows_per_token", Likely;
    /// KV cache: equal blocks that the program allocated before the first forward pass of a run without gradients.
    EqualBlocks = "equal_blocks", Possible;
    /// Workspaces: kept from its first use to the end, with the size of PyTorch's cuBLAS workspace.
    CublasWorkspace = "cublas_workspace", Likely;
    /// Workspaces: allocated and freed within one call of a convolution (cuDNN).
    WithinConvolution = "within_convolution", Likely;
    /// CUDA-graph pools: in a private pool.
    PrivatePool = "private_pool", Certain;
    /// Temporaries: allocated in the forward pass and freed before the backward pass.
    FreedInForward = "freed_in_forward", Likely;
    /// Temporaries: allocated and freed in the same backward pass.
    FreedInBackward = "freed_in_backward", Likely;
    /// Temporaries: allocated and freed in the same step of the optimizer.
    FreedInOptimizer = "freed_in_optimizer", Likely;
    /// Temporaries: allocated while a model was loaded and freed before its first use.
    FreedInLoading = "freed_in_loading", Likely;
    /// Temporaries: freed again; nothing else is known.
    FreedAgain = "freed_again", Possible;
    /// Framework cache: memory that a framework's allocator took from the driver.
    AllocatorStack = "allocator_stack", Certain;
    /// Unknown: no other rule applies.
    NoRule = "no_rule", Possible;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_different() {
        let mut ids: Vec<_> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), Rule::ALL.len());
    }
}
