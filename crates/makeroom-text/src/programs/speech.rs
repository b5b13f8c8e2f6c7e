//! Speech and sequence toolkits: whisper, fairseq, `ESPnet`, `NeMo`, `SpeechBrain`, RETURNN, icefall. Their batches are counted in
//! tokens, frames or seconds.

use super::lever::{self, Lever};
use super::{Program, Work};

pub(super) const PROGRAMS: &[&Program] = &[
    &BUZZ,
    &WHISPER_X,
    &FAST_WHISPER,
    &WHISPER,
    &FAIRSEQ,
    &ESPNET,
    &NEMO,
    &SPEECH_BRAIN,
    &RETURNN,
    &ICEFALL,
];

const BUZZ: Program = Program {
    name: "Buzz",
    frameworks: &[],
    marks: &["buzz/transcriber", "buzz/model_loader", "chidiwilliams/buzz"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, BUZZ_LEVERS),
};

const BUZZ_LEVERS: &[Lever] = &[
    Lever::new(
        "transcribe with a smaller model: large needs 10 GB, medium 5 GB, small 2 GB",
        "Model: Faster Whisper, Small",
    )
    .unless_said(&["model: small"]),
    Lever::new("or transcribe on the CPU", "BUZZ_FORCE_CPU=true").unless_said(&["BUZZ_FORCE_CPU"]).variable(),
    Lever::new("use 8-bit weights, which need less GPU memory", "BUZZ_REDUCE_GPU_MEMORY=true")
        .unless_said(&["BUZZ_REDUCE_GPU_MEMORY"])
        .variable(),
];

const WHISPER: Program = Program {
    name: "Whisper",
    frameworks: &[],
    marks: &[
        "whisper/transcribe",
        "whisper/model.py",
        "whisper/__init__",
        "openai-whisper",
        "whisper.load_model",
    ],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, WHISPER_LEVERS),
};

const WHISPER_LEVERS: &[Lever] = &[
    Lever::new(
        "use a smaller model: large needs 10 GB, turbo 6 GB, medium 5 GB, small 2 GB",
        "--model small",
    )
    .unless_said(&["model small", "load_model(\"small", "model base", "model tiny"]),
    Lever::new("load the model in 16-bit precision", "--fp16 True").only(|situation| {
        situation.settings.value(&["--fp16", "fp16"]).is_some_and(|value| value.eq_ignore_ascii_case("false"))
    }),
    Lever::lower(
        "decode with a smaller beam{from}",
        "--beam_size {to} --best_of 1",
        &["--beam_size", "beam_size"],
        1,
    ),
    Lever::new(
        "or use faster-whisper, with 8-bit weights",
        "WhisperModel(\"large-v3\", compute_type=\"int8_float16\")",
    ),
];

const FAST_WHISPER: Program = Program {
    name: "insanely-fast-whisper",
    frameworks: &[],
    marks: &["insanely-fast-whisper", "insanely_fast_whisper"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, FAST_WHISPER_LEVERS),
};

const FAST_WHISPER_LEVERS: &[Lever] = &[
    Lever::lower(
        "transcribe fewer segments at once{from| (default 24)}",
        "insanely-fast-whisper --batch-size {to}",
        &["--batch-size", "batch_size"],
        4,
    ),
    Lever::switch("use Flash Attention 2", "--flash True", &["--flash"]),
    Lever::new("use a smaller model", "--model-name distil-whisper/large-v2").unless_said(&["distil"]),
];

const WHISPER_X: Program = Program {
    name: "WhisperX",
    frameworks: &[],
    marks: &["whisperx"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, WHISPER_X_LEVERS),
};

const WHISPER_X_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from| (default 16)}",
        "--batch_size {to}",
        &["--batch_size", "batch_size"],
    ),
    Lever::new("load the weights in 8-bit precision", "--compute_type int8")
        .unless_said(&["compute_type int8", "compute_type=\"int8"]),
    Lever::new("use a smaller model", "--model small").unless_said(&["model small"]),
    Lever::new(
        "free the transcription model before alignment",
        "del model; gc.collect(); torch.cuda.empty_cache()",
    )
    .unless_said(&["empty_cache()"]),
];

const FAIRSEQ: Program = Program {
    name: "fairseq",
    frameworks: &[],
    marks: &["fairseq", "WARNING: ran out of memory with exception"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, FAIRSEQ_LEVERS),
};

const FAIRSEQ_LEVERS: &[Lever] = &[
    Lever::lower(
        "use fewer tokens per batch{from}, and accumulate gradients",
        "--max-tokens {to} --update-freq 2",
        &["--max-tokens", "max_tokens"],
        2048,
    )
    .at_least(256, 64),
    Lever::switch("train in 16-bit precision", "--fp16", &["--fp16", "fp16", "--bf16"]),
    Lever::switch(
        "recompute activations instead of keeping them",
        "--checkpoint-activations",
        &["--checkpoint-activations", "checkpoint_activations"],
    ),
    Lever::lower(
        "use fewer tokens per validation batch",
        "--max-tokens-valid {to}",
        &["--max-tokens-valid"],
        1024,
    )
    .only(|situation| situation.settings.mentions("valid_step")),
    Lever::lower(
        "skip the longest samples",
        "--max-source-positions {to} --max-target-positions {to}",
        &["--max-source-positions"],
        512,
    )
    .at_least(128, 64),
];

const ESPNET: Program = Program {
    name: "ESPnet",
    frameworks: &[],
    marks: &["espnet", "batch_bins"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, ESPNET_LEVERS),
};

const ESPNET_LEVERS: &[Lever] = &[
    Lever::lower(
        "use fewer elements per batch{from}, and accumulate gradients (in the config)",
        "batch_bins: {to}\naccum_grad: 2",
        &["batch_bins", "--batch_bins"],
        2_000_000,
    )
    .at_least(1000, 1000),
    Lever::new(
        "batch by total length, so that one long utterance does not set the peak (in the config)",
        "batch_type: numel",
    )
    .unless_said(&["batch_type: numel"]),
    Lever::switch("train in 16-bit precision (in the config)", "use_amp: true", &["use_amp", "--use_amp"]),
];

const NEMO: Program = Program {
    name: "NeMo",
    frameworks: &[],
    marks: &["nemo/collections", "nemo.collections", "NeMo"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, NEMO_LEVERS),
};

const NEMO_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "model.train_ds.batch_size={to} trainer.accumulate_grad_batches={steps}",
        &["micro_batch_size", "batch_size"],
    ),
    Lever::lower(
        "skip the longest recordings{from s}",
        "model.train_ds.max_duration={to}",
        &["max_duration"],
        12,
    )
    .at_least(5, 1)
    .only(|situation| {
        ["asr", "tts", "speech", "max_duration"].iter().any(|words| situation.settings.mentions(words))
    }),
    Lever::new("train in 16-bit precision", "trainer.precision=bf16").unless_said(&[
        "precision=16",
        "precision: 16",
        "precision=bf16",
        "precision: bf16",
    ]),
    Lever::new(
        "recompute activations instead of keeping them",
        "model.activations_checkpoint_granularity=full model.activations_checkpoint_method=uniform",
    )
    .unless_said(&["activations_checkpoint_granularity=full"])
    .only(|situation| ["gpt", "llm", "megatron"].iter().any(|words| situation.settings.mentions(words))),
];

const SPEECH_BRAIN: Program = Program {
    name: "SpeechBrain",
    frameworks: &[],
    marks: &["speechbrain"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, SPEECH_BRAIN_LEVERS),
};

const SPEECH_BRAIN_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "--batch_size={to} --grad_accumulation_factor={steps}",
        &["--batch_size", "batch_size"],
    ),
    Lever::lower(
        "limit a dynamic batch to fewer seconds{from}",
        "--max_batch_length={to}",
        &["max_batch_length"],
        50,
    ),
    Lever::new("train in 16-bit precision", "--precision=fp16").unless_said(&[
        "precision=fp16",
        "precision=bf16",
        "precision: fp16",
    ]),
];

const RETURNN: Program = Program {
    name: "RETURNN",
    frameworks: &[],
    marks: &["returnn", "mem_usage:cuda"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, RETURNN_LEVERS),
};

const RETURNN_LEVERS: &[Lever] = &[
    Lever::lower(
        "use fewer frames per batch{from}, and accumulate gradients",
        "batch_size = {to}\naccum_grad_multiple_step = 2",
        &["batch_size"],
        1_200_000,
    )
    .at_least(1000, 1000),
    Lever::lower("use fewer sequences per batch{from}", "max_seqs = {to}", &["max_seqs"], 32),
    Lever::new("train in 16-bit precision", "torch_amp = \"bfloat16\"").unless_said(&["torch_amp"]),
    Lever::new("leave memory for NCCL: release the cache every epoch", "reset_dev_memory_caches = True")
        .unless_said(&["reset_dev_memory_caches"])
        .only(|situation| situation.settings.mentions("nccl")),
];

const ICEFALL: Program = Program {
    name: "icefall",
    frameworks: &[],
    marks: &["icefall/", "current max_duration setting", "decreasing max_duration"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, ICEFALL_LEVERS),
};

const ICEFALL_LEVERS: &[Lever] = &[
    Lever::lower(
        "reduce the seconds of speech in a batch{from| (default 200)}",
        "--max-duration {to}",
        &["--max-duration", "max_duration"],
        100,
    ),
    Lever::new("train in 16-bit precision", "--use-fp16 1").unless_said(&["use-fp16 1", "use_fp16': true"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "Whisper",
                r#"  File "/x/whisper/transcribe.py", line 3"#,
                "--model small",
                ("whisper a.mp3 --beam_size 1", "--beam_size"),
            ),
            (
                "WhisperX",
                "whisperx a.wav --model large-v3",
                "--batch_size 1",
                ("whisperx --compute_type int8", "--compute_type int8"),
            ),
            (
                "fairseq",
                r#"  File "/x/fairseq/trainer.py", line 3"#,
                "--max-tokens 2048",
                ("fairseq-train --fp16", "--fp16"),
            ),
            (
                "ESPnet",
                r#"  File "/x/espnet2/train/trainer.py", line 3"#,
                "batch_bins: 2000000",
                ("use_amp: true", "use_amp"),
            ),
            (
                "NeMo",
                r#"  File "/x/nemo/collections/asr/models/ctc_models.py", line 3"#,
                "model.train_ds.batch_size=1",
                ("trainer.precision=bf16", "precision"),
            ),
            (
                "SpeechBrain",
                r#"  File "/x/speechbrain/core.py", line 3"#,
                "--batch_size=1",
                ("--precision=fp16", "--precision=fp16"),
            ),
            (
                "RETURNN",
                r#"  File "/x/returnn/torch/engine.py", line 3"#,
                "batch_size = 1200000",
                ("max_seqs = 1", "max_seqs"),
            ),
            (
                "icefall",
                r#"  File "/x/icefall/egs/librispeech/ASR/zipformer/train.py", line 3"#,
                "--max-duration 100",
                ("--use-fp16 1", "use-fp16"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }
}
