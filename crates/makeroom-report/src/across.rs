//! The groups of several recordings side by side: the median, the minimum and the maximum over the ranks.

use std::fmt::Write as _;

use makeroom_core::Bytes;
use makeroom_explain::{Across, AcrossGroup, By};
use serde_json::{Value, json};

use crate::json::list;
use crate::kinds::{grouped_hint, kind_words};
use crate::text::{DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::clip_place;

/// Groups that are shown without `--verbose`.
const MOST_GROUPS: usize = 15;
/// Widest name of a group.
const NAME_COLUMNS: usize = 44;

/// The groups of several recordings, for a terminal of `columns` columns.
pub fn across_text(across: &Across, columns: usize, is_verbose: bool) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let most = if is_verbose { usize::MAX } else { MOST_GROUPS };
    let (shown, hidden) = across.groups.split_at(across.groups.len().min(most));
    let name = |group: &AcrossGroup| match across.by {
        By::Kind => kind_words(&group.name).to_owned(),
        _ => group.name.clone(),
    };
    let title = format!("Live memory by {}", across.by.id());
    let widest = shown.iter().map(|group| name(group).chars().count()).max().unwrap_or(0);
    let width = widest.min(NAME_COLUMNS.min(columns / 2)).max(title.len() - MARGIN.len());
    let mut out = String::new();
    let first = width + MARGIN.len();
    let _ = writeln!(
        out,
        "\n{MARGIN}{TITLE}{title:<first$}  {:>10}  {:>10}  {:>10}{TITLE:#}",
        "median", "min", "max"
    );
    for group in shown {
        let holder = if group.least == group.most {
            String::new()
        } else {
            format!("  {DIM}{}{DIM:#}", group.most_in)
        };
        let _ = writeln!(
            out,
            "{MARGIN}{MARGIN}{:<width$}  {:>10}  {:>10}  {:>10}{holder}",
            clip_place(&name(group), width),
            size(group.median),
            size(group.least),
            size(group.most),
        );
    }
    if !hidden.is_empty() {
        let _ = writeln!(out, "{MARGIN}{MARGIN}{DIM}and {} more (--verbose){DIM:#}", hidden.len());
    }
    let recordings = match across.recordings {
        1 => "1 recording, at its failure or peak".to_owned(),
        count => format!("{count} recordings, each at its failure or peak"),
    };
    let has_holders = shown.iter().any(|group| group.least != group.most);
    let holders = if has_holders { "; last column: the recording with the maximum" } else { "" };
    let _ = writeln!(out, "{MARGIN}{DIM}{recordings}{holders}{DIM:#}");
    if !across.is_recorded {
        let _ = writeln!(out, "\n{MARGIN}hint: {}", grouped_hint(across.by, across.source));
    }
    out
}

fn size(bytes: Bytes) -> String {
    if bytes.is_zero() { "–".to_owned() } else { bytes.to_string() }
}

/// The groups of several recordings as JSON.
pub fn across_json(across: &Across) -> Value {
    let group = |group: &AcrossGroup| {
        json!({
            "name": group.name,
            "least_bytes": group.least.get(),
            "median_bytes": group.median.get(),
            "most_bytes": group.most.get(),
            "most_in": group.most_in,
            "recordings": group.recordings,
        })
    };
    json!({
        "by": across.by.id(),
        "recordings": across.recordings,
        "recorded": across.is_recorded,
        "hint": (!across.is_recorded).then(|| grouped_hint(across.by, across.source)),
        "groups": list(&across.groups, group),
    })
}

#[cfg(test)]
mod tests {
    use makeroom_core::TraceKind;

    use super::*;
    use crate::wrap::plain;

    #[test]
    fn the_rank_that_holds_more_is_named() {
        let group = |name: &str, least, most| AcrossGroup {
            name: name.to_owned(),
            least: Bytes::mib(least),
            median: Bytes::mib(least),
            most: Bytes::mib(most),
            most_in: "rank 3".to_owned(),
            recordings: 4,
        };
        let across = Across {
            by: By::Kind,
            source: TraceKind::TorchSnapshot,
            recordings: 4,
            is_recorded: true,
            groups: vec![group("parameters", 20, 20), group("kv_cache", 0, 9)],
        };
        let text = plain(&across_text(&across, 80, false));
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            rows,
            [
                "  Live memory by kind      median         min         max",
                "    parameters          20.00 MiB   20.00 MiB   20.00 MiB",
                "    KV cache                    –           –    9.00 MiB  rank 3",
                "  4 recordings, each at its failure or peak; last column: the recording with the maximum",
            ]
        );
        let one = Across { recordings: 1, groups: vec![group("parameters", 20, 20)], ..across.clone() };
        assert!(plain(&across_text(&one, 80, false)).ends_with("\n  1 recording, at its failure or peak\n"));
        let unrecorded = Across { by: By::Thread, is_recorded: false, ..across };
        assert!(
            plain(&across_text(&unrecorded, 80, false)).contains("hint: this format does not record threads")
        );
        assert_eq!(across_json(&unrecorded)["groups"][1]["most_in"], "rank 3");
    }
}
