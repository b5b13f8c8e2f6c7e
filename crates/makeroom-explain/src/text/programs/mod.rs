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

use super::facts::Facts;
use super::settings::contains_ignoring_case;
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

/// The program that wrote a text.
pub(crate) fn of(text: &str, facts: &Facts) -> &'static Program {
    let programs = || GROUPS.iter().flat_map(|group| group.iter().copied());
    let by_mark =
        |program: &&'static Program| program.marks.iter().any(|mark| contains_ignoring_case(text, mark));
    let by_format = |program: &&'static Program| program.frameworks.contains(&facts.framework);
    programs().find(by_format).or_else(|| programs().find(by_mark)).unwrap_or(&plain::PLAIN)
}
