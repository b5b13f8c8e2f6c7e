//! Whether a text discusses memory instead of reporting a failure: a change of source code, a feature request, a
//! question, release notes, instructions. Such texts name out-of-memory errors without having one, so a mention in
//! them counts only where a program's own output stands in the text.

use std::sync::LazyLock;

use makeroom_search::{Regex, pattern};

use crate::log::Log;

/// A title and the headings of a form stand in the first lines of a text.
const LINES_SEARCHED: usize = 100;

/// The title of a commit or of a pull request.
static CHANGE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^#? ?(?:\[[^\]]*\]\s*)*(?:[\w./-]+(?:\([\w-]+\))?: )?(?i:fix|add|avoid|prevent|reduce|improve|refactor|support|remove|update|bump|skip|check for|handle|implement|enable|allow|limit|revert|disable|lower|introduce|expose|document|describe|report|detect|replace|print|trigger|indicate|mention|clarify|only (?:relaunch|restart|retry|log|report))(?:e?s|e?d|ing)? \S|^[a-z][\w./-]*(?:\([\w-]+\))?!?: (?:free|flush|release|drop|use|make|move|keep|stop|cache|reuse|return|clear)s? [a-z]",
    )
});
/// The title of a change to an exception or its message: "Throw `pool::exhausted` when …", "Show the size in the error".
static MESSAGE_CHANGE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,6}(?:\[[^\]]*\]\s*)*(?:change|throw|raise|tell|show|include|return|rename|log|emit|propagate|convert|wrap|distinguish|display|reword|rewrite|rephrase|extend|give|use|make|derive|inherit)\b.{0,80}(?:\b(?:error|exception)s?\b|\bmessages?\b|out_?of_?memory|bad_alloc|cudaError\w+|hipError\w+)|^\W{0,6}(?:\[[^\]]*\]\s*)*(?:fix|improve|clarify|correct|simplify|shorten|unify|update|adjust)\b.{0,80}\b(?:messages?|wording|error text|exception types?)\b",
    )
});
/// Words of a title that tells of something that happened.
static EVENT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:still|fails?|failed|crash(?:es|ed|ing)?|but|cannot|can['’]t|does(?:n['’]t| not)|stuck|exits? with|exited with|(?:exit|return) code|killed (?:by|when|while|after|during)|got killed|gets killed)\b",
    )
});
/// A title that names what some action leads to.
static CONSEQUENCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,6}(?:\[[^\]]*\]\s*)*\w+ing\b.{3,80}\b(?:causes?|caused|leads? to|led to|results? in|resulted in|gives?|triggers?|fails?|failed|crash(?:es|ed)|ends? in|raises|throws|breaks)\b",
    )
});
/// A tag that people put before the title of any report.
static ASKED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)^\W{0,6}(?:questions?|help|discussion|ask)\b"));
/// The title of a request, a question or a document.
static TALK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) ^\W{0,6} (?:\[[^\]]*\]\W*)* (?:feature \s (?:request|proposal|idea)|enhancement\b|suggestion\b|proposal\b|rfc\b|questions?:|discussion\b|documentation\b|docs?:|psa\b|please \s (?:add|support|implement|provide|allow|consider)\b|q:|notes?:|known \s issues\b|what \s (?:to \s do|are|is \s the)\b|how \s (?:to|do|does|can|much|many|should)\b|(?:think \s about|figure \s out|find \s (?:out|a \s way)|look \s into) \s (?:how|a|to|the)\b|is \s (?:it|there)\b|can \s (?:i|we|you)\b|does\b|should\b|would\b|change \s? log\b|(?:v?\d+(?:\.\d+)+\W{1,3})?release \s notes\b|what['’]?s \s (?:new|changed)\b|troubleshooting\b|faq\b|tips?\b)
      | ^\W{0,6} (?:\w+ \s){1,4} should \s (?:detect|be|not|handle|report|show|allow|support|warn|fail|fall|raise|have|print)\b | \bfeature \s request\b
      | ^\W{0,6} \[ (?:fea|feat|feature|rfc|proposal|enhancement|question|discussion|docs?|suggestion|idea)\b [^\]]* \]
      | \b(?:warning|message|error \s message|wording) \s (?:is|are) \s (?:incorrect|misleading|wrong|confusing|unclear)\b
        ",
    )
});
/// A heading of a form for requests and pull requests.
static FORM: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^(?:#{1,4}\s|\*\*)\W{0,4}(?:feature\b|suggestion|motivation|alternatives|describe the (?:solution|feature)|is your feature request|what would your feature|proposed (?:workflow|solution|change)|proposal|PR (?:APIs|types|changes)|what does this PR do)",
    )
});
/// A person tells that the system ended the process: a question above it is about this failure.
static KILLED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:being|was|were|is|gets?|got|been) (?:then |just |always |finally )?(?:oom[- ]?)?killed\b|\bexit(?:ed)? (?:with )?(?:code|status) (?:137|-9)\b",
    )
});
/// A title that asks for an amount.
static AMOUNT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,6}(?:how (?:much|many|large|big)|what (?:is|are) the (?:\w+ )?(?:memory|ram|hardware|system))\b",
    )
});
/// Output of a program below the title.
static OUTPUT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Traceback \(most|^\W*(?:\w+\.)*\w+(?:Error|Exception): |\b\d\d:\d\d:\d\d\b|^\s*(?:ERROR|FATAL|error:)|\[\w+ @ 0x|^\W*(?i:stack ?trace|backtrace|call stack)\W*:?\s*$|^\s*#\d+ +0x[0-9a-f]+ in |^\s*\[\d+\] .{0,200} at \S+:\d+|^\s+at [\w.$<>]+\(",
    )
});

/// A sentence that names what really failed, where the error said something else.
static CORRECTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bthe (?:true|real|actual|underlying) (?:cause|reason|error|problem) (?:was|is|turned out)\b",
    )
});
/// A sentence that describes how software handles a memory error, or what a change makes of it.
static HANDLING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        (?:^\W{0,4} | [.!:] \s) (?:with \s)? this \s (?:pr|mr|pull \s request|change|commit|patch) (?:,|\s) (?:\w+ \s)? (?:adds?|makes?|fix\w*|chang\w+|address\w*|updat\w+|improv\w+|allow\w*|enabl\w+|prevent\w*|avoid\w*|aims|tries|introduc\w+|mov\w+|replac\w+|remov\w+|rais\w+|lets?|handl\w+|catch\w+|retr\w+|reduc\w+|implement\w*|each|every|the|an?|crossing|all)\b
      | (?:\booms? | out[\s-]of[\s-]memory | OutOfMemory\w*) \b [^.]{0,60} \b(?:is|are|will \s be|gets?|was|were) \s (?:now \s | then \s | automatically \s | always \s){0,2} (?:caught|retried|resubmitted|re-?scheduled|re-?queued|classified|repeated|dropped|split|handled|counted|re-?tried|recorded|mapped)\b
      | (?:\bon | \bupon | \bhits | \bcatch(?:es)? | \bafter) \s (?:an? \s | each \s | every \s)? (?:[\w.]*OutOfMemory\w* | (?:cuda \s | gpu \s)? (?:oom | out[\s-]of[\s-]memory)) \b [^.]{0,60} \b(?:now \s \w+s | halves | retries | repeats | is \s (?:destroyed|reduced|restarted|halved) | are \s (?:freed|reduced) | resubmits | restarts \s with)\b
      | \b(?:to|in|of) \s my \s (?:pull \s request|pr|patch|fork|branch)\b
      | \bI (?:['’]ve|\s have)? \s implemented \b [^.]{0,60} \b(?:in \s case|whenever|when|if) \b [^.]{0,60} (?:\boom\b | out[\s-]of[\s-]memory)
      | \b(?:we|it|the \s \w+) \s (?:should|could|must|needs? \s to) \s (?:also \s | then \s | just \s)? (?:catch|handle|survive|recover \s from|react \s to|deal \s with) \s (?:\w+ \s){0,3} (?:\booms?\b | out[\s-]of[\s-]memory | OutOfMemory)
      | \b(?:need|needs|want|have) \s to \s think \s about \b [^.]{0,40} (?:\booms?\b | out[\s-]of[\s-]memory)
      | ^\W{0,4} (?:this \s (?:pr \s)?)? (?:fix(?:es|ed)?|close[sd]?|resolve[sd]?) :? \s \#\d+ \W*$ | ^\s*differential \s revision: \s D\d
      | \bit \s would \s be \s (?:helpful|nice|useful|great|good) \s (?:to \s (?:include|add|show|support|allow|mention|print|report|log|document)|if \s (?:the \s (?:error|message|tool|library)|makeroom))\b
      | ^\W{0,6} (?:new|added) \s (?:env(?:ironment)? \s (?:var\w*)|flag|option|parameter|setting|log \s blocks?)\b
      | (?:\booms? | out[\s-]of[\s-]memory) (?:\s (?:errors?|kills?|events?))? \s (?:is|are) \s not \s (?:\w+ly \s)? (?:reported|shown|handled|propagated|detected|surfaced|logged)\b
      | 捕获\s?[\w.]*(?:oom|OutOfMemory) | oom自动 | 本次更新 | (?:显存|内存)不足时.{0,4}自动 | \bdesign (?:\s (?:doc|note)s?)? :
        ",
    )
});
/// A sentence that says what software should do when memory runs out: output around it is an example.
static WISH: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,4}(?:\w+ ){0,2}(?:alerts?|warnings?|notifications?|dashboards?|events?) should (?:\w+ )?(?:trigger|fire|appear|show|be (?:shown|raised|sent|triggered|fired))\w*\b.{0,40}\b(?:if|when|for|on)\b",
    )
});
static MEMORY: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)memory|\boom\b|vram"));
/// A title that is only the name of the error, as a page of advice has.
static NAME_ONLY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W{0,6}(?:(?:fix(?:ing)?|solv(?:e|ing)|about) )?(?:the )?(?:cuda|gpu|pytorch|tensorflow)?\W{0,2}out of memory(?: errors?)?\W*$",
    )
});
/// An item of a list, a heading.
static ITEM: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*(?:#{2,6}\s|\d{1,2}[.)]\s+\S|[-*+•]\s+\S)"));
/// A page of advice has at least this many items.
const LEAST_ITEMS: usize = 4;

/// Whether a line is the title of a request, a question or a change.
pub(crate) fn is_request(title: &str) -> bool {
    static LEAK: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?i)^\W{0,6}is (?:there|this|it) (?:an?|any) (?:possible )?(?:\w+ )?(?:memory |vram )?leak")
    });
    // A question about an error that the writer has.
    static HELP: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)^\W{0,6}(?:is there|how (?:to|do|can|should)|can (?:i|we|you))\b.{0,60}\b(?:way around|get around|get rid of|deal with|solve|resolve|solution (?:to|for)|workaround for)\b.{0,40}(?:out[ -]of[ -]memory|\boom\b)",
        )
    });
    // The first heading of a form for bugs.
    static BUG: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?i)^\W{0,6}describe the (?:bug|issue|problem|error|current behaviou?r)\b")
    });
    // An error's name and message look like the type and title of a commit.
    static NAMED: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)^\W{0,6}[\w.]*(?:error|exception|fatal|abort(?:ed)?|panic): "));
    let is_told = ASKED.is_match(title) && EVENT.is_match(title);
    !LEAK.is_match(title)
        && !is_told
        && !CONSEQUENCE.is_match(title)
        && !NAMED.is_match(title)
        && !HELP.is_match(title)
        && !BUG.is_match(title)
        && (CHANGE.is_match(title) || TALK.is_match(title) || is_message_change(title))
}

/// Whether a line is the title of a change to an exception or to its message.
pub(crate) fn is_message_change(title: &str) -> bool {
    MESSAGE_CHANGE.is_match(title) && !EVENT.is_match(title) && !title.trim_end().ends_with('?')
}

/// Whether a text is a discussion without any output of a program.
pub(crate) fn is_discussion(log: &Log) -> bool {
    // Trackers put the labels of a report above its title.
    let title = (0..log.len().min(LINES_SEARCHED))
        .find(|&index| !log.line(index).trim().is_empty() && !log.line(index).starts_with("labels:"));
    let Some(title) = title else { return false };
    let lines = || (title + 1..log.len().min(LINES_SEARCHED)).map(|index| log.line(index));
    let is_advice = || {
        NAME_ONLY.is_match(log.line(title))
            && lines().filter(|line| ITEM.is_match(line)).take(LEAST_ITEMS).count() == LEAST_ITEMS
    };
    let is_corrected = |line: &str| CORRECTION.is_match(line) && !MEMORY.is_match(after(&CORRECTION, line));
    let is_discussed = is_request(log.line(title))
        || is_advice()
        || HANDLING.is_match(log.line(title))
        || lines().any(|line| FORM.is_match(line) || HANDLING.is_match(line) || is_corrected(line));
    let is_told = || AMOUNT.is_match(log.line(title)) && lines().any(|line| KILLED.is_match(line));
    let is_wish = || is_request(log.line(title)) && lines().any(|line| WISH.is_match(line));
    (is_discussed && !lines().any(|line| OUTPUT.is_match(line)) && !is_told()) || is_wish()
}

/// The rest of the sentence behind what a pattern matched.
fn after<'line>(words: &Regex, line: &'line str) -> &'line str {
    let rest = words.find(line).map_or("", |found| &line[found.end()..]);
    rest.split([';', '.']).next().unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discussion_is_told_from_a_report() {
        for text in [
            "# Add launch bounds to avoid register overuse\nSummary: address `CUDA error: too many resources requested for launch`.",
            "[Feature Request]: unload models\nsmall cards run out of memory",
            "# How much VRAM does the 13B model need?\nI get OOM with 8 GB.",
            "labels: docs\n# Documentation: the OutOfMemoryError hook\nIt is not described.",
            "v3.1 release notes\n- out of memory in the upscaler is gone",
            "Spill to RAM\n### Suggestion\nI end up with HIP out of memory.",
            "# Allocation warning is misleading\nIt says out of memory for every failure.",
            "Jobs that OOM are now re-queued on a larger card.\nThe limit is three attempts.",
            "smaller batches\nWith this change the loop prints each CUDA OOM it survives.",
            "Detect pods that run out\nAlerts should fire when a pod shows:\nReason: OOMKilled\nStarted: 10:11:12",
            "# Resume the epoch\nI implemented a loop which drops the sample in case it causes an OOM error.",
            "# interpret OOM errors of the scheduler\nThis fixes #12",
            "GPU OOM optimizations\nSummary: evaluate without gradients.\nDifferential Revision: D123",
            "# Find a way to survive CUDA OOM\nA pop-up would do.",
            "# Nicer errors\nWe should catch CUDA OOM errors and name the batch size.",
            "# Errors in the viewer\nWe need to think about what a CUDA OOM error leaves behind.",
            "New option `retry_limit`: how often a step that got CUDA out of memory is repeated.",
        ] {
            assert!(is_discussion(&Log::new(text)), "{text}");
        }
        for text in [
            "# Add launch bounds\nTraceback (most recent call last):\nRuntimeError: CUDA error: out of memory",
            "# CUDA out of memory when training the large model\nloading weights",
            "# How to avoid this?\n2025-01-02 10:11:12 out of memory",
            "# Crash while loading\nI get CUDA out of memory",
            "valueerror: free memory on device (10.00/24.00 gib) on startup is less than desired gpu memory utilization (0.9, 21.60 gib)",
            "fatal: release build ran out of memory",
            "# How much RAM does the converter need?\nIt used up all my RAM and was killed by the kernel.",
            "Describe the bug\nWorker exceeded 95% memory budget. Restarting",
            "I applied this patch and still get CUDA out of memory",
            "training gets OOM on the second GPU, after this change too",
        ] {
            assert!(!is_discussion(&Log::new(text)), "{text}");
        }
    }
}
