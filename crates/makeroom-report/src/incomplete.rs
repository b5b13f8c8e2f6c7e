//! Texts for a recording that does not show how its process ended, from the recorder's report or from the file
//! itself.

use std::fmt::Write as _;
use std::time::Duration;

use makeroom_core::Bytes;
use makeroom_explain::{Missing, RunSummary};
use serde_json::{Value, json};

use crate::run::{count, paragraph};
use crate::text::{MARGIN, TITLE};

/// A recording that stopped while its process ran on, as the process reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlyStop {
    /// How long it had recorded.
    pub after: Duration,
    /// Why it stopped.
    pub reason: String,
    /// Allocations that failed after that.
    pub refused: u64,
    /// The first of them, and its device; `None` is the host.
    pub first_refused: Option<(Bytes, Option<u32>)>,
}

impl EarlyStop {
    /// The JSON form.
    pub fn json(&self) -> Value {
        json!({
            "seconds": self.after.as_secs_f64(),
            "reason": self.reason,
            "refused": self.refused,
            "first_refused_bytes": self.first_refused.map(|(bytes, _)| bytes.get()),
            "first_refused_device": self.first_refused.and_then(|(_, device)| device),
        })
    }
}

/// The lines of a summary about missing parts of the recording.
pub(crate) fn lines(out: &mut String, run: &RunSummary, stop: Option<&EarlyStop>, columns: usize) {
    if let Some(stop) = stop {
        early_stop(out, stop, columns);
        return;
    }
    let text = match run.missing {
        None => return,
        Some(Missing::End | Missing::Torn(_)) => {
            "the recording has no end: the process was killed, or exited with a direct system call; up to the last 0.1 s may be missing"
        }
        Some(Missing::Rest) => {
            "the recording is incomplete: the recorder failed, and the program continued without it"
        }
    };
    paragraph(out, text, columns);
}

/// Why a recording lacks something, from the file itself.
pub fn missing_reason(missing: Missing) -> String {
    match missing {
        Missing::End => "the file has no end".to_owned(),
        Missing::Torn(bytes) => format!("the file ends with {bytes} of damaged data"),
        Missing::Rest => "the recorder failed".to_owned(),
    }
}

/// The lines for a recording that cannot be read at the end of a run.
pub fn lost_recording_text(
    file: &str,
    error: &dyn std::error::Error,
    stop: Option<&EarlyStop>,
    columns: usize,
) -> String {
    let told = error.to_string();
    // Most errors contain the file name.
    let named = if told.contains(file) { told.clone() } else { format!("{file}: {told}") };
    let mut out = format!("{TITLE}makeroom{TITLE:#}: the recording cannot be read: {}\n", named.trim_end());
    match stop {
        // The error is the only reason.
        Some(stop) if stop.reason == told => failures(&mut out, "failed", stop),
        Some(stop) => early_stop(&mut out, stop, columns),
        None => {}
    }
    out
}

fn early_stop(out: &mut String, stop: &EarlyStop, columns: usize) {
    let seconds = stop.after.as_secs_f64();
    let text = format!("the recording is incomplete: it stops after {seconds:.1} s ({})", stop.reason);
    paragraph(out, &text, columns);
    failures(out, "failed after that", stop);
}

/// The line about failed allocations that the recording does not contain.
fn failures(out: &mut String, what: &str, stop: &EarlyStop) {
    if stop.refused > 0 {
        let first = stop.first_refused.map_or(String::new(), |(bytes, device)| match device {
            Some(device) => format!(", the first of {bytes} on GPU {device}"),
            None => format!(", the first of {bytes} of pinned host memory"),
        });
        let _ = writeln!(out, "{MARGIN}{what}: {}{first}", count(stop.refused, "allocation"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reported_goes_before_what_the_file_shows() {
        let run = RunSummary { missing: Some(Missing::End), ..RunSummary::default() };
        let stop = EarlyStop {
            after: Duration::from_millis(1234),
            reason: "x.room: No space left on device".to_owned(),
            refused: 2,
            first_refused: Some((Bytes::mib(256), Some(0))),
        };
        let mut out = String::new();
        lines(&mut out, &run, Some(&stop), 200);
        assert_eq!(
            out,
            "  the recording is incomplete: it stops after 1.2 s (x.room: No space left on device)\n  \
             failed after that: 2 allocations, the first of 256.00 MiB on GPU 0\n"
        );
        let error = std::io::Error::other("damaged");
        let lost = lost_recording_text("x.room", &error, Some(&stop), 200);
        assert!(lost.contains("cannot be read: x.room: damaged\n  the recording is incomplete"), "{lost}");
        let damaged = EarlyStop { reason: "damaged".to_owned(), ..stop };
        let lost = lost_recording_text("x.room", &error, Some(&damaged), 200);
        assert!(lost.contains("damaged\n  failed: 2 allocations"), "{lost}");
        let mut without = String::new();
        lines(&mut without, &run, None, 200);
        assert!(without.contains("the recording has no end"), "{without}");
        let mut whole = String::new();
        lines(&mut whole, &RunSummary::default(), None, 200);
        assert_eq!(whole, "");
    }
}
