//! The result of a gate: one line of text, JSON, a JUnit report, and an annotation for GitHub.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use makeroom_core::Bytes;
use makeroom_diff::{Gate, Verdict};
use serde_json::{Value, json};

use crate::diff::{diff_json, place, signed};
use crate::diff_words::{leak_sentence, memory, sentence};
use crate::kinds::kind_words;

/// Lines of code in a JUnit report.
const MOST_LINES: usize = 10;

/// Why the run exceeds its allowance.
fn cause(gate: &Gate) -> String {
    match &gate.difference.verdict {
        Verdict::Leak(growth) => format!("The run leaks. {}", leak_sentence(growth)),
        _ => sentence(&gate.difference),
    }
}

/// The result in one line, without a line break.
fn line(gate: &Gate, name: &str) -> String {
    let difference = &gate.difference;
    let (before, after) = (Bytes::new(difference.before), Bytes::new(difference.after));
    let change = signed(difference.growth());
    if gate.is_within() {
        format!(
            "{name}: peak {after}, baseline {before} ({change}): within the allowance of {}",
            gate.allowance
        )
    } else {
        format!(
            "{name}: peak {after}, baseline {before} ({change}): {} more than the allowance of {}. {}",
            Bytes::new(gate.excess()),
            gate.allowance,
            cause(gate)
        )
    }
}

/// The result for a terminal: `name` is the run.
pub fn gate_text(gate: &Gate, name: &str) -> String {
    let (color, word) = if gate.is_within() { (AnsiColor::Green, "pass") } else { (AnsiColor::Red, "fail") };
    let style = color.on_default().bold();
    format!("{style}{word}{style:#} {}\n", line(gate, name))
}

/// The result as JSON.
pub fn gate_json(gate: &Gate, name: &str) -> Value {
    json!({
        "run": name,
        "passed": gate.is_within(),
        "limit_bytes": gate.limit,
        "excess_bytes": gate.excess(),
        "allowance": gate.allowance.to_string(),
        "difference": diff_json(&gate.difference),
    })
}

/// The result as a JUnit report with one test case.
pub fn gate_junit(gate: &Gate, name: &str) -> String {
    let failures = u8::from(!gate.is_within());
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<testsuite name=\"makeroom gate\" tests=\"1\" failures=\"{failures}\">");
    let _ = writeln!(out, "  <testcase classname=\"makeroom.gate\" name=\"{}\">", escape_xml(name));
    if !gate.is_within() {
        let _ = writeln!(out, "    <failure message=\"{}\">", escape_xml(&line(gate, name)));
        for change in gate.difference.changed().take(MOST_LINES) {
            let row = format!("{} {} {}", signed(change.growth()), kind_words(&change.kind), place(change));
            let _ = writeln!(out, "{}", escape_xml(&row));
        }
        let _ = writeln!(out, "    </failure>");
    }
    let _ = writeln!(out, "  </testcase>\n</testsuite>");
    out
}

/// The result as a command of GitHub's workflows, which shows it next to the line of code that it names: the cause, or the
/// line that grew most if the cause is not a line. `path` returns the path of a file in the repository, if it is found.
pub fn gate_annotation(gate: &Gate, name: &str, path: impl Fn(&str) -> Option<String>) -> String {
    let mut message = line(gate, name);
    if gate.is_within() {
        return format!("::notice title=makeroom gate::{}\n", escaped(&message));
    }
    let difference = &gate.difference;
    let place = difference.named_place().or_else(|| {
        let grown = difference.most_grown()?;
        let _ = write!(message, " The line that grew most: {} ({}).", memory(grown), signed(grown.growth()));
        grown.place.as_deref()
    });
    let position = place.and_then(|place| {
        let (position, _) = place.split_once(' ')?;
        let (file, number) = position.rsplit_once(':')?;
        let number: u64 = number.parse().ok()?;
        let file = path(file).unwrap_or_else(|| file.to_owned());
        Some(format!("file={},line={number},", property(&file)))
    });
    format!("::error {}title=makeroom gate::{}\n", position.unwrap_or_default(), escaped(&message))
}

/// Text in a workflow command.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

/// Text in XML, without characters that XML does not allow.
pub fn escape_xml(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {
                out.push('?');
            }
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use makeroom_diff::{GrowingLine, Line, Profile, StepGrowth, gate};

    use super::*;
    use crate::wrap::plain;

    fn result(after: u64) -> Gate {
        let profile = |bytes: u64| Profile {
            peak_bytes: bytes,
            kinds: [("activations".to_owned(), bytes)].into(),
            lines: vec![Line {
                place: Some("src/a,b.py:7 <lambda>".to_owned()),
                kind: "activations".to_owned(),
                bytes,
                blocks: 1,
            }],
            ..Profile::default()
        };
        gate(&profile(100 << 20), &profile(after << 20), "2%".parse().unwrap())
    }

    #[test]
    fn one_line_says_what_grew() {
        assert_eq!(
            plain(&gate_text(&result(101), "run.room")),
            "pass run.room: peak 101.00 MiB, baseline 100.00 MiB (+1.00 MiB): within the allowance of 2 %\n"
        );
        assert_eq!(
            plain(&gate_text(&result(110), "run.room")),
            "fail run.room: peak 110.00 MiB, baseline 100.00 MiB (+10.00 MiB): 8.00 MiB more than the allowance of 2 %. The peak grew by 10.00 MiB: activations at src/a,b.py:7 <lambda> went from 100.00 MiB to 110.00 MiB.\n"
        );
        assert_eq!(gate_json(&result(110), "r")["excess_bytes"], 8 << 20);
    }

    #[test]
    fn reports_for_other_programs_are_escaped() {
        let report = gate_junit(&result(110), "a<\u{1}\"&.room");
        assert!(
            report.contains("failures=\"1\"") && report.contains("name=\"a&lt;?&quot;&amp;.room\""),
            "{report}"
        );
        assert!(!report.contains("<lambda>"));
        assert!(gate_junit(&result(100), "r").contains("failures=\"0\""));
        let annotation = gate_annotation(&result(110), "r\n::error::x", |_| None);
        assert!(annotation.starts_with("::error file=src/a%2Cb.py,line=7,title=makeroom gate::r%0A::error"));
        assert_eq!(annotation.lines().count(), 1);
        assert!(gate_annotation(&result(100), "r", |_| None).starts_with("::notice title=makeroom gate::"));
    }

    #[test]
    fn an_annotation_is_at_the_line_that_its_message_names() {
        let run = |lines: &[(&str, &str, u64)]| Profile {
            peak_bytes: lines.iter().map(|&(_, _, mib)| mib << 20).sum(),
            kinds: lines.iter().fold(std::collections::BTreeMap::new(), |mut kinds, &(kind, _, mib)| {
                *kinds.entry(kind.to_owned()).or_default() += mib << 20;
                kinds
            }),
            lines: lines
                .iter()
                .map(|&(kind, place, mib)| Line {
                    place: Some(place.to_owned()),
                    kind: kind.to_owned(),
                    bytes: mib << 20,
                    blocks: 1,
                })
                .collect(),
            ..Profile::default()
        };
        let annotation = |before: &[(&str, &str, u64)], after: &[(&str, &str, u64)]| {
            gate_annotation(&gate(&run(before), &run(after), "2%".parse().unwrap()), "r", |_| None)
        };
        // A line in another file took the place of one that is gone; it is larger than the cause.
        let before = [("activations", "a.py:1 f", 100), ("activations", "b.py:2 g", 60)];
        let after = [
            ("activations", "a.py:1 f", 100),
            ("activations", "c.py:3 h", 60),
            ("activations", "a.py:9 scores", 40),
        ];
        let named = annotation(&before, &after);
        assert!(named.contains("activations at a.py:9 scores are new (40.00 MiB)"), "{named}");
        assert!(named.starts_with("::error file=a.py,line=9,"), "{named}");
        // Several lines of one kind: the largest of that kind, which the message then names.
        let after = [
            ("activations", "a.py:1 f", 160),
            ("activations", "b.py:2 g", 100),
            ("inputs", "b.py:7 load", 61),
        ];
        let kind = annotation(&[&before[..], &[("parameters", "p.py:1 f", 60)]].concat(), &after);
        assert!(kind.starts_with("::error file=a.py,line=1,"), "{kind}");
        assert!(kind.ends_with("The line that grew most: activations at a.py:1 f (+60.00 MiB).\n"), "{kind}");
    }

    #[test]
    fn the_annotation_of_a_leak_is_at_the_line_that_leaks() {
        let line = |place: &str, mib: u64| Line {
            place: Some(place.to_owned()),
            kind: "activations".to_owned(),
            bytes: mib << 20,
            blocks: 1,
        };
        let profile = |lines: Vec<Line>, growth| Profile {
            peak_bytes: lines.iter().map(|line| line.bytes).sum(),
            lines,
            growth,
            ..Profile::default()
        };
        let leaking = StepGrowth {
            steps: 30,
            bytes: 30 << 20,
            lines: vec![GrowingLine {
                place: Some("model.py:7 forward".to_owned()),
                kind: "activations".to_owned(),
                bytes: 30 << 20,
                keeper: None,
            }],
            ..StepGrowth::default()
        };
        let before = profile(vec![line("model.py:3 forward", 100)], None);
        let after =
            profile(vec![line("model.py:3 forward", 200), line("model.py:7 forward", 30)], Some(leaking));
        let annotation = gate_annotation(&gate(&before, &after, "2%".parse().unwrap()), "r", |file| {
            Some(format!("src/{file}"))
        });
        assert!(annotation.starts_with("::error file=src/model.py,line=7,"), "{annotation}");
        assert!(annotation.contains("allocated at model.py:7 forward"), "{annotation}");
    }
}
