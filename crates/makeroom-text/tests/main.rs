//! Tests of answers to error texts, and of the advice in them.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod advice;
mod documents_and_reports;
mod first_hand_reports;
mod fitting_platforms;
mod fitting_steps;
mod hostile_texts;
mod plausible_steps;
mod texts;
mod told_failures;
mod told_kills_and_figures;
mod told_sizes;
