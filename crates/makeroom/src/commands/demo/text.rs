//! The demonstration as text.

use std::fmt::Write as _;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use makeroom_demo::{SITUATIONS, Situation};
use makeroom_explain::Explanation;
use makeroom_report::explanation_text;

use super::gpu::Machine;
use super::recorded::{Recorded, Shown};
use crate::output;

const TITLE: Style = Style::new().bold();
const CAUSE: Style = AnsiColor::Yellow.on_default().bold();
const COMMAND: Style = AnsiColor::Cyan.on_default();
const FAINT: Style = Style::new().dimmed();
const INDENT: &str = "    ";

/// The list of situations, one line each.
pub(crate) fn list() -> String {
    let longest = SITUATIONS.iter().map(|situation| situation.name.len()).max().unwrap_or(0);
    SITUATIONS.iter().fold(String::new(), |mut text, Situation { name, title, .. }| {
        let _ = writeln!(text, "  {COMMAND}{name:longest$}{COMMAND:#}  {title}");
        text
    })
}

/// All situations, a few lines each.
pub(crate) fn all(shown: &[Shown], machine: &Machine, kept: Option<&Path>) -> String {
    let mut text = format!("\n  {TITLE}Nine ways to run out of GPU memory{TITLE:#}, {}\n", place(machine));
    reason(&mut text, machine);
    for Shown { situation, recorded } in shown {
        let _ = writeln!(text, "\n  {TITLE}{}{TITLE:#}: {}", situation.name, situation.title);
        match recorded {
            Ok(recorded) => brief(&mut text, recorded),
            Err(reason) => {
                let _ = writeln!(text, "{INDENT}not run on a real GPU: {reason}");
                let _ = writeln!(
                    text,
                    "{INDENT}{}",
                    command(&format!("makeroom demo --gpu software {}", situation.name))
                );
            }
        }
    }
    let count = shown.iter().filter(|shown| shown.recorded.is_ok()).count();
    let _ = writeln!(text, "\n  Ran, recorded and explained {count} programs.");
    let _ = writeln!(text, "  To see one in full: {}", command("makeroom demo fragmentation"));
    match kept {
        Some(folder) => {
            let _ = writeln!(text, "  Recordings: {}", folder.display());
        }
        None => {
            let _ = writeln!(text, "  To run your own program: {}", command("makeroom run -- ./program"));
        }
    }
    text.push('\n');
    text
}

/// One situation with its full explanation.
pub(crate) fn whole(shown: &Shown, machine: &Machine, kept: Option<&Path>) -> String {
    let Shown { situation, recorded } = shown;
    let mut text =
        format!("\n  {TITLE}{}{TITLE:#}: {}, {}\n", situation.name, situation.title, place(machine));
    reason(&mut text, machine);
    paragraph(&mut text, "  ", situation.about);
    match recorded {
        Ok(Recorded { said, explanation, file }) => {
            text.push_str("\n  Program output\n");
            for line in said.lines() {
                let _ = writeln!(text, "{INDENT}{FAINT}{line}{FAINT:#}");
            }
            text.push_str(&explanation_text(explanation, output::columns(), None));
            if kept.is_some() {
                let _ =
                    writeln!(text, "  Recording: {}\n", command(&format!("makeroom why {}", file.display())));
            }
        }
        Err(reason) => {
            let _ = writeln!(text, "\n  Not run on a real GPU: {reason}");
            let again = format!("makeroom demo --gpu software {}", situation.name);
            let _ = writeln!(text, "  {}\n", command(&again));
        }
    }
    text
}

fn place(machine: &Machine) -> String {
    match machine {
        Machine::Real { name } => format!("on {name}, each limited to 2 GiB"),
        Machine::Software { .. } => "on a 2 GiB software GPU".to_owned(),
    }
}

/// Why it is not a real GPU, unless the software GPU was requested.
fn reason(text: &mut String, machine: &Machine) {
    if let Machine::Software { reason: Some(reason), .. } = machine {
        paragraph(text, "  ", &format!("({reason})"));
    }
}

fn brief(text: &mut String, recorded: &Recorded) {
    if let Some(line) = recorded.said.lines().last() {
        paragraph(text, INDENT, &format!("output: {line}"));
    }
    let Explanation { verdict, causes, .. } = &recorded.explanation;
    let _ = writeln!(text, "{INDENT}{CAUSE}{}{CAUSE:#} ({})", verdict.cause.title(), verdict.certainty);
    paragraph(text, INDENT, &verdict.summary);
    let fix = causes.first().and_then(|finding| finding.fixes.first());
    if let Some(fix) = fix {
        paragraph(text, INDENT, &format!("fix: {}", fix.action));
        if let Some(line) = &fix.command {
            let _ = writeln!(text, "{INDENT}    {}", command(line));
        }
    }
}

fn command(text: &str) -> String {
    format!("{COMMAND}{text}{COMMAND:#}")
}

/// Wraps text to the width of the terminal.
fn paragraph(text: &mut String, indent: &str, words: &str) {
    let width = output::columns().saturating_sub(indent.len()).max(20);
    let mut line = String::new();
    for word in words.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            let _ = writeln!(text, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(text, "{indent}{line}");
}
