//! Failures that a person tells without any error line: jobs that fail because processes of other ranks crowd one GPU.
//!
//! Such reports have no words of a program, so no format finds them. Both halves must be told: the processes, and that
//! the job failed. Documents and wishes are left out by [`super::discussion`] and [`super::document`].

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty, Fix};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource, Statement};
use crate::find::is_patch;
use crate::log::Log;

/// A report stands in the first lines of a text.
const LINES_SEARCHED: usize = 100;
/// Longer lines were not typed by a person.
const LONGEST_LINE: usize = 4096;

/// Several processes on a GPU that is not their own, in a person's words.
static CROWDED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \b(?:gpu|cuda|device|rank|card) [\s:]? 0 \b .{0,40} \b(?:\d+|several|many|seven|extra|additional|other|all) \s (?:\w+ \s){0,2}? process(?:es)?\b
      | \b(?:\d+|several|many|seven|extra|additional|all) \s (?:extra \s | additional \s | other \s)? (?:\w+ \s)? process(?:es)?\b .{0,60} \b(?:on|onto|in) \s (?:the \s)? (?:same \s | first \s)? (?:gpu|cuda|device|card) (?:[\s:]? 0)?\b
        ",
    )
});
/// Words for memory that such processes use.
static MEMORY: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bmemory\b|\bvram\b|\d ?[MG]i?B\b"));
/// The job failed.
static FAILED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \b(?:caus(?:es|ed|ing)|mak(?:es|ing)|made|lets?) \s (?:our|my|the|all|every) \s (?:\w+ \s){0,3}? (?:to \s)? (?:fail|crash|die|abort)\b
      | \b(?:our|my|the|all|these|every) \s (?:\w+ \s){0,3}? (?:jobs?|runs?|training|ranks?|process(?:es)?|workers?) \s (?:\w+ \s)? (?:fail(?:s|ed)?|crash(?:es|ed)?|die[sd]?|abort(?:s|ed)?)\b
        ",
    )
});
/// Nothing of it happened here.
static NO_REPORT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:if|would|could|might|may|no longer|fix(?:es|ed)|avoids?|prevents?|used to)\b")
});

/// The report of a person that other processes on the GPU made the job fail: its line and what it says.
pub(crate) fn find(log: &Log) -> Option<(usize, Facts)> {
    if is_patch(log) {
        return None;
    }
    let lines = || {
        (0..log.len().min(LINES_SEARCHED))
            .map(|index| (index, log.line(index)))
            .filter(|(_, line)| line.len() <= LONGEST_LINE)
    };
    lines().find(|(_, line)| FAILED.is_match(line) && !NO_REPORT.is_match(line))?;
    let (index, _) = lines().find(|(_, line)| CROWDED.is_match(line) && MEMORY.is_match(line))?;
    let mut facts = Facts::new(Framework::Unknown, Resource::Device, &log.passage(index));
    let stated = Statement::new(
        Cause::OtherProcesses,
        Certainty::Likely,
        "The log says that other processes hold memory on the same GPU: these are ranks of the job that opened it in addition to their own.",
    );
    facts.statements.push(stated.mended_by(vec![
            Fix::new("choose each rank's GPU before anything else uses CUDA")
                .command("torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))"),
            Fix::new("bind the process group to that GPU, so that collectives do not open another one").command(
                "init_process_group(\"cpu:gloo,cuda:nccl\", device_id=torch.device(\"cuda\", local_rank))",
            ),
        ]));
    Some((index, facts))
}
