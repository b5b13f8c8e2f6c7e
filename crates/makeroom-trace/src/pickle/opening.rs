//! Tells pickles from text by how they begin.
//!
//! Protocols 2 to 5 say so in their first byte. Protocols 0 and 1 are lines of text, and are told by the openings
//! that picklers write: a remembered dict or list, or the name of something to call with its arguments. The last is
//! never read, only refused by name, so where it could as well be a text it is one.

/// Whether this is how a pickle begins.
pub(crate) fn is_opening(head: &[u8]) -> bool {
    match head {
        [0x80, protocol, ..] => (2..=5).contains(protocol),
        [b'}' | b']', b'q', 0, ..] => true,
        [b'(', b'd' | b'l', rest @ ..] => after_put(rest).is_some(),
        [b'c', rest @ ..] => after_name(rest).is_some_and(is_call),
        _ => false,
    }
}

/// What follows the two lines of a name.
fn after_name(head: &[u8]) -> Option<&[u8]> {
    let is_name = |line: &[u8]| {
        !line.is_empty() && line.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(byte))
    };
    let (module, rest) = line(head)?;
    let (name, rest) = line(rest)?;
    (is_name(module) && is_name(name)).then_some(rest)
}

/// What follows a `p123\n` at the beginning.
fn after_put(head: &[u8]) -> Option<&[u8]> {
    after_number(head.strip_prefix(b"p")?)
}

/// What follows a line of digits.
fn after_number(head: &[u8]) -> Option<&[u8]> {
    let (number, rest) = line(head)?;
    (!number.is_empty() && number.iter().all(u8::is_ascii_digit)).then_some(rest)
}

/// The first line, and what follows it.
fn line(head: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = head.iter().position(|&byte| byte == b'\n')?;
    Some((&head[..end], &head[end + 1..]))
}

/// Whether this goes on with the arguments of a call, opcode by opcode, as protocols 0 and 1 write them. Commands in
/// a log, one a line, look like a name, and a line in brackets like the first argument (`clear`, `ls`, `(base) …`).
/// So everything has to be an opcode, and something has to be there that only picklers write.
fn is_call(head: &[u8]) -> bool {
    let mut rest = after_put(head).unwrap_or(head);
    let mut is_told = rest.len() < head.len();
    if !rest.starts_with(b"(") {
        return false;
    }
    while let [opcode, operand @ ..] = rest {
        // Where an operand goes on behind the end, all that can be said has been said.
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
            // Lengths and numbers in binary: characters that no text has.
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
