//! Advice in a program's own options: which settings a maintainer of that program would name, with the value to
//! try.
//!
//! One file per group of programs. A [`Program`] is found by the format that was read (`frameworks`) or by words
//! in the text (`marks`: module paths, command names; [`marks`] weighs them). [`APPLICATIONS`] go before the [`LIBRARIES`] that they are
//! built on, and within both a format goes before marks and the first mark in the lists goes before the others.
//! Its `advise` returns the steps for one cause, the most effective first, or nothing where the general advice for
//! that cause ([`super::fixes`]) is best. Most programs are a table of [`lever::Lever`]s.
//!
//! Every step names a setting and the value to try, computed from the text where it has figures. No step repeats
//! what [`super::settings::Settings`] shows to be set.
//!
//! To add a program, add a `Program` to the file of its group and to that file's list, and a test in that file.

mod apis;
mod assistants;
mod audio;
mod boosting;
mod catalog;
mod compute;
mod cryo_em;
mod data;
mod detection;
mod diffusion;
mod distributed;
mod frameworks;
mod graphics;
mod image_training;
mod images;
mod jax;
mod languages;
mod learning;
mod lever;
mod llama_cpp;
mod marks;
mod media;
mod older;
mod plain;
mod pytorch;
mod runtimes;
mod science;
mod serving;
mod simulation;
mod speech;
mod tensorflow;
#[cfg(test)]
mod testing;
mod toolkits;
mod training;
mod video;
mod vision;
mod web_ui;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

pub(crate) use jax::add_unified_memory;
pub(crate) use languages::{leak as leak_in_its_language, one_gpu_per_rank};
pub(crate) use tensorflow::is_first as is_tensorflow_1;

use super::facts::{Facts, Resource};
use super::language::Language;
use super::searched::Searched;
use super::situation::Situation;
use super::smaller::is_from_pytorch;

/// A program that people run, and its own remedies.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its name, as people write it.
    pub(crate) name: &'static str,
    /// Formats (`Facts::framework`) that only this program writes.
    pub(crate) frameworks: &'static [Framework],
    /// Words that give it away anywhere in the text, in any case.
    pub(crate) marks: &'static [&'static str],
    /// Whether it trains, serves or neither: batch and gradients are advice for training only.
    pub(crate) work: Work,
    /// The steps for a cause in this program's options. Empty: the general ones apply.
    pub(crate) advise: fn(&Situation<'_>, Cause) -> Vec<Fix>,
}

impl Program {
    /// Whether a failure is in this program's own format, not in that of a library below it.
    pub(crate) fn owns(&self, facts: &Facts) -> bool {
        self.writes(facts.framework)
    }

    /// Whether it is this program; names are unique.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// Whether it is LAMMPS.
    pub(crate) fn is_lammps(&self) -> bool {
        self.is(&science::LAMMPS)
    }

    /// Whether it is a program of `OpenMMLab`.
    pub(crate) fn is_open_mmlab(&self) -> bool {
        self.is(&detection::OPEN_MMLAB)
    }

    /// Whether only this program writes a format.
    pub(crate) fn writes(&self, format: Framework) -> bool {
        self.frameworks.contains(&format)
    }
}

/// What a program does with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Gradients, optimizer state, batches.
    Training,
    /// Weights, caches, activations of requests.
    Inference,
    /// Neither.
    Other,
}

/// Programs that people start.
const APPLICATIONS: &[&[&Program]] = &[
    assistants::FEEDBACK,
    training::HOSTS,
    serving::PROGRAMS,
    catalog::GENERATION,
    catalog::SCIENCE,
    catalog::AGENTS,
    llama_cpp::PROGRAMS,
    video::PROGRAMS,
    image_training::PROGRAMS,
    web_ui::PROGRAMS,
    diffusion::PROGRAMS,
    images::PROGRAMS,
    boosting::PROGRAMS,
    cryo_em::PROGRAMS,
    science::PROGRAMS,
    graphics::PROGRAMS,
    media::PROGRAMS,
    detection::PROGRAMS,
    audio::PROGRAMS,
    speech::PROGRAMS,
    vision::PROGRAMS,
    simulation::PROGRAMS,
    assistants::PROGRAMS,
    learning::PROGRAMS,
    data::APPLICATIONS,
    jax::APPLICATIONS,
    tensorflow::APPLICATIONS,
    compute::APPLICATIONS,
    older::APPLICATIONS,
    frameworks::APPLICATIONS,
    toolkits::PROGRAMS,
    distributed::APPLICATIONS,
    training::PROGRAMS,
    distributed::PROGRAMS,
    pytorch::APPLICATIONS,
];

/// The applications before those that other programs train with, which stand last.
const BEFORE_TRAINERS: &[&[&Program]] = APPLICATIONS.split_at(APPLICATIONS.len() - 2).0;

/// What applications are built on.
const LIBRARIES: &[&[&Program]] = &[
    data::PROGRAMS,
    runtimes::PROGRAMS,
    jax::PROGRAMS,
    tensorflow::PROGRAMS,
    frameworks::PROGRAMS,
    older::PROGRAMS,
    pytorch::PROGRAMS,
    compute::PROGRAMS,
    graphics::LIBRARIES,
];

fn listed(groups: &'static [&'static [&'static Program]]) -> impl Iterator<Item = &'static Program> {
    groups.iter().flat_map(|group| group.iter().copied())
}

/// All programs, applications first.
fn all() -> impl Iterator<Item = &'static Program> {
    listed(APPLICATIONS).chain(listed(LIBRARIES))
}

/// The steps of a situation's program for a cause, in its own options also where the engine inside it failed.
pub(crate) fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    serving::hosted(situation, cause)
        .or_else(|| languages::advise(situation, cause))
        .unwrap_or_else(|| (situation.program.advise)(situation, cause))
}

/// Formats that other programs write too, and the words without which the text is not this program's.
const SHARED_FORMATS: &[(Framework, &[&str])] = &[
    (
        Framework::LlamaCpp,
        &["ggml", "llama.cpp", "llama-", "llama_", "gguf", "kobold", "whisper_", "stable-diffusion.cpp"],
    ),
    (Framework::OnnxRuntime, &["onnx", "ort_", "ort::", "bfc_arena", "CUDAExecutionProvider"]),
];

/// The format that decides the program: a library's wording in another program's log is that program's. `None` if
/// several programs share the wording and the text shows no other word of this one.
fn format(text: Searched<'_>, facts: &Facts) -> Option<Framework> {
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    let shared = SHARED_FORMATS.iter().find(|(format, _)| *format == facts.framework);
    if shared.is_some_and(|(_, words)| !has(words)) {
        return None;
    }
    Some(match facts.framework {
        Framework::PyTorch if facts.quote.contains("NPU out of memory") => Framework::Ascend,
        Framework::Unknown
            if has(&["npu-smi", "torch_npu", "Ascend Error", "Ascend kernel", "Ascend910", "Ascend 910"]) =>
        {
            Framework::Ascend
        }
        Framework::PyTorch if has(&["bfc_allocator.cc"]) && !has(&["torch"]) => Framework::TensorFlow,
        // TensorFlow compiles with XLA too.
        Framework::Jax
            if has(&["keras/src/backend/tensorflow", "tensorflow/python", "tensorflow.python"])
                && !has(&["jaxlib", "jax/_src", "import jax"]) =>
        {
            Framework::TensorFlow
        }
        format => format,
    })
}

/// The program that wrote a text.
pub(crate) fn detect(text: Searched<'_>, facts: &Facts) -> &'static Program {
    let format = format(text, facts);
    let by_format = |program: &&'static Program| format.is_some_and(|format| program.writes(format));
    let by_wording = |program: &&'static Program| program.writes(facts.framework);
    let (application, library) = marks::marked(text);
    let application = application.and_then(|place| all().nth(place));
    // An engine can be built from any model, but TensorRT-LLM's builder has its own options.
    let is_engine = facts.framework.is_tensorrt();
    let builder = application.filter(|program| is_engine && program.writes(Framework::TensorRtLlm));
    let host = application.filter(|program| serving::is_host(program, format));
    host.or_else(|| listed(APPLICATIONS).find(by_format))
        .or(builder)
        .or_else(|| listed(LIBRARIES).find(by_format).filter(|_| is_engine))
        .or(application)
        .or_else(|| listed(LIBRARIES).find(by_format))
        .or_else(|| {
            apis::FALLBACK.iter().copied().find(by_format).filter(|_| format == Some(Framework::Ascend))
        })
        .or_else(|| all().nth(library?).filter(|program| format.is_some() || !program.is(&graphics::VULKAN)))
        .or_else(|| all().find(by_wording).filter(|_| format.is_none()))
        .or_else(|| {
            listed(LIBRARIES).find(|program| is_from_pytorch(facts) && program.writes(Framework::PyTorch))
        })
        .or_else(|| {
            let torch = listed(LIBRARIES).find(|program| program.writes(Framework::PyTorch));
            torch.filter(|_| is_torch_wording(text, facts))
        })
        .or_else(|| apis::FALLBACK.iter().chain(compute::FALLBACK).copied().find(by_format))
        .unwrap_or(&plain::PLAIN)
}

/// Whether an error in no known format uses PyTorch's wording, in a text that shows no other language.
fn is_torch_wording(text: Searched<'_>, facts: &Facts) -> bool {
    if facts.framework != Framework::Unknown || facts.resource == Resource::Host {
        return false;
    }
    let language = Language::from_text(text);
    let is_named = ["CUDA out of memory", "PyTorch", "THCudaCheck"].iter().any(|words| text.contains(words));
    language.may_be_python() && (is_named || language.is_python() && facts.quote.contains("OutOfMemoryError"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = all().map(|program| program.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn applications_go_before_the_libraries_below_them() {
        let facts = Facts { framework: Framework::PyTorch, ..Facts::default() };
        let name = |text: &str| detect(text.into(), &facts).name;
        assert_eq!(name(r#"File "D:\ComfyUI\comfy\ldm\modules\attention.py", line 5"#), "ComfyUI");
        assert_eq!(name("torch.OutOfMemoryError: CUDA out of memory."), "PyTorch");
        assert_eq!(name("this makes me uncomfyui/able"), "PyTorch");
    }

    #[test]
    fn pytorch_is_known_by_its_words() {
        let name = |quote: &str, text: &str| {
            let facts = Facts { quote: quote.to_owned(), ..Facts::default() };
            detect(format!("{text}\n{quote}").as_str().into(), &facts).name
        };
        assert_eq!(name("it stops with CUDA out of memory", ""), "PyTorch");
        assert_eq!(name("OutOfMemoryError", "  File \"/app/run.py\", line 3, in main"), "PyTorch");
        assert_eq!(name("it stops with CUDA out of memory", "at Model.cs:line 12"), "the program");
        assert_eq!(name("java.lang.OutOfMemoryError: Java heap space", ""), "the program");
    }
}
