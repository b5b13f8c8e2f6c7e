//! One line of the screen: pieces of text with styles, cut to the columns of the terminal.
//!
//! ```text
//! columns(line) = Σ columns(piece) ≤ columns of the terminal
//! ```
//!
//! Columns are counted as terminals count them: two for most characters of Chinese, Japanese and Korean, none for a
//! mark that is drawn on the letter before it. A character that fits only in part is omitted. Control characters occupy no
//! column and are never written. This does not hide characters that reorder text: [`sanitize`] does.
//!
//! [`sanitize`]: crate::sanitize()

use std::fmt::Write as _;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Maximum size in bytes of a letter with its marks; further marks are omitted.
const LONGEST_LETTER: usize = 64;

/// A line of the screen.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pieces: Vec<(Style, String)>,
}

impl Line {
    /// A line without style.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::styled(text, Style::new())
    }

    /// A line with one style.
    pub(super) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self::default().and(text, style)
    }

    /// The line with another piece appended.
    pub(super) fn and(mut self, text: impl Into<String>, style: Style) -> Self {
        self.pieces.push((style, text.into()));
        self
    }

    /// The part of the line that fits into `columns`.
    pub(super) fn fit(&self, columns: usize) -> Self {
        let mut left = columns;
        let mut pieces = Vec::new();
        for (style, text) in &self.pieces {
            let mut kept = String::with_capacity(text.len());
            let is_whole = letters(text).all(|(letter, width)| {
                let fits = width <= left;
                if fits {
                    kept.push_str(&letter);
                    left -= width;
                }
                fits
            });
            pieces.push((*style, kept));
            if !is_whole {
                break;
            }
        }
        Self { pieces }
    }

    /// The line as text without styles.
    pub(super) fn text(&self) -> String {
        self.pieces.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// The line with the escape sequences of its styles.
    pub(super) fn rendered(&self) -> String {
        self.pieces.iter().fold(String::new(), |mut line, (style, text)| {
            let _ = write!(line, "{style}{text}{style:#}");
            line
        })
    }
}

/// The letters of a text, each with the marks on it and the columns it occupies.
fn letters(text: &str) -> impl Iterator<Item = (String, usize)> {
    let mut characters = text.chars().filter(|character| !character.is_control()).peekable();
    std::iter::from_fn(move || {
        // A mark at the beginning has no letter to combine with.
        while characters.next_if(|first| first.width() == Some(0)).is_some() {}
        let mut letter = characters.next()?.to_string();
        let mut width = letter.width();
        while let Some(&next) = characters.peek() {
            let before = letter.len();
            letter.push(next);
            // A variation selector can widen the letter; a skin tone has a width of its own, but not after an emoji.
            let joined = letter.width();
            if next.width() != Some(0) && joined > width {
                letter.truncate(before);
                break;
            }
            characters.next();
            if letter.len() > LONGEST_LETTER {
                letter.truncate(before);
            } else {
                width = joined;
            }
        }
        Some((letter, width))
    })
}

#[cfg(test)]
mod tests {
    use anstyle::AnsiColor;
    use proptest::prelude::*;

    use super::*;

    fn fitted(text: &str, columns: usize) -> String {
        Line::plain(text).fit(columns).text()
    }

    #[test]
    fn a_letter_that_fits_only_in_part_is_omitted() {
        assert_eq!(fitted("日本語", 6), "日本語");
        assert_eq!(fitted("日本語", 5), "日本");
        assert_eq!(fitted("日本語x", 1), "", "nothing after it either");
        assert_eq!(fitted("abc", 0), "");
    }

    #[test]
    fn marks_stay_on_their_letter() {
        assert_eq!(fitted("e\u{301}e\u{301}", 1), "e\u{301}");
        assert_eq!(fitted("\u{301}e", 1), "e");
        // U+FE0F turns a narrow character into an emoji; a skin tone is part of the emoji before it.
        assert_eq!(fitted("❤\u{fe0f}x", 2), "❤\u{fe0f}");
        assert_eq!(fitted("❤\u{fe0f}x", 1), "");
        assert_eq!(fitted("👍\u{1f3fd}x", 2), "👍\u{1f3fd}");
        assert_eq!(fitted("👍\u{1f3fd}x", 3), "👍\u{1f3fd}x");
    }

    #[test]
    fn control_characters_and_endless_marks_are_dropped() {
        assert_eq!(fitted("a\u{1b}[2J\r\n\u{9b}\u{7f}b", 9), "a[2Jb");
        let fitted = fitted(&("e".to_owned() + &"\u{301}".repeat(100_000) + "f"), 2);
        assert!(fitted.len() <= LONGEST_LETTER + 1 && fitted.ends_with('f'), "{}", fitted.len());
    }

    #[test]
    fn each_piece_has_its_style() {
        let line = Line::styled("GPU ", Style::new().bold()).and("███", AnsiColor::Red.on_default());
        assert_eq!(line.fit(6).rendered(), "\u{1b}[1mGPU \u{1b}[0m\u{1b}[31m██\u{1b}[0m");
        assert_eq!(
            line.and("7", Style::new()).fit(6).text(),
            "GPU ██",
            "the rest is dropped, not only one piece"
        );
        assert_eq!(Line::plain("x").rendered(), "x");
    }

    proptest! {
        #[test]
        fn a_line_is_never_wider_than_asked(texts in prop::collection::vec("\\PC{0,12}|[❤👍日e\u{301}\u{fe0f}\u{fe0e}\u{1f3fd}ก\u{e33}]{0,12}", 0..4), columns in 0_usize..24) {
            let line = texts.iter().fold(Line::default(), |line, text| line.and(text.as_str(), Style::new()));
            let fitted = line.fit(columns);
            let width: usize = fitted.pieces.iter().flat_map(|(_, text)| letters(text)).map(|(_, width)| width).sum();
            prop_assert!(width <= columns);
            prop_assert_eq!(fitted.fit(columns).text(), fitted.text());
        }
    }
}
