//! Programs that start vLLM themselves and have their own names for its options: trainers with rollouts, chat front ends.
//!
//! An error of the engine names the engine's options; the user of such a program can only set the program's.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use crate::programs::Program;
use crate::situation::Situation;

/// A program around vLLM.
struct Host {
    /// The name of its [`Program`].
    name: &'static str,
    /// vLLM's share of the GPU unless it is set.
    share: f64,
    /// vLLM's options and the program's, with `{}` for the value.
    spellings: &'static [(&'static str, &'static str)],
}

const SHARE: &str = "--gpu-memory-utilization";

const HOSTS: &[Host] = &[
    Host {
        name: "verl",
        share: 0.5,
        spellings: &[
            (SHARE, "actor_rollout_ref.rollout.gpu_memory_utilization={}"),
            ("--max-model-len", "actor_rollout_ref.rollout.max_model_len={}"),
            ("--tensor-parallel-size", "actor_rollout_ref.rollout.tensor_model_parallel_size={}"),
            ("--enforce-eager", "actor_rollout_ref.rollout.enforce_eager=True"),
            ("--max-num-seqs", "actor_rollout_ref.rollout.max_num_seqs={}"),
        ],
    },
    Host {
        name: "OpenRLHF",
        share: 0.95,
        spellings: &[
            (SHARE, "--vllm_gpu_memory_utilization {}"),
            ("--tensor-parallel-size", "--vllm_tensor_parallel_size {}"),
            ("--enforce-eager", "--enforce_eager"),
        ],
    },
    Host {
        name: "LLaMA-Factory",
        share: 0.7,
        spellings: &[
            ("--max-model-len", "--vllm_maxlen {}"),
            (SHARE, "--vllm_gpu_util {}"),
            ("--enforce-eager", "--vllm_enforce_eager"),
            ("--quantization fp8", "--vllm_config '{\"quantization\": \"fp8\"}'"),
        ],
    },
    Host {
        name: "ms-swift",
        share: 0.9,
        spellings: &[
            (SHARE, "--vllm_gpu_memory_utilization {}"),
            ("--max-model-len", "--vllm_max_model_len {}"),
            ("--tensor-parallel-size", "--vllm_tensor_parallel_size {}"),
            ("--enforce-eager", "--vllm_enforce_eager true"),
        ],
    },
    Host {
        name: "TRL",
        share: 0.3,
        spellings: &[
            (SHARE, "GRPOConfig(…, vllm_gpu_memory_utilization={})"),
            ("--max-model-len", "GRPOConfig(…, vllm_max_model_length={})"),
            ("--tensor-parallel-size", "GRPOConfig(…, vllm_tensor_parallel_size={})"),
        ],
    },
    Host {
        name: "Xinference",
        share: 0.9,
        spellings: &[
            ("--max-model-len", "xinference launch … --max_model_len {}"),
            (SHARE, "xinference launch … --gpu_memory_utilization {}"),
            ("--tensor-parallel-size", "xinference launch … --n-gpu {}"),
            ("--enforce-eager", "xinference launch … --enforce_eager True"),
        ],
    },
    Host {
        name: "lm-evaluation-harness",
        share: 0.9,
        spellings: &[
            (SHARE, "--model_args …,gpu_memory_utilization={}"),
            ("--max-model-len", "--model_args …,max_model_len={}"),
            ("--tensor-parallel-size", "--model_args …,tensor_parallel_size={}"),
            ("--enforce-eager", "--model_args …,enforce_eager=True"),
        ],
    },
];

/// Whether a program starts the engine whose format was read.
pub(in crate::programs) fn is_host(program: &Program, format: Option<Framework>) -> bool {
    format == Some(Framework::Vllm) && HOSTS.iter().any(|host| host.name == program.name)
}

/// The engine's steps in the program's options, where the engine failed inside a program.
pub(in crate::programs) fn hosted(situation: &Situation<'_>, cause: Cause) -> Option<Vec<Fix>> {
    let host = HOSTS.iter().find(|host| host.name == situation.program.name)?;
    if situation.facts.framework != Framework::Vllm {
        return None;
    }
    let steps = (super::vllm::VLLM.advise)(situation, cause);
    Some(steps.into_iter().filter_map(|fix| translated(host, &fix, situation)).collect())
}

fn translated(host: &Host, fix: &Fix, situation: &Situation<'_>) -> Option<Fix> {
    let command = fix.command.as_deref()?;
    let (option, spelling) = host.spellings.iter().find(|(option, _)| command.starts_with(option))?;
    let mut value = command[option.len()..].trim().to_owned();
    let mut action = fix.action.clone();
    let is_set = situation.settings.number(&["gpu_memory_utilization", "vllm_gpu_util"]).is_some();
    if *option == SHARE && !is_set {
        // The engine's default is not this program's.
        let is_raised = action.starts_with("raise");
        let share = if is_raised { (host.share + 0.1).min(0.95) } else { (host.share - 0.1).max(0.1) };
        let verb = if is_raised { "raise" } else { "lower" };
        action = format!("{verb} vLLM's share of GPU memory from this program's default of {}", host.share);
        value = format!("{share:.2}");
        if (share - host.share).abs() < 0.005 {
            return None;
        }
    }
    Some(Fix { action, command: Some(spelling.replace("{}", &value)), ..fix.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::commands;
    use super::*;

    const NO_BLOCKS: &str = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";

    #[test]
    fn the_engines_options_in_the_programs_spelling() {
        let steps = commands(
            &format!("python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo\n{NO_BLOCKS}"),
            Cause::ArtificialLimit,
        );
        assert_eq!(steps[0], "actor_rollout_ref.rollout.gpu_memory_utilization=0.60");
        assert!(steps.iter().all(|step| !step.starts_with("--")), "{steps:?}");
        let steps = commands(
            "llamafactory-cli api --infer_backend vllm --vllm_gpu_util 0.8\nValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (3008). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`",
            Cause::LiveDataFillsDevice,
        );
        assert_eq!(steps[0], "--vllm_maxlen 3008");
    }

    #[test]
    fn the_engine_alone_keeps_its_options() {
        let steps = commands(&format!("vllm serve model\n{NO_BLOCKS}"), Cause::ArtificialLimit);
        assert_eq!(steps[0], "--gpu-memory-utilization 0.95");
    }
}
