//! Programs for sound: separation, diarization, speech synthesis, music.

use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] =
    &[&UVR, &DEMUCS, &PYANNOTE, &BARK, &TORTOISE, &COQUI, &MUSICGEN, &ACE_STEP];

fn is_training(situation: &Situation<'_>) -> bool {
    situation.is_training()
}

const UVR: Program = Program {
    name: "Ultimate Vocal Remover",
    frameworks: &[],
    marks: &[
        "Ultimate Vocal Remover",
        "ultimatevocalremover",
        "unable to allocate enough GPU memory to use this model",
        "UVR.py",
    ],
    work: Work::Inference,
    advise: uvr,
};

fn uvr(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        // Spectrograms of the whole file are in RAM.
        Cause::HostMemory => vec![
            Fix::new("split the recording: the spectrogram of the whole file is kept in RAM")
                .command("ffmpeg -i song.wav -f segment -segment_time 300 -c copy part%02d.wav"),
        ],
        _ => lever::steps(situation, cause, UVR_LEVERS),
    }
}

const UVR_LEVERS: &[Lever] = &[
    Lever::new("use smaller segments (MDX-Net; Demucs: Segment = 10)", "Segment Size = 64"),
    Lever::new("process one segment at a time", "Batch Size = 1")
        .unless_said(&["batch size: 1", "batch_size: 1"]),
    Lever::new("or convert on the CPU: uncheck GPU Conversion", "GPU Conversion = off"),
];

const DEMUCS: Program = Program {
    name: "Demucs",
    frameworks: &[],
    marks: &["demucs"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, DEMUCS_LEVERS),
};

const DEMUCS_LEVERS: &[Lever] = &[
    Lever::new("process shorter segments (length in seconds)", "demucs --segment 7 song.mp3")
        .unless_said(&["--segment"]),
    Lever::new("or run on the CPU", "demucs -d cpu song.mp3").unless_said(&["-d cpu"]),
];

const PYANNOTE: Program = Program {
    name: "pyannote.audio",
    frameworks: &[],
    marks: &["pyannote"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, PYANNOTE_LEVERS),
};

const PYANNOTE_LEVERS: &[Lever] = &[
    Lever::lower(
        "embed fewer segments at a time{from| (default 32)}",
        "pipeline.embedding_batch_size = {to}",
        &["embedding_batch_size"],
        4,
    ),
    Lever::lower(
        "segment fewer windows at a time{from| (default 32)}",
        "pipeline.segmentation_batch_size = {to}",
        &["segmentation_batch_size"],
        4,
    ),
    Lever::new(
        "diarize the recording in 30-minute segments",
        "ffmpeg -i talk.wav -f segment -segment_time 1800 part%02d.wav",
    ),
];

const BARK: Program = Program {
    name: "Bark",
    frameworks: &[],
    marks: &["suno-ai/bark", "bark/generation.py", "SUNO_"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, BARK_LEVERS),
};

const BARK_LEVERS: &[Lever] = &[
    Lever::new("keep models in RAM while they are idle", "SUNO_OFFLOAD_CPU=True")
        .unless_said(&["SUNO_OFFLOAD_CPU=True"])
        .variable(),
    Lever::new("load the small models, which are made for GPUs with 4 to 8 GB", "SUNO_USE_SMALL_MODELS=True")
        .unless_said(&["SUNO_USE_SMALL_MODELS=True"])
        .variable(),
];

const TORTOISE: Program = Program {
    name: "Tortoise",
    frameworks: &[],
    marks: &["tortoise/", "tortoise-tts", "autoregressive_batch_size"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, TORTOISE_LEVERS),
};

const TORTOISE_LEVERS: &[Lever] = &[
    Lever::lower(
        "generate fewer candidates at a time{from}",
        "TextToSpeech(autoregressive_batch_size={to})",
        &["autoregressive_batch_size", "sample_batch_size"],
        1,
    ),
    Lever::new("run in 16-bit precision", "TextToSpeech(half=True)").unless_said(&["half=True"]),
    Lever::new("choose a faster preset, with fewer samples", "preset=\"ultra_fast\"")
        .unless_said(&["ultra_fast"]),
];

const COQUI: Program = Program {
    name: "Coqui TTS",
    frameworks: &[],
    marks: &["TTS/tts", "TTS/bin", "TTS.tts", "coqui", "xtts"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, COQUI_LEVERS),
};

const COQUI_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from} in config.json, and accumulate gradients",
        "\"batch_size\": {to}, \"grad_accum_steps\": {steps}",
        &["batch_size"],
    )
    .only(is_training),
    Lever::new("leave out the longest recordings (length in samples)", "\"max_audio_len\": 132300")
        .unless_said(&["max_audio_len"])
        .only(is_training),
    Lever::new("train in 16-bit precision", "\"mixed_precision\": true")
        .unless_said(&["mixed_precision\": true"])
        .only(is_training),
    Lever::new("synthesize one sentence at a time", "tts.tts(text, split_sentences=True)")
        .unless_said(&["split_sentences=True"])
        .only(|situation| !situation.is_training()),
    Lever::new("or run on the CPU", "TTS(model_name).to(\"cpu\")").only(|situation| !situation.is_training()),
];

const MUSICGEN: Program = Program {
    name: "AudioCraft",
    frameworks: &[],
    marks: &["audiocraft", "musicgen"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, MUSICGEN_LEVERS),
};

const MUSICGEN_LEVERS: &[Lever] = &[
    Lever::lower(
        "generate shorter clips{from s}",
        "model.set_generation_params(duration={to})",
        &["duration"],
        8,
    )
    .at_least(4, 1),
    Lever::new("load a smaller model", "MusicGen.get_pretrained('facebook/musicgen-small')")
        .unless_said(&["musicgen-small"]),
    Lever::new("generate one clip at a time", "model.generate(descriptions[:1])"),
];

const ACE_STEP: Program = Program {
    name: "ACE-Step",
    frameworks: &[],
    marks: &["ace-step", "acestep", "generate_music"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, ACE_STEP_LEVERS),
};

const ACE_STEP_LEVERS: &[Lever] = &[
    Lever::switch("move models to RAM while they are idle", "acestep --cpu_offload true", &["--cpu_offload"]),
    Lever::switch(
        "decode in overlapping parts",
        "acestep --overlapped_decode true",
        &["--overlapped_decode"],
    ),
    Lever::new("generate a shorter piece", "audio_duration = 60"),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "Ultimate Vocal Remover",
                "The application was unable to allocate enough GPU memory to use this model.",
                "Segment Size = 64",
                ("batch size: 1", "Batch Size"),
            ),
            ("Demucs", "demucs -n htdemucs song.mp3", "--segment 7", ("demucs -d cpu", "-d cpu")),
            (
                "pyannote.audio",
                "pyannote/audio/core/pipeline.py",
                "embedding_batch_size = 4",
                ("segmentation_batch_size = 1", "segmentation_batch_size"),
            ),
            (
                "Bark",
                "bark/generation.py",
                "SUNO_OFFLOAD_CPU=True",
                ("SUNO_USE_SMALL_MODELS=True", "SMALL_MODELS"),
            ),
            ("Tortoise", "tortoise/api.py", "autoregressive_batch_size=1", ("half=True", "half=True")),
            (
                "AudioCraft",
                "audiocraft/models/musicgen.py",
                "duration=8",
                ("facebook/musicgen-small", "musicgen-small"),
            ),
            (
                "ACE-Step",
                "acestep --port 7865",
                "--cpu_offload",
                ("--overlapped_decode true", "--overlapped_decode"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
        check(
            "Coqui TTS",
            &torch("TTS/bin/train_tts.py: training"),
            "\"batch_size\": 1",
            ("\"mixed_precision\": true", "mixed_precision"),
        );
    }
}
