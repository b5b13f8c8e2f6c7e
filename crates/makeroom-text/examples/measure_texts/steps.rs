//! Which steps of an answer can be carried out as printed: a setting and its value, not a direction.
//!
//! "Reduce the batch size" is a direction. `batch_size=8`, `--lowvram`, `resources.limits.memory: 24Gi`,
//! `setMemoryPoolLimit(kWORKSPACE, 1ULL << 30)` and `kill 4711` are steps. Commands that only look (`nvidia-smi`,
//! `clinfo`) and values that the reader has to fill in (`kill PID`, `batch_size //= 2`) do not count, nor do steps
//! that any program could be given (another GPU, swap) where the cause does not call for them.

use std::sync::LazyLock;

use makeroom_explain::{Cause, Explanation, Fix};
use regex::Regex;

/// What the steps of one answer have.
#[derive(Clone, Copy, Default)]
pub(crate) struct Steps {
    pub(crate) any: bool,
    pub(crate) concrete: bool,
    pub(crate) computed: bool,
}

/// Commands that show something and change nothing, and values left to the reader.
static OPEN: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^(?:sudo )?(?:nvidia-smi|makeroom|rocm-smi|xpu-smi|clinfo|free|dmesg|fuser|tegrastats|sacct|vulkaninfo|memory_pressure|ls|ps|top|print)\b|//=|/= ?2|\bPID\b|\bBYTES\b|\bNUMBER_OF_\w+|\bGPUS_PER_NODE|\bJOBID\b",
    )
});
/// Steps that any program could be given: they count only where other processes or the machine's memory are the
/// decided cause.
static GENERIC: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^(?:export |set )?(?:CUDA|HIP)_VISIBLE_DEVICES=|^with torch\.inference_mode\(\): …|^torch\.cuda\.empty_cache\(\)$|x\.split\(1\)|/swapfile|^print\(",
    )
});
/// A setting with its value: an assignment, an option, a call with an argument, a process to stop, a menu entry.
static VALUE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?x)
        [A-Za-z_][\w.\-\]\)"']*\ ?[=:]\ ?["'(\[{]?[\w.+/-]
      | (?:^|[\s(`])--?[A-Za-z][\w-]*
      | \b\w+\([^()…]*[\w"'][^()]*\)
      | \bkill\ \d+
      | \b[A-Z_]{4,}:\w
      | \ >\ \w
      | ^[\w.-]+\ [\d.]+\w*$
      | ^[a-z_]+\ [a-z_]+\ \d
      | ^/set\ parameter
      | ^[+-]\w+
        "#,
    )
});
/// A value in the sentence of a step without a command.
static IN_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"\b(?:from|now|instead of) [\d.]+|\bto (?:at most |about )?\d|\d+ (?:chunks|parts)|\bat most \d|: \d",
    )
});
static NUMBER: LazyLock<Regex> = LazyLock::new(|| regex(r"\d+(?:\.\d+)?"));
static FROM: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(?:from|now|instead of) (\d+)"));

#[allow(clippy::unwrap_used, reason = "the patterns are constants")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// Whether memory ran out in a text, as far as the answer says.
pub(crate) fn is_recognized(explanation: &Explanation) -> bool {
    explanation.verdict.cause != Cause::None
}

/// Looks at all steps of an answer to a text.
pub(crate) fn steps_of(explanation: &Explanation, text: &str) -> Steps {
    let mut steps = Steps::default();
    let is_about_machine =
        matches!(explanation.verdict.cause, Cause::OtherProcesses | Cause::HiddenHolder | Cause::HostMemory);
    for fix in explanation.causes.iter().flat_map(|finding| &finding.fixes) {
        let is_generic = fix.command.as_deref().is_some_and(|command| GENERIC.is_match(command))
            && !fix.action.contains("which has");
        let is_step = is_concrete(fix) && (is_about_machine || !is_generic);
        steps.any = true;
        steps.concrete |= is_step;
        steps.computed |= is_step && is_computed(fix, text);
    }
    steps
}

fn is_concrete(fix: &Fix) -> bool {
    match fix.command.as_deref() {
        Some(command) => !OPEN.is_match(command) && VALUE.is_match(command),
        None => IN_WORDS.is_match(&fix.action),
    }
}

/// Whether a step uses a figure of the text: the present value, a process number, an amount that it frees.
fn is_computed(fix: &Fix, text: &str) -> bool {
    let line = format!("{} {}", fix.action, fix.command.as_deref().unwrap_or(""));
    let is_in_text = |number: &str| number.len() >= 3 && text.contains(number);
    fix.frees.is_some()
        || FROM.is_match(&line)
        || line.contains(" must be freed")
        || NUMBER.find_iter(&line).any(|number| is_in_text(number.as_str()))
}
