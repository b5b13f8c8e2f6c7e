//! Measures `why` on a labeled collection of texts.
//!
//! ```sh
//! cargo run --release -p makeroom-text --example measure_texts -- TEXTS.jsonl [--wrong] [--answers] [--steps]
//! ```
//!
//! Each line of the collection is `{"source", "kind", "expected", "accept", "text"}`; `expected` is a cause as in
//! `--json`, or null where nothing failed, also within `accept`. `--wrong` prints the texts whose cause is neither expected nor
//! acceptable, `--answers` every answer in full, for a reader to grade, `--steps` the answers to failures without a
//! step that names a setting and its value.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod steps;

use std::error::Error;
use std::time::Instant;

use makeroom_explain::{Cause, Certainty, Explanation};
use makeroom_text::explain_text;
use serde_json::Value;

#[derive(Default)]
struct Count {
    texts: usize,
    same: usize,
    acceptable: usize,
    failures: usize,
    recognized: usize,
    with_step: usize,
    with_value: usize,
    computed: usize,
    negatives: usize,
    claimed: usize,
    overclaimed: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: measure_texts TEXTS.jsonl [--wrong] [--answers] [--steps]")?;
    let flags: Vec<String> = arguments.collect();
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let (wrong, answers, without) = (has("--wrong"), has("--answers"), has("--steps"));
    let mut count = Count::default();
    let started = Instant::now();
    for line in std::fs::read_to_string(&path)?.lines().filter(|line| !line.is_empty()) {
        let report: Value = serde_json::from_str(line)?;
        let text = report["text"].as_str().ok_or("a line without a text")?;
        let explanation = explain_text(text);
        let is_wrong = add(&mut count, &report, &explanation);
        let is_without = add_steps(&mut count, &report, &explanation, text);
        if answers || (wrong && is_wrong) || (without && is_without) {
            print(&report, &explanation);
        }
    }
    println!("{} texts in {:.2} s", count.texts, started.elapsed().as_secs_f64());
    println!("cause as expected            {}/{}", count.same, count.texts);
    println!("cause expected or acceptable {}/{}", count.acceptable, count.texts);
    println!("failures recognized          {}/{}", count.recognized, count.failures);
    println!("  with a step                {}/{}", count.with_step, count.recognized);
    println!("  with a setting and value   {}/{}", count.with_value, count.recognized);
    println!("  with figures of the text   {}/{}", count.computed, count.recognized);
    println!("negatives claimed            {}/{}", count.claimed, count.negatives);
    println!("overclaimed                  {}", count.overclaimed);
    Ok(())
}

/// Counts one report; true where the cause is neither expected nor acceptable.
fn add(count: &mut Count, report: &Value, explanation: &Explanation) -> bool {
    let expected = report["expected"].as_str().unwrap_or("none");
    let said = explanation.verdict.cause.name();
    let accepted = report["accept"]
        .as_array()
        .is_some_and(|accept| accept.iter().any(|cause| cause.as_str().unwrap_or("none") == said));
    count.texts += 1;
    count.same += usize::from(said == expected);
    let is_acceptable = said == expected || accepted;
    count.acceptable += usize::from(is_acceptable);
    count.overclaimed += usize::from(
        !is_acceptable && expected == "undetermined" && explanation.verdict.certainty >= Certainty::Likely,
    );
    if expected == "none" {
        count.negatives += 1;
        count.claimed += usize::from(!matches!(explanation.verdict.cause, Cause::None | Cause::Undetermined));
    } else {
        count.failures += 1;
    }
    !is_acceptable
}

/// Counts the steps of a recognized failure; true where none names a setting and its value.
fn add_steps(count: &mut Count, report: &Value, explanation: &Explanation, text: &str) -> bool {
    if report["expected"].is_null() || !steps::is_recognized(explanation) {
        return false;
    }
    let steps = steps::steps_of(explanation, text);
    count.recognized += 1;
    count.with_step += usize::from(steps.any);
    count.with_value += usize::from(steps.concrete);
    count.computed += usize::from(steps.computed);
    !steps.concrete
}

fn print(report: &Value, explanation: &Explanation) {
    let id = report["id"].as_str().unwrap_or("");
    println!(
        "=== {id} {} [{}]",
        report["source"].as_str().unwrap_or(""),
        report["kind"].as_str().unwrap_or("")
    );
    println!("{}", report["text"].as_str().unwrap_or("").trim_end());
    println!("--- expected {} accept {}", report["expected"], report["accept"]);
    for key in ["note", "should_say"] {
        if let Some(note) = report[key].as_str() {
            println!("--- {key}: {note}");
        }
    }
    println!(
        "--- said {} ({}), framework {:?}: {}",
        explanation.verdict.cause,
        explanation.verdict.certainty,
        explanation.input.framework,
        explanation.verdict.summary
    );
    for finding in &explanation.causes {
        println!("    cause {} ({}): {}", finding.cause, finding.certainty, finding.summary);
        for fix in &finding.fixes {
            println!("      fix {} | {} | {:?}", fix.action, fix.command.as_deref().unwrap_or(""), fix.frees);
        }
    }
    for note in &explanation.notes {
        println!("    note {note}");
    }
}
