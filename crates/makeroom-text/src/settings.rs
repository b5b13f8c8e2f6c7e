//! Options that a text shows to be set already, wherever they stand: on the command line, in a configuration
//! that the program printed, in an exported variable. Advice must not repeat them.
//!
//! Advice itself ("try setting X=…", "Use X=… to disable") names options too and sets none, so a value counts
//! only where no such words precede it.

use std::sync::LazyLock;

use makeroom_search::{Regex, find_folded, pattern};
use memchr::memmem;

use crate::boundaries;
use crate::searched::Searched;

/// The options that a text shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'log> {
    text: Searched<'log>,
}

/// An option with a number, as a text writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shown<'log> {
    dashes: &'log str,
    name: &'log str,
    separator: &'static str,
    pub(crate) value: f64,
}

impl Shown<'_> {
    /// The option with another value.
    pub(crate) fn with(&self, value: u64) -> String {
        format!("{}{}{}{value}", self.dashes, self.name, self.separator)
    }
}

/// PyTorch's setting for expandable segments.
pub(crate) const EXPANDABLE: &str = "expandable_segments:True";

/// Characters that quote a name or a value.
const QUOTES: [char; 4] = ['"', '\'', '`', ']'];

/// Words that make an option a suggestion, at the end of the text before it.
static SUGGESTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)(?:\btry(?:ing)?(?: to)?(?: (?:set|setting|use|using|increas\w+|decreas\w+|reduc\w+|lower\w*|rais\w+|add\w*|pass\w*|with))?|\b(?:consider|recommend|suggest)\w*(?: \w+){0,3}|\brerunning with|\bmaybe the environment variable|\be\.g\.,?|\bfor example|\blike|\bset(?:ting)?|\buse|\byou can|\bshould|\bplease \w+|\bor|\bincreas(?:e|ing)|\bdecreas(?:e|ing)|\breduc(?:e|ing)|\blower(?:ing)?)(?: the)? *[`'"(*-]*$"#,
    )
});
/// Words that make "set" a report: the option has the value.
static DONE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:have|has|had|i|we|was|been|already|'ve)(?: \w+)? (?:set|use|used)(?: the)? *[`'\x22(*-]*$",
    )
});
/// Before an option this much is looked at for such words.
const LONGEST_SUGGESTION: usize = 48;

impl<'log> Settings<'log> {
    /// The settings of a text.
    pub(crate) fn new(text: impl Into<Searched<'log>>) -> Self {
        Self { text: text.into() }
    }

    /// The value of an option under any of its names; `-` and `_` are the same, case is ignored. Write a short
    /// option with its dash (`-ngl`), so that it is not found inside words.
    pub(crate) fn value(&self, names: &[&str]) -> Option<&'log str> {
        names.iter().find_map(|name| self.uses(name).find_map(value_after))
    }

    /// A numeric option.
    pub(crate) fn number(&self, names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| self.uses(name).find_map(|rest| numeric(value_after(rest)?)))
    }

    /// A numeric option as the text writes it, so that advice can repeat the spelling with another value.
    pub(crate) fn shown(&self, names: &[&str]) -> Option<Shown<'log>> {
        names.iter().find_map(|name| {
            self.found(name).find_map(|(before, name, rest)| {
                let value = numeric(value_after(rest)?)?;
                let dashes = before.len() - before.trim_end_matches('-').len();
                let separator = match rest.trim_start_matches(QUOTES).trim_start().chars().next() {
                    Some('=' | '(') => "=",
                    Some(':') => ": ",
                    _ => " ",
                };
                Some(Shown { dashes: &before[before.len() - dashes..], name, separator, value })
            })
        })
    }

    /// Whether a switch is on: a flag on a command line, or an option set to a value that means yes.
    pub(crate) fn is_on(&self, names: &[&str]) -> bool {
        const YES: [&str; 5] = ["true", "1", "yes", "on", "enabled"];
        names.iter().any(|name| {
            self.uses(name).any(|rest| {
                let is_flag = name.starts_with('-')
                    && rest.chars().next().is_none_or(|next| next.is_whitespace() || "`'\",]".contains(next));
                let is_yes = || {
                    value_after(rest)
                        .is_some_and(|value| YES.iter().any(|yes| value.eq_ignore_ascii_case(yes)))
                };
                is_flag || is_yes()
            })
        })
    }

    /// Whether PyTorch's allocator was configured with a setting: exported, put before a command, or shown as a value.
    /// Advice to set it, PyTorch's own above all, does not count. The whole text is searched: a launcher can print its
    /// environment anywhere.
    pub(crate) fn configures_allocator(&self, setting: &str) -> bool {
        let text = self.text.whole();
        let mut read = 0;
        memmem::find_iter(text.as_bytes(), "ALLOC_CONF").any(|variable| {
            if variable < read {
                return false;
            }
            let start = text[..variable].rfind('\n').map_or(0, |end| end + 1);
            let line = text[start..].split('\n').next().unwrap_or("");
            read = start + line.len();
            let above = || text[..start].trim_end().rsplit('\n').next().unwrap_or("");
            find_folded(line, setting).any(|setting| configures(&line[..setting], above))
        })
    }

    /// The text itself, as far as it is searched.
    pub(crate) fn parts(&self) -> [&'log str; 2] {
        self.text.parts()
    }

    /// Whether the text contains words, in any case.
    pub(crate) fn mentions(&self, words: &str) -> bool {
        self.text.contains(words)
    }

    /// The text behind each use of an option that is not a suggestion.
    fn uses(&self, name: &str) -> impl Iterator<Item = &'log str> {
        self.found(name).map(|(_, _, rest)| rest)
    }

    /// The text before each use of an option that is not a suggestion, the option's name, and the text behind it.
    fn found(&self, name: &str) -> impl Iterator<Item = (&'log str, &'log str, &'log str)> {
        let is_short = name.starts_with('-') && !name.starts_with("--");
        let word = name.trim_start_matches('-').to_owned();
        self.text.parts().into_iter().flat_map(move |part| {
            let found: Vec<_> = find_folded(part, &word)
                .filter(|&start| is_option(&part[..start], is_short) && !is_suggested(&part[..start]))
                .map(|start| (&part[..start], &part[start..start + word.len()], &part[start + word.len()..]))
                .filter(|(_, _, rest)| {
                    !rest.starts_with(|next: char| next.is_alphanumeric() || "_-".contains(next))
                })
                .collect();
            found
        })
    }
}

/// Whether the text before a name lets it be an option: nothing of a word, or the dashes of a command line.
fn is_option(before: &str, is_short: bool) -> bool {
    let without_dashes = before.trim_end_matches('-');
    let dashes = before.len() - without_dashes.len();
    let stands_alone = !without_dashes.ends_with(|last: char| last.is_alphanumeric() || last == '_');
    stands_alone && dashes <= 2 && (!is_short || dashes >= 1)
}

/// Whether the words before an option only suggest it.
pub(crate) fn is_suggested(before: &str) -> bool {
    let from = boundaries::ceil(before, before.len().saturating_sub(LONGEST_SUGGESTION));
    let words = before[from..].trim_end_matches(['`', '\'', '"', '(', '-']);
    let line = words.rsplit('\n').next().unwrap_or("");
    SUGGESTION.is_match(line) && !DONE.is_match(line)
}

/// Whether the words before a setting of PyTorch's allocator, on its line and above it, set it.
fn configures<'text>(before: &'text str, above: impl Fn() -> &'text str) -> bool {
    let Some(variable) = before.rfind("ALLOC_CONF") else { return false };
    let variable = before[..variable].rfind("PYTORCH").unwrap_or(variable);
    // A terminal may have wrapped the advice before the variable.
    let words = if before[..variable].trim().is_empty() { above() } else { &before[..variable] };
    !is_suggested(words) && !before.contains("try setting")
}

/// A number, also with the K or M that people write for thousands and millions, or in GB.
fn numeric(value: &str) -> Option<f64> {
    let scaled = |digits: &str, factor: f64| digits.parse::<f64>().ok().map(|number| number * factor);
    value.parse().ok().or_else(|| match value.strip_suffix(['K', 'k']) {
        Some(digits) => scaled(digits, 1e3),
        None if value.to_ascii_uppercase().ends_with("GB") => scaled(&value[..value.len() - 2], 1.0),
        None => scaled(value.strip_suffix('M')?, 1e6),
    })
}

/// The value behind an option's name: after `=`, `:`, white space or an opening parenthesis.
fn value_after(rest: &str) -> Option<&str> {
    let unquoted = rest.trim_start_matches(QUOTES);
    let trimmed = unquoted.trim_start();
    let has_space = trimmed.len() < unquoted.len();
    let value = match trimmed.strip_prefix(['=', ':', '(']) {
        Some(value) => value.trim_start(),
        None if has_space => trimmed,
        None => return None,
    };
    let value = value.trim_start_matches(QUOTES);
    let end = value
        .find(|next: char| !(next.is_ascii_alphanumeric() || "_.+/-".contains(next)))
        .unwrap_or(value.len());
    Some(value[..end].trim_end_matches('.')).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings<'_> {
        Settings::new(text)
    }

    #[test]
    fn values_are_read_wherever_they_are_set() {
        for text in [
            "vllm serve model --gpu-memory-utilization 0.85 --dtype half",
            "vllm serve --gpu-memory-utilization=0.85",
            "LLM(model='x', gpu_memory_utilization=0.85)",
            "'gpu_memory_utilization': 0.85,",
            "total_gpu_memory (8.00GiB) x gpu_memory_utilization (0.85) = 6.80GiB",
            "gpu_memory_utilization: 0.85",
        ] {
            assert_eq!(settings(text).number(&["gpu_memory_utilization"]), Some(0.85), "{text}");
        }
        assert_eq!(
            settings("llama-server -m m.gguf -ngl 99 -c 32768").number(&["-ngl", "--n-gpu-layers"]),
            Some(99.0)
        );
    }

    #[test]
    fn an_option_is_repeated_as_it_is_written() {
        for (text, with) in [
            ("python train.py --batch-size 32 --lr 1e-3", "--batch-size 8"),
            ("Namespace(batch_size=32, lr=0.001)", "batch_size=8"),
            ("  batch_size: 32", "batch_size: 8"),
            ("{\"batch_size\": 32}", "batch_size: 8"),
        ] {
            let shown = settings(text).shown(&["batch_size"]).unwrap();
            assert_eq!((shown.value, shown.with(8).as_str()), (32.0, with), "{text}");
        }
        assert_eq!(settings("try reducing batch_size=4").shown(&["batch_size"]), None);
    }

    #[test]
    fn thousands_and_millions() {
        assert_eq!(settings("batch_bins 450K").number(&["batch_bins"]), Some(450_000.0));
        assert_eq!(settings("--max-tokens=2M").number(&["--max-tokens"]), Some(2e6));
        assert_eq!(settings("--model K").number(&["--model"]), None);
    }

    #[test]
    fn advice_sets_nothing() {
        for text in [
            "Try increasing `gpu_memory_utilization` when initializing the engine.",
            "try setting gpu_memory_utilization=0.95",
            "Use gpu_memory_utilization=0.5 to leave room",
            "you can lower --gpu-memory-utilization 0.8",
            "maybe the environment variable 'gpu_memory_utilization=0.5' will improve the situation",
        ] {
            assert_eq!(settings(text).number(&["gpu_memory_utilization"]), None, "{text}");
        }
    }

    #[test]
    fn what_was_set_already_is_no_advice() {
        for text in ["I have set the samples_per_gpu = 3", "we already set samples_per_gpu=3"] {
            assert_eq!(settings(text).number(&["samples_per_gpu"]), Some(3.0), "{text}");
        }
        assert_eq!(settings("set the samples_per_gpu = 3").number(&["samples_per_gpu"]), None);
    }

    #[test]
    fn switches() {
        assert!(
            settings("accelerate launch t.py --gradient_checkpointing --fp16")
                .is_on(&["--gradient_checkpointing"])
        );
        assert!(settings("gradient_checkpointing: true").is_on(&["gradient_checkpointing"]));
        assert!(!settings("gradient_checkpointing=False").is_on(&["gradient_checkpointing"]));
        assert!(settings("python main.py --lowvram").is_on(&["--lowvram"]));
        assert!(!settings("python main.py --lowvram-mode").is_on(&["--lowvram"]));
    }
}
