//! Numbers and strings of protocol 0, which are lines of text.

use super::value::Value;

/// `INT` and `LONG`: decimal digits, with a trailing `L` for a long; `01` and `00` are true and false.
pub(super) fn integer(line: &[u8]) -> Option<Value> {
    match line {
        b"01" => return Some(Value::Bool(true)),
        b"00" => return Some(Value::Bool(false)),
        _ => {}
    }
    let text = str::from_utf8(line).ok()?.trim_ascii();
    let text = text.strip_suffix('L').unwrap_or(text);
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number = text.parse::<i128>().ok();
    Some(number.and_then(from_wide).unwrap_or(Value::Opaque))
}

fn from_wide(number: i128) -> Option<Value> {
    u64::try_from(number).or_else(|_| i64::try_from(number).map(i64::cast_unsigned)).ok().map(Value::Int)
}

/// `LONG1` and `LONG4`: little-endian two's complement of any length.
pub(super) fn long(bytes: &[u8]) -> Value {
    if bytes.len() > 16 {
        return Value::Opaque;
    }
    let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    from_wide(i128::from_le_bytes(wide)).unwrap_or(Value::Opaque)
}

/// `FLOAT`.
pub(super) fn float(line: &[u8]) -> Option<Value> {
    str::from_utf8(line).ok()?.trim_ascii().parse().ok().map(Value::Float)
}

/// A memo number in decimal.
pub(super) fn memo_number(line: &[u8]) -> Option<u64> {
    str::from_utf8(line).ok()?.trim_ascii().parse().ok()
}

/// `UNICODE`: Latin-1, with `\uXXXX` and `\UXXXXXXXX` for other characters.
pub(super) fn unicode(line: &[u8]) -> Vec<u8> {
    unescape(line, |kind| match kind {
        b'u' => Some(Escape::Digits(4)),
        b'U' => Some(Escape::Digits(8)),
        _ => None,
    })
}

/// `STRING`: a quoted Python 2 literal.
pub(super) fn string(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let ([b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"']) = line else { return None };
    Some(unescape(inner, |kind| match kind {
        b'n' => Some(Escape::Character('\n')),
        b't' => Some(Escape::Character('\t')),
        b'r' => Some(Escape::Character('\r')),
        b'\\' | b'\'' | b'"' => Some(Escape::Character(char::from(kind))),
        b'x' => Some(Escape::Digits(2)),
        _ => None,
    }))
}

enum Escape {
    Character(char),
    /// A code point with this many hexadecimal digits.
    Digits(usize),
}

fn unescape(line: &[u8], escape: impl Fn(u8) -> Option<Escape>) -> Vec<u8> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let [first, after @ ..] = rest {
        rest = after;
        let known = if *first == b'\\' { after.first().and_then(|&kind| escape(kind)) } else { None };
        match known {
            None => text.push(char::from(*first)),
            Some(Escape::Character(character)) => {
                text.push(character);
                rest = &after[1..];
            }
            Some(Escape::Digits(count)) => {
                let digits = after.get(1..=count).and_then(|digits| str::from_utf8(digits).ok());
                let point = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                text.push(point.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
                rest = after.get(1 + count..).unwrap_or_default();
            }
        }
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_64_bits_of_either_sign() {
        for (line, value) in [
            (&b"01"[..], Some(Value::Bool(true))),
            (b"1", Some(Value::Int(1))),
            (b"-1", Some(Value::Int(u64::MAX))),
            (b"18446744073709551615L", Some(Value::Int(u64::MAX))),
            (b"18446744073709551616L", Some(Value::Opaque)),
            (b"999999999999999999999999999999999999999999999999L", Some(Value::Opaque)),
            (b"-9223372036854775808", Some(Value::Int(1 << 63))),
            (b"x", None),
            (b"", None),
        ] {
            assert_eq!(integer(line), value, "{}", String::from_utf8_lossy(line));
        }
        assert_eq!(long(&[]), Value::Int(0));
        assert_eq!(long(&[0xff]), Value::Int(u64::MAX));
        assert_eq!(long(&[0xff; 9][..8]), Value::Int(u64::MAX));
        assert_eq!(long(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0]), Value::Int(1 << 63));
        assert_eq!(long(&[1; 9]), Value::Opaque);
        assert_eq!(long(&[1; 40]), Value::Opaque);
    }

    #[test]
    fn texts_are_unescaped() {
        assert_eq!(unicode(br"a\u00e9\U0001f600\n\u12"), "aé😀\\n\u{fffd}".as_bytes());
        assert_eq!(string(br"'it\'s \x41\n'"), Some(b"it's A\n".to_vec()));
        assert_eq!(string(b"no quotes"), None);
        assert_eq!(string(b"'"), None);
    }
}
