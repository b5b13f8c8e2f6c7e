//! Whether an error stands in a document instead of a log: a troubleshooting list, a runbook, a changelog, the
//! description of a change, a message with placeholders.
//!
//! Such texts quote errors that no program printed, so there is no failure to explain. The text around the quote
//! sets them apart from a report: advice to a reader, conditions, headings, and no trace of a run. Notes about a run
//! quote its figures, so an error with figures counts as a failure unless the text says that it is an example.

use std::sync::LazyLock;

use makeroom_search::{Regex, mixed_pattern, pattern};

use crate::discussion::is_message_change;
use crate::facts::Facts;
use crate::log::{Log, clipped};

/// The kind of document that quotes an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Document {
    /// Advice for people who get the error: a FAQ, a runbook, a list of symptoms and fixes.
    Guide,
    /// A changelog, a pull request, a commit message, a review.
    Change,
    /// The message with placeholders instead of figures.
    Template,
}

impl Document {
    /// The verdict's sentence about an error on this line.
    pub(crate) fn summary(self, line: usize) -> String {
        match self {
            Self::Guide => format!(
                "This text describes an out-of-memory error and how to deal with it (line {line}); it is not a log of one."
            ),
            Self::Change => format!(
                "This text describes a software change and quotes an out-of-memory error on line {line}; it is not a log of one."
            ),
            Self::Template => format!(
                "The error on line {line} has placeholders instead of figures: this text describes an out-of-memory error and is not a log of one."
            ),
        }
    }
}

/// Documents are short; a log of this many lines is not searched.
const LONGEST_DOCUMENT: usize = 2000;
/// Output of a run stands this near to its error.
const LINES_OF_RUN: usize = 20;
/// The sentences around a quoted error, and its advice.
const LINES_AROUND: usize = 3;
const LINES_OF_ADVICE: usize = 8;
/// The heading of a list is this far above its items.
const LINES_TO_HEADING: usize = 60;
const LONGEST_LINE: usize = 1024;
/// The first lines of a pull request, and its last.
const LINES_OF_REQUEST: usize = 100;

/// Text between code marks or quotes: the quoted error itself.
static QUOTED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"`[^`]{1,400}`|"[^"]{3,400}"|“[^”]{3,400}”|«[^»]{3,400}»|「[^」]{3,400}」"#));
static MEMORY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)memory|oom|alloc|exhausted|resource|kill|vram"));
/// What only the output of a run has.
static RUN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)Traceback \(most|^\s*File "[^"]+", line \d|\b\d\d:\d\d:\d\d\b|\[rank ?\d+\]|\dit/s\b|\ds/it\b|\bcore dumped\b|^\W*Aborted\b|\bpid[ =:]{0,2}\d{2,}|^\s+at [\w.$<>]+ ?\(|killed process \d|\bepoch[ :=#\[]{1,3}\d|\biter(?:ation)?[ :=#]{1,3}\d|\bstep[ :=#]{1,3}\d+(?:/\d|\W+loss|:)|\b(?:at|after|in|on) (?:step|epoch|iteration|batch) \d|^\s*[EWIF]\d{4} |^\W{0,2}(?:ggml|llama)_\w+: |slurmstepd:|\bjob(?:id)?[ :=#]{1,3}\d{3,}|^\s*(?:>>>|\$) \S|^-{2,}> ?\d+ |^\s*what\(\):|NVIDIA-SMI \d|\d ?MiB / +\d|^\W*(?-i:\[(?:ERROR|FATAL|WARNING|INFO)\]|(?:ERROR|FATAL|WARNING|INFO)[ :])"#,
    )
});
/// Words of a person who has the error.
static FIRST_PERSON: LazyLock<Regex> = LazyLock::new(|| {
    mixed_pattern(
        r"\bI(?:['’]\w+)?,? [a-z]|\b[Mm]y [a-z]|\b[Ww]e(?:['’]\w+)? (?:also |still |now |then )?(?:got|get|saw|see|hit|had|have|ran|run|tried|observed|found|measured|use[ds]?|are|were)\b|\b[Oo]ur (?:run|job|model|training|server|cluster|machine|setup)|\b(?:ich|mir|mein|j['’]ai|mon|mi|yo)\b|我(?:的|在|用|想|把|跑)|私|僕|저는|제가|у меня|能否|请问|求助|贴一下|\bme too\b|\bsame (?:here|problem|issue|error)\b|[a-z]\?\s*$",
    )
});
/// An account of something that happened.
static ACCOUNT: LazyLock<Regex> = LazyLock::new(|| {
    mixed_pattern(
        r"(?i)\b(?:crashed|died|DIED|oom(?:ed|['’]d)|was killed|got killed|were killed|ran out|aborted|happened|occurred|measured|observed|took|had been|turned out|root cause (?:was|is)|(?:was|is now|were) (?:fixed|solved|resolved)|live test|this (?:run|job|box|machine)|on (?:\d{4}-\d\d|the (?:first|second|third|\d+(?:st|nd|rd|th))))\b|失败原因|实测|本次",
    )
});
/// A condition that speaks to the reader.
static READER: LazyLock<Regex> = LazyLock::new(|| {
    mixed_pattern(
        r"(?ix)
        \b(?:if|when(?:ever)?|once|in\scase|should|where) \s (?:\w+ \s)? you(?:r|['’]re)? \s (?:[\w-]+ \s){0,4}? (?:see|get|getting|hit|encounter|run|running|receive|face|have|experience|notice|still|gpu|card|job|pod|server|training|model|process|machine)\b
      | \b(?:you|users?) \s (?:may|might|can|could|will|would|should) \s (?:\w+ \s)? (?:see|get|hit|encounter|run \s (?:in|out)|receive|face|notice)\b
      | \bif \s (?:it|this|that|the \s [\w-]+|an? \s [\w-]+|[\w-]+) \s (?:[\w-]+ \s)? (?:fails?|crash(?:es)?|dies|stops?|exits?|reports?|prints?|shows?|says|appears?|runs? \s out|complains?|throws?|raises?|is \s killed|does \s not \s start)\b
      | \b(?:can|may|might|could|usually|typically|often) \s (?:[\w-]+ \s){0,8}? (?:end|fail|exhaust|crash|raise|produce|lead|cause|result|mean|run \s out)\b
      | \ben \s cas(?:o)? \s (?:de|d['’]) | \bin \s caso \s di\b | \bbei \s (?:der \s | dem \s | einem \s)? (?:fehler|meldung)
      | \b(?:wenn|falls) \s (?:du|sie|man|der|die|das|ein\w*|es|hier)\b | \bsi \s (?:vous|tu|el|la|le|ves|aparece|obtienes|recibes|on)\b | \bse \s (?:você|vedi|ottieni|aparecer|compare|o \s erro)\b
      | \bals \s (?:je|u|de|het|er)\b | \bkomt \s (?:hij|het|de) \b .{0,40} \bniet\b | если
      | 如果(?:你|您|出现|遇到|看到|发生|提示|报|显存|内存|运行|启动|训练) | 若(?:出现|遇到|提示|报) | (?:遇到|出现|提示|报).{0,60}(?:时|的话)[，,：:] | もし | (?:場合|とき|際)(?:は|に|、) | (?:경우|나오면|발생하면)
        ",
    )
});
/// The title or the heading of advice.
static HEADING: LazyLock<Regex> = LazyLock::new(|| {
    mixed_pattern(
        r"(?ix) ^\W{0,8} (?:\d+(?:\.\d+)*[.)]?\s+)? (?:[\w-]+ \s){0,3}
        (?:troubleshoot\w* | faqs? | frequently \s asked | what \s to \s do \s (?:when|if) | how \s to \s (?:fix|solve|avoid|handle|deal) | (?:error|memory) \s tips | common \s (?:\w+ \s)?(?:errors?|issues?|problems?|pitfalls?|failures?|mistakes?) | known \s (?:issues?|problems?|limitations?) | typical \s (?:errors?|problems?) | runbook | playbook | error \s (?:reference|messages|codes) | gotchas? | if \s (?:something|things) \s (?:goes|go) \s wrong | when \s (?:something|things) \s (?:goes|go|breaks?) | fehlerbehebung | fehlersuche | häufige \s (?:fehler|probleme|fragen) | d[ée]pannage | solución \s de \s problemas | preguntas \s frecuentes | problemen \s oplossen | probleemoplossing | solução \s de \s problemas | 常见(?:问题|错误|报错) | 故障(?:排除|排查) | 问题排查 | トラブルシューティング | よくある質問 | 문제 \s? 해결 | устранение \s неполадок)",
    )
});
/// A label of an entry: what it looks like, why, and what to do.
static ENTRY: LazyLock<Regex> = LazyLock::new(|| {
    mixed_pattern(
        r"(?i)^\W{0,8}(?:symptoms?|causes?|cause and fix|reason|fix(?:es)?|solutions?|resolution|remedy|workaround|mitigation|what to do|how to fix|what it means|meaning|lösung|ursache|abhilfe|solución|causa|oplossing|oorzaak|solução|解决(?:方法|方案|办法)?|处理方法|原因|対処法?|解決(?:方法|策)|해결|решение|причина)\W{0,6}(?:[:：|]|$)",
    )
});
/// An instruction.
static INSTRUCTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) (?: ^ | [.;:|→⇒—–] \s* | [=-]> \s* | ,\s(?:or\s|and\s|then\s)? | \b(?:then|or|and|please|either|to)\s ) \W{0,4}
        (?:reduce|lower|decrease|set|use|try|pin|switch|check|restart|reboot|increase|raise|add|make \s sure|ensure|close|stop|free|update|upgrade|install|disable|enable|pass|export|limit|choose|pick|move|clear|kill|verify|confirm|turn|drop|shrink|split|run|downgrade|uninstall|quantize|offload|start|lock|give|leave|delete|unload) \s [\w`\x22'-]
      | ^\s*(?:sudo|export|systemctl|docker|kubectl|pip|sync|nvidia-smi)\s | \byou(?:r|['’]re)?\s",
    )
});
/// A heading, an item, a row of a table, a line in code marks: where a document names an error.
static LABEL: LazyLock<Regex> = LazyLock::new(|| {
    mixed_pattern(
        r"(?i)^\s*(?:#{1,6}\s|[-*+•]\s|<(?:details|summary|h\d|li|dt|b|strong)\b|\d{1,2}[.)]\s|\||`[^`]+`|q\d*[.:]\s|\W{0,4}(?:symptom|error|problem|message|问题|现象|报错)\W{0,4}[:：])",
    )
});
/// The first row of a table of errors.
static TABLE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\s*\|.*\b(?:meaning|causes?|reason|fix(?:es)?|solution|actions?|resolution|what to do|remedy|workaround|how to fix)\b.*\|",
    )
});
/// A lead that calls what follows an example.
static EXAMPLE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:looks? (?:something )?like|similar to|such as|for example|e\.g\.|examples?|like (?:this|these|the following)|of the form|errors? like)\b",
    )
});
/// Figures of a run.
static FIGURE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\d{5,}|\d ?(?:[KMGT]i?B|bytes)\b|\(\d+ vs\. \d+\)"));
/// Placeholders where a message has figures.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:x{1,4}(?:[.,]x{1,3})?\W{0,2}|(?:n{1,3}|y(?:\.yy?)?|z(?:\.zz?)?)\W{1,2})(?:[KMGT]i?B|bytes)\b|(?:<[\w -]{1,30}>|\{[\w.:]{0,30}\}|\$\{\w{1,30}\}|\.\.\.|…|\?{2,3}|_{2,}) ?(?:[KMGT]i?B|bytes)\b|%[.\d]*(?:l{0,2}|z)[udifg] ?(?:[KMGT]i?B|bytes)\b",
    )
});
/// The heading of a list of changes, or of a version in it.
static CHANGES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,8}(?:change ?log|release notes|what['’]?s (?:new|changed)|(?:bug ?)?fix(?:es|ed)|added|changed|removed|improve(?:d|ments)|deprecated|unreleased|new features|summary of changes|v?\d+\.\d+(?:\.\d+)?(?:-?\w+)?(?:\W{0,4}\d{4}-\d\d-\d\d\W?)?)\W*$",
    )
});
/// An item of a list of changes: a commit's type, or a reference to a pull request at its end.
static CHANGE_ITEM: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,6}(?:[0-9a-f]{7,40}\s+)?(?:fix|feat|perf|docs|chore|refactor|test|ci|build|revert|style)(?:\([\w/., -]+\))?!?:\s|^\W{0,6}(?:fix(?:ed|es)?|add(?:ed|s)?|improve[ds]?|avoid(?:ed|s)?|prevent(?:ed|s)?|handle[ds]?|catch(?:es)?|no longer|support|remove[ds]?)\b.{4,200}\((?:#\d+|[0-9a-f]{7,40})\)",
    )
});
/// A pull request that names its ticket, or a review of a message's wording.
static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,6}(?:(?:this (?:pr|commit|patch|change) )?(?:fixes|closes|resolves)) (?:#\d+|[\w./-]+#\d+|https?://|the (?:ticket|issue|bug))|^\W{0,6}(?:signed-off-by|reviewed-by|co-authored-by|cherry[- ]picked from|differential revision):|^\W{0,6}(?:change|reword|rewrite|rephrase|improve|clarif|simplif|shorten|correct|adjust|extend)\w*\b.{0,60}\b(?:message|wording|text|error string|warning)s?\b|^\W{0,6}(?:could|can|should|would|maybe|please|nit|suggest\w*)\b.{0,80}\b(?:message|wording|layout|phras\w+)\b",
    )
});
/// A message as it was and as it becomes.
static OLD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,8}(?:old|before|previous(?:ly)?|current(?:ly)?|was|from|instead of(?: (?:this|the (?:old|current|previous) (?:one|message)))?|(?:the )?(?:old|current|previous) (?:error |exception )?message(?: (?:is|was|reads|read|said|says|looks like(?: this)?))?)\W*$",
    )
});
static NEW: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,8}(?:new|after|now|proposed|becomes|to|(?:the )?(?:new )?(?:error |exception )?(?:message|output|text) (?:becomes|is now|will be|now (?:is|reads|says|looks like))(?: (?:as follow(?:s|ing)|like this|this|the following))?)\W*$",
    )
});

/// An item of a list that opens with a name in code marks and says what it means.
static CODE_ITEM: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^\s*[-*+•]\s+(?:\*\*)?`[^`]{2,80}`(?:\*\*)?\s*(?:[:：—–=]|-+>?|\()\s*\S+(?:\s+\S+){2,}")
});
/// Words of an item that tells when an error came.
static WHEN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:happens|appears|occurs|every time|after|since|today|yesterday|on start\w*|at start\w*|still|always)\b",
    )
});

/// The kind of document around an error, or `None` for a report or a log. `facts` is the reading of the error.
pub(crate) fn around(log: &Log, index: usize, facts: &Facts) -> Option<Document> {
    if log.len() > LONGEST_DOCUMENT {
        return None;
    }
    let line = |at: usize| clipped(log.line(at), LONGEST_LINE);
    let lines = |from: usize, to: usize| (from..to.min(log.len())).map(line);
    let near = |count: usize| lines(index.saturating_sub(count), index + count + 1);
    if near(LINES_OF_RUN).any(|line| RUN.is_match(line)) {
        return None;
    }
    let said = |line: &str| QUOTED.replace_all(line, |_| " ").into_owned();
    let has_figures = facts.request.is_some() || facts.live.is_some() || FIGURE.is_match(line(index));
    if !has_figures && lines(index, index + 2).any(|line| PLACEHOLDER.is_match(line)) {
        let is_own = near(LINES_AROUND).any(|line| line.starts_with("I ") || line.contains(" I "));
        return (!is_own).then_some(Document::Template);
    }
    let is_own = near(LINES_OF_ADVICE)
        .filter(|line| !LABEL.is_match(line))
        .any(|line| FIRST_PERSON.is_match(&said(line)));
    let is_wording = || is_reworded(log, index) || is_titled_change(log);
    if is_change(log, index) && !is_own || is_wording() && !is_asked_by_user(near(LINES_OF_ADVICE)) {
        return Some(Document::Change);
    }
    if is_own || near(LINES_AROUND).any(|line| ACCOUNT.is_match(&said(line))) {
        return None;
    }
    let above = (0..index).rev().map(line).find(|line| !line.trim().is_empty()).unwrap_or("");
    let is_lead = above.trim_end().ends_with([':', '：']) || above.starts_with('#');
    let is_own_condition = READER.is_match(&said(line(index)));
    let is_condition = is_own_condition || is_lead && READER.is_match(&said(above));
    let is_advised_below = || {
        // The advice that frameworks append to their errors is not the document's.
        lines(index + 1, index + 1 + LINES_OF_ADVICE)
            .filter(|line| !line.contains("ALLOC_CONF") && !line.contains("max_split_size"))
            .any(|line| INSTRUCTION.is_match(line) || ENTRY.is_match(line))
    };
    let has_heading =
        || lines(index.saturating_sub(LINES_TO_HEADING), index + 1).any(|line| HEADING.is_match(line));
    if has_figures {
        let is_example = is_condition || is_lead && EXAMPLE.is_match(&said(above)) && has_heading();
        return (is_example && is_advised_below()).then_some(Document::Guide);
    }
    // Programs append advice to their own errors; a document's stands outside the quoted error.
    let is_quoted = QUOTED.find_iter(line(index)).any(|quoted| MEMORY.is_match(quoted.as_str()));
    let is_label = || is_quoted || log.is_marked(index) || LABEL.is_match(line(index));
    let is_advised = || is_label() && INSTRUCTION.is_match(&said(line(index))) || is_advised_below();
    let has_entry = || {
        near(LINES_OF_ADVICE).filter(|line| ENTRY.is_match(line)).take(2).count() == 2
            || lines(index.saturating_sub(LINES_OF_RUN), index).any(|line| TABLE.is_match(line))
    };
    let is_guide = is_condition && (is_own_condition && is_label() || is_advised())
        || CODE_ITEM.is_match(line(index)) && !WHEN.is_match(line(index))
        || is_label() && is_advised() && (has_heading() || has_entry() || has_siblings(log, index));
    is_guide.then_some(Document::Guide)
}

/// Whether the error stands in a changelog, a pull request or a review.
fn is_change(log: &Log, index: usize) -> bool {
    let line = |at: usize| clipped(log.line(at), LONGEST_LINE);
    let is_item = || {
        let item = line(index);
        CHANGE_ITEM.is_match(item)
            || LABEL.is_match(item)
                && !item.starts_with('#')
                && (index.saturating_sub(LINES_TO_HEADING)..index)
                    .rev()
                    .map(line)
                    .find(|line| line.starts_with('#') || CHANGES.is_match(line))
                    .is_some_and(|heading| CHANGES.is_match(heading))
    };
    is_item()
        || is_reworded(log, index)
        || is_titled_change(log)
        || (0..log.len().min(LINES_OF_REQUEST)).any(|at| at != index && REQUEST.is_match(line(at)))
}

/// Whether the text shows a message before and after a change of its wording.
fn is_reworded(log: &Log, index: usize) -> bool {
    let line = |at: usize| clipped(log.line(at), LONGEST_LINE);
    let above = |words: &Regex| {
        (index.saturating_sub(2)..index)
            .rev()
            .map(line)
            .find(|line| !line.trim().is_empty())
            .is_some_and(|line| words.is_match(line))
    };
    (above(&OLD) || above(&NEW))
        && [&OLD, &NEW]
            .iter()
            .all(|words| (0..log.len().min(LINES_OF_REQUEST)).any(|at| words.is_match(line(at))))
}

/// Whether the text has the title of a change to an exception or to its message.
fn is_titled_change(log: &Log) -> bool {
    (0..log.len().min(LINES_OF_REQUEST))
        .map(|at| clipped(log.line(at), LONGEST_LINE))
        .find(|line| !line.trim().is_empty())
        .is_some_and(is_message_change)
}

/// Whether a person who has the error asks about it; reviewers ask questions too.
fn is_asked_by_user<'log>(mut lines: impl Iterator<Item = &'log str>) -> bool {
    lines
        .any(|line| FIRST_PERSON.is_match(QUOTED.replace_all(line, |_| " ").trim_end().trim_end_matches('?')))
}

/// Whether other entries of the same form stand around: a list of errors, each with its advice.
fn has_siblings(log: &Log, index: usize) -> bool {
    /// Words of other entries of a list of errors.
    static ERROR: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)error|fail|not found|insufficient|unable|cannot|can't|timeout|denied|refused|missing|slow|crash|segfault|killed|\b(?:not|no|bug)\b|out of memory|oom",
        )
    });
    let form = |at: usize| {
        let line = log.line(at).trim_start();
        if log.is_marked(at) {
            return Some('*');
        }
        line.chars()
            .next()
            .filter(|_| LABEL.is_match(line))
            .map(|mark| if mark.is_ascii_digit() { '1' } else { mark })
    };
    let Some(own) = form(index) else { return false };
    (index.saturating_sub(LINES_OF_RUN)..(index + LINES_OF_RUN).min(log.len()))
        .filter(|&at| at != index && form(at) == Some(own))
        .any(|at| ERROR.is_match(clipped(log.line(at), LONGEST_LINE)))
}
