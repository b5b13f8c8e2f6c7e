//! Sanitizes text so that it cannot control a terminal except for color.
//!
//! Names of files, functions and processes come from recordings, logs and other users. Control sequences in them
//! could move the cursor, change the title, fill the clipboard, or hide and reorder text. So only line ends and the
//! styles that makeroom itself prints are kept. All other control characters become a space, and characters that are
//! invisible or reorder text become U+FFFD, so that different names look different. In JSON, they are escaped, which
//! changes no value.

use std::fmt::Write as _;

/// The styles that makeroom prints: reset, bold, dim, red, green, yellow, cyan. None of them hides text.
const STYLES: [&str; 7] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"];

/// Characters that are invisible or change the order of others: Unicode's format characters and default ignorable
/// code points, except for variation selectors that choose between two forms of a visible character.
const HIDDEN: [std::ops::RangeInclusive<char>; 27] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{600}'..='\u{605}',
    '\u{61c}'..='\u{61c}',
    '\u{6dd}'..='\u{6dd}',
    '\u{70f}'..='\u{70f}',
    '\u{890}'..='\u{891}',
    '\u{8e2}'..='\u{8e2}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{110bd}'..='\u{110bd}',
    '\u{110cd}'..='\u{110cd}',
    '\u{13430}'..='\u{1343f}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d159}'..='\u{1d159}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e00ff}',
    '\u{e0100}'..='\u{e01ef}',
    '\u{e01f0}'..='\u{e0fff}',
];

/// Replaces control characters with spaces, except for line ends and makeroom's own styles, and hidden characters
/// with U+FFFD.
pub fn sanitize(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_unsafe) {
        let (before, from) = rest.split_at(at);
        safe.push_str(before);
        if let Some(style) = STYLES.iter().find(|style| from.starts_with(**style)) {
            safe.push_str(style);
            rest = &from[style.len()..];
        } else {
            let mut letters = from.chars();
            safe.push(if letters.next().is_some_and(char::is_control) {
                ' '
            } else {
                char::REPLACEMENT_CHARACTER
            });
            rest = letters.as_str();
        }
    }
    safe.push_str(rest);
    safe
}

/// Escapes control characters and hidden characters in JSON text. Its values stay the same, because such characters can
/// only be inside of strings; `serde_json` itself escapes only those below U+0020.
pub fn escape_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        if is_unsafe(letter) {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(letter);
        }
    }
    safe
}

fn is_unsafe(letter: char) -> bool {
    letter.is_control() && letter != '\n' || is_hidden(letter)
}

fn is_hidden(letter: char) -> bool {
    !letter.is_ascii() && HIDDEN.iter().any(|range| range.contains(&letter))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_and_styles_stay() {
        let text = "\n  \u{1b}[1mGPU 0\u{1b}[0m, é █▌ \u{1b}[31m\u{1b}[1mx\u{1b}[0m ❤\u{fe0f} 日本語 שלום\n";
        assert_eq!(sanitize(text), text);
    }

    #[test]
    fn nothing_else_reaches_a_terminal() {
        for (hostile, safe) in [
            ("\u{1b}[2J\u{1b}[Hx", " [2J [Hx"),
            ("\u{1b}]52;c;ZXZpbA==\u{7}x", " ]52;c;ZXZpbA== x"),
            ("a\rb\tc\u{8}", "a b c "),
            ("\u{9b}2J\u{7f}", " 2J "),
            ("\u{1b}", " "),
            ("\u{1b}[1", " [1"),
            ("\u{1b}\u{1b}[1m\u{1b}c", " \u{1b}[1m c"),
        ] {
            assert_eq!(sanitize(hostile), safe, "{hostile:?}");
        }
    }

    /// Concealed, black on black, blinking, underlined in another color, and the same in other encodings.
    #[test]
    fn no_foreign_style_passes() {
        for style in
            ["8", "30", "40", "30;40", "5", "7", "97", "38;5;0", "48;2;0;0;0", "0;8", "1;8", "", "01", "4:3"]
        {
            assert_eq!(sanitize(&format!("\u{1b}[{style}mx")), format!(" [{style}mx"));
            assert_eq!(sanitize(&format!("\u{9b}{style}mx")), format!(" {style}mx"));
        }
    }

    #[test]
    fn nothing_is_reordered_or_hidden() {
        for letter in [
            '\u{202e}',
            '\u{202a}',
            '\u{2066}',
            '\u{2069}',
            '\u{200f}',
            '\u{61c}',
            '\u{200b}',
            '\u{feff}',
            '\u{ad}',
            '\u{2028}',
            '\u{fff9}',
            '\u{3164}',
            '\u{e0041}',
            '\u{e0101}',
            '\u{1d173}',
        ] {
            assert_eq!(sanitize(&format!("train{letter}.py")), "train\u{fffd}.py", "{letter:?}");
        }
    }

    /// The first control character in a text that is not part of makeroom's own styles.
    fn obeyed(text: &str) -> Option<char> {
        let plain = STYLES.iter().fold(text.to_owned(), |text, style| text.replace(style, "\u{fffe}"));
        plain.chars().find(|&letter| is_unsafe(letter))
    }

    /// Texts in which control characters, styles and hidden characters are as frequent as letters.
    fn hostile() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            any::<char>().prop_map(String::from),
            prop::sample::select(&HIDDEN[..]).prop_map(|range| String::from(*range.end())),
            prop::sample::select(&STYLES[..]).prop_map(str::to_owned),
            prop::char::range('\0', '\u{9f}').prop_map(String::from),
            "\u{1b}[\\[\\]()PX^_#][0-9;:?]{0,6}[a-zA-Z]",
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn whatever_comes_in_nothing_is_obeyed(text in hostile()) {
            let safe = sanitize(&text);
            prop_assert_eq!(obeyed(&safe), None);
            // It is idempotent and preserves lines.
            prop_assert_eq!(sanitize(&safe), safe.clone());
            prop_assert_eq!(safe.lines().count(), text.lines().count());
            let json = serde_json::to_string(&text).unwrap();
            let escaped = escape_json(&json);
            prop_assert!(!escaped.contains(is_unsafe));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text.clone());
            // A safe text is unchanged.
            if obeyed(&text).is_none() {
                prop_assert_eq!(safe, text);
            }
        }
    }
}
