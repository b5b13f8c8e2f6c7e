//! What the rest of a log says about its failure: memory that grew before it, the batch size, the program's line
//! in the traceback.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::batch::batch_in;
use makeroom_search::{Regex, pattern};

use crate::batch::batch_told;
use crate::figures::binary_size;
use crate::growth;
use crate::lines::is_progress;
use crate::log::{Log, split_prefix};

/// What surrounds a failure.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Memory figures before the failure that only grow.
    pub(crate) growth: Option<LoggedGrowth>,
    /// A person says that memory grows from step to step.
    pub(crate) is_growth_reported: bool,
    /// A person says that the failure came only after the program had run for a while.
    pub(crate) is_late_told: bool,
    /// A person says that processes collect on the GPU.
    pub(crate) is_pile_up_told: bool,
    /// The batch size that the log mentions last before the failure.
    pub(crate) batch: Option<u64>,
    /// The batch size that a person names in a sentence.
    pub(crate) batch_told: Option<u64>,
    /// The program's own innermost line in the traceback, `file:line function`.
    pub(crate) site: Option<String>,
}

/// A series of memory figures in a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoggedGrowth {
    pub(crate) first: Bytes,
    pub(crate) last: Bytes,
    pub(crate) steps: usize,
    pub(crate) per_step: Bytes,
    /// Whether the series is long enough to rule out a program that is still filling its caches.
    pub(crate) is_long: bool,
}

/// How many lines before the failure are searched.
const LINES_SEARCHED: usize = 20_000;
/// A long series has at least this many figures.
const LEAST_FIGURES: usize = 8;
/// Fewer figures are never a series.
const LEAST_EVEN_FIGURES: usize = 3;
/// A failure above this line may be the title of a report whose log follows.
const TITLE_LINES: usize = 4;
/// How many lines after such a title are searched. Long logs are condensed, and keep more than this after a failure.
pub(super) const LINES_BELOW_TITLE: usize = 400;
/// Sentences about a failure stand this near to it.
const REPORT_LINES: usize = 60;
/// Longer lines were not typed by a person.
const LONGEST_SENTENCE: usize = 4096;
/// A traceback is at most this long.
const TRACEBACK_LINES: usize = 400;

static MEMORY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:gpu[ _]?)?(?:mem(?:ory)?|vram|allocated)(?:[ _](?:allocated|used|usage|in use|alloc))?\b\s*(?:[:=]|is|of)?\s*([\d.]+)\s*([KMGT]i?B?)\b",
    )
});
/// The memory field of training logs such as `mmdet` writes them, in MiB.
static LOGGED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:max[ _])?mem(?:ory)?: ?(\d{3,6})(?:[, ]\D|\s*$)"));
/// A sentence about memory that grows with the run.
static GROWS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \b(?:memory|vram|ram|usage)\b .{0,60} \b(?:keeps? \s (?:growing|increasing|going)|grows?|growing|increas(?:es|ing)|creeps?|crept|climbs?|rises?|leak(?:s|ing|ed)?)\b .{0,60} \b(?:slowly|gradually|steadily|continuously|constantly|each|every|over \s time|per \s \w+|until|with \s (?:the|each|every)|after|up \s to|by)\b
      | \b(?:slowly|gradually|steadily|continuously|constantly)\b .{0,30} \b(?:grow\w*|increas\w*|creep\w*|climb\w*|rises?|leak\w*)\b .{0,40} \b(?:memory|vram|ram)\b
      | \b(?:after|with|in|at|during) \s (?:each|every) \s .{1,40} \b(?:memory|vram|ram)\b .{0,40} \b(?:will \s)? (?:increases?|grows?|rises?|goes \s up|go \s up)\b
      | \bmemory\b .{0,40} \b(?:after|in|at) \s (?:each|every) \s \w+ .{0,12} \b(?:plus|adds|\+|more|up|higher)\b .{0,24} \b(?:each|every) \s (?:time|one) | \bmemory \s leak\b | \bgrowth \s averaged\b | (?:显存|内存) .{0,12} (?:一直|缓慢|不断|逐渐|持续) .{0,12} (?:增|涨) | \bcrept \s up\b
        ",
    )
});
/// A sentence about a program that worked for a while: for steps, epochs, requests or hours.
static LATE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \bafter \s (?:about\s|around\s|some\s|a\s|~\s?|roughly\s|approximately\s|only\s|running\s(?:for\s)?)* (?:few|several|couple|many|long|\d[\d,.]*k?|hundreds?|thousands?|ten|two|three) \s (?:of\s|more\s|thousands?\s|hundreds?\s|full\s|successful\s|minutes\sor\s)* (?:steps?|iterations?|iters?|epochs?|batch(?:es)?|hours?|hrs?|minutes?|mins?|days?|time|while|requests?|images?|frames?|prompts?|generations?|runs?|files?|queries|rounds?|episodes?|games?|predictions?|inferences?|calls|trials?|folds?|experiments?|sweeps?|formats?|stencils?|jobs?|tests?|videos?|documents?|pages|samples|reloads?)\b
      | \bafter \s (?:[\w-]+ \s){0,4}? \d+ \s (?:trials?|folds?|experiments?|sweeps?|formats?|stencils?|jobs?|tests?|models|steps|iterations|epochs|runs|files|videos|images|requests)\b
      | \b(?:during|within|for|over) \s (?:a \s)? (?:few|several|some|couple \s of|\d+) \s (?:minutes|hours|days) \b | \b(?:very \s)? (?:close \s to|near|towards?) \s the \s end\b
      | \bone \s (?:\w+ \s)? after \s (?:the \s other|another) \b | \b(?:many|all|different|several) \s (?:opencl \s | cuda \s)? (?:formats|stencils|models|trials|kernels) \b .{0,40} \b(?:in \s (?:one|the \s same) \s (?:process|run|session)|in \s a \s row|in \s sequence)\b
      | \bafter \s (?:hours|days|a \s while|some \s time|minutes) \b | \bworks? \s (?:fine\s|well\s|ok\s)? (?:for|at \s first|in \s the \s beginning|initially|the \s first)\b | \bfirst \s (?:few|\d+) \s (?:steps|epochs|iterations|images|requests|runs|prompts) \s (?:are|were|work|run|go) | \bfails? \s (?:in|at|on|during) \s (?:the \s)? (?:second|2nd|third|next) \s (?:run|epoch|image|request|iteration|generation|time|validation)
      | \bmemory_?\s?(?:usage\s)?builds \s up\b | 跑(?:了)?(?:几|一|\d+)个?(?:小时|epoch|轮|天) | 幾個小時 | 训练(?:到|了)第?\s?\d+\s?(?:个|轮|epoch|step)
        ",
    )
});
/// A failure that comes at the same place each time depends on the data there.
static SAME_PLACE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:exactly (?:at )?\d|always (?:at|on|in) (?:the same|\d|epoch|step)|same (?:sample|image|batch|iteration|percentage))",
    )
});
/// A sentence about processes that collect on one GPU.
static PILES_UP: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \b(?:multiple|many|several|more \s and \s more|extra|additional|zombie|leftover|orphan(?:ed)?|duplicate|too \s many|all) \s (?:\w+ \s){0,2} process(?:es)?\b .{0,40} \b(?:on|in|occupy\w*) \s (?:the \s | one \s | a \s)? (?:same \s | first \s | single \s)? (?:gpu|card|device|cuda)\b
      | \bprocess(?:es)? \s (?:pile \s up|accumulate|stay|remain|collect) \s (?:\w+ \s){0,2} (?:on|in) \s (?:the \s)? (?:gpu|card|device)\b
        ",
    )
});
static FRAME: LazyLock<Regex> = LazyLock::new(|| pattern(r#"^\s*File "([^"]+)", line (\d+)(?:, in (\S+))?"#));
impl Context {
    /// Reads what surrounds a failure in this line of a log.
    pub(crate) fn read(log: &Log, failure_line: usize) -> Self {
        let from = failure_line.saturating_sub(LINES_SEARCHED);
        let mut context = Self { site: program_line(log, failure_line), ..Self::default() };
        let mut figures = Vec::new();
        let is_title = failure_line < TITLE_LINES;
        let below = if is_title { LINES_BELOW_TITLE } else { 1 };
        let end = (failure_line + below).min(log.len());
        for index in from..end {
            let line = log.line(index);
            figures.extend(memory_in(line));
            if index > failure_line {
                continue;
            }
            context.batch = batch_in(line).or(context.batch);
        }
        context.growth = growth(&figures);
        let near = failure_line.saturating_sub(REPORT_LINES)..(failure_line + REPORT_LINES).min(log.len());
        context.is_growth_reported =
            near.clone().any(|index| GROWS.is_match(log.line(index)) || growth::is_told(log.line(index)));
        context.batch_told = near.clone().find_map(|index| batch_told(log.line(index)));
        let is_near = |words: &Regex| {
            near.clone().any(|index| {
                let line = log.line(index);
                line.len() <= LONGEST_SENTENCE && words.is_match(line)
            })
        };
        context.is_late_told = is_near(&LATE) && !is_near(&SAME_PLACE);
        context.is_pile_up_told = near.into_iter().any(|index| PILES_UP.is_match(log.line(index)));
        context
    }
}

/// The memory figure of a line.
fn memory_in(line: &str) -> Option<Bytes> {
    if let Some(found) = MEMORY.captures(line) {
        return binary_size(&found[1], &found[2]);
    }
    let found = LOGGED.captures(line).filter(|_| is_progress(line))?;
    binary_size(&found[1], "M")
}

/// A short series that grows by nearly the same amount each time, as a leak does; caches fill up unevenly.
fn even_growth(figures: &[Bytes]) -> Option<LoggedGrowth> {
    let count = figures.len();
    if count < LEAST_EVEN_FIGURES || figures.windows(2).any(|pair| pair[1] <= pair[0]) {
        return None;
    }
    let increments = || figures.windows(2).map(|pair| pair[1] - pair[0]);
    let (smallest, largest) = (increments().min()?, increments().max()?);
    let (first, last) = (figures[0], figures[count - 1]);
    let per_step = Bytes::new((last - first).get() / (count - 1) as u64);
    (largest <= smallest.scaled(1.5)).then_some(LoggedGrowth {
        first,
        last,
        steps: count - 1,
        per_step,
        is_long: false,
    })
}

/// Whether figures only grow, and go on growing to the end. Memory that fills up during the first steps and then
/// stays is not a leak, so the last quarter must add its share.
fn growth(figures: &[Bytes]) -> Option<LoggedGrowth> {
    let count = figures.len();
    if count < LEAST_FIGURES {
        return even_growth(figures);
    }
    let (first, last) = (figures[0], figures[count - 1]);
    let falls = figures.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let late = last - figures[count - 1 - count / 4];
    let is_growing = last > first.scaled(1.2)
        && falls * 20 <= count
        && late.get().saturating_mul(10) >= (last - first).get();
    let steps = count - 1;
    is_growing.then(|| LoggedGrowth {
        first,
        last,
        steps,
        per_step: Bytes::new((last - first).get() / steps as u64),
        is_long: true,
    })
}

/// The innermost frame of the traceback above the failure that is the program's own.
fn program_line(log: &Log, failure_line: usize) -> Option<String> {
    let mut innermost = None;
    for index in (failure_line.saturating_sub(TRACEBACK_LINES)..failure_line).rev() {
        let (_, body) = split_prefix(log.line(index));
        if body.contains("Traceback (most recent call last)") {
            break;
        }
        let Some(found) = FRAME.captures(body) else { continue };
        let file = &found[1];
        let place = match found.get(3) {
            Some(function) => format!("{file}:{} {}", &found[2], function.as_str()),
            None => format!("{file}:{}", &found[2]),
        };
        if !makeroom_explain::library::is_library_file(file) {
            return Some(place);
        }
        innermost = innermost.or(Some(place));
    }
    innermost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(values: &[u64]) -> Vec<Bytes> {
        values.iter().map(|&value| Bytes::mib(value)).collect()
    }

    #[test]
    fn memory_that_grows_to_the_end_is_growth() {
        let grown = growth(&mib(&[10, 12, 14, 16, 18, 20, 22, 24, 26])).unwrap();
        assert_eq!((grown.steps, grown.per_step), (8, Bytes::mib(2)));
    }

    #[test]
    fn memory_that_fills_and_stays_is_not() {
        assert_eq!(growth(&mib(&[10, 40, 80, 90, 90, 90, 90, 90, 90, 90])), None);
        assert_eq!(growth(&mib(&[10, 40, 10, 40, 10, 40, 10, 40, 10, 40])), None);
        assert_eq!(growth(&mib(&[10, 20])), None);
        assert_eq!(growth(&mib(&[10, 20, 60])), None);
        assert_eq!(growth(&mib(&[60, 61, 61])), None);
    }

    #[test]
    fn even_growth_needs_few_figures_and_is_not_certain() {
        let text = "# CUDA out of memory in epoch 3
Epoch [3][50/900] lr: 0.1, memory: 40100, loss: 1.2
Epoch [3][100/900] lr: 0.1, memory: 40310, loss: 1.1
Epoch [3][150/900] lr: 0.1, memory: 40519, loss: 1.1";
        let grown = Context::read(&Log::new(text), 0).growth.unwrap();
        assert_eq!((grown.first, grown.last, grown.steps), (Bytes::mib(40100), Bytes::mib(40519), 2));
        assert!(!grown.is_long);
    }

    #[test]
    fn a_program_that_ran_for_a_while() {
        let is_late = |text: &str| {
            let text = format!("{text}\nCUDA out of memory");
            Context::read(&Log::new(&text), 1).is_late_told
        };
        for text in [
            "It stops after about 3000 steps.",
            "After a few hours of serving I get this.",
            "works fine for the first ten images",
        ] {
            assert!(is_late(text), "{text}");
        }
        assert!(!is_late("It always fails at the same iteration, after 300 steps."));
        assert!(!is_late("It fails at the start."));
    }

    #[test]
    fn the_programs_own_line_is_found_in_a_traceback() {
        let text = "Traceback (most recent call last):\n  File \"train.py\", line 12, in step\n    loss = model(x)\n  File \"/usr/lib/python3/site-packages/torch/nn/modules/module.py\", line 1779, in _call\n    return f()\nCUDA out of memory. Tried to allocate 2.00 GiB";
        let log = Log::new(text);
        let index = crate::find::failures(&log).unwrap().index;
        assert_eq!(Context::read(&log, index).site.as_deref(), Some("train.py:12 step"));
    }
}
