//! The result of `makeroom doctor`: problems first, each with its fix.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use makeroom_holders::doctor::{Check, Verdict};
use serde_json::{Value, json};

use crate::json::list;
use crate::run::count;
use crate::text::{COMMAND, DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::wrap;

/// Width of the verdict before each finding.
const WORD_COLUMNS: usize = 9;

/// The result as JSON.
pub fn doctor_json(checks: &[Check]) -> Value {
    let check = |check: &Check| {
        json!({
            "subject": check.subject,
            "verdict": check.verdict.word(),
            "found": check.found,
            "fix": check.fix,
        })
    };
    json!({ "checks": list(checks, check) })
}

/// The result as text.
pub fn doctor_text(checks: &[Check], columns: usize) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    let of = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (problems, warnings) = (of(Verdict::Problem), of(Verdict::Warning));
    let title = match (problems, warnings) {
        (0, 0) => "no problems found".to_owned(),
        (0, warnings) => count(warnings as u64, "warning"),
        (problems, 0) => count(problems as u64, "problem"),
        (problems, warnings) => {
            format!("{}, {}", count(problems as u64, "problem"), count(warnings as u64, "warning"))
        }
    };
    let _ = writeln!(out, "\n{MARGIN}{TITLE}{title}{TITLE:#}\n");
    for check in checks {
        let style = match check.verdict {
            Verdict::Problem => AnsiColor::Red.on_default().bold(),
            Verdict::Warning => AnsiColor::Yellow.on_default().bold(),
            Verdict::Note => DIM,
            Verdict::Good => AnsiColor::Green.on_default(),
        };
        let mut word = check.verdict.word();
        for line in wrap(&check.found, columns - WORD_COLUMNS - 2) {
            let _ = writeln!(out, "{MARGIN}{style}{word:<WORD_COLUMNS$}{style:#}{line}");
            word = "";
        }
        let fix = check.fix.iter().flat_map(|fix| wrap(fix, columns - WORD_COLUMNS - 2));
        for line in fix {
            let _ = writeln!(out, "{MARGIN}{:WORD_COLUMNS$}{COMMAND}{line}{COMMAND:#}", "");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::plain;

    #[test]
    fn the_worst_is_counted_and_fixes_stand_below() {
        let checks = [
            Check::new("cards", Verdict::Problem, "GPU 0 is closed").fix("open it"),
            Check::new("driver", Verdict::Good, "driver 580"),
        ];
        let text = plain(&doctor_text(&checks, 60));
        assert_eq!(
            text,
            "\n  1 problem\n\n  problem  GPU 0 is closed\n           open it\n  good     driver 580\n"
        );
        assert_eq!(doctor_json(&checks)["checks"][0]["verdict"], "problem");
    }
}
