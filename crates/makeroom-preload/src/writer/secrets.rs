//! Masks secrets in command lines with `***`: values after a secret's name, credentials in URLs, and keys with a
//! known form.
//!
//! This is a heuristic: a secret under an unrelated name is not recognized, which is why `run` can leave the command
//! line out. A word masked needlessly costs less than a password in a file that is sent to others. Each word is
//! scanned a fixed number of times, so the time is linear in the command line, which the kernel bounds.

const MASK: &[u8] = b"***";

/// Suffixes of secrets' names: `--hf-token`, `DB_PASSWORD`, `"client_secret"`.
const NAMES: [&[u8]; 18] = [
    b"password",
    b"passwd",
    b"pwd",
    b"auth",
    b"passphrase",
    b"pass",
    b"secret",
    b"token",
    b"apikey",
    b"api-key",
    b"api_key",
    b"access-key",
    b"access_key",
    b"private-key",
    b"private_key",
    b"credential",
    b"credentials",
    b"authorization",
];
/// Shorter names must be a whole word: `--db-pass`, but not `--bypass`.
const LEAST_JOINED: usize = 5;
/// Vocabulary tokens, which are not secrets: `--eos-token`.
const OF_VOCABULARY: [&[u8]; 9] =
    [b"eos", b"bos", b"pad", b"unk", b"sep", b"cls", b"mask", b"stop", b"image"];
/// Its value has two words: `Bearer …`, `Basic …`.
const AUTHORIZATION: &[u8] = b"authorization";
/// Prefixes and minimum lengths of well-known services' keys.
const KEYS: [(&[u8], usize); 12] = [
    (b"AKIA", 20),
    (b"ASIA", 20),
    (b"hf_", 20),
    (b"sk-", 20),
    (b"ghp_", 20),
    (b"gho_", 20),
    (b"ghs_", 20),
    (b"github_pat_", 20),
    (b"glpat-", 20),
    (b"xoxb-", 20),
    (b"xoxp-", 20),
    (b"eyJ", 40),
];
/// The words of a command line with their secrets masked.
pub(crate) fn masked<'words>(words: impl Iterator<Item = &'words [u8]>) -> Vec<Vec<u8>> {
    let mut is_next_secret = false;
    let mut out = Vec::new();
    for word in words {
        // Another option here is not the value of the one before.
        let is_value = is_next_secret && !word.starts_with(b"--");
        out.push(if is_value { MASK.to_vec() } else { mask(word) });
        is_next_secret = names_option(word);
    }
    out
}

/// Whether the word is an option whose value, the next word, is a secret.
fn names_option(word: &[u8]) -> bool {
    word.starts_with(b"-") && !word.contains(&b'=') && is_name(word)
}

/// Masks the secrets in one word.
fn mask(word: &[u8]) -> Vec<u8> {
    let mut out = mask_url(word);
    out = mask_assignments(&out);
    mask_keys(&out)
}

/// Masks the user information of a URL: everything before the last `@` of the authority. A user without a password
/// may be a token (`https://TOKEN@github.com/…`), so the user name is masked too.
fn mask_url(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some(start) = find(rest, b"://") {
        let (before, after) = rest.split_at(start + 3);
        out.extend_from_slice(before);
        let ends = |byte: &u8| matches!(byte, b'/' | b'?' | b'#' | b' ' | b'"' | b'\'' | b',');
        let authority = after.get(..after.iter().position(ends).unwrap_or(after.len())).unwrap_or_default();
        rest = after;
        if let Some(at) = authority.iter().rposition(|&byte| byte == b'@') {
            out.extend_from_slice(MASK);
            rest = after.get(at..).unwrap_or_default();
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Masks the value after `NAME=` and `NAME:` if the name is a secret's: an option, a variable, a JSON or query field.
fn mask_assignments(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut start = 0;
    let mut index = 0;
    while let Some(&byte) = word.get(index) {
        index += 1;
        if !matches!(byte, b'=' | b':') {
            continue;
        }
        let name = word.get(start..index - 1).unwrap_or_default().trim_ascii_end();
        let name = name.strip_suffix(b"\"").or_else(|| name.strip_suffix(b"'")).unwrap_or(name);
        if !is_name(name) {
            continue;
        }
        let value = word.get(index..).unwrap_or_default();
        if value.starts_with(b"//") {
            continue;
        }
        let length = if start == 0 && byte == b'=' && !value.contains(&b'&') {
            value.len()
        } else {
            field_length(value, ends_with(name, AUTHORIZATION))
        };
        if length == 0 {
            continue;
        }
        out.extend_from_slice(word.get(start..index).unwrap_or_default());
        out.extend_from_slice(MASK);
        index += length;
        start = index;
    }
    out.extend_from_slice(word.get(start..).unwrap_or_default());
    out
}

/// Length of a value that ends where fields end.
fn field_length(value: &[u8], has_blanks: bool) -> usize {
    let blank = value.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let inner = value.get(blank..).unwrap_or_default();
    if let Some(&quote) = inner.first().filter(|&&byte| matches!(byte, b'"' | b'\'')) {
        let end = inner.iter().skip(1).position(|&byte| byte == quote);
        return end.map_or(value.len(), |end| blank + end + 2);
    }
    let ends = |&byte: &u8| {
        matches!(byte, b'&' | b',' | b';' | b'}' | b'"' | b'\'') || byte.is_ascii_whitespace() && !has_blanks
    };
    blank + inner.iter().position(ends).unwrap_or(inner.len())
}

/// Masks keys with a known form, anywhere in the word.
fn mask_keys(word: &[u8]) -> Vec<u8> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let mut out = Vec::with_capacity(word.len());
    for piece in word.chunk_by(|&one, &next| is_part(one) == is_part(next)) {
        let is_key = KEYS.iter().any(|&(begin, least)| piece.len() >= least && piece.starts_with(begin));
        out.extend_from_slice(if is_key { MASK } else { piece });
    }
    out
}

/// Whether the text before a value is the name of a secret.
fn is_name(text: &[u8]) -> bool {
    NAMES.iter().any(|name| {
        let before = text.get(..text.len().saturating_sub(name.len())).unwrap_or_default();
        let is_apart = before.last().is_none_or(|byte| !byte.is_ascii_alphanumeric());
        ends_with(text, name) && (is_apart || name.len() >= LEAST_JOINED) && !is_of_vocabulary(before)
    })
}

fn is_of_vocabulary(before: &[u8]) -> bool {
    let before = before.strip_suffix(b"-").or_else(|| before.strip_suffix(b"_")).unwrap_or(before);
    OF_VOCABULARY.iter().any(|name| ends_with(before, name))
}

fn ends_with(text: &[u8], end: &[u8]) -> bool {
    text.len() >= end.len()
        && text.get(text.len() - end.len()..).is_some_and(|own| own.eq_ignore_ascii_case(end))
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> String {
        let words = masked(words.split('|').map(str::as_bytes));
        words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn secrets_are_masked_and_the_rest_stays() {
        let cases = [
            ("train|--api-key=S3|--lr=0.1", "train|--api-key=***|--lr=0.1"),
            ("train|--token|S3|--steps|5", "train|--token|***|--steps|5"),
            ("train|-token|S3", "train|-token|***"),
            ("psql|password=S3 host=db", "psql|password=***"),
            ("env|HF_TOKEN=S3|python", "env|HF_TOKEN=***|python"),
            ("env|AWS_SECRET_ACCESS_KEY=S3", "env|AWS_SECRET_ACCESS_KEY=***"),
            ("git|clone|https://me:S3@host/x@y", "git|clone|https://***@host/x@y"),
            ("git|clone|https://S3@host", "git|clone|https://***@host"),
            ("curl|http://h/a?user=me&token=S3&x=1", "curl|http://h/a?user=me&token=***&x=1"),
            ("curl|-H|Authorization: Bearer S3", "curl|-H|Authorization:***"),
            ("curl|-HAuthorization: Basic UzM=", "curl|-HAuthorization:***"),
            (
                "x|{\"name\": \"n\", \"password\": \"S 3\", \"n\": 1}",
                "x|{\"name\": \"n\", \"password\":***, \"n\": 1}",
            ),
            ("x|AKIAIOSFODNN7EXAMPLE", "x|***"),
            ("x|key:hf_abcdefghijklmnopqrstuv,", "x|key:***,"),
            ("x|--dbPassword|S3", "x|--dbPassword|***"),
            ("x|--pwd=S3|--auth|S3", "x|--pwd=***|--auth|***"),
            ("x|--wandb_api_key=S3", "x|--wandb_api_key=***"),
        ];
        for (words, expected) in cases {
            assert_eq!(line(words), expected);
        }
    }

    #[test]
    fn what_is_no_secret_is_left_as_it_is() {
        for words in [
            "python|train.py|--batch|32|--tokens|4096|--max-tokens=100",
            "python|--tokenizer=gpt2|--password-file|/run/secret",
            "x|--token|--steps|5",
            "x|https://host/a@b|C:\\x|a::b",
            "x|--eos-token=<|/s>|--pad_token|0|--bypass|1",
            "x|sk-8|hf_hub|eyJ",
            "|",
            "",
        ] {
            assert_eq!(line(words), words);
        }
    }

    #[test]
    fn any_bytes_are_read_in_linear_time() {
        let hostile: Vec<u8> = b"token=:\"'&://@".iter().copied().cycle().take(2 << 20).collect();
        let began = std::time::Instant::now();
        let masked = masked([hostile.as_slice(), b"\xff\xfe=\xff", b"=", b"token="].into_iter());
        assert_eq!(masked.len(), 4);
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }
}
