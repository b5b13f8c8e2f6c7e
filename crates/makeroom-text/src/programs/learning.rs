//! Reinforcement learning, graph networks, and training frameworks of their own: simulators, replay buffers, neighbor
//! samplers, Chainer.

use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] =
    &[&ISAAC, &STABLE_BASELINES, &DOPAMINE, &GARAGE, &RLLIB, &DGL, &PYG, &CHAINER];

const ISAAC: Program = Program {
    name: "Isaac",
    frameworks: &[],
    marks: &[
        "isaacgym",
        "isaac gym",
        "omniisaacgymenvs",
        "isaaclab",
        "isaac lab",
        "orbit.envs",
        "gpu_found_lost_pairs",
        "PxgCudaDeviceMemoryAllocator",
    ],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, ISAAC_LEVERS),
};

const ISAAC_LEVERS: &[Lever] = &[
    Lever::lower(
        "simulate fewer environments{from| (default 4096 in most tasks)}",
        "--num_envs {to}",
        &["--num_envs", "num_envs"],
        1024,
    )
    .at_least(16, 16),
    Lever::switch("run without the viewer", "--headless", &["--headless", "headless"]),
    Lever::lower(
        "reserve smaller contact buffers{from}",
        "gpu_max_rigid_contact_count={to}",
        &["gpu_max_rigid_contact_count", "max_gpu_contact_pairs"],
        0,
    )
    .at_least(65_536, 1024),
    Lever::lower(
        "train on smaller minibatches{from}",
        "minibatch_size={to}",
        &["minibatch_size", "mini_batch_size"],
        0,
    )
    .at_least(256, 64),
];

/// Host memory for a replay buffer that is too long.
fn replay(cause: Cause, command: &str) -> Vec<Fix> {
    match cause {
        Cause::HostMemory => {
            vec![
                Fix::new("keep a tenth of the transitions in the replay buffer (default 1000000)")
                    .command(command),
            ]
        }
        _ => Vec::new(),
    }
}

const STABLE_BASELINES: Program = Program {
    name: "Stable-Baselines3",
    frameworks: &[],
    marks: &["stable_baselines3", "stable-baselines3", "stable_baselines"],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::HostMemory => {
            let mut fixes = replay(cause, "buffer_size=100_000");
            fixes.push(Fix::new("store each observation only once").command(
                "optimize_memory_usage=True, replay_buffer_kwargs={\"handle_timeout_termination\": False}",
            ));
            fixes
        }
        _ => lever::steps(situation, cause, STABLE_BASELINES_LEVERS),
    },
};

const STABLE_BASELINES_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size{from}", "PPO(…, batch_size={to})", &["batch_size"]),
    Lever::lower("collect fewer steps per update{from| (default 2048)}", "n_steps={to}", &["n_steps"], 512)
        .at_least(64, 64),
    Lever::new("train a small policy on the CPU", "PPO(…, device=\"cpu\")"),
];

const DOPAMINE: Program = Program {
    name: "Dopamine",
    frameworks: &[],
    marks: &["dopamine", "WrappedReplayBuffer"],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::HostMemory => replay(cause, "--gin_bindings='WrappedReplayBuffer.replay_capacity = 100000'"),
        _ => lever::steps(situation, cause, DOPAMINE_LEVERS),
    },
};

const DOPAMINE_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "--gin_bindings='WrappedReplayBuffer.batch_size = {to}'",
        &["batch_size"],
    ),
    Lever::new("let TensorFlow allocate memory as it needs it", "TF_FORCE_GPU_ALLOW_GROWTH=true")
        .unless_said(&["ALLOW_GROWTH=true"])
        .variable(),
];

const GARAGE: Program = Program {
    name: "garage",
    frameworks: &[],
    marks: &["rlworkgroup", "garage/tf", "garage.tf", "size_in_transitions"],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::HostMemory => replay(cause, "size_in_transitions=int(1e5)"),
        _ => lever::steps(situation, cause, &[]),
    },
};

const RLLIB: Program = Program {
    name: "RLlib",
    frameworks: &[],
    marks: &["rllib"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, RLLIB_LEVERS),
};

const RLLIB_LEVERS: &[Lever] = &[
    Lever::lower(
        "train on fewer samples at a time{from}",
        "config.training(sgd_minibatch_size={to})",
        &["sgd_minibatch_size", "minibatch_size"],
        64,
    )
    .at_least(16, 16),
    Lever::lower(
        "collect smaller batches{from}",
        "config.training(train_batch_size={to})",
        &["train_batch_size"],
        2000,
    )
    .at_least(200, 100),
    Lever::new("keep the workers off the GPU", "config.resources(num_gpus=1, num_gpus_per_worker=0)"),
];

const DGL: Program = Program {
    name: "DGL",
    frameworks: &[],
    marks: &["dgl/", "import dgl", "dgl.dataloading", "dgl._ffi"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, DGL_LEVERS),
};

const DGL_LEVERS: &[Lever] = &[
    Lever::new("sample fewer neighbors per layer", "dgl.dataloading.NeighborSampler([10, 5])"),
    Lever::batch(
        "train on fewer seed nodes{from}",
        "DataLoader(graph, seeds, sampler, batch_size={to})",
        &["batch_size", "--batch_size"],
    ),
    Lever::new(
        "keep features in RAM, and read them from there",
        "DataLoader(…, use_uva=True, device='cuda')",
    )
    .unless_said(&["use_uva=True"]),
];

const PYG: Program = Program {
    name: "PyTorch Geometric",
    frameworks: &[],
    marks: &[
        "torch_geometric",
        "torch_sparse",
        "torch_scatter",
        "pyg/",
        "NeighborLoader",
        "nodeproppred",
        "full_batch.py",
    ],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, PYG_LEVERS),
};

const PYG_LEVERS: &[Lever] = &[
    Lever::new(
        "train on sampled neighborhoods instead of the whole graph",
        "NeighborLoader(data, num_neighbors=[15, 10], batch_size=1024)",
    )
    .unless_said(&["NeighborLoader", "NeighborSampler", "ClusterLoader"]),
    Lever::batch(
        "train on fewer graphs or seed nodes{from}",
        "batch_size={to}",
        &["batch_size", "--batch_size"],
    )
    .only(|situation| situation.batch().is_some()),
    Lever::lower(
        "use fewer channels{from}",
        "hidden_channels={to}",
        &["--hidden_channels", "hidden_channels"],
        128,
    )
    .at_least(16, 16),
    Lever::new("aggregate without storing a message for each edge", "data = T.ToSparseTensor()(data)")
        .unless_said(&["ToSparseTensor", "SparseTensor"]),
];

fn is_evaluation(situation: &Situation<'_>) -> bool {
    !situation.is_training()
}

const CHAINER: Program = Program {
    name: "Chainer",
    frameworks: &[],
    marks: &["chainer"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, CHAINER_LEVERS),
};

const CHAINER_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "--batchsize {to}",
        &["--batchsize", "batchsize", "batch_size"],
    ),
    Lever::new(
        "evaluate without keeping the computation graph",
        "with chainer.using_config('train', False), chainer.no_backprop_mode(): …",
    )
    .unless_said(&["no_backprop_mode"])
    .only(is_evaluation),
    Lever::new("recompute activations", "chainer.functions.forget(block, x)")
        .unless_said(&["functions.forget"]),
    Lever::new("compute in 16-bit precision", "CHAINER_DTYPE=mixed16").unless_said(&["mixed16"]).variable(),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check, torch};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            ("Isaac", "isaacgym/train.py num_envs=4096", "--num_envs", ("--headless", "--headless")),
            (
                "Stable-Baselines3",
                "stable_baselines3/ppo/ppo.py batch_size=256",
                "batch_size=",
                ("n_steps=64", "n_steps"),
            ),
            (
                "RLlib",
                "ray/rllib/agents/trainer.py",
                "sgd_minibatch_size=64",
                ("train_batch_size=200", "train_batch_size"),
            ),
            ("DGL", "dgl/backend/pytorch/sparse.py", "NeighborSampler([10, 5])", ("use_uva=True", "use_uva")),
            (
                "PyTorch Geometric",
                "torch_geometric/nn/conv/gcn_conv.py",
                "NeighborLoader",
                ("adj = SparseTensor()", "ToSparseTensor"),
            ),
            (
                "Chainer",
                "chainer/functions/connection/convolution_2d.py",
                "--batchsize 1",
                ("chainer.functions.forget(f, x)", "functions.forget"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    #[test]
    fn a_replay_buffer_is_in_ram() {
        let (program, steps) = advice(
            "dopamine/replay_memory: WrappedReplayBuffer\nMemoryError: Unable to allocate 26.3 GiB for an array",
            Cause::HostMemory,
        );
        assert_eq!(program.name, "Dopamine");
        assert!(steps[0].command.as_deref().is_some_and(|command| command.contains("100000")), "{steps:?}");
    }
}
