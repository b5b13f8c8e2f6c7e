//! The kinds of memory. Names for people are in `makeroom-report`; ids are part of the JSON format.

/// What an allocation is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Parameters and buffers of a model, with their shards and gathered copies.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// State that an optimizer keeps from step to step.
    OptimizerState,
    /// Outputs of the forward pass, most of them kept for the backward pass.
    Activations,
    /// Data that the program passes to the model.
    Inputs,
    /// Keys and values of earlier tokens.
    KvCache,
    /// Memory that a library needs for its own work: cuBLAS, cuDNN, NCCL, Triton.
    Workspaces,
    /// Memory in a CUDA graph's private pool.
    GraphPools,
    /// Results that are freed again soon.
    Temporaries,
    /// Memory that another framework's allocator holds: its contents are not recorded.
    FrameworkCache,
    /// No rule applies.
    Unknown,
}

impl Kind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 11] = [
        Self::Parameters,
        Self::Gradients,
        Self::OptimizerState,
        Self::Activations,
        Self::Inputs,
        Self::KvCache,
        Self::Workspaces,
        Self::GraphPools,
        Self::Temporaries,
        Self::FrameworkCache,
        Self::Unknown,
    ];

    /// Its ID in JSON.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::OptimizerState => "optimizer_state",
            Self::Activations => "activations",
            Self::Inputs => "inputs",
            Self::KvCache => "kv_cache",
            Self::Workspaces => "workspaces",
            Self::GraphPools => "graph_pools",
            Self::Temporaries => "temporaries",
            Self::FrameworkCache => "framework_cache",
            Self::Unknown => "unknown",
        }
    }

    /// The kind with this ID.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_in_order_and_found_by_their_ids() {
        assert!(Kind::ALL.is_sorted());
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(Kind::from_id(kind.id()), Some(kind));
        }
        assert_eq!(Kind::from_id("weights"), None);
    }
}
