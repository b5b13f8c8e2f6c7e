//! Tells pickles from text by their first bytes.
//!
//! Protocols 2 to 5 have a magic byte. Protocols 0 and 1 are lines of text, recognized by what picklers write first:
//! a memoized dict or list, or the name of a callable with its arguments. The latter is only ever rejected, so
//! anything ambiguous is text.

/// Whether a pickle begins like this.
pub(crate) fn is_opening(head: &[u8]) -> bool {
    match head {
        [0x80, protocol, ..] => (2..=5).contains(protocol),
        [b'}' | b']', b'q', 0, ..] => true,
        [b'(', b'd' | b'l', rest @ ..] => after_put(rest).is_some(),
        [b'c', rest @ ..] => after_name(rest).is_some_and(is_call),
        _ => false,
    }
}

/// The rest after the two lines of a name.
fn after_name(head: &[u8]) -> Option<&[u8]> {
    let is_name = |line: &[u8]| {
        !line.is_empty() && line.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(byte))
    };
    let (module, rest) = line(head)?;
    let (name, rest) = line(rest)?;
    (is_name(module) && is_name(name)).then_some(rest)
}

/// The rest after a leading `p123\n`.
fn after_put(head: &[u8]) -> Option<&[u8]> {
    after_number(head.strip_prefix(b"p")?)
}

/// The rest after a line of digits.
fn after_number(head: &[u8]) -> Option<&[u8]> {
    let (number, rest) = line(head)?;
    (!number.is_empty() && number.iter().all(u8::is_ascii_digit)).then_some(rest)
}

/// The first line, and the rest.
fn line(head: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = head.iter().position(|&byte| byte == b'\n')?;
    Some((&head[..end], &head[end + 1..]))
}

/// Whether this continues with the arguments of a call, as protocols 0 and 1 write them. In a log, two lines with a
/// command each look like a name, and a line in parentheses looks like the first argument (`clear`, `ls`, `(base)
/// …`). So all of it must be opcodes, and there must be one that only picklers write.
fn is_call(head: &[u8]) -> bool {
    let mut rest = after_put(head).unwrap_or(head);
    let mut is_told = rest.len() < head.len();
    if !rest.starts_with(b"(") {
        return false;
    }
    while let [opcode, operand @ ..] = rest {
        // If an operand continues past the end of the head, there is nothing more to check.
        let after_line = |is_right: fn(&[u8]) -> bool| match line(operand) {
            Some((line, rest)) => is_right(line).then_some(rest).ok_or(false),
            None => Err(true),
        };
        let after = match opcode {
            b'(' | b'N' | b'd' | b'l' | b't' | b'a' | b's' | b'}' | b']' | b')' => Ok(operand),
            b'R' => return matches!(operand, [] | [b'.', ..]) || after_put(operand).is_some(),
            b'p' | b'g' => {
                is_told |= line(operand).is_some();
                after_line(|line| !line.is_empty() && line.iter().all(u8::is_ascii_digit))
            }
            b'S' => {
                is_told |= line(operand).is_some();
                after_line(|line| matches!(line, [b'\'', .., b'\''] | [b'"', .., b'"']))
            }
            b'V' => after_line(|_| true),
            b'I' | b'L' | b'F' => {
                after_line(|line| line.iter().all(|byte| b"0123456789.+-eL".contains(byte)))
            }
            b'c' => after_name(operand).ok_or(false),
            // Binary lengths and numbers: bytes that do not occur in text.
            b'X' => return matches!(operand, [_, _, 0, 0, ..]),
            b'U' | b'K' | b'M' => return matches!(operand, [0..=8 | 14..=26, ..]),
            _ => Err(false),
        };
        rest = match after {
            Ok(rest) => rest,
            Err(is_cut_off) => return is_cut_off && is_told,
        };
    }
    is_told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_what_only_picklers_write() {
        for head in [
            &b"cos\nsystem\n(S'true'\n"[..],
            b"cos\nsystem\n(S'true'\ntR.",
            b"cposix\nsystem\np0\n(V",
            b"cposix\nsystem\n(Vtrue\ntRp1\n.",
            b"cos\nsystem\n(X\x04\x00\x00\x00true",
            b"c__builtin__\neval\n(S'1'\nI2\ntR.",
            b"ccopy_reg\n_reconstructor\n(c__main__\nModel\nc__builtin__\nobject\nNtR.",
        ] {
            assert!(is_opening(head), "{:?}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn ordinary_words_are_no_pickle() {
        for head in [
            "clear\nls\n(base) user@host:~$ python train.py\nRuntimeError: CUDA out of memory.\n",
            "clear\nls\n(venv) $ python train.py\n",
            "clear\nls\n(Verbose mode)\n",
            "clear\nls\n(Verbose mode)\nIn all 3 lines\nNo\n",
            "cd\nls\n(I1\n",
            "cd\nls\n(S'quoted' text)\n",
            "cd\nls\n(p100 free)\n",
            "cd\nls\n(tests passed)\n",
            "cd\nls\n(tRNA synthetase)\n",
            "cd\nls\n(t.b.d.)\n",
            "cd\nls\n(o.k.)\n",
            "cd\nls\n(Unknown) (Killed)\n",
            "cd\nls\n(passed",
            "cd\nls\n(",
            "could\nnot\nallocate (much)",
        ] {
            assert!(!is_opening(head.as_bytes()), "{head:?}");
        }
    }
}
