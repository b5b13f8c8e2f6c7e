//! Removes escape sequences and control characters, which may split a word of an error message.

use std::borrow::Cow;

/// The text as the formats see it: without escape sequences and control characters, which may sit inside an anchor.
pub fn without_controls(text: &[u8]) -> Cow<'_, [u8]> {
    // U+0080 to U+009F are control characters as well; 0xc2 is their first byte.
    let is_control = |byte: u8| byte < 0x20 && byte != b'\n' && byte != b'\r' || byte == 0x7f || byte == 0xc2;
    if !text.iter().fold(false, |any, &byte| any | is_control(byte)) {
        return Cow::Borrowed(text);
    }
    let mut clean = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| is_control(byte)) {
        clean.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let length = match rest[0] {
            0x1b => escape_length(rest),
            0xc2 if rest.get(1).is_some_and(|byte| (0x80..0xa0).contains(byte)) => 2,
            0xc2 => {
                clean.push(0xc2);
                1
            }
            b'\t' => {
                clean.push(b' ');
                1
            }
            _ => 1,
        };
        rest = &rest[length..];
    }
    clean.extend_from_slice(rest);
    Cow::Owned(clean)
}

/// [`without_controls`] of a text in UTF-8.
pub fn text_without_controls(text: &str) -> Cow<'_, str> {
    match without_controls(text.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(clean) => match String::from_utf8(clean) {
            Ok(clean) => Cow::Owned(clean),
            // Not reached: only whole characters are removed.
            Err(error) => Cow::Owned(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        },
    }
}

/// The length of the escape sequence that a text begins with. It ends at the end of the line at the latest.
fn escape_length(text: &[u8]) -> usize {
    let line = &text[..memchr::memchr2(b'\n', b'\r', text).unwrap_or(text.len())];
    let up_to =
        |is_last: fn(&u8) -> bool| line.iter().skip(2).position(is_last).map_or(line.len(), |at| 2 + at + 1);
    let characters = |count: usize| {
        let mut starts = line.iter().enumerate().filter(|(_, byte)| **byte & 0xc0 != 0x80).map(|(at, _)| at);
        starts.nth(count).unwrap_or(line.len())
    };
    match line.get(1) {
        Some(b'[') => up_to(|byte| (b'@'..=b'~').contains(byte)),
        Some(b']') => up_to(|byte| *byte == 7 || *byte == b'\\'),
        Some(b'(' | b')') => characters(3),
        _ => characters(2),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escape_sequences_inside_an_anchor_are_removed() {
        for text in [
            "CUDA \u{1b}[31mout of\u{1b}[0m memory",
            "CUDA\tout of memory",
            "CUDA \u{1b}]8;;x\u{7}out\u{85} of \u{1b}(Bmemory",
            "CUDA out\0 of memory",
        ] {
            let clean = without_controls(text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&clean), "CUDA out of memory", "{text:?}");
        }
        assert_eq!(without_controls("25 °C\t±1\r\n".as_bytes()).as_ref(), "25 °C ±1\r\n".as_bytes());
        assert_eq!(without_controls(b"\x1b[31\nnext").as_ref(), b"\nnext");
    }

    /// A reference implementation for one line, character by character.
    fn characters_without_controls(line: &str) -> String {
        let mut clean = String::with_capacity(line.len());
        let mut rest = line.chars();
        while let Some(character) = rest.next() {
            if character == '\u{1b}' {
                match rest.next() {
                    // Control sequence: parameters, then one final byte from @ to ~.
                    Some('[') => {
                        let _ = rest.by_ref().find(|next| ('@'..='~').contains(next));
                    }
                    // Choice of a character set: one more byte.
                    Some('(' | ')') => {
                        let _ = rest.next();
                    }
                    // Operating-system command: up to the bell or the string terminator.
                    Some(']') => {
                        let _ = rest.by_ref().find(|&next| next == '\u{7}' || next == '\\');
                    }
                    _ => {}
                }
            } else if character == '\t' {
                clean.push(' ');
            } else if !character.is_control() {
                clean.push(character);
            }
        }
        clean
    }

    proptest! {
        #[test]
        fn a_line_is_cleaned_as_if_character_by_character(
            parts in prop::collection::vec(prop_oneof![r"[ -~é显\x{85}\x{7f}\x{7}\t]{0,4}", r"\x{1b}[\[\]()A\\]?"], 0..8),
        ) {
            let line = parts.concat();
            prop_assert_eq!(text_without_controls(&line), characters_without_controls(&line));
        }
    }
}
