//! Wraps text.

use crate::sanitize;

/// Units that stay on the line of their figure.
const UNITS: [&str; 8] = ["B", "KiB", "MiB", "GiB", "TiB", "s", "ms", "%"];

/// Wraps `text` at spaces into lines of at most `columns` characters, but not between a figure and its unit. A longer
/// word gets a line of its own.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
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

/// A line of code that fits into `columns`. `…/end_of_a_long_name.py:88 forward`: the line number and the end of the path
/// distinguish lines, so the beginning of the path is dropped, and the function before the line number.
pub(crate) fn clip_place(place: &str, columns: usize) -> String {
    /// A function of which fewer letters would remain says nothing.
    const LEAST_FUNCTION: usize = 4;
    let place = sanitize(place).replace('\n', " ");
    let Some((position, function)) = split_place(&place) else { return clip(&place, columns) };
    let length = position.chars().count();
    if length + LEAST_FUNCTION < columns || place.chars().count() <= columns {
        return clip(&place, columns);
    }
    let is_short = function.chars().count() * 3 <= columns;
    let room = if is_short { columns - function.chars().count() } else { columns };
    let kept = if is_short { function } else { "" };
    if length <= room {
        return format!("{position}{kept}");
    }
    let end: String = position.chars().skip((length + 1).saturating_sub(room)).collect();
    format!("…{end}{kept}")
}

/// A place as its file and line number, and the rest: `model.py:88` and ` forward`.
fn split_place(place: &str) -> Option<(&str, &str)> {
    place.match_indices(':').find_map(|(colon, _)| {
        let after = &place[colon + 1..];
        let rest = after.trim_start_matches(|character: char| character.is_ascii_digit());
        let is_number = rest.len() < after.len() && (rest.is_empty() || rest.starts_with(' '));
        is_number.then(|| place.split_at(place.len() - rest.len()))
    })
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

    #[test]
    fn a_clipped_place_keeps_the_line_number() {
        let compiled = "md/cmdgtaz7or4tm3uquv4w3id2do6aaa5iblure3x2kvzqf.py:1234 call";
        assert_eq!(clip_place(compiled, 70), compiled);
        assert_eq!(clip_place(compiled, 30), "…a5iblure3x2kvzqf.py:1234 call");
        assert_eq!(clip_place(compiled, 60).chars().count(), 60);
        assert!(clip_place(compiled, 58).ends_with("kvzqf.py:1234 call"));
        // The function gives way before the number does.
        assert_eq!(clip_place("model.py:88 a_function_with_a_long_name", 20), "model.py:88 a_funct…");
        assert_eq!(
            clip_place("directory/model.py:88 a_function_with_a_long_name", 20),
            "…rectory/model.py:88"
        );
        assert_eq!(clip_place("my files/a_long_name/model.py:88 f", 16), "…e/model.py:88 f");
        assert_eq!(clip_place("cudaMalloc in libsolver.so", 12), "cudaMalloc …");
        assert_eq!(clip_place("x:1", 0), "…");
    }
}
