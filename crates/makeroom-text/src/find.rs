//! Finds the failures in a log.
//!
//! One pass over the text with all anchors at once; then only the passages around hits are read. Of several
//! readings of one failure the one that knows most is kept. The first failure decides; the rest are counted.

use std::borrow::Cow;
use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Occurrence, WordSet, counts_at};

use crate::discussion::{is_discussion, is_request};
use crate::document::{self, Document};
use crate::facts::{Facts, Severity};
use crate::family::{FAMILIES, LAST_RESORTS};
use crate::job::FailureAt;
use crate::lines::{
    LineKind, crashes_at_once, ends_in_error, is_crash_reported, is_handled, kind, kind_of_known,
    progress_between,
};
use crate::log::Log;
use crate::other_failure;
use crate::site::source_line;

/// A log can hold millions of failures (a retry loop); this many are read, the others are only counted.
const MOST_READ: usize = 400;
/// A family that has read this many tables or warnings in a log is asked no more: a run that logs its memory use
/// would otherwise hide its own failure.
const MOST_OBSERVATIONS: usize = 8;
/// A family that found nothing behind this many of its anchors is asked no more.
const MOST_FRUITLESS: usize = 300;
/// Readings this near to the first failure, in lines, are about the same failure: a traceback repeats its error,
/// and a runtime prints its own line above the framework's.
pub(super) const SAME_FAILURE_LINES: usize = 40;

/// What a log holds.
pub(crate) struct Found {
    /// The failure that decides.
    pub(crate) first: Facts,
    /// Its line in the cleaned log.
    pub(crate) index: usize,
    /// How many further failures follow.
    pub(crate) later: usize,
    /// The failure is only mentioned in a sentence, not printed by a program.
    pub(crate) is_prose: bool,
    /// The failure is quoted in a document.
    pub(crate) document: Option<Document>,
    /// The line in the input of an earlier failure that the program survived.
    pub(crate) survived: Option<usize>,
    /// A process table near the failure that shows what holds the memory.
    pub(crate) holders: Option<Facts>,
    /// Where all failures stand, the deciding one included.
    pub(crate) failures: Vec<FailureAt>,
}

struct Anchors {
    words: WordSet,
    /// The family of each word.
    families: Vec<usize>,
}

static ANCHORS: LazyLock<Anchors> = LazyLock::new(|| {
    let pairs = FAMILIES.iter().enumerate();
    let (families, words): (Vec<usize>, Vec<Cow<'static, str>>) = pairs
        .flat_map(|(index, family)| family.anchors.iter().map(move |anchor| (index, Cow::Borrowed(*anchor))))
        .unzip();
    Anchors { words: WordSet::new(words), families }
});

/// A reading: the line, the family, what it read.
type Reading = (usize, usize, Facts);

/// A patch says so in its first lines.
const PATCH_LINES: usize = 200;
/// Steps of a run behind a failure that show that the program survived it.
const STEPS_SURVIVED: usize = 3;

/// The failure that decides, and how many follow: the first that a program printed and did not survive.
pub(crate) fn failures(log: &Log) -> Option<Found> {
    let (mut readings, unread) = readings(log);
    weigh(log, &mut readings);
    drop_titles(log, &mut readings);
    let survived = survived(log, &readings);
    let is_discussion = is_discussion(log);
    let documents = documents(log, &readings);
    let document = |line: usize| documents.iter().find(|(at, _)| *at == line).map(|&(_, document)| document);
    let is_prose = |(line, family, facts): &Reading| {
        if is_discussion || document(*line).is_some() {
            return true;
        }
        let line = log.line(*line);
        let is_decided = !facts.statements.is_empty();
        let kind = if is_last_resort(*family) { kind(line) } else { kind_of_known(line, is_decided) };
        kind == LineKind::Prose
    };
    let by_program = |severity: Severity, wants_prose: bool| {
        readings.iter().enumerate().position(|(index, reading)| {
            reading.2.severity == severity
                && is_prose(reading) == wants_prose
                && survived.is_none_or(|last| index > last)
        })
    };
    let deciding = [
        (Severity::Failure, false),
        (Severity::Warning, false),
        (Severity::Failure, true),
        (Severity::Observation, false),
        (Severity::Observation, true),
        (Severity::Warning, true),
    ]
    .into_iter()
    .find_map(|(severity, is_prose)| by_program(severity, is_prose))?;
    // A person's figures are rounded or about something else: the message's own outrank them.
    let deciding = readings
        .iter()
        .position(|reading| {
            outranks(reading, &readings[deciding])
                && !is_prose(reading)
                && is_near(reading.0, readings[deciding].0)
        })
        .unwrap_or(deciding);
    let is_deciding_prose = is_prose(&readings[deciding]);
    let (first_line, _, first) = &readings[deciding];
    // Only a reading of the same failure may replace the first: one that is more specific and knows more.
    let best = readings
        .iter()
        .enumerate()
        .filter(|(_, reading)| is_near(reading.0, *first_line) && reading.2.severity == first.severity)
        .filter(|(index, reading)| {
            is_prose(reading) == is_deciding_prose && survived.is_none_or(|last| *index > last)
        })
        .filter(|(_, (_, _, facts))| !contradicts(first, facts))
        .max_by_key(|(index, (_, family, facts))| (facts.weight(), usize::MAX - family, usize::MAX - index))
        .map_or(deciding, |(index, _)| index);
    // Failures that the program survived come before the deciding one.
    let from = survived.map_or(0, |last| last + 1);
    let is_counted = |reading: &Reading| is_deciding_prose || !is_prose(reading);
    let later = later_failures(log, &readings[from..], best - from, is_counted) + unread;
    let failures = readings.iter().filter(|reading| reading.2.is_failure() && !is_prose(reading));
    Some(Found {
        first: readings[best].2.clone(),
        index: readings[best].0,
        later,
        is_prose: is_deciding_prose,
        document: document(readings[best].0),
        survived: survived.map(|index| readings[index].2.line),
        holders: readings.iter().map(|(_, _, facts)| facts).find(|facts| shows_holder(facts)).cloned(),
        failures: failures.map(|&(line, _, _)| FailureAt { line }).collect(),
    })
}

/// The lines of readings that a document only quotes.
fn documents(log: &Log, readings: &[Reading]) -> Vec<(usize, Document)> {
    /// A document quotes a few errors; a log with more of them is a log.
    const MOST_QUOTED: usize = 40;
    if readings.len() > MOST_QUOTED {
        return Vec::new();
    }
    readings
        .iter()
        .filter(|(_, _, facts)| facts.is_failure())
        .filter_map(|(line, _, facts)| Some((*line, document::around(log, *line, facts)?)))
        .collect()
}

/// Whether a framework's own message with its figures stands against figures in words of no framework.
fn outranks(reading: &Reading, deciding: &Reading) -> bool {
    let (_, _, facts) = reading;
    let (_, _, other) = deciding;
    facts.is_failure()
        && other.is_failure()
        && other.framework == Framework::Unknown
        && facts.framework != Framework::Unknown
        && facts.request.is_some()
        && facts.total.is_some()
        && other.free.is_some()
}

/// Whether a reading is a table that names what holds the memory.
fn shows_holder(facts: &Facts) -> bool {
    facts.severity == Severity::Observation
        && facts.statements.iter().any(|stated| {
            matches!(stated.cause, Cause::OtherProcesses | Cause::HiddenHolder)
                && stated.certainty >= Certainty::Likely
        })
}

/// Whether a text is a patch: its added and removed lines are not program output.
pub(super) fn is_patch(log: &Log) -> bool {
    (0..log.len().min(PATCH_LINES)).any(|index| {
        let line = log.line(index);
        line.starts_with("diff --git ")
            || line.starts_with("@@ -")
            || line.trim().trim_start_matches(['`', '~']) == "diff"
            || line.strip_prefix('+').is_some_and(|added| added.starts_with("# ") || added.starts_with("##"))
    })
}

/// Demotes failures that the program handled. A handled failure counts after all where the program then ended in an
/// error that the log does not name.
fn weigh(log: &Log, readings: &mut [Reading]) {
    let letters =
        |line: usize| log.line(line).chars().filter(|letter| letter.is_alphabetic()).collect::<String>();
    let mut handled: Option<usize> = None;
    let last = log.len().saturating_sub(1);
    for (line, _, facts) in readings.iter_mut() {
        // A cut-off last line lacks the words that made the same line above it a warning.
        let is_cut_off =
            || *line == last && handled.is_some_and(|above| letters(above).starts_with(&letters(*line)));
        if facts.is_failure() && (is_handled(log, *line) || is_cut_off()) {
            facts.severity = Severity::Warning;
        }
        if facts.severity == Severity::Warning {
            handled = Some(*line);
        }
    }
    let has_failure = readings.iter().any(|(_, _, facts)| facts.is_failure());
    if !has_failure
        && let Some((line, _, facts)) = readings
            .iter_mut()
            .filter(|(_, _, facts)| facts.severity == Severity::Warning)
            .max_by_key(|(line, _, facts)| (facts.weight(), *line))
        && ((is_handled(log, *line)
            && ends_in_error(log, *line)
            && (other_failure::find(log).is_none() || crashes_at_once(log, *line)))
            || (is_crash_reported(log) && other_failure::find(log).is_none()))
    {
        facts.severity = Severity::Failure;
    }
}

/// A title that names an out-of-memory error above a log that shows another definite failure is a guess; one that asks
/// for a change above a log without a failure is a wish.
fn drop_titles(log: &Log, readings: &mut Vec<Reading>) {
    let is_first = |&(line, family, _): &Reading| line == 0 && is_last_resort(family);
    if readings.len() != 1 || !readings.iter().all(is_first) || log.len() == 1 {
        return;
    }
    let title = log.line(0);
    let is_guess = || {
        (title.starts_with("# ") || is_request(title))
            && other_failure::find(log).is_some_and(|other| other.is_definite)
    };
    if is_guess() || is_request(title) {
        readings.clear();
    }
}

/// The last failure after which the run went on to another failure, as an index into the readings.
fn survived(log: &Log, readings: &[Reading]) -> Option<usize> {
    let failures: Vec<(usize, usize)> = readings
        .iter()
        .enumerate()
        .filter(|(_, (_, _, facts))| facts.is_failure())
        .map(|(index, (line, _, _))| (index, *line))
        .collect();
    let last = failures.windows(2).rev().find(|pair| {
        let (from, to) = (pair[0].1 + 1, pair[1].1);
        to - pair[0].1 > SAME_FAILURE_LINES
            && progress_between(log, from, to, STEPS_SURVIVED) >= STEPS_SURVIVED
    })?;
    Some(last[0].0)
}

/// Everything the formats read in a log, in order, and how many failures were left unread.
fn readings(log: &Log) -> (Vec<Reading>, usize) {
    let mut readings: Vec<Reading> = Vec::new();
    let mut reader = Reader::new();
    let mut unread_lines: Vec<usize> = Vec::new();
    let is_patch = is_patch(log);
    for (line, families) in hits(log) {
        if reader.is_done() {
            if unread_lines.last().is_none_or(|&last| !is_near(line, last)) {
                unread_lines.push(line);
            }
            continue;
        }
        if is_patch && log.line(line).trim_start().starts_with(['+', '-']) {
            continue;
        }
        if let Some((family, facts)) = reader.read(log, line, families) {
            readings.push((line, family, facts));
        }
    }
    (readings, unread_lines.len())
}

/// Reads lines with the families whose anchors they hold, within a budget: a family that reported a few tables, or
/// found nothing many times, is not called again, so that a log with an anchor in every line takes bounded time.
#[derive(Debug)]
pub(super) struct Reader {
    observations: Vec<usize>,
    fruitless: Vec<usize>,
    failures: usize,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { observations: vec![0; FAMILIES.len()], fruitless: vec![0; FAMILIES.len()], failures: 0 }
    }

    /// Enough failures were read; the rest is only counted.
    pub(super) fn is_done(&self) -> bool {
        self.failures >= MOST_READ
    }

    /// Whether a family is still called.
    pub(super) fn calls(&self, family: usize) -> bool {
        self.observations[family] < MOST_OBSERVATIONS && self.fruitless[family] < MOST_FRUITLESS
    }

    /// The reading of a line that knows most, and its family.
    pub(super) fn read(
        &mut self,
        log: &Log,
        line: usize,
        mut families: Vec<usize>,
    ) -> Option<(usize, Facts)> {
        families.retain(|&family| self.calls(family));
        // An allocation that failed for another definite reason did not run out of memory.
        if families.is_empty() || other_failure::is_definite(log.line(line)) {
            return None;
        }
        let passage = log.passage(line);
        let rank =
            |family: usize, facts: &Facts| (!is_last_resort(family), facts.weight(), usize::MAX - family);
        let mut best: Option<(usize, Facts)> = None;
        families.sort_unstable();
        for family in families {
            // The last resorts come last, rank below all others and have the most patterns.
            if is_last_resort(family) && best.as_ref().is_some_and(|&(known, _)| !is_last_resort(known)) {
                break;
            }
            let Some(facts) = (FAMILIES[family].read)(&passage) else {
                self.fruitless[family] += 1;
                continue;
            };
            if best.as_ref().is_none_or(|(known, other)| rank(family, &facts) > rank(*known, other)) {
                best = Some((family, facts));
            }
        }
        let (family, facts) = best?;
        if facts.is_failure() {
            self.failures += 1;
        } else {
            self.observations[family] += 1;
        }
        Some((family, facts))
    }
}

/// How many failures there are besides the chosen one: readings far from all counted so far, or readings with
/// another device, request or place.
fn later_failures(
    log: &Log,
    readings: &[Reading],
    chosen: usize,
    is_counted: impl Fn(&Reading) -> bool,
) -> usize {
    let mut counted: Vec<&Reading> = vec![&readings[chosen]];
    for (index, reading) in readings.iter().enumerate() {
        let (line, _, facts) = reading;
        if index == chosen || facts.severity != Severity::Failure || !is_counted(reading) {
            continue;
        }
        let is_known = |known: &&Reading| {
            is_near(*line, known.0)
                && !contradicts(&known.2, facts)
                && !is_elsewhere(log.line(known.0), log.line(*line))
        };
        if !counted.iter().rev().take(64).any(is_known) {
            counted.push(reading);
        }
    }
    counted.len() - 1
}

/// Whether two lines are the same message from two places in the program's source.
fn is_elsewhere(one: &str, other: &str) -> bool {
    let (Some(here), Some(there)) = (source_line(one), source_line(other)) else { return false };
    let without = |line: &str, site: &str| {
        let (file, number) = site.rsplit_once(':').unwrap_or((site, ""));
        line.replace(file, "").replace(number, "")
    };
    here != there && without(one, &here) == without(other, &there)
}

fn is_near(line: usize, other: usize) -> bool {
    line.abs_diff(other) <= SAME_FAILURE_LINES
}

/// Whether a family reads any program's words, without knowing the program.
fn is_last_resort(family: usize) -> bool {
    family + LAST_RESORTS >= FAMILIES.len()
}

/// Two readings are of different failures when both name a request and the requests differ.
fn contradicts(first: &Facts, other: &Facts) -> bool {
    matches!((first.request, other.request), (Some(one), Some(two)) if one != two)
        || matches!((first.device, other.device), (Some(one), Some(two)) if one != two)
}

/// The lines that hold an anchor, with the families to ask, in order.
fn hits(log: &Log) -> Vec<(usize, Vec<usize>)> {
    let mut hits: Vec<(usize, Vec<usize>)> = Vec::new();
    let counts = |found: &Occurrence| counts_at(log.text().as_bytes(), found.start, found.end - found.start);
    for found in ANCHORS.words.occurrences(log.text()).filter(counts) {
        let line = log.line_at(found.start);
        let family = ANCHORS.families[found.word];
        match hits.last_mut() {
            Some((last, families)) if *last == line => {
                if !families.contains(&family) {
                    families.push(family);
                }
            }
            _ => hits.push((line, vec![family])),
        }
    }
    hits
}

/// The families that have an anchor in a line.
pub(super) fn families_in(line: &str) -> Vec<usize> {
    let mut families = Vec::new();
    let counts = |found: &Occurrence| counts_at(line.as_bytes(), found.start, found.end - found.start);
    for found in ANCHORS.words.occurrences(line).filter(counts) {
        let family = ANCHORS.families[found.word];
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
}

/// What the formats make of a text: for the tests of each family.
#[cfg(test)]
pub(crate) fn facts_in(text: &str) -> Option<Facts> {
    failures(&Log::new(text)).map(|found| found.first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_decides_and_the_rest_are_counted() {
        let mut text = String::from(
            "step 1\nRuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\n",
        );
        for step in 0..3 {
            text.push_str(&"training\n".repeat(60));
            text.push_str(&format!("RuntimeError: CUDA out of memory. Tried to allocate {}.00 MiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\n", step + 2));
        }
        let found = failures(&Log::new(&text)).unwrap();
        assert_eq!(found.first.request, Some(makeroom_core::Bytes::gib(1)));
        assert_eq!(found.first.line, 2);
        assert_eq!(found.later, 3);
    }

    #[test]
    fn the_same_failure_again_and_other_devices_count() {
        let error = |device: u32| {
            format!(
                "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU {device}; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\n"
            )
        };
        let apart = format!("{0}{1}{0}{1}{0}", error(0), "training\n".repeat(60));
        assert_eq!(failures(&Log::new(&apart)).unwrap().later, 2);
        let together = format!("{}{}{}", error(0), error(1), error(0));
        assert_eq!(failures(&Log::new(&together)).unwrap().later, 1);
    }

    #[test]
    fn the_same_message_from_other_places_counts_and_sentences_do_not() {
        let text = "CUDA error 2 at mesh.cu:31: out of memory\nCUDA error 2 at wave.cu:77: out of memory\nCUDA error 2 at src/flux.cu:102: out of memory\nCUDA error 2 at wave.cu:77: out of memory\n";
        assert_eq!(failures(&Log::new(text)).unwrap().later, 2);
        let passed_on = "CUDA error 2 at mesh.cu:31: out of memory\nsolver failed in wave.cu:77: CUDA error 2: out of memory\n";
        assert_eq!(failures(&Log::new(passed_on)).unwrap().later, 0);
        let told = "It looks as if the trainer tried to allocate 9000 MB on my card.\nError: Out of memory. Requested 9500 MB; Free 7000.5 MB";
        assert_eq!(failures(&Log::new(told)).unwrap().later, 0);
    }

    #[test]
    fn a_run_that_logs_its_memory_does_not_hide_its_failure() {
        let mut text =
            "| N/A   34C    P0    70W / 400W |   1200MiB / 24000MiB |      0%      Default |\n".repeat(900);
        text.push_str("RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\n");
        assert_eq!(failures(&Log::new(&text)).unwrap().first.request, Some(makeroom_core::Bytes::gib(1)));
    }

    #[test]
    fn a_log_without_a_failure_has_none() {
        assert!(failures(&Log::new("epoch 1\nloss 0.3\n")).is_none());
    }
}
