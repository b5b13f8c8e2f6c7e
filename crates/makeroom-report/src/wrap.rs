//! Wraps text.

use crate::sanitize;

/// Units that stay on the line of their figure.
const UNITS: [&str; 8] = ["B", "KiB", "MiB", "GiB", "TiB", "s", "ms", "%"];

/// Wraps `text` at spaces into lines of at most `columns` characters, but not between a figure and its unit. A longer
/// word gets a line of its own.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words(text) {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > columns {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.len() - 1;
        if used > 0 {
            lines[line].push(' ');
            used += 1;
        }
        lines[line].push_str(&word);
        used += length;
    }
    lines
}

/// The words of a text; a figure and its unit are one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_unit = UNITS.contains(&word.trim_end_matches(|letter: char| ".,;:)".contains(letter)));
        match words.last_mut() {
            Some(figure) if is_unit && figure.ends_with(|letter: char| letter.is_ascii_digit()) => {
                figure.push(' ');
                figure.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// One line of at most `columns` characters, with an ellipsis if it was truncated.
pub(crate) fn clip(text: &str, columns: usize) -> String {
    let text = sanitize(text).replace('\n', " ");
    if text.chars().count() <= columns {
        return text;
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    kept + "…"
}

/// A text without its styles.
#[cfg(test)]
pub(crate) fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_breaks_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("extraordinarily long", 5), ["extraordinarily", "long"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("up to 3.80 GiB; then", 10), ["up to", "3.80 GiB;", "then"]);
        assert_eq!(wrap("line 4 MiB s", 7), ["line", "4 MiB s"]);
        assert_eq!(clip("abcdef", 4), "abc…");
    }
}
