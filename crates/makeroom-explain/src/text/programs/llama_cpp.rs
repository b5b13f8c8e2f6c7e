//! llama.cpp and what is built on it. Memory is weights (layers on the GPU), the KV cache (context length times
//! slots) and a compute buffer (micro-batch times context).

use super::{Program, Work};
use crate::text::situation::Situation;
use crate::{Cause, Fix};

pub(super) const PROGRAMS: &[&Program] = &[&LLAMA_CPP];

const LLAMA_CPP: Program = Program {
    name: "llama.cpp",
    frameworks: &["llama.cpp"],
    marks: &["llama-server", "llama-cli", "ggml_", "llama_cpp"],
    work: Work::Inference,
    advise,
};

fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice | Cause::Undetermined => smaller(situation),
        _ => Vec::new(),
    }
}

fn smaller(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    let context = settings.number(&["-c", "--ctx-size", "n_ctx"]);
    fixes.push(match context {
        Some(tokens) if tokens > 4096.0 => Fix::new(format!("halve the context from {tokens} tokens: the KV cache shrinks with it"))
            .command(format!("-c {}", (tokens / 2.0) as u64)),
        Some(_) | None => Fix::new("cap the context: by default it is the model's maximum").command("-c 8192"),
    });
    if !settings.is_on(&["--no-kv-offload", "-nkvo"]) {
        fixes.push(Fix::new("store the KV cache in 8 bits, half its size").command("-fa on -ctk q8_0 -ctv q8_0"));
    }
    fixes
}
