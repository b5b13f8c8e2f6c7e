//! Options that a text shows to be set already, wherever they stand: on the command line, in a configuration
//! that the program printed, in an exported variable. Advice must not repeat them.
//!
//! Advice itself ("try setting X=…", "Use X=… to disable") names options too and sets none, so a value counts
//! only where no such words stand before it.

use std::sync::LazyLock;

use regex::Regex;

use super::figures::pattern;

/// Settings are looked for in this much of a text.
const LONGEST_SEARCHED: usize = 8 << 20;

/// The options that a text shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'log> {
    text: &'log str,
}

/// Words that make an option a suggestion, at the end of what stands before it.
static SUGGESTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)(?:\btry(?:ing)?(?: to)?(?: (?:set|setting|use|using|increas\w+|decreas\w+|reduc\w+|lower\w*|rais\w+|add\w*|pass\w*|with))?|\b(?:consider|recommend|suggest)\w*(?: \w+){0,3}|\be\.g\.,?|\bfor example|\blike|\bset(?:ting)?|\buse|\byou can|\bshould|\bplease \w+|\bor|\bincreas(?:e|ing)|\bdecreas(?:e|ing)|\breduc(?:e|ing)|\blower(?:ing)?)(?: the)? *[`'"(*-]*$"#,
    )
});

impl<'log> Settings<'log> {
    /// The settings of a text.
    pub(crate) fn new(text: &'log str) -> Self {
        Self { text: super::log::clipped(text, LONGEST_SEARCHED) }
    }

    /// The value of an option under any of its names; `-` and `_` are the same, case is ignored. Write a short
    /// option with its dash (`-ngl`), so that it is not found inside words.
    pub(crate) fn value(&self, names: &[&str]) -> Option<&'log str> {
        names.iter().find_map(|name| self.find(name, r#"["'`]?\]?(?: *[=:] *|\s+|\s*\(\s*)["'`]?(?P<value>-?[\w.+/]+)"#))
    }

    /// A numeric option.
    pub(crate) fn number(&self, names: &[&str]) -> Option<f64> {
        let pattern = r#"["'`]?\]?(?: *[=:] *|\s+|\s*\(\s*)["'`]?(?P<value>-?\d+(?:\.\d+)?)\b"#;
        names.iter().find_map(|name| self.find(name, pattern)?.parse().ok())
    }

    /// Whether a switch is on: a flag on a command line, or an option set to a value that means yes.
    pub(crate) fn is_on(&self, names: &[&str]) -> bool {
        names.iter().any(|name| {
            let flag = name.starts_with('-') && self.find(name, r"(?P<value>)(?:\s|$|[`'\x22,\]])").is_some();
            let yes = self.find(name, r#"["'`]?\]?(?: *[=:] *|\s+)["'`]?(?P<value>\w+)"#);
            flag || yes.is_some_and(|value| {
                matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on" | "enabled")
            })
        })
    }

    /// The text itself, as far as it is searched.
    pub(crate) fn text(&self) -> &'log str {
        self.text
    }

    /// Whether the text contains words, in any case.
    pub(crate) fn mentions(&self, words: &str) -> bool {
        contains_ignoring_case(self.text, words)
    }

    /// What `rest` captures behind an option's name, first where it is not a suggestion.
    fn find(&self, name: &str, rest: &str) -> Option<&'log str> {
        let escaped = regex::escape(name.trim_start_matches('-')).replace(['_'], "[-_]").replace(r"\-", "[-_]");
        let dashes = if name.starts_with('-') { "--?" } else { r"(?:--)?" };
        let option = pattern(&format!(r"(?i)(?:^|[^\w-]){dashes}{escaped}{rest}"));
        option.captures_iter(self.text).find_map(|found| {
            let start = found.get(0)?.start();
            let mut from = start.saturating_sub(48);
            while !self.text.is_char_boundary(from) {
                from += 1;
            }
            // What stands before the name; the character that the pattern took may be a space or a quote.
            let mut end = start + 1;
            while !self.text.is_char_boundary(end) {
                end += 1;
            }
            let before = self.text[from..end.min(self.text.len())].trim_end_matches(|c: char| "`'\"(-".contains(c));
            let line = before.rsplit('\n').next().unwrap_or("");
            let value = found.name("value")?.as_str();
            (!SUGGESTION.is_match(line)).then_some(value.trim_end_matches('.'))
        })
    }
}

/// Whether `text` contains `words`, in any case.
pub(crate) fn contains_ignoring_case(text: &str, words: &str) -> bool {
    let (text, words) = (text.as_bytes(), words.as_bytes());
    let Some(&first) = words.first() else { return true };
    let last = text.len().saturating_sub(words.len());
    text.len() >= words.len()
        && (0..=last).any(|start| {
            text[start].eq_ignore_ascii_case(&first)
                && text[start..start + words.len()].eq_ignore_ascii_case(words)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(Settings::new(text).number(&["gpu_memory_utilization"]), Some(0.85), "{text}");
        }
        assert_eq!(Settings::new("llama-server -m m.gguf -ngl 99 -c 32768").number(&["-ngl", "--n-gpu-layers"]), Some(99.0));
    }

    #[test]
    fn advice_sets_nothing() {
        for text in [
            "Try increasing `gpu_memory_utilization` when initializing the engine.",
            "try setting gpu_memory_utilization=0.95",
            "Use gpu_memory_utilization=0.5 to leave room",
            "you can lower --gpu-memory-utilization 0.8",
        ] {
            assert_eq!(Settings::new(text).number(&["gpu_memory_utilization"]), None, "{text}");
        }
    }

    #[test]
    fn switches() {
        assert!(Settings::new("accelerate launch t.py --gradient_checkpointing --fp16").is_on(&["--gradient_checkpointing"]));
        assert!(Settings::new("gradient_checkpointing: true").is_on(&["gradient_checkpointing"]));
        assert!(!Settings::new("gradient_checkpointing=False").is_on(&["gradient_checkpointing"]));
        assert!(Settings::new("python main.py --lowvram").is_on(&["--lowvram"]));
        assert!(!Settings::new("python main.py --lowvram-mode").is_on(&["--lowvram"]));
    }
}
