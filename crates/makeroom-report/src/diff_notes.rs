//! What limits a comparison of two runs: recorders that do not see the same memory, recordings without a history, and runs
//! that failed.

use makeroom_core::Bytes;
use makeroom_diff::{Difference, Profile, Source};

/// The moment at which a run is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Its peak.
    Peak,
    /// A failed allocation.
    Failure,
    /// The end of a recording without a history.
    End,
}

/// The moments at which the runs are compared.
pub(crate) fn moments(difference: &Difference) -> [Moment; 2] {
    let (before, after) = (difference.failed_requests, difference.without_history);
    [(before.0, after.0), (before.1, after.1)].map(|(failed, is_without_history)| match failed {
        Some(_) => Moment::Failure,
        None if is_without_history => Moment::End,
        None => Moment::Peak,
    })
}

/// The limits of a comparison, one sentence or two each; `names` are those of the earlier and of the later run.
pub fn diff_notes(difference: &Difference, names: [&str; 2]) -> Vec<String> {
    let mut notes: Vec<String> = mixed(difference, names).into_iter().collect();
    let runs = [
        (difference.incomplete.0, difference.without_history.0),
        (difference.incomplete.1, difference.without_history.1),
    ];
    for (name, (is_incomplete, is_without_history)) in names.into_iter().zip(runs) {
        notes.extend(limits(name, is_incomplete, is_without_history));
    }
    notes
}

/// The limits of one run, for a baseline.
pub fn profile_notes(profile: &Profile, name: &str) -> Vec<String> {
    limits(name, profile.is_incomplete, profile.is_without_history).collect()
}

fn limits(name: &str, is_incomplete: bool, is_without_history: bool) -> impl Iterator<Item = String> {
    let incomplete = is_incomplete
        .then(|| format!("{name}: an allocation failed in this run, so the recorded peak is too low"));
    let end = is_without_history.then(|| {
        format!(
            "{name}: no history was recorded, so this is the memory at the end of the recording, not the peak"
        )
    });
    incomplete.into_iter().chain(end)
}

/// Runs of different recorders.
fn mixed(difference: &Difference, names: [&str; 2]) -> Option<String> {
    let (before, after) = (difference.sources.0?, difference.sources.1?);
    if !difference.is_mixed() {
        return None;
    }
    let [earlier, later] = names;
    let kinds = format!("{earlier} is {}, and {later} is {}", words(before), words(after));
    let is_with_recording = [before, after].contains(&Source::Recording);
    let left_out = difference.left_out.0.or(difference.left_out.1);
    Some(match left_out {
        Some(bytes) => format!(
            "{kinds}. A snapshot does not contain memory outside PyTorch's allocator, so up to {} allocated by other libraries is excluded. Small differences remain, because sizes in a recording include PyTorch's rounding.",
            Bytes::new(bytes)
        ),
        None if is_with_recording => format!(
            "{kinds}. Only a recording contains the memory of libraries such as cuBLAS and NCCL, so part of the change may be due to that. Compare two runs that were recorded the same way."
        ),
        None => format!(
            "{kinds}. They do not contain the same memory, so part of the change may be due to that. Compare two runs that were recorded the same way."
        ),
    })
}

fn words(source: Source) -> &'static str {
    match source {
        Source::TorchSnapshot => "a PyTorch snapshot",
        Source::Recording => "a makeroom recording",
        Source::RmmLog => "an RMM log",
        Source::JaxProfile => "a JAX profile",
    }
}

#[cfg(test)]
mod tests {
    use makeroom_diff::compare;

    use super::*;
    use crate::diff::{diff_json, diff_text};
    use crate::wrap::plain;

    fn run(source: Source) -> Profile {
        Profile { peak_bytes: 64 << 20, source: Some(source), ..Profile::default() }
    }

    #[test]
    fn runs_of_different_recorders_are_noted() {
        let notes = |before: &Profile, after: &Profile| diff_notes(&compare(before, after), ["a", "b"]);
        let (snapshot, recording) = (run(Source::TorchSnapshot), run(Source::Recording));
        assert_eq!(notes(&snapshot, &snapshot), [""; 0]);
        // A baseline of the pytest plugin does not say what recorded it.
        assert_eq!(notes(&Profile { source: None, ..snapshot.clone() }, &recording), [""; 0]);
        let mixed = notes(&snapshot, &recording);
        assert!(mixed[0].starts_with("a is a PyTorch snapshot, and b is a makeroom recording. Only"));
        let narrowed = Profile { left_out_bytes: Some(128 << 20), ..recording };
        assert!(
            notes(&snapshot, &narrowed)[0]
                .contains("up to 128.00 MiB allocated by other libraries is excluded")
        );
        let difference = compare(&snapshot, &narrowed);
        assert!(
            plain(&diff_text(&difference, 100, false))
                .contains("  note: the earlier run is a PyTorch snapshot, and")
        );
        let json = diff_json(&difference);
        assert_eq!(
            (&json["before_source"], &json["after_source"]),
            (&"torch_snapshot".into(), &"recording".into())
        );
        assert_eq!(
            (&json["before_left_out_bytes"], &json["after_left_out_bytes"]),
            (&().into(), &(128 << 20).into())
        );
        assert_eq!(json["notes"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn memory_at_the_end_is_not_called_a_peak() {
        let end = |bytes| Profile { peak_bytes: bytes, is_without_history: true, ..run(Source::JaxProfile) };
        let difference = compare(&end(64 << 20), &end(96 << 20));
        let text = plain(&diff_text(&difference, 100, false));
        assert!(text.contains("LIVE MEMORY GREW BY 50.0 %\n  Live memory grew by 32.00 MiB"), "{text}");
        assert!(text.contains("at the end   at the end\n"), "{text}");
        assert!(text.contains("note: the later run: no history was recorded"), "{text}");
        assert_eq!(diff_json(&difference)["before_moment"], "end");
        let same = plain(&diff_text(&compare(&end(5), &end(5)), 100, false));
        assert!(same.contains("SAME LIVE MEMORY\n  Both runs hold 5 B.\n"), "{same}");
    }

    #[test]
    fn a_failed_run_is_noted() {
        let failed = Profile { is_incomplete: true, ..run(Source::Recording) };
        let note = "run.room: an allocation failed in this run, so the recorded peak is too low";
        assert_eq!(profile_notes(&failed, "run.room"), [note]);
        assert_eq!(diff_notes(&compare(&failed, &run(Source::Recording)), ["run.room", "b"]), [note]);
        assert_eq!(diff_json(&compare(&failed, &failed))["after_is_incomplete"], true);
    }
}
