//! A log, prepared for the format families: clean lines, grouped by writer.
//!
//! Logs reach us with colours, progress bars, prefixes of launchers and loggers, several ranks interleaved, and
//! lines that a terminal or a mail program wrapped. All of that is undone here, once, so that no family of
//! formats has to care: escape sequences are dropped, a carriage return ends a line, prefixes are cut off and
//! kept as the line's writer, and a passage holds only the lines of one writer.

use std::sync::LazyLock;

use makeroom_search::{Regex, pattern, text_without_controls};

use crate::boundaries;

/// How many lines before an anchor a family may look at.
const LINES_BEFORE: usize = 80;
/// How many lines after it; a TensorFlow dump of its bins is longer than any other format.
const LINES_AFTER: usize = 400;
/// How far it may have to look for them: that dump lists thousands of blocks in use, which say nothing here.
const LINES_SCANNED: usize = 20_000;
/// How many of the following lines are joined into the running text of a passage.
const LINES_JOINED: usize = 14;
/// Of the lines around an anchor this much is looked at; the anchor's own line is seen whole.
const LONGEST_NEIGHBOUR: usize = 4096;
/// The running text of a passage ends here.
const LONGEST_FLAT: usize = 64 * 1024;
/// A line longer than this is cut: no format needs more, and a megabyte of one line would be searched in vain.
const LONGEST_LINE: usize = 32 * 1024;

/// A cleaned log.
pub(crate) struct Log {
    text: String,
    /// Where each line begins and ends in `text`, and its number in the input, counted from 1.
    lines: Vec<Line>,
}

#[derive(Clone, Copy)]
struct Line {
    start: usize,
    end: usize,
    number: usize,
    /// Markdown's marks enclosed the whole line.
    is_marked: bool,
}

/// The lines around an anchor that the same writer wrote.
pub(crate) struct Passage<'log> {
    prefix: &'log str,
    lines: Vec<&'log str>,
    others: Vec<&'log str>,
    hit: usize,
    /// The number of the anchor's line in the input, counted from 1.
    pub(crate) line_number: usize,
    /// The text from the anchor's line on: lines joined, runs of white space made one space.
    pub(crate) flat: String,
}

impl Log {
    /// Cleans a text.
    pub(crate) fn new(input: &str) -> Self {
        let mut log = Self { text: String::with_capacity(input.len()), lines: Vec::new() };
        log.add(input, 1);
        log
    }

    /// Appends a part of the input that starts at this line number: a condensed log leaves lines out.
    pub(crate) fn add(&mut self, part: &str, first_line: usize) {
        for (index, raw) in part.split('\n').enumerate() {
            for part in raw.split('\r').filter(|part| !part.is_empty()) {
                self.push_clean(part, first_line + index);
            }
        }
    }

    /// The same log with hard-wrapped lines put together again: a line that is as long as the longest of its
    /// neighbours goes on in the next one.
    pub(crate) fn unwrapped(&self) -> Option<Self> {
        let width = self.wrap_width()?;
        let mut log = Self { text: String::with_capacity(self.text.len()), lines: Vec::new() };
        let mut open: Option<(String, usize)> = None;
        for index in 0..self.lines.len() {
            let body = self.line(index);
            let (mut joined, number) = open.take().unwrap_or((String::new(), self.lines[index].number));
            joined.push_str(body);
            if body.chars().count() == width && joined.len() < LONGEST_LINE {
                open = Some((joined, number));
            } else {
                log.push(&joined, number);
            }
        }
        if let Some((joined, number)) = open {
            log.push(&joined, number);
        }
        Some(log)
    }

    /// The column at which lines were cut, if several lines end exactly at the longest length.
    fn wrap_width(&self) -> Option<usize> {
        let lengths: Vec<usize> =
            (0..self.lines.len()).map(|index| self.line(index).chars().count()).collect();
        let longest = lengths.iter().copied().max()?;
        let at_longest = lengths.iter().filter(|&&length| length == longest).count();
        (at_longest >= 2 && (20..=400).contains(&longest)).then_some(longest)
    }

    fn push_clean(&mut self, raw: &str, number: usize) {
        let clean = text_without_controls(raw);
        // Structured logs carry a traceback as one string with escaped line ends.
        if clean.contains("\\n") && clean.len() > 120 {
            for part in clean.split("\\n") {
                self.push(part, number);
            }
        } else {
            self.push(&clean, number);
        }
    }

    fn push(&mut self, line: &str, number: usize) {
        let start = self.text.len();
        let boxed = unboxed(clipped(line, LONGEST_LINE));
        let clean = unquoted(boxed).trim_end();
        let is_marked = !clean.trim().is_empty() && is_marked(boxed);
        self.text.push_str(clean);
        self.lines.push(Line { start, end: self.text.len(), number, is_marked });
        self.text.push('\n');
    }

    /// The whole cleaned text; offsets in it are what [`Log::line_at`] takes.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// A line, prefix included.
    pub(crate) fn line(&self, index: usize) -> &str {
        self.lines.get(index).map_or("", |line| &self.text[line.start..line.end])
    }

    /// Whether Markdown's marks enclosed a line: it was bold or code.
    pub(crate) fn is_marked(&self, index: usize) -> bool {
        self.lines.get(index).is_some_and(|line| line.is_marked)
    }

    /// Where a line begins in [`Log::text`].
    pub(crate) fn offset(&self, index: usize) -> usize {
        self.lines.get(index).map_or(self.text.len(), |line| line.start)
    }

    /// The number of a line in the input, counted from 1.
    pub(crate) fn number(&self, index: usize) -> usize {
        self.lines.get(index).map_or(0, |line| line.number)
    }

    /// The line that holds an offset of [`Log::text`].
    pub(crate) fn line_at(&self, offset: usize) -> usize {
        self.lines.partition_point(|line| line.start <= offset).saturating_sub(1)
    }

    /// The passage around a line: the lines near it that the same writer wrote, without prefixes.
    pub(crate) fn passage(&self, index: usize) -> Passage<'_> {
        let (writer, body) = split_prefix(self.line(index));
        let prefix = &self.line(index)[..self.line(index).len() - body.len()];
        let from = index.saturating_sub(LINES_BEFORE);
        let to = (index + LINES_SCANNED).min(self.lines.len());
        let (mut lines, mut others) = (Vec::new(), Vec::new());
        let (mut hit, mut counted) = (0, 0);
        for position in from..to {
            let line = self.line(position);
            if position > index && is_block_in_use(line) {
                continue;
            }
            if counted > index - from + LINES_AFTER {
                break;
            }
            counted += usize::from(!is_free_block(line));
            let (line_writer, body) = split_prefix(line);
            let body = if position == index { body } else { clipped(body, LONGEST_NEIGHBOUR) };
            // A line without a prefix goes on what stands above it, or is the launcher's and concerns all.
            if position == index {
                hit = lines.len();
                lines.push(body);
            } else if line_writer == writer || line_writer.is_none() {
                lines.push(body);
            } else if line_writer.is_some() {
                others.push(body);
            }
        }
        let flat = flatten(&lines[hit..lines.len().min(hit + LINES_JOINED)]);
        Passage {
            prefix,
            lines,
            others,
            hit,
            line_number: self.lines.get(index).map_or(0, |line| line.number),
            flat,
        }
    }
}

impl<'log> Passage<'log> {
    /// What a launcher or a logger put before the anchor's line: who wrote it, when, and its level.
    pub(crate) fn prefix(&self) -> &'log str {
        self.prefix
    }

    /// The anchor's own line, without prefix.
    pub(crate) fn line(&self) -> &'log str {
        self.lines.get(self.hit).copied().unwrap_or("")
    }

    /// The lines before the anchor's, nearest first.
    pub(crate) fn before(&self) -> impl Iterator<Item = &'log str> + '_ {
        self.lines[..self.hit].iter().rev().copied()
    }

    /// The anchor's line and those after it.
    pub(crate) fn onward(&self) -> impl Iterator<Item = &'log str> + '_ {
        self.lines[self.hit..].iter().copied()
    }

    /// Lines of other writers around it: what other ranks or workers said at the same time.
    pub(crate) fn others(&self) -> impl Iterator<Item = &'log str> + '_ {
        self.others.iter().copied()
    }

    /// All lines of the passage.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'log str> + '_ {
        self.lines.iter().copied()
    }
}

/// A block in use, as TensorFlow's allocator lists every one of them.
fn is_block_in_use(line: &str) -> bool {
    line.contains("] InUse at ") || line.contains("] Chunk at ")
}

/// A free block of that list: the largest matters, their number does not.
fn is_free_block(line: &str) -> bool {
    line.contains("] Free ")
}

/// The front of a text, at most this many bytes of it.
pub(crate) fn clipped(text: &str, longest: usize) -> &str {
    &text[..boundaries::floor(text, longest)]
}

/// A line without the frame that rich consoles draw around tracebacks.
fn unboxed(line: &str) -> &str {
    match line.trim().strip_prefix(['│', '┃']) {
        Some(inside) => inside.trim_end().strip_suffix(['│', '┃']).unwrap_or(inside),
        None => line,
    }
}

/// A line without Markdown around it: quote marks, fences, emphasis, code marks, the backslash of a shell.
fn unquoted(line: &str) -> &str {
    let mut line = line;
    while let Some(rest) =
        line.trim_start().strip_prefix("> ").or_else(|| line.trim_start().strip_prefix(">>"))
    {
        line = rest;
    }
    let trimmed = line.trim();
    // Programs set off their errors with three stars, as slurmd and git do; without closing stars they are not emphasis.
    if trimmed.starts_with("*** ") {
        return trimmed.trim_start_matches("*** ");
    }
    // Only marks that enclose the whole line are Markdown's; inside they belong to the message.
    for mark in ["**", "__", "```", "`"] {
        if let Some(inside) = trimmed.strip_prefix(mark) {
            return inside.strip_suffix(mark).unwrap_or(inside);
        }
        if let Some(inside) = trimmed.strip_suffix(mark)
            && !inside.contains(mark)
        {
            return inside;
        }
    }
    line
}

/// Whether a whole line is bold or code.
fn is_marked(line: &str) -> bool {
    let trimmed = line.trim().trim_end_matches([':', '.']);
    ["**", "__", "`"].iter().any(|mark| {
        trimmed.len() > 2 * mark.len()
            && trimmed.starts_with(mark)
            && trimmed.ends_with(mark)
            && !trimmed.starts_with("```")
    })
}

/// A line shorter than this was not cut at a column.
const SHORTEST_CUT: usize = 60;

/// Whether the size in one line goes on in the next: `14` and `.67 GiB`, or `14.` and `67 GiB`.
fn is_size_cut(line: &str, next: &str) -> bool {
    let is_digit = |character: char| character.is_ascii_digit();
    let (line, next) = (line.trim_end(), next.trim_start());
    if line.len() < SHORTEST_CUT {
        return false;
    }
    let rest = match (line.strip_suffix('.'), next.strip_prefix('.')) {
        (Some(number), None) if number.ends_with(is_digit) => next,
        (None, Some(decimals)) if line.ends_with(is_digit) => decimals,
        _ => return false,
    };
    let unit = rest.trim_start_matches(is_digit);
    unit.len() < rest.len()
        && unit.trim_start().starts_with(['K', 'M', 'G', 'T', 'k', 'm', 'g', 't', 'B', 'b'])
}

/// Joins lines into running text. The halves of a size that was cut at a column are put together.
fn flatten(lines: &[&str]) -> String {
    let mut flat = String::new();
    let mut is_joined = true;
    for (index, line) in lines.iter().enumerate() {
        if flat.len() > LONGEST_FLAT {
            break;
        }
        for word in line.split_whitespace() {
            if !is_joined {
                flat.push(' ');
            }
            is_joined = false;
            flat.push_str(word);
        }
        is_joined = flat.is_empty() || lines.get(index + 1).is_some_and(|next| is_size_cut(line, next));
    }
    flat
}

/// Splits a line into its writer and its content. Time stamps and levels are removed but do not identify a writer.
pub(crate) fn split_prefix(line: &str) -> (Option<&str>, &str) {
    static WRITER: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?x) ^\s*(?:
              (?P<writer>
                \[(?:default)?\d+\]:? | \[rank[\ ]?\d+\]:? | \[\d+,\d+\](?:<\w+>)?:? | \d{1,4}:[\ ]
              | \([A-Za-z_][\w.-]*(?:[\ ]rank=\d+)?[\ ]pid=\d+[^)]*\) | \(pid=\d+[^)]*\)
              | [\w.-]+[\ ]*\|[\ ] | [A-Za-z_][\w.-]*\[\d+\]:
              )
              | \d{4}[-/]\d\d[-/]\d\d[T\ ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?:?(?:\s|$)
              | \[\d{4}-\d\d-\d\d[T\ ][\d:.,]+Z?\]\s
              | [A-Z][a-z]{2}[\ ]+\d+[\ ]\d\d:\d\d:\d\d[\ ][\w.-]+\s
              | (?:stdout|stderr)[\ ][FP][\ ]
              | -[\ ][\w.]+[\ ]-[\ ](?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|FATAL)[\ ]-[\ ]
              | (?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|FATAL)\b[:\ ]
            )",
        )
    });
    let mut writer = None;
    let mut body = line;
    // A launcher's prefix, a time stamp, a service name and a level may stand in a row; more is content.
    for _ in 0..5 {
        let Some(found) = WRITER.captures(body) else { break };
        let end = found.get(0).map_or(0, |all| all.end());
        if end == 0 {
            break;
        }
        writer = writer.or_else(|| found.name("writer").map(|name| name.as_str().trim()));
        body = &body[end..];
    }
    (writer, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_progress_bars_are_removed() {
        let log = Log::new("\u{1b}[31mCUDA out of memory\u{1b}[0m\r 3%|▎  | 1/30\nnext");
        assert_eq!(
            (0..log.len()).map(|index| log.line(index)).collect::<Vec<_>>(),
            ["CUDA out of memory", " 3%|▎  | 1/30", "next"]
        );
    }

    #[test]
    fn markdown_around_a_line_is_removed() {
        for (line, clean) in [
            ("> > RuntimeError: x", "RuntimeError: x"),
            ("**Killed**", "Killed"),
            ("*** no memory left", "no memory left"),
            ("`RuntimeError: x`", "RuntimeError: x"),
            ("`RuntimeError: x", "RuntimeError: x"),
            ("RuntimeError: `x` failed", "RuntimeError: `x` failed"),
            ("    loss = f(**kwargs)", "    loss = f(**kwargs)"),
        ] {
            assert_eq!(Log::new(line).line(0), clean, "{line}");
        }
    }

    #[test]
    fn ranks_are_told_apart() {
        let log = Log::new("[rank0]: a\n[rank1]: b\n[rank0]: c\nplain\n[rank1]: d");
        let passage = log.passage(1);
        assert_eq!(passage.onward().map(str::trim).collect::<Vec<_>>(), ["b", "plain", "d"]);
    }

    #[test]
    fn prefixes_name_their_writer() {
        for (line, writer, body) in [
            (
                "(EngineCore_0 pid=18) ERROR 09-03 11:03:37 x",
                Some("(EngineCore_0 pid=18)"),
                "09-03 11:03:37 x",
            ),
            ("Feb 21 01:41:02 host ollama[4024]: ggml", Some("ollama[4024]:"), "ggml"),
            ("2021-08-31 08:43:31.591671: I tensorflow", None, "I tensorflow"),
            ("2024-01-01T10:00:00.123456789Z stderr F CUDA", None, "CUDA"),
            ("2024-01-01 10:00:00,123 - trainer - ERROR - CUDA", None, "CUDA"),
            ("RuntimeError: CUDA", None, "RuntimeError: CUDA"),
            ("worker-1  | boom", Some("worker-1  |"), "boom"),
        ] {
            let (found, rest) = split_prefix(line);
            assert_eq!((found, rest.trim()), (writer, body), "{line}");
        }
    }

    #[test]
    fn the_halves_of_a_size_are_joined() {
        let line = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 16.06 GiB total capacity; 14";
        let log = Log::new(&format!("{line}\n.67 GiB already allocated; 5\n6 MiB free"));
        assert!(log.passage(0).flat.ends_with("; 14.67 GiB already allocated; 5 6 MiB free"));
    }

    #[test]
    fn hard_wrapped_lines_are_joined() {
        let log = Log::new("RuntimeError: CUDA out of mem\nory. Tried to allocate 2.00 G\niB (GPU 0)");
        assert_eq!(
            log.unwrapped().unwrap().line(0),
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0)"
        );
    }
}
