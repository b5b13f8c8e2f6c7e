//! Wraps text.

use crate::sanitize;

/// Wraps `text` at spaces into lines of at most `columns` characters. A longer word gets a line of its own.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
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
        lines[line].push_str(word);
        used += length;
    }
    lines
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
        assert_eq!(clip("abcdef", 4), "abc…");
    }
}
