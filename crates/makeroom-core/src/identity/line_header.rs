//! The time, the level and the source that loggers and log collectors put in front of a line:
//!
//! | program | header |
//! |---|---|
//! | `docker logs -t`, `kubectl logs --timestamps` | `2026-01-05T10:14:11.123456789Z ` |
//! | Python's `logging` | `2026-01-05 10:14:11,123 - trainer - INFO - `, `[2026-01-05 10:14:11] [INFO] [train.py:88] ` |
//! | journald, syslog | `Jan 05 10:14:11 node7 python[4711]: ` |
//! | glog | `E0105 10:14:11.123 4711 train.cc:88] ` |
//!
//! A header counts only if it has a time or a level, and all its words look like parts of one: in `10:14:11 lost peer
//! [rank2]: x`, the rank is not that of the line.

/// Bytes of a header.
const LONGEST: usize = 160;
/// Words of a header.
const MOST_WORDS: usize = 9;
const LEVELS: [&str; 10] =
    ["trace", "debug", "info", "notice", "warn", "warning", "error", "err", "critical", "fatal"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The text after each part of a header, the shortest header first. Empty if the line starts without one.
pub(super) fn texts_after(line: &str) -> impl Iterator<Item = &str> {
    let mut words = Words { line, at: 0, count: 0, has_mark: false, before: Kind::Start };
    std::iter::from_fn(move || words.next_text())
}

/// The text after the time and the level at the start of a line; the whole line if it has none. Blanks in front of the text
/// are kept except for one.
pub fn without_header(line: &str) -> &str {
    let mut words = Words { line, at: 0, count: 0, has_mark: false, before: Kind::Start };
    let mut text = line;
    while let Some(rest) = words.next_text() {
        // A name or a number can also be the first word of the text; `python[4711]:` and `train.cc:88]` cannot.
        let ends_header =
            line.get(..words.at).is_some_and(|header| header.ends_with("]:") || header.ends_with(']'));
        if ends_header || matches!(words.before, Kind::Mark | Kind::Separator) {
            text = rest;
        }
    }
    text
}

/// What a word of a header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Start,
    /// A time, a date or a level.
    Mark,
    /// A month, before the day.
    Month,
    /// ` - ` or ` | `.
    Separator,
    /// A logger, a host, a file or a PID.
    Name,
}

struct Words<'line> {
    line: &'line str,
    at: usize,
    count: usize,
    has_mark: bool,
    before: Kind,
}

impl<'line> Words<'line> {
    /// The text after the next word of the header, once a time or a level was seen.
    fn next_text(&mut self) -> Option<&'line str> {
        loop {
            let rest = self.line.get(self.at..)?;
            let start = rest.len() - rest.trim_start_matches(' ').len();
            // The text of a traceback is indented; words of a header have one blank, and the day of a month two.
            let word = rest.get(start..)?.split(' ').next().filter(|word| !word.is_empty())?;
            let end = self.at + start + word.len();
            let kind = self.kind(word).filter(|_| self.count < MOST_WORDS && end <= LONGEST && start <= 2)?;
            (self.at, self.before) = (end, kind);
            self.count += 1;
            self.has_mark |= kind == Kind::Mark;
            let text = self.line.get(end..)?;
            if self.has_mark && !text.trim().is_empty() {
                return Some(text.strip_prefix(' ').unwrap_or(text));
            }
        }
    }

    fn kind(&self, word: &str) -> Option<Kind> {
        let bare = word.trim_matches(['[', ']', '(', ')', ':', ',', '<', '>', '|']);
        let is_digits = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:@[]".contains(&byte));
        let has_mark = |text: &str| text.contains(['.', ':', '_', '/']) || text.contains(char::is_numeric);
        match () {
            () if matches!(word, "-" | "|" | "--" | "::" | ":") => Some(Kind::Separator),
            () if is_time(bare) || is_level(bare) => Some(Kind::Mark),
            () if MONTHS.contains(&bare) => Some(Kind::Month),
            () if is_digits && self.before == Kind::Month => Some(Kind::Mark),
            // Names follow a time or a level: a line that starts with any word has no header.
            () if !self.has_mark || !is_name || bare.is_empty() => None,
            () if word.starts_with('[') && word.ends_with(']') => Some(Kind::Name),
            () if has_mark(word) || self.before == Kind::Separator => Some(Kind::Name),
            () => None,
        }
    }
}

/// `10:14:11,123`, `2026-01-05T10:14:11Z`, `E0105`: digits with what separates parts of a time.
fn is_time(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_separator = |byte: &u8| b"-:/".contains(byte);
    let is_part = |byte: u8| byte.is_ascii_digit() || b"-:/.,TZ+".contains(&byte);
    let is_glog = word.len() == 5 && word.starts_with(['I', 'W', 'E', 'F']) && digits == 4;
    let has_parts = word.bytes().filter(|byte| is_separator(byte)).count() >= 2;
    is_glog || digits >= 4 && has_parts && word.bytes().all(is_part)
}

fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_loggers_are_recognized() {
        for header in [
            "2026-01-05T10:14:11.123456789Z",
            "2026-01-05 10:14:11,123 - trainer - INFO -",
            "[2026-01-05 10:14:11,123] [INFO] [train.py:88]",
            "Jan  5 10:14:11 node7 python[4711]:",
            "Jan 05 10:14:11 node7 python[4711]:",
            "E0105 10:14:11.123 4711 train.cc:88]",
            "INFO:",
            "ERROR 01-05 10:14:11 [engine.py:3]",
        ] {
            let line = format!("{header} [rank2]:   x");
            assert!(texts_after(&line).any(|text| text == "[rank2]:   x"), "{header}");
        }
        for line in
            ["10:14:11 lost peer [rank2]: x", "see 10:14:11 [rank2]: x", "  x", "", "Jan", "é [rank2]: x"]
        {
            assert!(texts_after(line).all(|text| !text.starts_with("[rank2]")), "{line}");
        }
        let long = format!("10:14:11 {} [rank2]: x", "a.b ".repeat(100));
        assert!(texts_after(&long).count() <= MOST_WORDS);
    }

    #[test]
    fn the_text_keeps_its_blanks() {
        assert_eq!(without_header("2026-01-05T10:14:11Z   rank      : 3"), "  rank      : 3");
        assert_eq!(without_header("[2026-01-05 10:14:11] [INFO] text"), "text");
        assert_eq!(without_header("Jan 05 10:14:11 node7 python[4711]:   rank : 3"), "  rank : 3");
        assert_eq!(without_header("  rank      : 3"), "  rank      : 3");
        assert_eq!(without_header("step 3: x"), "step 3: x");
    }
}
