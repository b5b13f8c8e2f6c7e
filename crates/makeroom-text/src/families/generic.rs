//! The last resort: any line that says that memory ran out, with the figures in it.
//!
//! It states no cause. It exists so that the error of an unknown program is found, quoted, and explained as far as its
//! figures allow.

use std::sync::LazyLock;

use makeroom_search::{Regex, pattern};

use super::phrases::is_in_patch;
use crate::call::Call;
use crate::facts::{Facts, Severity};
use crate::family::Family;
use crate::figures::find_size;
use crate::identifiers::without_names;
use crate::log::Passage;
use crate::placement;
use crate::site::source_line;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "out of memory",
        "out-of-memory",
        "out_of_",
        "OutOfMemory",
        "OutOfPoolMemory",
        "MemoryAllocation",
        "bad_alloc",
        "MemoryError",
        "failed to allocate",
        "cannot allocate",
        "could not allocate",
        "unable to allocate",
        "Error allocating",
        "when allocating",
        "while allocating",
        "not enough",
        "n't enough",
        "no enough",
        "insufficient",
        "no more memory",
        "no memory on",
        "too much memory",
        "memory exceeded",
        "exceeds gpu memory",
        "malloc error",
        "alloc error",
        "memory left",
        "memory error",
        "been exhausted",
        "to reserve",
        "too large for",
        "too large to fit",
        "too big to fit",
        "GPU failed",
        "device failed",
        "memory failed",
        "to malloc",
        "t malloc",
        "ALLOC_FAILED",
        "out of memeory",
        "RESOURCE_EXHAUSTED",
        "ResourceExhausted",
        "memory exhausted",
        "OOM when allocating",
        "out of gpu memory",
        "out of device memory",
        "out of video memory",
        "out of VRAM",
        "memory allocation failed",
        "allocation failed",
        "bytes of memory failed",
        "显存不足",
        "显存不够",
        "显存溢出",
        "爆显存",
        "内存不足",
        "内存溢出",
        "メモリ不足",
        "메모리 부족",
        "memoria insuficiente",
        "mémoire insuffisante",
        "nicht genügend Speicher",
        "недостаточно памяти",
        "нехватка памяти",
        "oom",
        "OUTOFMEMORY",
        "OUTOFVIDEOMEMORY",
        "error: o",
        "can't allocate",
        "couldn't allocate",
        "can not allocate",
        "unable to alloc",
        "failed to alloc",
        "fail to alloc",
        "failed allocating",
        "failing to alloc",
        "0x8007000E",
        "alloc failed",
        "alloc() failed",
        "malloc failed",
        "allocation error",
        "allocation failure",
        "enough memory",
        "enough free memory",
        "enough available memory",
        "enough device memory",
        "sufficient memory",
        "sufficient device memory",
        "memory limit",
        "memory overflow",
        "memory is full",
        "memory full",
        "no memory left",
        "no free memory",
        "lack of memory",
        "out of mem",
        "out of gpu",
        "out of ram",
        "run out of",
        "ran out of",
        "runs out of",
        "fit in memory",
        "fit in gpu",
        "fit in vram",
        "fit into memory",
        "fit into gpu",
        "exceeds available",
        "exceeds the available",
        "exceeds memory",
        "ENOMEM",
    ],
    read,
};

static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:requested|tried to allocate|trying to allocate|failed to allocate|allocating|cannot allocate|could not allocate|unable to allocate|alloc(?:ation)? of)(?: memory| size| a buffer of size| of size)?:? ([\d.,]+) ?([KMGTP]i?B|bytes|B)\b",
    )
});
static FREE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:free|available)(?: memory)?(?: is only| is|:|=)? ?([\d.,]+) ?([KMGTP]i?B|bytes|B)\b")
});
static FREE_AFTER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)([\d.,]+) ?([KMGTP]i?B|bytes|B) (?:is |are )?(?:free|available)\b"));
static TOTAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)([\d.,]+) ?([KMGTP]i?B|bytes|B) total\b|\btotal(?: memory)?(?: is|:|=| of)? ?([\d.,]+) ?([KMGTP]i?B|bytes|B)\b",
    )
});

/// Mentions of running out of memory that are not failures: tests, source code, advice, denials, change logs, and
/// lines that name another error.
static NO_FAILURE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?ix)
        \b(?:no|not|without|never|don['’]t|doesn['’]t|didn['’]t|won['’]t|avoids?|avoiding|prevents?|to\ fix|in\ case\ of|if\ you\ (?:get|see|run|encounter)) \b[^.;:]{0,24}(?:out[\ -]of[\ -]memory|oom\b)
      | \b(?:catch(?:es|ing)?|handles?|handling|option\ to|except(?:ion)?\ for|raises\(|assertRaises\w*\(|EXPECT_THROW\()[^;:]{0,48}(?:OutOfMemory|out[\ -]of[\ -]memory|\boom\b) | \boom(?:s|_kill)?\b\W{1,2}0\b | \boom[._-](?:group|score|adj|policy|control) | \bprint\s+["'] | printf\(
      | \btest_\w*(?:memory|oom)\w*.*\b(?:PASSED|ok)\b | error\W?\ would\ mean\b
      | ^\s*(?:except|raise|catch|assert|def)\b.*memory | ^\s*//.*memory
      | ^\s*(?:[-*+•]\s+)?(?:\[\w+\]\s*)?(?:fix(?:es|ed)?|feat|add(?:s|ed)?|improves?|improved|reduces?|reduced|handles?|handled|supports?|removes?|removed|bump(?:s|ed)?)\b[\ (:].*\b(?:memory|oom) | \boom\b.*\bfix(?:es|ed)?\b
      | ^\s*\d{1,2}[.)]\s+[\w\s]*\b(?:memory|oom)\s*$ | \{\s*$ | =>\s*$
      | ^\s*\|[^:]*\|\s*$
      | \b(?:returns?|raises?|throws?|gives?)\ (?:an?\ )?out[\ -]of[\ -](?:gpu\ )?memory\ (?:error\ )?(?:when|if)\b
      | (?:out[\ -]of[\ -](?:gpu\ )?memory|\boom\b)\ (?:errors?|exceptions?|crash(?:es)?|issues?|problems?)\ (?:may|might|could|can)\ (?:still\ )?(?:occur|happen|appear|arise)
      | \b(?:may|might|could|can|would|will)\b[^.;:]{0,40}(?:out[\ -]of[\ -]memory|\boom\b)
      | \b(?:if|when|whenever|in\ case|unless|should|whether)\b[^.;:]{0,60}(?:not\ enough|n['’]t\ enough|insufficient|runs?\ out\ of|running\ out\ of|not\ fit|n['’]t\ fit|exceeds?\b|too\ (?:large|big|little)|is\ exhausted|lack\ of) | ^\s*Returns?\b | (?:pytest\.skip|skipTest)\( | \bSKIPPED\s*\[
      | ^\s*\|(?:[^|]*\|){3,}\s*$ | ^\s*\#{2,6}\s+\d+[.)] | ^\W*[^*]+\*\*:?\s*(?:lower|reduce|use|try|set|decrease|increase)\b
      | ^(?:docs|chore|feat|fix|refactor|test|tests|ci|perf|build)(?:\([^)]*\))?!?:\s | \b\w+!?\(.*"[^"]*(?:memory|alloc)[^"]*".*\);\s*$
      | allocate\ device\ (?:numbers?|name|struct\w*|id|info|node|minor|major)\b
      | has\ no\ attribute\b | cannot\ import\ name\b | \bis\ not\ defined\b
      | alloc\w*\ (?:(?:an?|the|requested|new|free|any)\ ){0,3}(?:ports?|tty|pty|pseudo\S*|(?:ip|mac|network)\ address\w*|threads?|pids?|subnets?|jobs?|nodes?|tasks?|workers?|licen[cs]es?|inodes?|sockets?)\b
      | \b(?:if|when|whenever|on\ each)\ (?:an?\ |the\ )?(?:cuda\ |gpu\ )?(?:out[\ -]of[\ -]memory|oom)\ (?:errors?\ |exceptions?\ )?(?:occurs?|happens?|is\ (?:raised|detected|thrown|caught))\b
      | \b(?:is|are)\ (?:an?\ )?[\w.]*OutOfMemory\w*\ (?:raised|thrown)\b | OutOfMemory\w*\ (?:is|are)\ (?:only\ |then\ )?(?:raised|thrown)\b
      | \b(?:specification|spec|docs?|documentation)\b.{0,12}\w+_OUT_OF_\w+ | \bis\ returned\W?\ if\b
      | \bif\ (?:an?\ )?(?:out[\ -]of[\ -]memory|oom)\b
      | other\ than\ running\ out\ of | sample\ buffer
      | \b(?:would|could|might|may|can|must|should)\ (?:\w+\ )?(?:kill|terminate|stop|abort|evict|restart)\b
      | illegal\ memory\ access | illegal_?address | driver\ version\ is\ insufficient | invalid\ argument | not_?supported | \bCL_SUCCESS\b | unknown\ error | no\ pinned\ memory\ pool | static\ TLS
        "#,
    )
});
/// Words that say by themselves that an allocation failed or that memory ran out.
static STRONG: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        OUTOF\w*MEMORY | out [\s_-]? of [\s_-]? (?:\w+ [\s_-])? mem | OutOf\w*Memory | out \s of \s (?:v?ram|gpu)\b | ran \s out \s of \s (?:\w+ \s){0,2} (?:memory|vram|ram)
      | too \s (?:large|big) \s (?:to \s fit \s (?:in|on|into)\b.{0,12} | for \s (?:your|the|this|a) \s) (?:gpu|device|graphics|memory|vram)
      | no \s memory \s on \s (?:the \s)? (?:device|gpu) | request\w* \s too \s much \s memory | (?:gpu|video|device|graphics) \s memory \s (?:limit \s)? exceeded | exceeds \s (?:the \s)? (?:gpu|video|device) \s memory \s \(
      | fail\w* \s to \s reserve \s .{0,24} memory | (?:cuda|gpu|vram) \s memory \s error\b | (?:re|m|c)?alloc\w* \s of \s .{0,40} \b(?:gpu|device) \s failed\b
      | (?:fail\w* | can(?:['’]t|not|\s not) | could(?:n['’]t|\s not) | unable) \s (?:to \s)? (?:\w+ \s){0,2}? (?:re|m|c)?alloc
      | \b failing \s to \s alloc | \b 0x8007000E \b
      | \w*alloc\w* (?:\(.{0,40}\))? .{0,24} \b(?:fail\w*|error)\b | Error \s (?:when \s | while \s | in \s)? allocating | bad_?alloc | MemoryError | \b(?:\w*Error)?MemoryAllocation\b | ALLOC_FAILED | RESOURCE_?EXHAUSTED | ResourceExhausted
      | memory \s (?:is \s | are \s)? (?:insufficient|not \s enough|n['’]t \s enough) | memory \s isn['’]t \s enough | alloc\w* \s (?:\w+ \s){0,2} memory \s failed | no \s more \s memory \s available | \b(?:not? | n['’]t | in | without) \s? (?:(?:have|has) \s)? (?:enough|sufficient) \s (?:\w+ \s){0,3} (?:memory|vram|ram)\b | insufficient \s (?:\w+ \s){0,2} (?:memory|vram|ram)\b
      | memory \s (?:(?:has \s been \s | is \s | was \s)? exhausted|overflow|is \s (?:full|insufficient|overflow)) | no \s (?:\w+ \s){0,2} memory \s (?:left|available)\b | \bENOMEM\b | oom\b.{0,20}\b(?:error|killed|when)
      | 显存不足|显存不够|显存溢出|爆显存|内存不足|内存溢出|メモリ不足|메모리\s부족|memoria\s insuficiente|mémoire\s insuffisante|nicht\s genügend\s Speicher\b|недостаточно\s памяти|нехватка\s памяти
        ",
    )
});
/// A program's own mark of an error, which weaker words require in the same line.
static MARK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\berror\b|\w+Error\b|exception|\bfatal\b|\babort|\bfailed\b|\bpanic(?:ked)?\b|\bcritical\b|\[E\]|\bERR\b|what\(\):|terminate called|core dumped",
    )
});
/// The abbreviation counts only as a whole word, and only with a mark or with a program's output around it.
static SHORT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\boom(?:s|ed|ing)?\b"));
/// The abbreviation in the title of a report.
static REPORTED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \b(?:cuda|gpu|vram|hip|rocm|got|gets?|getting|hit|hits|hitting|goes|went|going|still|always|then|host|cpu|instant|immediate) \s oom\b
      | [:,–—-] \s? (?:\w+ \s)? oom \W* $ | \b(?:returns?|throws?|gives?|reports?|raises?|(?:results?|ends? (?:\s up)?) \s (?:in|with)|leads? \s to|causes|caused|runs? \s into|ran \s into|running \s into) \s (?:an? \s | the \s | me \s)? oom\b
      | \boom(?:s|ed|ing|['’]d)? \s (?:when|while|during|after|on|at|with|again|even|every|error|errors|issue|issues|problem|problems|crash\w*)\b
      | ^\W* (?:\[[^\]]*\]\W*)* oom\b[\s:,-]+ (?:running|training|loading|serving|generating|finetuning|fine-tuning|inference|starting|using|in|for|from)\b
        ",
    )
});
/// The abbreviation in a person's sentence about the run at hand.
static TOLD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \b(?:still|always|immediately|keeps?|kept|but \s (?:it|I|we)|then) \s (?:\w+ \s){0,2}? (?:returns?|returning|gets?|getting|got|gives?|giving|throws?|throwing|hits?|hitting|goes|going|runs? \s into|reports?|raises?) \s (?:an? \s | the \s | me \s)? (?:\w+ \s)? oom\b
      | \b(?:I|we) \s (?:\w+ \s){0,2}? (?:get|got|hit|see|saw|run \s into|ran \s into|encounter(?:ed)?|keep \s getting) \s (?:an? \s | the \s)? (?:\w+ \s)? oom\b
        ",
    )
});
static OUTPUT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\W*(?:\[\w+\]:)?\W*Traceback \(most|ChildFailedError"));
static LONG: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)memory|0x8007000E|out of mem|too (?:large|big) (?:to fit|for (?:\w+ ){0,3}(?:gpu|device|memory|vram|card|graphics))|alloc|RESOURCE_?EXHAUSTED|VRAM|显存|内存|メモリ|메모리|memoria|mémoire|speicher|памят",
    )
});
static FOREIGN: LazyLock<Regex> = LazyLock::new(|| pattern(r"显存|内存|メモリ|메모리|памят"));
static ERROR: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)error|exception|错误[:：]|out of memory|OOM|CUDA|failed|alloc"));
/// An error whose last words were cut off, as a search result or a screenshot does.
static CUT_OFF: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:CUDA|HIP|runtime|driver) error: o(?:u(?:t(?: (?:o(?:f(?: (?:m\w{0,5})?)?)?)?)?)?)?$")
});
/// The name of the exception or of a test, without a message.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^[\s`*#+-]*(?:\[[^\]]*\])*\s*(?:\w+ )?(?:torch\.|cupy\.)[\w.]*OutOfMemoryError[`\s]*$")
});
static TEST: LazyLock<Regex> = LazyLock::new(|| pattern(r"\btest_\w*(?:out_of_memory|oom)\w*"));
/// Headings of a feature request or a pull request.
static FORM: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^#{1,4}\s.{0,4}(?:feature\b|motivation|alternatives|describe the solution|PR (?:APIs|types|changes)|what does this PR do|proposal|checklist)",
    )
});

/// A line at the level of a warning.
static WARNING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)^W\d{4}\s|^\W{0,3}warn(?:ing)?\b\W{0,3}(?:\s|:|$)|\bWARN(?:ING)?\b[\]:|-]*\s*$")
});

/// Whether a line shows that the program stopped in an error.
pub(super) fn is_error(line: &str) -> bool {
    OUTPUT.is_match(line) || MARK.is_match(line)
}

/// Whether a line mentions memory without a failure: a test, source code, advice, a denial, a change log, another error.
pub(super) fn is_no_failure(line: &str) -> bool {
    NO_FAILURE.is_match(line)
}

/// A text with at most this many lines is the message itself.
const SHORTEST_TEXT: usize = 2;

/// Whether the line only names an exception or a test, or the text is a form that asks for a change.
fn is_only_a_name(passage: &Passage<'_>) -> bool {
    let is_test = TEST.is_match(passage.line()) && !MARK.is_match(passage.line());
    let has_traceback = || passage.all().any(|line| OUTPUT.is_match(line));
    let is_form = || passage.all().any(|line| FORM.is_match(line));
    let is_named = NAME.is_match(passage.line()) && passage.all().count() > SHORTEST_TEXT;
    is_test || (is_named || (is_form() && !MARK.is_match(passage.line()))) && !has_traceback()
}

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let without_names = without_names(passage.line());
    let text: &str = &without_names;
    if NO_FAILURE.is_match(text) || is_in_patch(passage) || is_only_a_name(passage) {
        return None;
    }
    let is_marked = || MARK.is_match(text) || MARK.is_match(passage.prefix());
    let has_output = || passage.all().chain(passage.others()).any(|line| OUTPUT.is_match(line));
    let is_cut_off = CUT_OFF.is_match(text);
    // Below the title, a person's sentence is distinguished by its log, if there is one.
    let is_title = || passage.line_number == 1 || passage.prefix().is_empty() && text.starts_with("# ");
    let is_reported = || is_title() && REPORTED.is_match(text) || TOLD.is_match(text);
    let is_short = SHORT.is_match(text) && (is_reported() || is_marked() || has_output());
    let is_about_memory = is_cut_off || LONG.is_match(text) || is_short;
    if !is_about_memory || !(is_cut_off || STRONG.is_match(text) || is_marked() || SHORT.is_match(text)) {
        return None;
    }
    // In these languages, the words do not distinguish a sentence from an error.
    if FOREIGN.is_match(text) && !ERROR.is_match(text) {
        return None;
    }
    // A program that only warns continues; its error, if one follows, is read by itself.
    let is_warning = WARNING.is_match(passage.prefix()) || WARNING.is_match(text);
    let severity = if is_warning && !passage.onward().skip(1).any(is_error) {
        Severity::Warning
    } else {
        Severity::Failure
    };
    let call = Call::read(text);
    Some(Facts {
        line: passage.line_number,
        quote: passage.line().to_owned(),
        severity,
        resource: placement::of_line(text),
        request: find_size(&REQUEST, text).or(call.request),
        free: find_size(&FREE, text).or_else(|| find_size(&FREE_AFTER, text)).or(call.free),
        site: source_line(text),
        total: TOTAL
            .captures(text)
            .and_then(|found| {
                crate::figures::captured_size(&found, 1).or_else(|| crate::figures::captured_size(&found, 3))
            })
            .or(call.total),
        ..Facts::default()
    })
}

#[cfg(test)]
mod tests {
    use crate::facts::Resource;
    use crate::find::facts_in;

    #[test]
    fn any_program_that_runs_out_is_read() {
        for text in [
            "solver: not enough GPU memory for the mesh",
            "Error: insufficient GPU memory to load the scene",
            "RuntimeError: 显存不足",
            "[Bug]: CUDA OOM on a card with 24 GB",
            "GPU OOM when serving a model with 4 ranks",
            "RuntimeError: CUDA out of mem",
            "Model too large to fit in GPU memory",
            "CUDA memory error",
            "GPU memory exceeded. Try a smaller batch.",
            "FATAL ERROR: NO MEMORY ON DEVICE AFTER A SECOND TRY",
            "Allocation of 1073741824 bytes on the GPU failed",
            "CUDA OOM in the second epoch\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>",
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((facts.framework_id(), facts.resource), ("", Resource::Device), "{text}");
        }
        // The logger's level is the mark of an error too.
        assert_eq!(facts_in("ERROR: OOM").unwrap().resource, Resource::Unknown);
        assert_eq!(facts_in("renderer: out of memory").unwrap().resource, Resource::Unknown);
    }

    #[test]
    fn documents_patches_and_other_errors_are_not() {
        for text in [
            "I hope that I don't run out of memory there.",
            "- Fixed an out of memory error in the loader",
            "```diff\n+the process prints CUDA out of memory and stops",
            "failed to allocate pinned system memory: CUDA driver version is insufficient for CUDA runtime version",
            "could not allocate oversize buffer on device 0: CL_SUCCESS",
            "Creation of a resource failed for a reason other than running out of memory.",
            "the bathroom and the classroom are oomph",
            "cause OOM sometimes",
            "2. Out of GPU memory",
            "A long prompt may lead to out of memory on small cards.",
            "Is there an option that returns out of GPU memory when the limit is reached?",
            "显存不够用了，请问怎么解决",
            "Err(DriverError(CUDA_ERROR_OUT_OF_MEMORY)) => {",
            "Feature request: add an option to catch torch.cuda.OutOfMemoryError",
            "    with pytest.raises(torch.cuda.OutOfMemoryError):",
            "memory.events: low 0 high 0 max 0 oom 0 oom_kill 0",
            "    print \"CUDA out of memory\"",
            "if gpu memory is not enough, reduce points_per_side",
            "| **CUDA OOM** | RuntimeError: CUDA out of memory | reduce the batch |",
            "#### 2. RuntimeError: CUDA out of memory",
            "SKIPPED [1] tests/test_gpu.py:88: Not enough GPU memory",
            "log::error!(\"Out of GPU memory\");",
            "chore: lower the batch size, CUDA out of memory in CI",
            "kernel: mydev: could not allocate device number",
            "Skip test_out_of_memory in test/test_cuda.py on this board",
            "'MemoryError' would mean that the data is larger than the machine",
        ] {
            assert!(facts_in(text).is_none(), "{text}");
        }
    }
}
