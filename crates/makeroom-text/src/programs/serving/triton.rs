//! Triton Inference Server: model instances, batches and its own pools.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::super::{Program, Work};
use super::half;
use crate::host_fixes;
use crate::situation::Situation;

pub(super) const TRITON_SERVER: Program = Program {
    name: "Triton Inference Server",
    frameworks: &[Framework::TritonServer],
    marks: &["tritonserver", "triton-inference-server", "tritonbackend_", "model_repository_manager"],
    work: Work::Inference,
    advise,
};

/// Triton's CUDA pool unless it is set.
const DEFAULT_POOL: u64 = 64 << 20;

fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::ArtificialLimit => {
            let needed = situation
                .facts
                .request
                .map_or(4 * DEFAULT_POOL, |request| (request.get() * 2).next_power_of_two());
            let device = situation.facts.device.map_or(0, |device| device.0);
            vec![
                Fix::new("enlarge Triton's CUDA pool (64 MiB by default)")
                    .command(format!("--cuda-memory-pool-byte-size={device}:{needed}")),
            ]
        }
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice | Cause::NonFrameworkOverhead => {
            smaller(situation)
        }
        Cause::HostMemory => {
            // The machine's or the container's limit comes first.
            let general = host_fixes::steps(situation).into_iter().take(1);
            let own = [
                Fix::new("pin less host memory (256 MiB by default)")
                    .command("--pinned-memory-pool-byte-size=67108864"),
                Fix::new("load fewer models at once")
                    .command("--model-control-mode=explicit --load-model=NAME"),
            ];
            general.chain(own).collect()
        }
        _ => Vec::new(),
    }
}

/// Steps in a model's `config.pbtxt`.
fn smaller(situation: &Situation<'_>) -> Vec<Fix> {
    let mut fixes = vec![
        Fix::new("run one instance of the model per GPU (in config.pbtxt)")
            .command("instance_group [ { count: 1, kind: KIND_GPU } ]"),
    ];
    if let Some(batch) = half(situation, &["max_batch_size"], 4, 1) {
        fixes.push(
            Fix::new("halve the maximum batch size (in config.pbtxt)")
                .command(format!("max_batch_size: {batch}")),
        );
    }
    fixes.push(
        Fix::new("load only the models in use").command("--model-control-mode=explicit --load-model=NAME"),
    );
    fixes
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::commands;
    use super::*;

    #[test]
    fn a_pool_for_the_tensor() {
        let text = "Failed to allocate CUDA memory with byte size 134217728 on GPU 1: CNMEM_STATUS_OUT_OF_MEMORY, falling back to pinned system memory";
        assert_eq!(commands(text, Cause::ArtificialLimit), ["--cuda-memory-pool-byte-size=1:268435456"]);
    }

    #[test]
    fn fewer_instances() {
        let text = "tritonserver: max_batch_size: 32\nRuntimeError: CUDA out of memory";
        assert_eq!(commands(text, Cause::LiveDataFillsDevice)[1], "max_batch_size: 16");
    }
}
