//! Formats that differ only in their words, as rows of a table: the strings that give a row away, a pattern for the
//! line, and the cause that the words state, if any.
//!
//! A pattern ignores case. Its named groups are figures: `request`, `free`, `total`, `live`, `limit`, `held` and the
//! like are sizes, each with a unit in a group of the same name with `_unit` (bytes without one), `device` is a
//! GPU's number; any other group is text. A summary may contain `{group}`; where the group did not match, the row
//! states nothing. The first row that fits a line is taken, so rows with figures come before those without.
//!
//! Formats that need more than that have their own files.

pub(crate) mod graphics;
pub(crate) mod host;
pub(crate) mod libraries;
pub(crate) mod programs;
pub(crate) mod runtimes;
pub(crate) mod statuses;

use std::sync::{LazyLock, OnceLock};

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::thresholds::ABSURD;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Captures, Regex, pattern};

use crate::facts::{Facts, Resource, Severity, Statement};
use crate::figures::{binary_size, size};
use crate::log::Passage;
use crate::site::source_line;

/// One row.
pub(super) struct Phrase {
    program: Framework,
    anchors: &'static [&'static str],
    words: &'static str,
    near: Option<&'static str>,
    not_near: Option<&'static str>,
    unless: Option<&'static str>,
    figures_near: Option<&'static str>,
    spans_lines: bool,
    is_decimal: bool,
    resource: Resource,
    severity: Severity,
    stated: Option<Stated>,
}

/// The cause that a row states.
#[derive(Clone, Copy)]
struct Stated {
    cause: Cause,
    certainty: Certainty,
    leads: bool,
    summary: &'static str,
}

impl Phrase {
    const fn new(
        program: Framework,
        resource: Resource,
        anchors: &'static [&'static str],
        words: &'static str,
    ) -> Self {
        Self {
            program,
            anchors,
            words,
            near: None,
            not_near: None,
            unless: None,
            figures_near: None,
            spans_lines: false,
            is_decimal: false,
            resource,
            severity: Severity::Failure,
            stated: None,
        }
    }

    /// Words about device memory.
    const fn device(program: Framework, anchors: &'static [&'static str], words: &'static str) -> Self {
        Self::new(program, Resource::Device, anchors, words)
    }

    /// Words about host memory.
    const fn host(program: Framework, anchors: &'static [&'static str], words: &'static str) -> Self {
        Self::new(program, Resource::Host, anchors, words)
    }

    /// Words about memory of either kind.
    const fn either(program: Framework, anchors: &'static [&'static str], words: &'static str) -> Self {
        Self::new(program, Resource::Unknown, anchors, words)
    }

    /// Words that any program may print: the row holds only where this stands in a line around it.
    const fn near(mut self, words: &'static str) -> Self {
        self.near = Some(words);
        self
    }

    /// The row does not hold where this stands in a line around it.
    const fn not_near(mut self, words: &'static str) -> Self {
        self.not_near = Some(words);
        self
    }

    /// The row does not hold where this stands in the line itself.
    const fn unless(mut self, words: &'static str) -> Self {
        self.unless = Some(words);
        self
    }

    /// Figures in a line around it, the nearest one above first.
    const fn figures_near(mut self, words: &'static str) -> Self {
        self.figures_near = Some(words);
        self
    }

    /// The words may go on in the next lines.
    const fn spanning_lines(mut self) -> Self {
        self.spans_lines = true;
        self
    }

    /// `MB` means 10⁶ bytes in this program; otherwise it means 2²⁰.
    const fn decimal(mut self) -> Self {
        self.is_decimal = true;
        self
    }

    /// The program continues.
    const fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    const fn states(mut self, cause: Cause, certainty: Certainty, summary: &'static str) -> Self {
        self.stated = Some(Stated { cause, certainty, leads: false, summary });
        self
    }

    /// The words mean this cause and no other.
    const fn certain(self, cause: Cause, summary: &'static str) -> Self {
        self.states(cause, Certainty::Certain, summary)
    }

    /// The words mean this cause, with rare exceptions.
    const fn likely(self, cause: Cause, summary: &'static str) -> Self {
        self.states(cause, Certainty::Likely, summary)
    }

    /// One cause among others.
    const fn possible(self, cause: Cause, summary: &'static str) -> Self {
        self.states(cause, Certainty::Possible, summary)
    }

    /// The cause that these words nearly always mean, though they do not prove it: named as *possible*.
    const fn leads(mut self, cause: Cause, summary: &'static str) -> Self {
        self.stated = Some(Stated { cause, certainty: Certainty::Possible, leads: true, summary });
        self
    }

    fn read(&self, patterns: &Patterns, passage: &Passage<'_>) -> Option<Facts> {
        let line = passage.line();
        let found = patterns.words.captures(if self.spans_lines { &passage.flat } else { line })?;
        let is_around = |words: &Regex| passage.all().any(|line| words.is_match(line));
        if patterns.unless.as_ref().is_some_and(|words| words.is_match(line))
            || patterns.near.as_ref().is_some_and(|words| !is_around(words))
            || patterns.not_near.as_ref().is_some_and(is_around)
        {
            return None;
        }
        let near = patterns.figures_near.as_ref().and_then(|words| {
            passage.before().chain(passage.onward().skip(1)).find_map(|line| words.captures(line))
        });
        let figures = Figures { found, near, is_decimal: self.is_decimal };
        let mut facts = Facts {
            severity: self.severity,
            request: figures.size("request"),
            free: figures.size("free"),
            total: figures.size("total"),
            live: figures.size("live"),
            cached: figures.size("cached"),
            reserved: figures.size("reserved"),
            largest_free: figures.size("largest"),
            device: figures.text("device").and_then(|number| number.parse().ok()).map(DeviceIndex),
            site: if self.resource == Resource::Host { None } else { source_line(line) },
            ..Facts::new(self.program, self.resource, passage)
        };
        let is_absurd = facts.request.is_some_and(|request| request >= ABSURD);
        if let Some(request) = facts.request.filter(|_| is_absurd && self.resource == Resource::Host) {
            let summary = format!("{request} was requested: a size overflowed or a shape is wrong.");
            facts.state(Cause::IntegerOrShapeBug, Certainty::Certain, summary);
        } else if let Some(stated) = self.stated
            && let Some(summary) = figures.fill(stated.summary)
        {
            facts.statements.push(Statement {
                leads: stated.leads,
                bytes: figures.size("held"),
                ..Statement::new(stated.cause, stated.certainty, summary)
            });
        }
        Some(facts)
    }
}

/// The compiled patterns of a row.
pub(super) struct Patterns {
    words: Regex,
    near: Option<Regex>,
    not_near: Option<Regex>,
    unless: Option<Regex>,
    figures_near: Option<Regex>,
}

impl Patterns {
    fn compile(row: &Phrase) -> Self {
        let compile = |words: &str| pattern(&format!("(?i){words}"));
        Self {
            words: compile(row.words),
            near: row.near.map(compile),
            not_near: row.not_near.map(compile),
            unless: row.unless.map(compile),
            figures_near: row.figures_near.map(compile),
        }
    }
}

/// What a row's patterns captured.
struct Figures<'text> {
    found: Captures<'text>,
    near: Option<Captures<'text>>,
    is_decimal: bool,
}

impl Figures<'_> {
    fn text(&self, group: &str) -> Option<&str> {
        let own = self.found.name(group);
        own.or_else(|| self.near.as_ref()?.name(group)).map(|found| found.as_str())
    }

    fn size(&self, group: &str) -> Option<Bytes> {
        let number = self.text(group)?;
        let unit = self.text(&format!("{group}_unit")).unwrap_or("");
        if self.is_decimal { size(number, unit) } else { binary_size(number, unit) }
    }

    /// A summary with its groups filled in; `None` where one did not match.
    fn fill(&self, summary: &str) -> Option<String> {
        let mut filled = String::with_capacity(summary.len());
        let mut rest = summary;
        while let Some((before, after)) = rest.split_once('{') {
            let (group, behind) = after.split_once('}')?;
            filled.push_str(before);
            if SIZES.contains(&group) {
                filled.push_str(&self.size(group)?.to_string());
            } else {
                filled.push_str(self.text(group)?.trim());
            }
            rest = behind;
        }
        filled.push_str(rest);
        Some(filled)
    }
}

/// Groups that are sizes.
const SIZES: [&str; 11] =
    ["request", "free", "total", "live", "cached", "reserved", "largest", "limit", "held", "used", "needed"];

/// Reads a passage by the first row of a table that fits it.
pub(super) fn read(
    rows: &'static [Phrase],
    patterns: &'static [OnceLock<Box<Patterns>>],
    passage: &Passage<'_>,
) -> Option<Facts> {
    if is_in_patch(passage) {
        return None;
    }
    let lower = passage.line().to_ascii_lowercase();
    let is_here =
        |row: &Phrase| row.anchors.iter().any(|anchor| lower.contains(&anchor.to_ascii_lowercase()));
    rows.iter().zip(patterns).filter(|(row, _)| is_here(row)).find_map(|(row, patterns)| {
        row.read(patterns.get_or_init(|| Box::new(Patterns::compile(row))), passage)
    })
}

/// Whether the line is one that a patch adds or removes.
pub(super) fn is_in_patch(passage: &Passage<'_>) -> bool {
    static PATCH: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^(?:(?:```)?diff$|diff --git|@@ -\d|\+\+\+ )"));
    passage.line().starts_with(['+', '-']) && passage.before().any(|line| PATCH.is_match(line))
}

/// How many anchors the rows of a table have.
pub(super) const fn count(rows: &[Phrase]) -> usize {
    let (mut row, mut count) = (0, 0);
    while row < rows.len() {
        count += rows[row].anchors.len();
        row += 1;
    }
    count
}

/// The anchors of all rows of a table.
pub(super) const fn anchors<const COUNT: usize>(rows: &[Phrase]) -> [&'static str; COUNT] {
    let mut all = [""; COUNT];
    let (mut row, mut next) = (0, 0);
    while row < rows.len() {
        let mut anchor = 0;
        while anchor < rows[row].anchors.len() {
            all[next] = rows[row].anchors[anchor];
            next += 1;
            anchor += 1;
        }
        row += 1;
    }
    all
}

/// Makes a family of the table `ROWS`.
macro_rules! family {
    () => {
        const ANCHORS: [&str; $crate::families::phrases::count(ROWS)] =
            $crate::families::phrases::anchors(ROWS);
        // Boxed, because a `OnceLock` has the size of its content, and is not zero: all of it would be in the binary.
        static PATTERNS: [std::sync::OnceLock<Box<$crate::families::phrases::Patterns>>; ROWS.len()] =
            [const { std::sync::OnceLock::new() }; ROWS.len()];
        pub(crate) const FAMILY: $crate::family::Family = $crate::family::Family {
            anchors: &ANCHORS,
            read: |passage| $crate::families::phrases::read(ROWS, &PATTERNS, passage),
        };
    };
}
use family;

/// Words of a GPU's library in a line: then it is not about host memory.
const GPU_WORDS: &str =
    r"cuda|\bgpu|\brmm\b|\bhip|thrust|cumem|device memory|nvenc|cupy|numba|EGL_BAD|device_bad_alloc";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn every_row_compiles_and_has_its_anchors_in_lower_or_upper_case() {
        for rows in
            [host::ROWS, runtimes::ROWS, libraries::ROWS, programs::ROWS, graphics::ROWS, statuses::ROWS]
        {
            for row in rows {
                let _ = Patterns::compile(row);
                assert!(!row.anchors.is_empty(), "{}", row.words);
                assert!(row.anchors.iter().all(|anchor| anchor.len() >= 4), "{}", row.words);
            }
        }
    }

    #[test]
    fn a_summary_without_its_figures_is_not_stated() {
        let found = pattern(r"(?P<name>\w+) holds(?: (?P<held>\d+)(?P<held_unit>kB))?");
        let fill = |text: &'static str| {
            let figures = Figures { found: found.captures(text).unwrap(), near: None, is_decimal: false };
            figures.fill("{name} held {held}.")
        };
        assert_eq!(fill("python holds 2048kB").as_deref(), Some("python held 2.00 MiB."));
        assert_eq!(fill("python holds"), None);
    }

    #[test]
    fn case_does_not_matter() {
        let text = "error: INSUFFICIENT MEMORY ON ACCELERATOR";
        assert_eq!(facts_in(text).unwrap().framework_id(), "lammps");
    }
}
