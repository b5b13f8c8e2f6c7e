//! The result of `makeroom plan`: whether the buffers fit, the memory they need, and how far from optimal that can be.

use std::fmt::Write as _;

use makeroom_core::Bytes;
use makeroom_plan::{Conflict, Outcome, Problem, Reason, max_load};
use serde_json::{Value, json};

use crate::text::{DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::{clip, wrap};

/// Maximum number of conflicting buffers to list.
const MOST_NAMES: usize = 8;
/// Maximum length of a name in the list.
const LONGEST_NAME: usize = 24;

/// A problem and its outcome.
#[derive(Clone, Debug)]
pub struct PlanReport<'a> {
    /// The names of the buffers.
    pub names: &'a [String],
    /// The buffers and the capacity.
    pub problem: &'a Problem,
    /// The result.
    pub outcome: &'a Outcome,
    /// How long it took.
    pub seconds: f64,
    /// The file to which the plan was written.
    pub written: Option<String>,
}

impl PlanReport<'_> {
    /// The peak of the plan, or of the best plan that exceeds the capacity.
    fn peak(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Planned { plan, .. } | Outcome::GaveUp { best: plan, .. } => Some(plan.peak),
            Outcome::Impossible(_) => None,
        }
    }

    /// No plan needs less than this.
    fn lower_bound(&self) -> u128 {
        match self.outcome {
            Outcome::Planned { lower_bound, .. } | Outcome::GaveUp { lower_bound, .. } => {
                u128::from(*lower_bound)
            }
            Outcome::Impossible(_) => max_load(&self.problem.buffers).map_or(0, |load| load.bytes),
        }
    }
}

/// The result as JSON.
pub fn plan_json(report: &PlanReport) -> Value {
    let lower_bound = report.lower_bound();
    let peak = report.peak();
    let offsets = match report.outcome {
        Outcome::Planned { plan, .. } => Some(&plan.offsets),
        _ => None,
    };
    let result = match report.outcome {
        Outcome::Planned { .. } => "planned",
        Outcome::Impossible(_) => "impossible",
        Outcome::GaveUp { .. } => "gave_up",
    };
    json!({
        "result": result,
        "buffers": report.names.len(),
        "capacity_bytes": report.problem.capacity,
        "peak_bytes": peak,
        "lower_bound_bytes": u64::try_from(lower_bound).ok(),
        "gap_bytes": peak.map(|peak| u128::from(peak).saturating_sub(lower_bound) as u64),
        "conflict": match report.outcome {
            Outcome::Impossible(conflict) => Some(json!({
                "reason": match conflict.reason {
                    Reason::Load { .. } => "load",
                    Reason::Arrangement => "arrangement",
                },
                "buffers": names(report, conflict).collect::<Vec<_>>(),
            })),
            _ => None,
        },
        "seconds": (report.seconds * 1000.0).round() / 1000.0,
        "offsets": offsets,
    })
}

/// The result as text.
pub fn plan_text(report: &PlanReport, columns: usize) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let (title, about) = verdict(report);
    let mut out = format!("\n{MARGIN}{TITLE}{title}{TITLE:#}\n");
    for line in wrap(&about, columns - 2).iter().filter(|line| !line.is_empty()) {
        let _ = writeln!(out, "{MARGIN}{line}");
    }
    let _ = writeln!(out);
    let lower_bound = report.lower_bound();
    let mut row = |label: &str, value: &str| {
        let _ = writeln!(out, "{MARGIN}  {label:<11}  {value}");
    };
    row("buffers", &report.names.len().to_string());
    if let Some(peak) = report.peak() {
        row("peak", &size(u128::from(peak)));
    }
    row("lower bound", &size(lower_bound));
    if let Some(peak) = report.peak() {
        row("gap", &gap(peak, lower_bound));
    }
    row("time", &time(report.seconds));
    if let Some(file) = &report.written {
        let _ = writeln!(out, "\n{MARGIN}{DIM}offsets written to {file}{DIM:#}");
    }
    out
}

/// The title and, where there is more to say, a sentence.
fn verdict(report: &PlanReport) -> (String, String) {
    let within =
        report.problem.capacity.map_or_else(|| "64 bits".to_owned(), |bytes| Bytes::new(bytes).to_string());
    match report.outcome {
        Outcome::Planned { plan, lower_bound } => {
            let title = match report.problem.capacity {
                Some(_) => format!("The buffers fit in {within}"),
                None => format!("The buffers need {}", Bytes::new(plan.peak)),
            };
            let about = if plan.peak == *lower_bound { "No plan needs less." } else { "" };
            (title, about.to_owned())
        }
        Outcome::Impossible(conflict) => {
            (format!("The buffers do not fit in {within}"), why_impossible(report, conflict))
        }
        Outcome::GaveUp { stop, .. } => {
            let about = format!(
                "There may be one: the search ended because {stop}. To search longer: --seconds {}",
                longer(report.seconds)
            );
            (format!("No plan found that fits in {within}"), about)
        }
    }
}

/// A time limit that is worth trying after a search of this length.
fn longer(seconds: f64) -> u64 {
    (seconds * 10.0).ceil().clamp(60.0, 1e6) as u64
}

fn why_impossible(report: &PlanReport, conflict: &Conflict) -> String {
    let count = conflict.buffers.len();
    let mut listed: Vec<String> =
        names(report, conflict).take(MOST_NAMES).map(|name| clip(name, LONGEST_NAME)).collect();
    if count > MOST_NAMES {
        listed.push(format!("and {} more", count - MOST_NAMES));
    }
    let listed = listed.join(", ");
    match conflict.reason {
        Reason::Load { time, bytes } if count == 1 => {
            format!("One buffer alone needs {}: {listed} (at time {time}).", short_size(bytes))
        }
        Reason::Load { time, bytes } => format!(
            "At time {time}, {count} of the live buffers together need {}: {listed}.",
            short_size(bytes)
        ),
        Reason::Arrangement => format!(
            "Their sizes would fit, but every arrangement of these {count} buffers was ruled out: {listed}."
        ),
    }
}

fn names<'a>(report: &PlanReport<'a>, conflict: &'a Conflict) -> impl Iterator<Item = &'a str> {
    let all = report.names;
    conflict.buffers.iter().filter_map(move |&buffer| all.get(buffer)).map(String::as_str)
}

/// With the exact number, because plans are compared by the byte.
fn size(bytes: u128) -> String {
    let short = short_size(bytes);
    if bytes < 1024 { short } else { format!("{short} ({bytes} bytes)") }
}

fn short_size(bytes: u128) -> String {
    u64::try_from(bytes).map_or_else(|_| format!("{bytes} B"), |bytes| Bytes::new(bytes).to_string())
}

fn gap(peak: u64, lower_bound: u128) -> String {
    let gap = u128::from(peak).saturating_sub(lower_bound);
    match (gap, lower_bound) {
        (0, _) => "none".to_owned(),
        (_, 0) => short_size(gap),
        _ => format!("{} ({:.2} %)", short_size(gap), 100.0 * gap as f64 / lower_bound as f64),
    }
}

fn time(seconds: f64) -> String {
    if seconds < 0.1 { "under 0.1 s".to_owned() } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use makeroom_plan::{Budget, Buffer, plan};

    use super::*;
    use crate::wrap::plain;

    fn outcome(sizes: &[u64], capacity: Option<u64>, budget: &Budget) -> (Problem, Outcome) {
        let buffers = sizes.iter().map(|&size| Buffer::new(0, 9, size)).collect();
        let problem = Problem { buffers, capacity };
        let outcome = plan(&problem, budget).unwrap();
        (problem, outcome)
    }

    fn report_of(sizes: &[u64], capacity: Option<u64>) -> (String, Value) {
        let names: Vec<String> = (0..sizes.len()).map(|index| format!("b{index}")).collect();
        let (problem, outcome) = outcome(sizes, capacity, &Budget::default());
        let report =
            PlanReport { names: &names, problem: &problem, outcome: &outcome, seconds: 0.01, written: None };
        (plain(&plan_text(&report, 80)), plan_json(&report))
    }

    #[test]
    fn a_lowest_plan_is_called_that() {
        let (text, json) = report_of(&[1024, 2048], None);
        assert!(text.contains("The buffers need 3.00 KiB") && text.contains("No plan needs less."), "{text}");
        assert!(text.contains("peak         3.00 KiB (3072 bytes)"), "{text}");
        assert_eq!((&json["result"], &json["gap_bytes"]), (&json!("planned"), &json!(0)));
        assert_eq!(json["offsets"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_conflict_names_its_buffers() {
        let (text, json) = report_of(&[100; 12], Some(1000));
        let about = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            about
                .contains("The buffers do not fit in 1000 B At time 0, 11 of the live buffers together need"),
            "{text}"
        );
        assert!(about.contains("b6, b7, and 3 more."), "{text}");
        assert_eq!(json["conflict"]["reason"], "load");
        assert_eq!((&json["peak_bytes"], &json["lower_bound_bytes"]), (&Value::Null, &json!(1200)));
        let (text, _) = report_of(&[2000], Some(1000));
        assert!(text.contains("One buffer alone needs 1.95 KiB: b0"), "{text}");
    }

    #[test]
    fn sizes_beyond_64_bits_have_no_plan() {
        let (text, json) = report_of(&[u64::MAX, u64::MAX], None);
        assert!(text.contains("The buffers do not fit in 64 bits"), "{text}");
        assert_eq!(json["lower_bound_bytes"], Value::Null);
    }

    #[test]
    fn giving_up_suggests_more_time() {
        // Alternating lifetimes that cannot be stacked at once: a single step ends the search.
        let buffers =
            (0..60).map(|index| Buffer::new(index, index + 1 + index % 7, 64 + index % 5 * 8)).collect();
        let mut problem = Problem { buffers, capacity: None };
        problem.capacity = Some(max_load(&problem.buffers).map_or(0, |load| load.bytes as u64));
        let outcome = plan(&problem, &Budget { steps: 1, ..Budget::default() }).unwrap();
        assert!(matches!(outcome, Outcome::GaveUp { .. }), "{outcome:?}");
        let names = vec![String::new(); 60];
        let report =
            PlanReport { names: &names, problem: &problem, outcome: &outcome, seconds: 31.0, written: None };
        let text = plain(&plan_text(&report, 80));
        assert!(text.contains("No plan found that fits in") && text.contains("--seconds 310"), "{text}");
    }
}
