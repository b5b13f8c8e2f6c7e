//! Which program a text shows, by the words that give programs away.
//!
//! A module path, an option or a program's own message says that the program runs. A bare name says so only as part
//! of a path, a module or a command line: in a sentence it may be another program, and in the name of a user's own
//! script it is no program at all. A name in a sentence counts where nothing better does and no traceback shows what
//! runs.

use std::borrow::Cow;
use std::sync::LazyLock;

use makeroom_search::{Regex, WordSet, pattern};

use super::{APPLICATIONS, BEFORE_TRAINERS, all, listed};
use crate::boundaries;
use crate::searched::Searched;

/// This much of a line on either side of a name decides what it is.
const NEIGHBORHOOD: usize = 120;

/// The words that give programs away, for one pass over a text.
struct Marks {
    words: WordSet,
    /// The program of each word (its place among all, applications first), and whether the word is a bare name.
    owners: Vec<(usize, bool)>,
}

static MARKS: LazyLock<Marks> = LazyLock::new(|| {
    let (owners, words): (Vec<(usize, bool)>, Vec<Cow<'static, str>>) = all()
        .enumerate()
        .flat_map(|(owner, program)| program.marks.iter().flat_map(move |mark| spellings(owner, mark)))
        .unzip();
    Marks { words: WordSet::new(words), owners }
});

/// A mark as Linux, Windows and an escaped string on Windows write it.
fn spellings(owner: usize, mark: &'static str) -> Vec<((usize, bool), Cow<'static, str>)> {
    let key = (owner, mark.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    let mut spellings = vec![(key, Cow::Borrowed(mark))];
    if mark.contains('/') {
        spellings.push((key, Cow::Owned(mark.replace('/', "\\"))));
        spellings.push((key, Cow::Owned(mark.replace('/', "\\\\"))));
    }
    spellings
}

/// How much a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strength {
    /// The program runs.
    Strong,
    /// A sentence mentions it.
    Weak,
    /// It is part of another name, or what the text says about it is that it is not the one.
    Nothing,
}

/// The directory of a Python environment, or its name before a prompt: people call environments after any program.
static ENVIRONMENT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:\benvs[/\\]{1,2}|\.?venvs?[/\\]{1,2}|virtualenvs[/\\]{1,2}|^ *\()[\w.-]*$")
});
/// The end of a path to weights or data, which can be in any program's directory.
static DATA_FILE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^[^\s\x22']*\.(?:gguf|ggml|safetensors|ckpt|pth?|onnx|npz|bin|h5|mp4|png|jpe?g|wav|csv|parquet|json)\b",
    )
});

/// Whether a mark at this offset is only the name of an environment.
fn is_environment(part: &str, start: usize, end: usize) -> bool {
    let left = line_before(part, start);
    if !ENVIRONMENT.is_match(left) {
        return false;
    }
    // "(name) user@host:~$" is a prompt, "(name) failed" is a sentence.
    let name = part[end..].find(|next: char| !(next.is_alphanumeric() || "._-".contains(next)));
    let closing = name.map_or("", |behind| &part[end + behind..]);
    !left.trim_start().starts_with('(') || closing.starts_with(") ") || closing.starts_with(")\n")
}

/// Words before a name that make it another program than the failing one.
static CONTRAST_BEFORE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)\b(?:unlike|instead of|compared (?:to|with)|than|similar to|alternatives? to|as in|(?:works?|worked|runs?|ran|fine|okay?)(?: \w+){0,2} (?:in|with|on|using|under)|nor|not (?:in|with|on|using))(?: the)? *[`"'(*]*$"#,
    )
});
/// Words behind it that do the same: "works", or "data set", whose format other programs read.
static CONTRAST_BEHIND: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)^[`"')*]* *(?:itself )?(?:(?:does|do|did)(?: not|n't) (?:fail|crash|have|show|run out|exhibit)|works|worked|runs? (?:fine|well)|has no (?:such|problem|issue)|handles|is fine|data ?sets?|format|scenes?)\b"#,
    )
});

/// What a bare name at these offsets says.
fn strength(part: &str, start: usize, end: usize) -> Strength {
    let bytes = part.as_bytes();
    let before = start.checked_sub(1).map_or(b'\n', |place| bytes[place]);
    let behind = bytes.get(end).copied().unwrap_or(b'\n');
    // A script that is called run_NAME.sh, a model that is called my-NAME.
    if matches!(before, b'_' | b'-') && !part[start..end].contains('-') {
        return Strength::Nothing;
    }
    // A longer word is another name, unless only a version follows.
    let is_longer = behind.is_ascii_lowercase()
        && !(matches!(behind, b'v' | b'V') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit));
    if is_longer && !part[start..end].ends_with('-') {
        return Strength::Nothing;
    }
    let left = line_before(part, start);
    let right = line_behind(part, end);
    if DATA_FILE.is_match(right) && matches!(behind, b'/' | b'\\') {
        return Strength::Weak;
    }
    if CONTRAST_BEFORE.is_match(left) || CONTRAST_BEHIND.is_match(right) {
        return Strength::Nothing;
    }
    let token = left.rsplit(char::is_whitespace).next().unwrap_or("");
    if token.contains("://") || token.contains("www.") {
        return Strength::Weak;
    }
    let is_path = matches!(before, b'/' | b'\\') && behind != b'_' || matches!(behind, b'/' | b'\\');
    let next = bytes.get(end + 1).copied().unwrap_or(b'\n');
    let is_module = behind == b'.' && (next.is_ascii_alphanumeric() || next == b'_')
        || matches!((behind, next), (b'=', b'=') | (b':', b':'));
    let is_prefix = matches!(behind, b']' | b':' | b'(');
    let prompt = left.trim_start_matches(['$', '#', '>', ' ', '`']);
    let is_command = prompt.is_empty() && (left.contains(['$', '>']) || right.contains(" -"))
        || ["python -m", "python3 -m", "pip install", "pip3 install"]
            .iter()
            .any(|command| left.trim_end().ends_with(command));
    if is_path || is_module || is_prefix || is_command { Strength::Strong } else { Strength::Weak }
}

/// The line before an offset, as far as it matters.
fn line_before(part: &str, offset: usize) -> &str {
    let from = boundaries::ceil(part, offset.saturating_sub(NEIGHBORHOOD));
    part[from..offset].rsplit('\n').next().unwrap_or("")
}

/// The line behind an offset, as far as it matters.
fn line_behind(part: &str, offset: usize) -> &str {
    let to = boundaries::floor(part, offset + NEIGHBORHOOD);
    part[offset..to].split('\n').next().unwrap_or("")
}

/// The places of the first application and of the first library that a text has a mark of.
pub(super) fn marked(text: Searched<'_>) -> (Option<usize>, Option<usize>) {
    let applications = listed(APPLICATIONS).count();
    let trainers = listed(BEFORE_TRAINERS).count();
    let (mut application, mut library, mut written_about) = (None, None, None);
    let mut environment = None;
    let keep_first = |first: &mut Option<usize>, owner: usize| {
        *first = Some(first.map_or(owner, |known: usize| known.min(owner)));
    };
    for part in text.parts() {
        for found in MARKS.words.occurrences(part) {
            // A mark inside a longer word is not one.
            if found.start > 0 && part.as_bytes()[found.start - 1].is_ascii_alphabetic() {
                continue;
            }
            let (owner, is_name) = MARKS.owners[found.word];
            if is_environment(part, found.start, found.end) {
                keep_first(&mut environment, owner);
                continue;
            }
            if owner >= applications {
                keep_first(&mut library, owner);
                continue;
            }
            // What can no longer change the result needs no look.
            if application.is_some_and(|known| known <= owner) {
                continue;
            }
            match if is_name { strength(part, found.start, found.end) } else { Strength::Strong } {
                Strength::Strong => keep_first(&mut application, owner),
                Strength::Weak => keep_first(&mut written_about, owner),
                Strength::Nothing => {}
            }
        }
    }
    let has_traceback = || text.any(|part| part.contains("site-packages") || part.contains("  File \""));
    // The name of an environment says more than a library that many programs train with.
    let environment = environment.filter(|&owner: &usize| owner < applications);
    let application = match application {
        Some(owner) if owner < trainers => Some(owner),
        trainer => environment.or(trainer).or_else(|| written_about.filter(|_| !has_traceback())),
    };
    (application, library)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(text: &str) -> Option<&'static str> {
        let place = marked(text.into()).0?;
        all().nth(place).map(|program| program.name)
    }

    #[test]
    fn a_name_that_is_part_of_another_is_no_mark() {
        assert_eq!(application("bash scripts/prepare_colmap.sh"), None);
        assert_eq!(application("loading my-demucs"), None);
    }

    #[test]
    fn a_program_that_does_not_fail_is_not_the_one() {
        assert_eq!(application("the same picture works fine in ComfyUI"), None);
        assert_eq!(application("ComfyUI does not fail with this model"), None);
        assert_eq!(application("unlike Fooocus it stops here"), None);
    }

    #[test]
    fn a_sentence_counts_where_nothing_shows_what_runs() {
        assert_eq!(application("Blender stops with out of memory"), Some("Blender"));
        let traceback = "I export to Blender later\n  File \"train.py\", line 3, in <module>";
        assert_eq!(application(traceback), None);
        let path = "  File \"/opt/ComfyUI/execution.py\", line 3, in <module>";
        assert_eq!(application(path), Some("ComfyUI"));
        assert_eq!(application("see https://example.org/demucs/1\n  File \"a.py\", line 1"), None);
    }

    #[test]
    fn what_runs_outranks_what_is_written_about() {
        assert_eq!(application("I have Blender too\n$ hashcat -m 1000 hashes"), Some("hashcat"));
    }
}
