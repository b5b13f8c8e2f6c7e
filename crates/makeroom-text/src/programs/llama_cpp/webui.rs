//! text-generation-webui with its PyTorch loaders: Transformers, `ExLlama`, GPTQ.

use makeroom_explain::{Cause, Fix};

use crate::programs::{Program, Work};
use crate::situation::Situation;

pub(in crate::programs) const WEBUI: Program = Program {
    name: "text-generation-webui",
    frameworks: &[],
    marks: &["text-generation-webui", "oobabooga", "Starting the web UI", "Output generated in"],
    work: Work::Inference,
    advise,
};

fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    if !matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice | Cause::Fragmentation) {
        return Vec::new();
    }
    let settings = situation.settings;
    let mut fixes = Vec::new();
    let is_exllama = settings.mentions("exllama");
    let is_gptq = settings.number(&["wbits"]).is_some() || settings.mentions("gptq");
    let card = situation.facts.total.map_or(8.0, |total| total.get() as f64 / f64::from(1 << 30));
    // The first figure of `--gpu-memory 10 16` belongs to the first GPU.
    let limit = settings
        .number(&["--gpu-memory", "--gpu-split", "gpu_split"])
        .map_or((card - 2.5).max(2.0), |now| (now * 0.85).max(1.0));
    if is_exllama {
        fixes.push(
            Fix::new("leave more of the first GPU's memory for the cache (GiB per GPU)")
                .command(format!("--gpu-split {limit:.0}")),
        );
    } else if is_gptq && settings.number(&["pre_layer"]).is_none() {
        fixes.push(Fix::new("keep layers after the first 20 in RAM").command("--pre_layer 20"));
    } else {
        fixes.push(
            Fix::new("cap the weights on the first GPU (in GiB); the rest goes to RAM")
                .command(format!("--gpu-memory {limit:.0}")),
        );
    }
    let context = settings
        .number(&["ctx_size", "max_seq_len", "n_ctx", "truncation_length"])
        .filter(|&tokens| tokens > 1024.0);
    let tokens = context.map_or(2048, |tokens| (tokens / 2.0) as u64);
    fixes.push(
        Fix::new("shorten the context: the cache shrinks with it")
            .command(format!("--ctx-size {tokens}   (Truncate the prompt up to this length: {tokens})")),
    );
    if settings.value(&["cache_type"]).is_none() && is_exllama {
        fixes.push(Fix::new("quantize the cache to 8 bits").command("--cache-type q8"));
    }
    if !is_gptq && !is_exllama && !settings.is_on(&["--load-in-4bit", "load_in_4bit"]) {
        fixes.push(
            Fix::new("load the weights in 4-bit precision (a quarter of the size)").command("--load-in-4bit"),
        );
    }
    fixes.push(
        Fix::new("or load a GGUF of the model with some layers in RAM")
            .command("--loader llama.cpp --gpu-layers 20"),
    );
    fixes
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::commands;
    use super::*;

    #[test]
    fn a_gptq_model_on_a_small_card() {
        let text = "~/text-generation-webui$ python server.py --model vicuna-13b-GPTQ --wbits 4 --chat\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB (GPU 0; 6.00 GiB total capacity; 5.10 GiB already allocated; 0 bytes free; 5.20 GiB reserved in total by PyTorch)";
        assert_eq!(commands(text, Cause::LiveDataFillsDevice)[0], "--pre_layer 20");
        let text = text.replace("--wbits 4", "--gpu-memory 10").replace("-GPTQ", "");
        assert!(commands(&text, Cause::LiveDataFillsDevice)[0].starts_with("--gpu-memory 8"));
    }
}
