//! Renders makeroom's results, as text for a terminal or as JSON.
//!
//! Rendering only: all figures come from the results, and nothing but the length of bars is computed here. Text
//! contains terminal styles and names from inputs. Before printing, pass it through [`sanitize()`], and strip the
//! styles if the output is not a terminal.
//!
//! ```
//! use makeroom_report::{explanation_json, explanation_text, sanitize};
//! use makeroom_text::explain_text;
//!
//! let explanation = explain_text("RuntimeError: CUDA out of memory. Tried to allocate 900.00 GiB");
//! let text = sanitize(&explanation_text(&explanation, 100, None));
//! assert!(text.contains("900.00 GiB"));
//! assert_eq!(explanation_json(&explanation)["input"]["framework"], "pytorch");
//! ```
#![forbid(unsafe_code)]

mod across;
mod bars;
mod diff;
mod diff_notes;
mod diff_words;
#[cfg(target_os = "linux")]
mod doctor;
mod fit;
mod gate;
mod incomplete;
mod job;
mod job_run;
mod json;
mod kinds;
#[cfg(target_os = "linux")]
mod metrics;
#[cfg(target_os = "linux")]
mod others;
mod plan;
#[cfg(target_os = "linux")]
mod ps;
mod replay;
mod run;
mod run_json;
mod sanitize;
mod savings;
mod table;
mod text;
#[cfg(target_os = "linux")]
mod top;
mod tree;
mod tune;
mod watch;
mod wrap;

pub use across::{across_json, across_text};
pub use diff::{diff_json, diff_text};
pub use diff_notes::{diff_notes, profile_notes};
pub use diff_words::leak_sentence;
#[cfg(target_os = "linux")]
pub use doctor::{doctor_json, doctor_text};
pub use fit::{FitEnd, FitRank, FitReport, FitRun, fit_json, fit_text};
pub use gate::{escape_xml, gate_annotation, gate_json, gate_junit, gate_text};
pub use incomplete::{EarlyStop, lost_recording_text, missing_reason};
pub use job::{job_json, job_text};
pub use job_run::job_run_text;
pub use json::explanation_json;
pub use kinds::{grouped_json, grouped_text, kind_words, rule_words};
#[cfg(target_os = "linux")]
pub use metrics::{OomVerdict, RecordedPrograms, TextFormat, otlp_json, otlp_logs_json, prometheus_text};
#[cfg(target_os = "linux")]
pub use others::others_text;
pub use plan::{PlanReport, plan_json, plan_text};
#[cfg(target_os = "linux")]
pub use ps::{ps_json, ps_text, users_text};
pub use replay::{replay_json, replay_run_json, replay_text};
pub use run::{
    further_refusals_text, nothing_recorded_text, process_unrecorded_text, refused_text, run_summary_text,
    sanitized_child_text, sanitized_text, stepped_aside_text, still_recorded_text, switched_off_text,
    unprepared_text, unrecorded_text,
};
pub use sanitize::{escape_json, sanitize};
pub use text::explanation_text;
#[cfg(target_os = "linux")]
pub use top::{Key, Request, Screen};
pub use tune::{tune_json, tune_text};
pub use watch::watched_json;
pub use wrap::wrap;
