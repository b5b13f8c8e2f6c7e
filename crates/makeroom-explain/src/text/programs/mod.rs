//! Advice in a program's own options: which settings a maintainer of that program would name, with the value to
//! try.
//!
//! One file per group of programs. A [`Program`] is found by the format that was read (`frameworks`) or by words
//! in the text (`marks`: module paths, command names); the first in [`GROUPS`] that fits is taken, so an
//! application stands before the framework that it is built on. Its `advise` returns the steps for one cause, the
//! most effective first, or nothing where the general advice for that cause ([`super::fixes`]) is best.
//!
//! Every step names a setting and the value to try, computed from the text where it has figures. No step repeats
//! what [`super::settings::Settings`] shows to be set.
//!
//! To add a program: a `Program` in the file of its group, its place in that file's list, a test in that file.

mod boosting;
mod data;
mod diffusion;
mod frameworks;
mod llama_cpp;
mod media;
mod plain;
mod runtimes;
mod science;
mod serving;
mod training;

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::facts::Facts;
use super::searched::Searched;
use super::situation::Situation;
use crate::{Cause, Fix};

/// A program that people run, and its own remedies.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its name, as people write it.
    pub(crate) name: &'static str,
    /// Formats (`Facts::framework`) that only this program writes.
    pub(crate) frameworks: &'static [&'static str],
    /// Words that give it away anywhere in the text, in any case.
    pub(crate) marks: &'static [&'static str],
    /// Whether it trains, serves or neither: batch and gradients are advice for training only.
    pub(crate) work: Work,
    /// The steps for a cause in this program's options. Empty: the general ones apply.
    pub(crate) advise: fn(&Situation<'_>, Cause) -> Vec<Fix>,
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

/// All programs by group, applications before the frameworks below them.
const GROUPS: &[&[&Program]] = &[
    serving::PROGRAMS,
    llama_cpp::PROGRAMS,
    diffusion::PROGRAMS,
    boosting::PROGRAMS,
    science::PROGRAMS,
    media::PROGRAMS,
    data::PROGRAMS,
    runtimes::PROGRAMS,
    training::PROGRAMS,
    frameworks::PROGRAMS,
];

/// All programs with the words that give them away.
struct Marks {
    programs: Vec<&'static Program>,
    automaton: Option<AhoCorasick>,
    /// The program of each word, as an index into `programs`.
    owners: Vec<usize>,
}

static MARKS: LazyLock<Marks> = LazyLock::new(|| {
    let programs: Vec<&Program> = GROUPS.iter().flat_map(|group| group.iter().copied()).collect();
    let (owners, words): (Vec<usize>, Vec<&str>) = programs
        .iter()
        .enumerate()
        .flat_map(|(owner, program)| program.marks.iter().map(move |mark| (owner, *mark)))
        .unzip();
    let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok();
    Marks { programs, automaton, owners }
});

/// The program that wrote a text.
pub(crate) fn of(text: Searched<'_>, facts: &Facts) -> &'static Program {
    let by_format = MARKS.programs.iter().find(|program| program.frameworks.contains(&facts.framework));
    let by_mark = || {
        let automaton = MARKS.automaton.as_ref()?;
        let owner = text
            .parts()
            .into_iter()
            .flat_map(|part| automaton.find_overlapping_iter(part))
            .map(|found| MARKS.owners[found.pattern().as_usize()])
            .min()?;
        MARKS.programs.get(owner)
    };
    by_format.or_else(by_mark).copied().unwrap_or(&plain::PLAIN)
}
