//! What kind of line it is: a program's error, or a person's sentence about one; and whether a program handled the
//! error it printed.
//!
//! People paste logs with their own words around them, and the words mention memory too. An error outranks a
//! sentence; a handled error is a warning.

use std::sync::LazyLock;

use makeroom_search::{Regex, pattern};

use crate::identifiers::without_names;
use crate::log::{Log, split_prefix};

/// Tokens that only programs print.
static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?x)
        (?i: \w*(?:Error|Exception|Fault|Failure)\b['\x60")\]>]*\s*[:(\[] )
      | \w+Error\b | \w+Exception\b | \bCheck \s failed: \s
      | (?i: \b(?:error|fatal|critical|abort|panic(?:ked)?)\b \W{0,3}: )
      | \bERROR\b | \bFATAL\b | \bCRITICAL\b | \bError\s\d+\b | ^\s*E\s? \d{4}\b | \[E\] | \bE\s tensorflow
      | (?i: CUDA (?:\s driver|\s runtime)? \s error | CUDA \s failure | CUDA \s out \s of \s memory \. | HIP \s out \s of | XPU \s out \s of | MPS \s backend )
      | (?i: terminate \s called | what\(\): | (?-i:Tried \s to \s allocate) | you \s tried \s to \s allocate | can(?:no|['’])?t \s allocate \s (?:\d|memory|buffer|tensor) | Traceback | core \s dumped | aborted | !!! )
      | (?i: oom-kill | out \s of \s memory: \s kill | killed \s process | invoked \s oom | oom_kill | OOMKilled )
      | (?i: \bfailed \b .{0,60} (?: memory | alloc) | (?: memory | malloc | alloc\w*) \b .{0,60} \bfailed\b | (?:unable|failed) \s to \s alloc )
      | CUDA_ERROR | cudaError | hipError | RESOURCE_EXHAUSTED | STATUS_ALLOC | CL_\w+ | VK_ERROR
      | (?i: \bOOM \s when | exit \s? code | signal \s 9 | SIGKILL | core \s dump )
        "#,
    )
});

/// Words of a person who reports about a program.
static PERSON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x)
        \bI['’](?:m|ve|d|ll)\b | \bI \s [a-z]{2,12} \s | \bI \s (?:am|have|had|get|got|was|think|thought|tried|try|use|used|run|ran|can|could|want|would|will|do|don|did|see|saw|hope|know|need|set|found|find|guess|believe|still|also|just|already|only|installed|download\w*|train\w*|suspect|wonder|encounter\w*|change\w*|follow\w*|met|keep|kept|notice\w*|made|load\w*|start\w*|receive\w*|face\w*|understand|expect\w*|increase\w*|reduce\w*|check\w*|test\w*) \b
      | \bTIL\b | \bdidn['’]t \s know\b | \b[Mm]y\s | \b[Ww]e(?:['’]\w+)?\s | \b[Oo]ur\s | \b[Aa]nyone\b
      | (?i: \b(?:how \s (?:can|do|to|much) | why \s (?:is|does|do|am) | is \s there | does \s this | can \s (?:we|this|it|someone) | what \s (?:is|does) | thanks | thank \s you | hello | hi\s (?:all|there|everyone) | any \s (?:idea|help|advice) | would \s be | it \s (?:seems|implies|looks|means|happens) | it['’]s \s | there['’]s \s | however | sometimes | often | always | usually ) \b )
      | \?\s*$
        ",
    )
});

/// Accounts of runs other than the one at hand: in general, at other times, of other people.
static ACCOUNT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b(?:sometimes|often|occasionally|usually|rarely|previously|formerly|in \s the \s past|used \s to|are \s rare|(?:many|some|other|most) \s (?:people|users)|users \s (?:run|get|hit|see|report)|the \s (?:paper|authors?|docs?|documentation) | baselines? | first \s (?:thought|guess(?:ed)?|suspect(?:ed)?|suspicion|assum(?:ed|ption)|idea) | someone | they \s (?:got|get|had) | by \s the \s way | along \s the \s lines \s of | (?:days|weeks|months) \s ago | benchmarks? | (?:solved|resolved|fixed) \s (?:the|my|this|it) | (?:error|problem|issue) \s is \s gone | you \s are \s (?:running|probably|just) | what \s happens \s (?:if|when) | for \s now | until \s (?:the \s)? (?:update|now)) \b
      | \b(?:when|if|once|whenever) \s (?:the \s | your \s)? (?:(?:gpu|device|card|video) \s)? (?:gpu|memory|device|card|vram) \s (?:is|becomes|gets|runs|fills)\b | \b(?:does|did) \s not \s (?:fail|crash|happen)\b
      | \b(?:out[\s-]of[\s-]memory|oom) \s (?:handling|detection|protection|checks?|precheck|killer \s settings)\b",
    )
});

/// A figure of memory: an account of other runs does not quote one.
static SIZE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d{5,}|\d ?(?:[KMGT]i?B|bytes)\b"));

/// Words of documents and of people, which programs use too where they give advice with an error.
static ADVICE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) \byou(?:r|['’]re)?\s | \b(?:in \s order \s to | due \s to \s the | for \s example | e\.g\. | because | instead \s of | make \s sure ) \b",
    )
});

/// An item of a list, a heading below the title, a row of a table: parts of a document.
static DOCUMENT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\s*(?:#{2,6}\s|\d{1,2}[.)]\s|[-*+]\s|//|--\s|\|)"));
/// A logger's level, also between bars as in a table.
static LEVEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(?:WARNING|ERROR|INFO|CRITICAL)\b"));

/// A line of source code or of a patch that mentions the error.
static SOURCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x) ^\s*(?:[+-]\s*)?(?: except\b | catch\b | raise\s+\w | throw\s | assert\b | def\s | elif\b | if\b.{0,120}[:{)]\s*$ | if\s*\(.{0,120}\{.*\}\s*$ | //\s | /\*|\*\s | return\s | import\s | from\s+\w+\s+import | class\s+\w+.*:\s*$ | f?printf\(|print\(|log(?:ger|ging)?\.\w+\( | console\.\w+\( | LOG\(\w+\)\s*<< | (?:std::)?c(?:err|out)\s*<< | \#define\s | with\s+pytest\.raises\( | self\.assert\w+\( | case\s | (?:pub|fn|let|const|static|Err|Ok)\b.*[{;(]\s*$ )
      | => \s* \{ \s* $ | ^\s*\+\s.*\bmemory\b
      | \btest_\w+ .* \b(?:PASSED|ok)\b
        ",
    )
});

/// Words for running out of memory.
const MEMORY_WORDS: &str = r"(?:(?:cuda|gpu) (?:of out|out off|out) memory|out[ _-]?of[ _-]?(?:\w+[ _-])?(?:memory|vram|ram)|(?-u:\b)oom(?-u:\b)|resource_?exhausted|memory (?:error|overflow|allocation)|too many resources requested|爆显存|显存不足|内存不足)";

/// Denials, conditions, fixes: nothing ran out.
static DENIAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i){MEMORY_WORDS}.{{0,80}}\b(?:should not|shouldn['’]?t|won['’]?t|does not|doesn['’]?t|no longer) (?:happens?|occurs?|appears?)\b(?: any ?more)?|\b(?:no|not|don['’]?t|didn['’]?t|doesn['’]?t|without|never|avoids?|avoiding|prevents?|preventing|keeps? (?:it|them|this) from|to fix|fix(?:es|ed|ing)?|in case of|if (?:you|it|there|the|we|this|an?)|when(?:ever)? (?:you|it|there)|may|might|could|can|would|in which case|likely to|risk of|potential(?:ly)?|that raises?|an option to|check for|handl(?:e|es|ing)|catch(?:es|ing)?|other than|instead of|rather than|reduce|less|hope|support|feature)\b[^.,;:]{{0,48}}{MEMORY_WORDS}|\bif {MEMORY_WORDS}"
    ))
});

/// A person reports that memory ran out.
static REPORT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i)\b(?:get|got|gets|getting|receiv\w+|encounter\w*|hit|hits|hitting|fac(?:e|es|ed|ing)|have|having|had|throws?|raises?|report\w*|fail\w*|crash\w*|die[sd]?|keeps?|kept|goes|going|went|still|always|then|finally|immediately|error|killed|(?:ends?|ended|results?|resulted|resulting|exits?|stops?) (?:up )?(?:in|with)|(?:leads?|led) to|caus(?:es?|ed|ing)|trigger\w*|returns?|returned|gives?|gave|says?|said|shows?|prints?|报|出现|提示|runs?|ran|running)\b.{{0,80}}{MEMORY_WORDS}|{MEMORY_WORDS}.{{0,40}}\b(?:error|occur\w*|happen\w*|when|while|during|after|on|at|with|exception|killed)\b|(?:报|出现|提示|导致|就|总是|经常|一直|每次).{{0,40}}{MEMORY_WORDS}|\b(?:gpu|graphics|video|system|computer)\b.{{0,24}}\bmemory is (?:full|exhausted|low|not enough|insufficient|not sufficient)\b|\b(?:gpus?|cards?|device|cuda|machine|colab) (?:is|are|was|were|goes|ran|runs) {MEMORY_WORDS}|\b(?:but|and|then|still|always) (?:it|that|this|training) (?:is |was |gets )?{MEMORY_WORDS}|\b(?:way around|get around|get rid of|deal with|solve|resolve|solution (?:to|for)|workaround for)\b.{{0,40}}{MEMORY_WORDS}|\b(?:gpu|card|device|computer|machine|system)\b.{{0,24}}\b(?:does|do)(?:n['’]t| not) have (?:enough|sufficient) (?:\w+ ){{0,2}}(?:memory|v?ram)\b|\b(?:could not|cannot|can['’]t|unable to|failed to|fails? to)\b.{{0,60}}\b(?:because|since|as)\b.{{0,24}}\b(?:not enough|insufficient) (?:\w+ ){{0,2}}(?:memory|v?ram)\b|\b(?:computer|system|machine) is (?:running )?low on memory\b|\b(?:fails?|crash\w*|dies|stops)\b.{{0,40}}\bmemory (?:in use|usage|use)\b.{{0,24}}\b(?:gets|reaches|hits|exceeds)\b"
    ))
});

/// The program went on: it retried, fell back, skipped. Advice ("reducing block sizes may help") and attempts that
/// failed in turn ("retry failed") are not meant.
static HANDLED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \bretrying\b | \bretried\b | \brecovering \s from\b | \b(?:do \s not|don['’]t) \s worry\b | \bwill \s (?:retry|try \s again|continue|skip|fall \s back) | \bfalling \s back\b | \bfell \s back\b | \bfallback \s to\b | \bas \s (?:a \s)? fallback\b
      | \bskipp(?:ing|ed) \s (?:this |the |that |current |over |tactic|batch|sample|image|step|file|frame|it\b) | \bskipping \s batch
      | \btrying \s (?:again|with \s (?:a \s)?(?:smaller|lower|less|reduced)|to \s recover|smaller|a \s smaller|lower) | \battempting \s to \s recover | \brecovered \s from\b
      | \breduc(?:ing|ed) \s (?:the \s)? (?:\w+ \s)? (?:batch|chunk|tile|resolution) (?:[\s_] size)? \s (?:to|from|by)\b | \bswitching \s to \s (?:tiled|cpu|slow|low|smaller)
      | not \s an? \s (?:failure|error)\b | \bnot \s fatal | \bcontinuing \s (?:without|with|on)\b | \busing \s (?:cpu|host|system|managed|pageable) \s memory \s instead | , \s us(?:ing|e) \s (?:CPU\b | (?:\w+ \s){1,4} instead\b) | \battempting \s to \s free \s (?:up \s)? (?:\w+ \s)? memory | \bsplitting \s (?:the\s)?batch | \bspilling \s to \s (?:host|cpu|disk|ram|system)\b | \boffload(?:ing|ed) \s (?:[\w-]+ \s){0,4} to \s (?:cpu|system|shared|ram|host|disk) | [,;] \s using \s (?:memory-mapped|mmap|streaming|disk)\b | \battempting \s to \s (?:copy|move|run) \s .{0,80} \s (?:to|on) \s (?:the \s)? cpu\b
        ",
    )
});

/// A person says that the program went on after the error, or that it is only a warning. A setting under which it works
/// is something else.
static SURVIVED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \b(?:after \s (?:that|this|which|the \s (?:error|message|warning))|afterwards?|then|but|yet|nevertheless|nonetheless|still|which)\b \W{1,3} (?:[\w'’-]+ \s){0,5}? (?: carr(?:ied|ies) \s on\b | (?:continues?|continued) (?:\s (?:normally|fine|running|working|training|without \s (?:problems?|issues?|errors?)) | \s to \s (?:run|work|train)\b | \W*$) | goes \s on\b | went \s on\b | keeps \s (?:running|going|training|working) | (?:runs?|ran|went) \s (?:through \s)? to \s the \s end | (?:works?|worked|trains?|trained|runs?|ran|finish(?:es|ed)|complet(?:es|ed)) \s (?:anyway|nevertheless|regardless|afterwards|without \s (?:any \s)? (?:problems?|issues?|errors?) \s*(?:[.,;!)]|$)|(?:just \s)? (?:fine|normally|ok|okay|correctly|successfully|as \s expected) (?:\s (?:anyway|after(?:wards?|\s (?:that|this))))? \s*(?:[.,;!)]|$)) | finishes \s (?:all|the)\b)
      | \b(?:script|program|training|process|it) \s still \s (?:runs|trains|works) \s and\b | \b(?:script|program|run|training|process|tuner|job) \s (?:then \s | just \s | still \s)? (?:carr(?:ied|ies) \s on | went \s on | goes \s on | continues \s (?:normally|anyway)) | \band \s (?:carr(?:ied|ies) \s on)\b
      | \b(?:just|only|merely) \s an? \s (?:\w+ \s)? warning\b | \b(?:see|get) \s (?:it|this|that) \s as \s a \s warning\b | \bharmless\b | \bcosmetic\b | \b(?:can|may|could) \s (?:\w+ \s){0,3} ignored?\b | \bsafe \s to \s ignore\b | \bis \s built \s (?:nevertheless|anyway)\b
      | \bl(?:ä|ae)uft\b .{0,40} \b(?:weiter|normal|trotzdem|durch)\b | \btrotzdem \s (?:weiter|läuft)
      | (?:但是?|之后|不过|然后).{0,12}(?:正常|不影响|继续|没问题) | 可以忽略 | (?:mais|pourtant) .{0,40} (?:continue|fonctionne) | \bpero \b .{0,40} \b(?:continúa|sigue|funciona)\b | но \s .{0,40} (?:работает|продолжает)
        ",
    )
});
/// The same words where the run ended after all, or under another setting.
static NOT_SURVIVED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b(?:crash\w*|fails?|failed|dies|died|killed|stuck|hangs?|freez\w*|abort\w*|stops|stopped|until|before|unless|only \s (?:if|with|when)|(?:not|n['’]t) \s (?:\w+ \s)? (?:continue|work|go \s on|carry|harmless|ignore)) \b | \b(?:smaller|other|another|different|older|previous|lower|cpu|when|if|using|use)\b",
    )
});

/// A step of a run that goes on.
static PROGRESS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\d+%\|| it/s\b|\ds/it\b|\bstep[s]?[ :=/]+\d+|\bepoch[ :\[=]+\d+|\bloss[ :=]+-?\d|\biter(?:ation)?[s]?[ :=]+\d+",
    )
});

/// A person's report stands in the first lines of a text.
const REPORT_LINES: usize = 100;

/// What a line that mentions memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// A program printed it.
    Error,
    /// A person wrote it, or it is source code.
    Prose,
}

/// A statement of source code; a traceback may print it in one line with the error that it raised.
fn is_source(line: &str) -> bool {
    // hashcat begins its errors with a star, as comments do.
    SOURCE.is_match(line) && !line.contains("Error: ") && !line.contains("* Device #")
}

/// What kind a line is in which a known format stands: lists and headings may hold a program's own words. A format
/// whose words decide the cause (`is_decided`) may even speak to a person, as launchers do.
pub(crate) fn kind_of_known(line: &str, is_decided: bool) -> LineKind {
    let (writer, body) = split_prefix(line);
    let may_be_person = !is_decided && writer.is_none() && !ERROR.is_match(line);
    let is_account = || !is_decided && ACCOUNT.is_match(body) && !SIZE.is_match(body);
    // Slurm says "may have been killed" of what it has killed.
    let said = body.split("Some of your processes may").next().unwrap_or(body);
    let is_person = || PERSON.is_match(body) && (may_be_person || DENIAL.is_match(said) || is_account());
    // A code in marks, in a sentence about what can happen.
    let is_quoted = || line.contains('`');
    let is_document = || (is_quoted() || may_be_person && ADVICE.is_match(body)) && DENIAL.is_match(body);
    let is_prose = is_source(body) || is_person() || is_document();
    if is_prose { LineKind::Prose } else { LineKind::Error }
}

/// What kind a line is that mentions memory in words of no known format.
pub(crate) fn kind(line: &str) -> LineKind {
    let (writer, body) = split_prefix(line);
    let is_person = || PERSON.is_match(body) || ADVICE.is_match(body) || ACCOUNT.is_match(body);
    let is_prose = if is_source(body) {
        true
    } else if writer.is_some() || ERROR.is_match(line) {
        // Even a program's token may stand in a denial: "no CUDA out of memory anymore".
        DENIAL.is_match(body) && (is_person() || line.contains('`'))
    } else {
        (DOCUMENT.is_match(line) && !LEVEL.is_match(line)) || is_person() || DENIAL.is_match(body)
    };
    if is_prose { LineKind::Prose } else { LineKind::Error }
}

/// Whether a person reports in this line that memory ran out, rather than fears, fixes or discusses it.
pub(crate) fn is_report(line: &str) -> bool {
    let line: &str = &without_names(line);
    !is_source(line) && !DENIAL.is_match(line) && !ACCOUNT.is_match(line) && REPORT.is_match(line)
}

/// Whether a person names an out-of-memory error as the subject of the text: "my OOM issues".
pub(crate) fn is_own_failure(line: &str) -> bool {
    static OWN: LazyLock<Regex> =
        LazyLock::new(|| pattern(&format!(r"(?i)\b(?:my|our|the|this|these) (?:\w+ ){{0,2}}{MEMORY_WORDS}")));
    OWN.is_match(line) && !DENIAL.is_match(line) && !ACCOUNT.is_match(line)
}

/// Whether a line only lists what the reasons of a failure could be, as supervisors do that do not know.
pub(crate) fn lists_possible_reasons(line: &str) -> bool {
    static REASONS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?i)\b(?:potential root causes|possible (?:reasons|causes) (?:include|are))\b")
    });
    REASONS.is_match(line)
}

/// Whether a person says in a sentence or a title that the program crashed.
pub(crate) fn is_crash_reported(log: &Log) -> bool {
    static CRASH: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)(?:\b(no|not|n['’]t|without|never|avoids?|fix(?:es|ed)?)\b\W+(?:\w+\W+){0,2})?(?:\bcrash(?:es|ed|ing)?\b|\bwhen the error occurs\b|闪退|崩溃)",
        )
    });
    (0..log.len().min(REPORT_LINES)).any(|index| {
        let line = log.line(index);
        let is_told = line.starts_with("# ") || PERSON.is_match(line);
        is_told && CRASH.captures_iter(line).any(|found| found.get(1).is_none())
    })
}

/// Whether the first lines of a text are written by a person.
pub(crate) fn is_told_by_person(log: &Log) -> bool {
    (0..log.len().min(REPORT_LINES))
        .map(|index| log.line(index))
        .any(|line| PERSON.is_match(line) || ADVICE.is_match(line))
}

/// Whether a line itself says that the program goes on without the memory.
pub(crate) fn says_handled(line: &str) -> bool {
    HANDLED.is_match(line)
}

/// Whether the words around an error say that the program went on without the memory.
pub(crate) fn is_handled(log: &Log, index: usize) -> bool {
    static OWN_REQUEST: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\b(?:trying|tried|failed) to allocate \d"));
    let line = log.line(index);
    if passes_test(log, index) {
        return true;
    }
    if is_last_word(log, index) {
        return false;
    }
    if says_handled(line) || is_caught(log, index) || is_survival_told(log, index) {
        return true;
    }
    // The sentence that says so may stand below the error, before any traceback.
    (index + 1..(index + 3).min(log.len())).take_while(|&next| !log.line(next).contains("Traceback")).any(
        |next| {
            let line = log.line(next);
            // A warning about another request says nothing about the error above it.
            kind(line) == LineKind::Error && HANDLED.is_match(line) && !OWN_REQUEST.is_match(line)
        },
    )
}

/// Whether a program ends with an error: the message of an exception that nothing caught, or one with an abort right
/// below it. Whatever the message says about retries, they did not help.
fn is_last_word(log: &Log, index: usize) -> bool {
    /// The shell reports the abort this near below.
    const LINES_BELOW: usize = 3;
    static ABORT: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)^\W*(?:\S+: line \d+:\W*)?(?:\[\d+\]\W*)?(?:\d+ +)?abort(?:ed)?\b(?: {2,}|\W*(?:\(core dumped\))?\W*$)|\bcore dumped\b|\bSIGABRT\b|\bterminate called\b",
        )
    });
    log.line(index).contains("what():")
        || (index + 1..(index + 1 + LINES_BELOW).min(log.len())).any(|next| ABORT.is_match(log.line(next)))
}

/// Whether a program prints that it caught the error, and goes on. Without a line below, or with one that says that
/// it stops, the handler only reports the error; inside an exception's message the words are a library's.
fn is_caught(log: &Log, index: usize) -> bool {
    /// A program says this near below that it stops.
    const LINES_BELOW: usize = 3;
    static CAUGHT: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\bcaught (?:an? )?(?:error|exception|oom|out)\b"));
    static MESSAGE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)^\s*(?:[\w.]+\.)?\w*(?:Error|Exception): .*\bcaught (?:an? )?(?:error|exception|oom|out)\b",
        )
    });
    static STOPS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)\bshut(?:ting|s)? ?down\b|\b(?:exiting|terminating|aborting|quitting|giving up)\b|\bexit(?:ed|s)? (?:with )?(?:code|status) [1-9]|\b(?:stopped|terminated) (?:with|by|due)\b",
        )
    });
    let line = log.line(index);
    if !CAUGHT.is_match(line) || MESSAGE.is_match(line) || STOPS.is_match(line) {
        return false;
    }
    let below = || (index + 1..log.len()).map(|next| log.line(next)).filter(|line| !line.trim().is_empty());
    let is_end = |line: &str| STOPS.is_match(line) || line.contains("Traceback (most recent call last)");
    below().next().is_some() && !below().take(LINES_BELOW).any(is_end)
}

/// Whether a person says in the same line behind an error, or a little below it, that the program went on.
fn is_survival_told(log: &Log, index: usize) -> bool {
    /// A sentence about an error stands this near below it.
    const LINES_BELOW: usize = 8;
    static STOP: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:[.!?;]\s)|[。！？；]"));
    static ERROR_WORDS: LazyLock<Regex> =
        LazyLock::new(|| pattern(&format!(r"(?i){MEMORY_WORDS}|failed to alloc\w*|insufficient|not enough")));
    let below = || (index + 1..(index + 1 + LINES_BELOW).min(log.len())).map(|next| log.line(next));
    if below().any(|line| line.contains("Traceback (most recent call last)")) {
        return false;
    }
    let is_told = |words: &str| SURVIVED.is_match(words) && !NOT_SURVIVED.is_match(words);
    let line = log.line(index);
    let behind = ERROR_WORDS.find(line).map_or("", |found| &line[found.end()..]);
    let is_told_in = |line: &str| STOP.split(line).any(is_told);
    is_told_in(behind) || below().any(|line| split_prefix(line).0.is_none() && is_told_in(line))
}

/// Whether a traceback starts right below a handled error and ends in a missing value: the step that was skipped left
/// nothing to go on with.
pub(crate) fn crashes_at_once(log: &Log, index: usize) -> bool {
    const LINES_BETWEEN: usize = 3;
    const TRACEBACK_LINES: usize = 60;
    static MISSING: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"^\s*(?:AttributeError|TypeError)\b.*\bNoneType\b|^\s*UnboundLocalError\b|\breferenced before assignment\b",
        )
    });
    let lines =
        |from: usize, count: usize| (from..(from + count).min(log.len())).map(|next| (next, log.line(next)));
    lines(index + 1, LINES_BETWEEN)
        .find(|(_, line)| line.contains("Traceback (most recent call last)"))
        .is_some_and(|(start, _)| lines(start, TRACEBACK_LINES).any(|(_, line)| MISSING.is_match(line)))
}

/// Whether a test that printed an error below its start passed.
fn passes_test(log: &Log, index: usize) -> bool {
    const TEST_LINES: usize = 200;
    static RESULT: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\W*\[\s*(OK|PASSED|FAILED|RUN)\s*\]"));
    let result = |next: usize| {
        let found = RESULT.captures(log.line(next))?;
        found.get(1).map(|word| word.as_str().to_owned())
    };
    let is_inside =
        (index.saturating_sub(TEST_LINES)..index).rev().find_map(result).is_some_and(|word| word == "RUN");
    is_inside
        && (index + 1..(index + TEST_LINES).min(log.len()))
            .find_map(result)
            .is_some_and(|word| word == "OK" || word == "PASSED")
}

/// Whether the program ended in an error below a line, with nothing that says what that error was: a traceback, or
/// a launcher's report.
pub(crate) fn ends_in_error(log: &Log, index: usize) -> bool {
    /// An error that a later one follows from stands this near.
    const LINES_SEARCHED: usize = 200;
    (index + 1..(index + LINES_SEARCHED).min(log.len())).any(|next| {
        let line = log.line(next);
        line.contains("Traceback (most recent call last)") || line.contains("ChildFailedError")
    })
}

/// Whether a line is a step of a run that goes on.
pub(crate) fn is_progress(line: &str) -> bool {
    PROGRESS.is_match(line)
}

/// How many steps of a run a stretch of a log shows, up to `enough`.
pub(crate) fn progress_between(log: &Log, from: usize, to: usize, enough: usize) -> usize {
    /// A stretch longer than this is progress if its beginning is.
    const LINES_SEARCHED: usize = 2000;
    // Counted in lines of the input: a condensed log leaves lines out.
    let end = log.number(from).saturating_add(LINES_SEARCHED);
    (from..to)
        .take_while(|&index| log.number(index) < end)
        .filter(|&index| is_progress(log.line(index)))
        .take(enough)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_sentences() {
        for line in [
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "When I run it I get RuntimeError: CUDA error: out of memory",
            "# [BUG] ERROR: Insufficient memory on accelerator",
            "[1234.5] Out of memory: Killed process 77 (python)",
            "GPUassert: out of memory solver.cu 214",
            "cudaMalloc failed: out of memory",
            "ran out of memory",
        ] {
            assert_eq!(kind(line), LineKind::Error, "{line}");
        }
        for line in [
            "I think you are running out of memory here.",
            "2. Out of GPU memory",
            "I hope that I don't run out of memory",
            "Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {",
            "This change avoids out-of-memory on small cards",
            "    except torch.cuda.OutOfMemoryError:",
            "+ raise RuntimeError('out of memory')",
            "How can I avoid running out of memory?",
        ] {
            assert_eq!(kind(line), LineKind::Prose, "{line}");
        }
    }

    #[test]
    fn a_report_is_told_from_a_fear() {
        for line in [
            "I get a CUDA out of memory error after two epochs",
            "With model parallel it still goes OOM",
            "训练时报 CUDA out of memory",
            "then the GPU runs out of memory",
        ] {
            assert!(is_report(line), "{line}");
        }
        for line in [
            "How can I avoid out of memory?",
            "There I guess and hope that I don't run out of memory",
            "This could lead to out of memory on small cards",
            "Fix out of memory when loading checkpoints",
        ] {
            assert!(!is_report(line), "{line}");
        }
    }

    #[test]
    fn a_person_says_that_the_run_went_on() {
        for text in [
            "failed to allocate 2.10G from device\nafter that the script went on to the end",
            "It prints \"CUDA out of memory\" once, but training continues normally.",
            "cudaMalloc failed: out of memory\nThis is just a warning here.",
            "failed to allocate 3G: CUDA_ERROR_OUT_OF_MEMORY, danach läuft es normal weiter",
            "CUDA_ERROR_OUT_OF_MEMORY，但是可以正常训练",
        ] {
            assert!(is_handled(&Log::new(text), 0), "{text}");
        }
        for text in [
            "CUDA out of memory. But it works fine with batch size 1",
            "CUDA out of memory. Inference works fine.",
            "failed to allocate 2.10G\nit continues for a while and then crashes",
            "Small images work fine, but large ones give CUDA out of memory",
            "CUDA out of memory, but on another card it works fine.",
        ] {
            assert!(!is_handled(&Log::new(text), 0), "{text}");
        }
    }

    #[test]
    fn possible_reasons_are_not_a_failure() {
        assert!(lists_possible_reasons("There are some potential root causes. (1) SIGKILL by OOM killer"));
    }

    #[test]
    fn accounts_of_other_runs_are_not_reports() {
        for line in [
            "The paper reports that baselines run out of memory beyond 16k tokens, while ours does not.",
            "Previously the job ran out of memory at this size.",
            "Sometimes I get OOM, but a second try works",
            "Many users get CUDA out of memory with this model",
            "When the GPU memory is full, pages move to the CPU",
            "I first thought it ran out of memory",
            "I was running the second script. Out of GPU memory was my first guess.",
            "Running out of memory was our first suspicion on that machine.",
        ] {
            assert!(kind(line) == LineKind::Prose && !is_report(line), "{line}");
        }
        for line in [
            "the solver ran out of memory",
            "WARNING: ran out of memory",
            "not enough GPU memory for the scene",
        ] {
            assert_eq!(kind(line), LineKind::Error, "{line}");
        }
    }

    #[test]
    fn a_program_may_speak_to_its_user() {
        for line in [
            "Out of video memory trying to allocate a texture. Make sure your card has the minimum required memory.",
            "some of your processes may have been killed by the cgroup out-of-memory handler.",
            "* Device #2: Not enough allocatable device memory for this attack.",
        ] {
            assert_eq!(kind_of_known(line, line.contains("killed")), LineKind::Error, "{line}");
        }
        let quoted =
            "Metal cannot make the buffer, in which case the `VK_ERROR_OUT_OF_DEVICE_MEMORY` is right";
        assert_eq!(kind_of_known(quoted, false), LineKind::Prose);
        let quoted = "A fraction of 100% can produce a `RESOURCE_EXHAUSTED` message at the start";
        assert_eq!(kind(quoted), LineKind::Prose);
        let advice = "In case of out of memory you can lower your batch size";
        assert_eq!(kind_of_known(advice, false), LineKind::Prose);
        assert!(is_report("Your GPU memory is full. Try a lower timeline resolution."));
    }

    #[test]
    fn an_error_that_ends_the_program_is_not_handled() {
        for (text, index) in [
            (
                "terminate called after throwing an instance of 'std::logic_error'\n  what():  caught exception: CUDA error: out of memory\nAborted",
                1,
            ),
            (
                "  what():  Function \"_rtBufferCreate\" caught exception: Encountered a CUDA error: Out of memory",
                0,
            ),
            ("Caught exception: CUDA out of memory\nworker 3 is shutting down", 0),
            ("caught an error: cudaMalloc failed: out of memory", 0),
            (
                "CUDA out of memory, retrying with half the batch\n./run.sh: line 4:  812 Aborted                 ./solver",
                0,
            ),
            ("RuntimeError: kernel caught exception: CUDA out of memory\nstep 3", 0),
        ] {
            assert!(!is_handled(&Log::new(text), index), "{text}");
        }
        for text in [
            "Caught error: CUDA out of memory. Tried to allocate 1.00 GiB\nepoch 3 loss 0.2",
            "caught an OOM: CUDA out of memory\n\nnext trial with 2 layers",
        ] {
            assert!(is_handled(&Log::new(text), 0), "{text}");
        }
    }

    #[test]
    fn a_retry_is_a_handled_error() {
        let log = Log::new("Warning: Ran out of memory when decoding, retrying with tiled decoding.");
        assert!(is_handled(&log, 0));
        let log = Log::new("CUDA out of memory. Tried to allocate 1.00 GiB\nFalling back to CPU\nepoch 2");
        assert!(is_handled(&log, 0));
        let log = Log::new(
            "| WARNING | trainer | OOM: CUDA out of memory.\n| WARNING | trainer | attempting to recover from OOM in forward pass",
        );
        assert!(is_handled(&log, 0));
        for line in [
            "CUDA out of memory. Tried to allocate 1.00 GiB\nTraceback (most recent call last):",
            "cudaMalloc retry failed: out of memory",
            "out of resource: shared memory, Required: 9, Hardware limit: 6. Reducing block sizes may help.",
            "SplitAndRetryOOM: GPU OutOfMemory: could not split inputs and retry",
        ] {
            assert!(!is_handled(&Log::new(line), 0), "{line}");
        }
    }
}
