//! Measures `why` on a labeled collection of texts.
//!
//! ```sh
//! cargo run --release -p makeroom-explain --example measure_texts -- TEXTS.jsonl [--wrong] [--answers]
//! ```
//!
//! Each line of the collection is `{"source", "kind", "expected", "accept", "text"}`; `expected` is a cause as in
//! `--json`, or null where nothing failed, also within `accept`. `--wrong` prints the texts whose cause is neither expected nor
//! acceptable, `--answers` every answer in full, for a reader to grade.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::time::Instant;

use makeroom_explain::{Cause, Certainty, Explanation, explain_text};
use serde_json::Value;

#[derive(Default)]
struct Count {
    texts: usize,
    same: usize,
    acceptable: usize,
    failures: usize,
    with_step: usize,
    negatives: usize,
    claimed: usize,
    overclaimed: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: measure_texts TEXTS.jsonl [--wrong] [--answers]")?;
    let flags: Vec<String> = arguments.collect();
    let (wrong, answers) = (flags.contains(&"--wrong".to_owned()), flags.contains(&"--answers".to_owned()));
    let mut count = Count::default();
    let started = Instant::now();
    for line in std::fs::read_to_string(&path)?.lines().filter(|line| !line.is_empty()) {
        let report: Value = serde_json::from_str(line)?;
        let explanation = explain_text(report["text"].as_str().ok_or("a line without a text")?);
        let is_wrong = add(&mut count, &report, &explanation);
        if answers || (wrong && is_wrong) {
            print(&report, &explanation);
        }
    }
    println!("{} texts in {:.2} s", count.texts, started.elapsed().as_secs_f64());
    println!("cause as expected            {}/{}", count.same, count.texts);
    println!("cause expected or acceptable {}/{}", count.acceptable, count.texts);
    println!("failures with a step         {}/{}", count.with_step, count.failures);
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
        count.with_step += usize::from(explanation.causes.iter().any(|finding| !finding.fixes.is_empty()));
    }
    !is_acceptable
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
