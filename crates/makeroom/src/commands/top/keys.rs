//! The keys of `makeroom top`, parsed from the bytes that a terminal in raw mode sends.
//!
//! An escape sequence is `ESC O x`, or `ESC [` with parameters and a final byte; only those of
//! the arrow keys are used here. A key with Alt is `ESC` and the key, and counts as the key. `ESC` is the Escape key if
//! nothing follows it in the same read, because terminals do not distinguish the two.

use makeroom_report::Key;

pub(super) const ESCAPE: u8 = 0x1b;
/// Maximum length of an unfinished sequence; a longer one is dropped.
const LONGEST_SEQUENCE: usize = 64;

/// A parser, with the beginning of a sequence that continues in the next read.
#[derive(Default)]
pub(super) struct Keys {
    unfinished: Vec<u8>,
}

/// The result of parsing the first bytes.
#[derive(Debug, PartialEq)]
enum Parsed {
    /// A key of this many bytes; `None` if `top` does not use it.
    Whole(Option<Key>, usize),
    /// The beginning of a sequence.
    Unfinished,
}

use Parsed::{Unfinished, Whole};

impl Keys {
    /// The keys in the bytes of one read.
    pub(super) fn parse(&mut self, read: &[u8]) -> Vec<Key> {
        let mut bytes = std::mem::take(&mut self.unfinished);
        bytes.extend_from_slice(read);
        let mut keys = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match first(rest) {
                Whole(key, length) => {
                    keys.extend(key);
                    rest = &rest[length..];
                }
                Unfinished => {
                    if rest.len() <= LONGEST_SEQUENCE {
                        rest.clone_into(&mut self.unfinished);
                    }
                    break;
                }
            }
        }
        keys
    }
}

/// The first key of `bytes`, which must not be empty.
fn first(bytes: &[u8]) -> Parsed {
    match *bytes {
        [ESCAPE] => Whole(Some(Key::Escape), 1),
        [ESCAPE, ESCAPE, ..] => Whole(Some(Key::Escape), 2),
        [ESCAPE, b'O'] => Unfinished,
        [ESCAPE, b'O', last @ 0x40..=0x7e, ..] => Whole(arrow(last), 3),
        // Alt-O, or broken off: the byte begins something else.
        [ESCAPE, b'O', ..] => Whole(None, 2),
        [ESCAPE, b'[', ref sequence @ ..] => control_sequence(sequence),
        [ESCAPE, ref rest @ ..] => match first(rest) {
            Whole(key, length) => Whole(key, length + 1),
            Unfinished => Unfinished,
        },
        [b'\r', ..] => Whole(Some(Key::Enter), 1),
        [b'\t', ..] => Whole(None, 1),
        [0x7f, ..] => Whole(Some(Key::Backspace), 1),
        // Ctrl with a letter counts as the letter, except for Ctrl-C.
        [0x03, ..] => Whole(Some(Key::Letter('q')), 1),
        [control @ 0x01..=0x1a, ..] => Whole(Some(Key::Letter(char::from(control - 1 + b'a'))), 1),
        [0x00..=0x1f, ..] => Whole(None, 1),
        _ => letter(bytes),
    }
}

/// The key of a control sequence, from the bytes after `ESC [`.
fn control_sequence(sequence: &[u8]) -> Parsed {
    const BEFORE: usize = 2;
    // The function keys of the Linux console: `ESC [ [ A`.
    if let [b'[', rest @ ..] = sequence {
        return if rest.is_empty() { Unfinished } else { Whole(None, BEFORE + 2) };
    }
    let Some(end) = sequence.iter().position(|byte| !matches!(byte, 0x20..=0x3f)) else { return Unfinished };
    match sequence[end] {
        last @ 0x40..=0x7e => Whole(arrow(last), BEFORE + end + 1),
        // The sequence is incomplete: this byte begins something else.
        _ => Whole(None, BEFORE + end),
    }
}

fn arrow(last: u8) -> Option<Key> {
    match last {
        b'A' => Some(Key::Up),
        b'B' => Some(Key::Down),
        _ => None,
    }
}

/// A character in UTF-8.
fn letter(bytes: &[u8]) -> Parsed {
    let bytes = &bytes[..bytes.len().min(4)];
    let chunk = bytes.utf8_chunks().next();
    if let Some(letter) = chunk.as_ref().and_then(|chunk| chunk.valid().chars().next()) {
        return Whole(Some(Key::Letter(letter)), letter.len_utf8());
    }
    let is_unfinished = std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
    if is_unfinished {
        Unfinished
    } else {
        Whole(None, chunk.map_or(1, |chunk| chunk.invalid().len().max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(read: &[u8]) -> Vec<Key> {
        Keys::default().parse(read)
    }

    fn letters(text: &str) -> Vec<Key> {
        text.chars().map(Key::Letter).collect()
    }

    #[test]
    fn letters_and_editing_keys() {
        assert_eq!(keys(b"sr/"), letters("sr/"));
        assert_eq!(keys("é日👍".as_bytes()), letters("é日👍"));
        assert_eq!(keys(b"\r\x7f\t"), [Key::Enter, Key::Backspace]);
        assert_eq!(keys(b"\x03\x0b\x00\x1f"), letters("qk"));
    }

    #[test]
    fn arrows_in_all_forms() {
        use Key::{Down, Up};
        assert_eq!(keys(b"\x1b[A\x1b[B\x1bOA\x1bOB"), [Up, Down, Up, Down]);
        assert_eq!(keys(b"\x1b[1;5A\x1b[1;2B"), [Up, Down], "with Control, with Shift");
    }

    #[test]
    fn escape_alone_is_a_key_and_alt_is_not() {
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x1b\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x1bq"), letters("q"));
        assert_eq!(keys("\u{1b}é".as_bytes()), letters("é"));
    }

    #[test]
    fn other_sequences_are_skipped_whole() {
        for sequence in
            ["\x1b[3~", "\x1b[H", "\x1b[Z", "\x1b[15;2~", "\x1bOP", "\x1b[[A", "\x1b[?62;4c", "\x1b[1;2 q"]
        {
            assert_eq!(keys(format!("{sequence}x").as_bytes()), letters("x"), "{sequence:?}");
        }
        assert_eq!(keys(b"\x1b[3\x1b[A"), [Key::Up], "one that was broken off");
        assert_eq!(keys(b"\x1bO\x1b[A"), [Key::Up], "another");
        assert_eq!(keys("\u{1b}O日".as_bytes()), letters("日"));
    }

    #[test]
    fn a_sequence_may_arrive_in_two_reads() {
        for (whole, expected) in [("\x1b[1;5A", Key::Up), ("\x1bOB", Key::Down), ("日", Key::Letter('日'))]
        {
            let first = if whole.starts_with('\x1b') { 2 } else { 1 };
            for at in first..whole.len() {
                let mut parser = Keys::default();
                assert_eq!(parser.parse(&whole.as_bytes()[..at]), [], "{whole:?} {at}");
                assert_eq!(parser.parse(&whole.as_bytes()[at..]), [expected], "{whole:?} {at}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_dropped() {
        assert_eq!(keys(b"\xffa\xe6\x97b\xc0\x80c\xed\xa0\x80d"), letters("abcd"));
        let mut parser = Keys::default();
        for _ in 0..1000 {
            assert_eq!(parser.parse(b"\x1b[1;1;1;1;1;1"), []);
            assert!(parser.unfinished.len() <= LONGEST_SEQUENCE);
            parser.parse(b"");
        }
    }
}
