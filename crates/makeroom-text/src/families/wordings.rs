//! Lines that say in any words that memory ran out, by what the words mean rather than by who prints them: something
//! does not fit, exceeds, is exhausted, was denied, or could not be reserved; more was needed than available; a limit was
//! reached; a process was stopped because of memory.
//!
//! Such words also stand in progress messages, so a line counts only where it or its surroundings mark an error, where
//! it says that the program stops, or where it is the whole text. Like [`super::generic`] this is a last resort: any
//! family that knows the line knows it better.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::generic::{is_error, is_no_failure};
use super::phrases::is_in_patch;
use crate::call::Call;
use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::captured_size;
use crate::log::Passage;
use crate::placement;
use crate::site::source_line;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "not fit",
        "n't fit",
        "for gpu memory",
        "for device memory",
        "for video memory",
        "for the gpu",
        "for vram",
        "than device memory",
        "than gpu memory",
        "than available memory",
        "than the available",
        "exceeds",
        "exceeded",
        "exceeding",
        "exceed the",
        "too little",
        "lack of",
        "shortage of",
        "no more gpu",
        "no more device",
        "no more vram",
        "no more video",
        "no gpu memory",
        "no device memory",
        "no free",
        "no available",
        "no memory",
        "no vram",
        "memory available",
        "not available to allocate",
        "memory left",
        "low on memory",
        "low gpu memory",
        "exhausted",
        "depleted",
        "overflow",
        "denied",
        "could not reserve",
        "cannot reserve",
        "failed to reserve",
        "unable to reserve",
        "could not get",
        "failed to get",
        "failed to obtain",
        "could not obtain",
        "failed to acquire",
        "unable to acquire",
        "failed to grow",
        "could not grow",
        "failed to commit",
        "unable to commit",
        "pin memory",
        "pinning",
        "page-lock",
        "allocation of",
        "failure to alloc",
        "failure allocating",
        "alloc compute",
        "malloc fail",
        "cannot be allocated",
        "could not be allocated",
        "returned null",
        "returned a null",
        "returns null",
        "null after",
        "null from",
        "less than required",
        ", only",
        "needed:",
        "> available",
        "less than the required",
        "less than needed",
        "but only",
        "available vram",
        "found only",
        "free gpu memory",
        "requires more",
        "need at least",
        "needs at least",
        "insufficient vram",
        "not sufficient",
        "sufficient memory",
        "sufficient vram",
        "sufficient gpu",
        "enough memory",
        "enough vram",
        "enough gpu",
        "enough graphics",
        "enough video",
        "memory quota",
        "gpu memory quota",
        "memory budget",
        "memory limit",
        "mem limit",
        "limit reached",
        "memory resource limit",
        "due to memory",
        "because of memory",
        "memory issue",
        "memory usage",
        "memory pressure",
        "due to low memory",
        "significant memory",
        "for memory",
        "exceeding memory",
        "memory in use",
        "out of process memory",
        "video ram",
        "gpu ram",
        "out of cuda memory",
        "out of hbm",
        "_NO_MEM",
        "_NOMEM",
        "_ALLOC_ERR",
        "MEMORY_ALLOC",
        "ALLOCATION_FAIL",
        "NOT_ENOUGH_MEM",
        "AllocFailed",
        "ALLOC_FAILURE",
        "oom event",
        "killed by oom",
        "and oom",
        "bytes free",
        "mb free",
        "gb free",
        "mib free",
        "gib free",
        "gb available",
        "gib available",
        "mb available",
        "vram full",
        "vram is full",
        "memory full",
        "allocate failed",
        "out of cuda",
        "job killed",
        "task killed",
        "process killed",
        "exceeded memory",
        "heap is only",
        "has only",
        "only has",
        "have only",
        "only have",
        "then oom",
    ],
    read,
};

/// Memory of any kind.
const MEMORY: &str = r"(?:(?:memory|vram|hbm)\b|(?:video|gpu|graphics|system|host|cpu|physical)\sram\b|(?-i:RAM)\b|(?:gpu|video|device)\smem\b)";
/// What has device memory.
const DEVICE: &str = r"(?:gpus?|devices?|graphics\scard|video\scard|accelerator)\b";
/// A size with its unit.
const SIZE: &str = r"(\d[\d.,]*)\s?([KMGT]i?B|bytes)\b";
const UNNAMED: &str = r"\d[\d.,]*\s?(?:[KMGT]i?B|bytes)\b";

/// Something is too large for the memory, or the memory is used up.
static SHORT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        \b(?:do|does|did|will|would|can|could)(?:n['’]t|\s?not) \s (?:be \s)? (?:\w+ \s)? fit\b .{{0,30}}? \b(?:in|into|on|onto|within|inside)\b .{{0,30}}? (?:{MEMORY} | \b{DEVICE})
      | \btoo \s (?:large|big|many|much|long)\b .{{0,40}} \bfor \s (?:\w+ \s){{0,3}} (?:{MEMORY} | {DEVICE} \s*$)
      | \blarger \s than \s (?:\w+ \s){{0,3}} {MEMORY}
      | \bexceed(?:s|ed|ing)? \s (?:\w+ [\s-]){{0,4}} {MEMORY} | {MEMORY} (?:\s [\w.]+){{0,5}} \s exceed(?:s|ed)\b | \bexceeds? \s (?:the \s)? {DEVICE} \s capacity | \bon \s the \s {DEVICE} \s (?:is|was) \s exceeded
      | \b(?:too \s little|lack \s of|shortage \s of|no \s more|no \s free|no \s available) \s (?:\w+ \s){{0,2}} {MEMORY}
      | \bno \s (?:\w+ \s){{0,2}} {MEMORY} (?: \s (?:left|available|remaining|on\b) | \s*[.!]?\s*$) | {MEMORY} \s (?:is \s | was \s)? not \s available
      | {MEMORY} (?:\s \w+){{0,5}}? \s (?:exhausted|depleted|depletes|used \s up|overflow\w*|denied|refused|rejected) \b | \bexhausted \s (?:\w+ \s){{0,4}} {MEMORY} | \bheap \s (?:is \s)? exhausted\b
      | \b(?:gpu|device|memory|vram|buffer)\b .{{0,40}} \b(?:pool|arena|heap) \s (?:is \s | was \s)? (?:exhausted|full)\b
      | (?:\b(?:not | in | no) | n['’]t) \s? (?:have \s | has \s)? (?:enough|sufficient) \s (?:\w+ \s){{0,3}} {MEMORY} | {MEMORY} \s (?:is|are|was) (?:\s not|n['’]t) \s (?:sufficient|enough)\b
      | \blow \s (?:(?:gpu|device|video|system) \s)? {MEMORY} .{{0,20}} \b(?:cannot|can['’]t|abort\w*|exit\w*|kill\w*) | \b(?:computer|system|machine|device) \s is \s (?:running \s)? low \s on \s {MEMORY}
      | \bran \s out \s of \s (?:\w+ \s){{0,2}} {MEMORY} | \bout \s of \s (?:[\w-]+ \s){{1,3}} memory\b | {MEMORY} \s (?:is \s | was \s)? full\b
      | {MEMORY} \s requested \s can(?:not|\s not) \s be \s allocated | \b(?:could|can) \s? not \s be \s allocated\b
        "
    ))
});
/// An allocation that did not succeed.
static FAILED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        \b(?:fail(?:ed|s|ure)?|unable|could(?:\snot|n['’]t)|can(?:not|\snot|['’]t)|error) \s (?:to \s | while \s | when \s)? (?:trying \s to \s)? (?:get|obtain|acquire|reserve|reserving|commit|committing|grow|growing|pin|pinning|page-lock) \b .{{0,40}}? (?: {MEMORY} | {UNNAMED} .{{0,40}} \b(?:gpu|device|memory|vram|card|heap|pool|arena)\b | \b(?:gpu|device) \s (?:buffer|pool|arena|heap|allocator)\b )
      | \b(?:could(?:\snot|n['’]t)|can(?:not|['’]t)|unable \s to|failed \s to) \s reserve \b .{{0,30}} \b(?:on \s the \s device|heap|arena)\b
      | \b(?:texture|buffer|array|tensor|surface|image|memory|block|heap|workspace|arena)\b (?:\s \w+)? \s allocation (?:\s (?:of|for) \s .{{0,40}})? \s (?:has \s)? fail(?:ed|s|ure)? \b | \ballocation \s of \s (?:\w+ \s){{0,3}} fail(?:ed|s)\b | \balloc \s (?:\w+ \s){{0,3}} fail(?:ed|s)?\b | \bm?alloc \s fail\b
      | \bfailure \s (?:to \s allocate|allocating)\b | \bmemory \s allocate \s fail | \w*alloc\w*(?:\(\))?: \s no \s memory\b
      | \b\w*alloc\w* (?:\([^)]*\))? \s (?:call \s)? (?:has \s)? (?:returned|returns|gave) \s (?:a \s)? null | \bnull (?:ptr)? \s (?:after|from|returned \s by) \s \w*alloc
        "
    ))
});
/// Requests for something else than an amount of memory: properties, addresses, files.
static PROPERTY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b(?:memory|vram|mem) [\s_-] (?:info\w*|size|usage|stat\w*|clock\w*|bandwidth|type|types|map\w*|region|address\w*|requirements?|propert\w+|temperature|utili[sz]ation|access\w*|frequency|layout|format|controller|bank|dump|snapshot|profil\w*|handle)\b .{0,20}(?:$|[:.]) | \bstack \s overflow | buffer [\s-] overflow | integer \s overflow | permission \s denied | access \s denied",
    )
});
/// The name of a status that is about an allocation.
static STATUS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b[A-Z][A-Z0-9]*_(?:\w*_)?(?:NO_?MEM(?:ORY)?|NOT_ENOUGH_MEMORY|MEM(?:ORY)?_ALLOC(?:ATION)?(?:_\w+)?|ALLOC(?:ATION)?_(?:ERR(?:OR)?|FAIL\w*))\b|\b\w+(?:Status|Error)AllocFailed\b",
    )
});
/// A limit on memory that was reached.
static LIMIT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        \b(?:v?mem|memory|vram|ram)\w* \s (?:(?:usage|use|resource) \s)? (?:limit|quota|budget)\b (?:\W+ (?:of \s)? {UNNAMED} \W?)? (?:\s (?:was|is|has \s been))? \s (?:vastly \s)? (?:exceeded|reached|hit)\b
      | \bexceed(?:s|ed|ing)? \s (?:\w+ \s){{0,4}} (?:v?mem|memory|vram|ram) \s (?:(?:usage|use|resource) \s)? (?:limits?|quota|budget|constraint|request)\b
      | \b(?:worker|process|job|task|function|container|pod)\b .{{0,20}} \bexceed\w* \s (?:its \s | the \s)? (?:{UNNAMED} \s of \s)? memory\b
      | \bquota \s exceeded: \s (?:gpu \s)? memory | \b(?:limit|quota|budget) \s (?:of \s {UNNAMED} \s)? (?:was \s)? exceeded\b .{{0,24}} \bmemory\b
        "
    ))
});
/// A process that was stopped because of memory.
static STOPPED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \b(?:killed|terminated|stopped|aborted|evicted|restarted|reloaded|killing|kill)\b .{0,60} \b(?:(?:due \s to|because \s of|for|exceeding|by|using|out \s of|lack \s of|low) \s (?:\w+ \s){0,3} (?:memory|oom|ram) | memory \s (?:usage|issue|pressure|limit))\b
      | \b(?:reloaded|restarted|closed)\b .{0,24} \b(?:because|since) \s it \s (?:was|is) \s using \s (?:\w+ \s){0,2} memory
      | \boom \s event\b | \boom: \s (?:\w+ \s){0,3} killed\b | \bkill \s .{0,40} \bdue \s to \s low \s memory\b
        ",
    )
});
/// More was needed than there is: the need first, or what is available first.
static NEED_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix) \b(?:needs?|needed|requires?|required|requested|wants?|estimated|requesting|allocationsize)\b [^\d]{{0,40}}? {SIZE} .{{0,60}}? \b(?:only|have|has|found|available|free|left|exceeds)\b [^\d]{{0,24}}? {SIZE}
      | \b(?:needs?|needed|requires?|required|requested)\b [^\d]{{0,40}}? {SIZE} .{{0,24}}? {SIZE} \s (?:is \s | are \s)? (?:free|available|left)\b",
    ))
});
static FREE_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix) \b(?:available|free|have|has|remaining|only)\b [^\d]{{0,30}}? {SIZE} .{{0,40}}? (?: \b(?:less \s than|smaller \s than|below|but|needs?|needed|requires?|required)\b | < ) [^\d]{{0,30}}? {SIZE}",
    ))
});
static ABOUT_MEMORY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:memory|vram|mem|hbm|gpu|device|heap)\b|(?-i:\bRAM\b)"));
/// A person reports where in a run the memory ends.
static TOLD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b(?:fails?|crash(?:es|ed)|dies|stops)\b .{0,40} \bmemory \s (?:in \s use|usage|use)\b .{0,24} \b(?:gets|reaches|hits|exceeds)\b
      | \b(?:and|then) \s oom (?:ed|s|['’]d)? \s (?:at|on|in|after)\b .{0,24} \d",
    )
});
/// The program says that it stops.
static STOPS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\babort\w*|\bexit(?:ing|ed|s)?\b|\bterminat\w+|\bstopp(?:ed|ing)\b|\bkill(?:ed|ing|s)?\b|\bcannot continue\b|\bgiving up\b|\bgave up\b|\bdisabled\b|\bheld\b|\bevict\w*|\brestart\w*",
    )
});
/// A message that reports how a run goes.
static PROGRESS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^\W{0,3}(?i:info|debug|notice|trace|note|hint|tip)\b\W|\b(?-i:INFO|DEBUG|NOTICE|TRACE)\b")
});
/// A text with at most this many lines is the message itself.
const SHORTEST_TEXT: usize = 3;
/// Lines below in which a program says that it stopped.
const LINES_BELOW: usize = 4;

/// Whether the line is an error's: by its own marks, by what follows, or because the text has nothing else.
fn is_stated(passage: &Passage<'_>) -> bool {
    let line = passage.line();
    let is_followed = || passage.onward().skip(1).take(LINES_BELOW).any(is_error);
    if PROGRESS.is_match(line) || PROGRESS.is_match(passage.prefix()) {
        return is_followed();
    }
    is_error(line)
        || is_error(passage.prefix())
        || STOPS.is_match(line)
        || FAILED.is_match(line)
        || (passage.all().count() <= SHORTEST_TEXT && !is_narrative(line))
        || is_followed()
}

/// Whether a line is several sentences, as people write.
fn is_narrative(line: &str) -> bool {
    static END: LazyLock<Regex> = LazyLock::new(|| pattern(r"[a-z)][.!?]\s+[A-Z\d]"));
    END.find_iter(line).nth(1).is_some()
}

/// A need and what is available, where the need is larger.
fn shortfall(line: &str) -> Option<(Bytes, Bytes)> {
    if !ABOUT_MEMORY.is_match(line) {
        return None;
    }
    let pair = |words: &LazyLock<Regex>| {
        let found = words.captures(line)?;
        let sizes = |first: usize| captured_size(&found, first).zip(captured_size(&found, first + 2));
        sizes(1).or_else(|| sizes(5))
    };
    pair(&NEED_FIRST)
        .or_else(|| pair(&FREE_FIRST).map(|(free, need)| (need, free)))
        .filter(|(need, free)| need > free)
}

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    if is_no_failure(line) || is_in_patch(passage) {
        return None;
    }
    let shortfall = shortfall(line);
    let is_limit = LIMIT.is_match(line);
    let is_stopped = STOPPED.is_match(line);
    let is_short = || SHORT.is_match(line) || FAILED.is_match(line) && !PROPERTY.is_match(line);
    let is_told = TOLD.is_match(line);
    let is_said = shortfall.is_some() || is_limit || is_stopped || STATUS.is_match(line) || is_short();
    if !(is_told || is_said && is_stated(passage)) {
        return None;
    }
    let resource = placement::of_line(line);
    let call = Call::read(line);
    let (request, free) = shortfall.unzip();
    let mut facts = Facts {
        line: passage.line_number,
        quote: line.to_owned(),
        resource,
        request: request.or(call.request),
        free: free.or(call.free),
        total: call.total,
        site: source_line(line),
        ..Facts::default()
    };
    if is_limit && resource == Resource::Device {
        facts.lead(
            Cause::ArtificialLimit,
            "The log names a limit on GPU memory that was reached; the GPU itself may have free memory.",
        );
    } else if (is_limit || is_stopped) && resource != Resource::Device {
        facts.framework = Framework::Host;
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Likely,
            "The process reached a limit on host memory, or the machine ran out of memory. The GPU is not involved.",
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn memory_that_ran_out_in_any_words() {
        for text in [
            "Error: the lattice does not fit on the GPU",
            "fatal: scene is too large for video memory",
            "ERROR grid exceeds available device memory",
            "Too little GPU memory to start the sampler",
            "there is no more device memory, aborting",
            "error: VRAM exhausted in the second pass",
            "failed to obtain 768 MB from the GPU allocator",
            "Cannot reserve 3 GB on the device",
            "cudaMalloc returned a null pointer",
            "vertex buffer allocation of 96 MB on the GPU failed",
            "Failure to allocate device memory for the arena",
            "solver needs 9.5 GB of VRAM, only 6 GB is free",
            "available VRAM (6 GB) is less than required (9.5 GB)",
            "request for GPU memory denied: error",
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((facts.framework_id(), facts.resource), ("", Resource::Device), "{text}");
        }
        for text in ["AF_ERR_NO_MEM", "the batch does not fit in memory", "gpu_malloc returned NULL, exiting"]
        {
            assert!(facts_in(text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_need_and_what_is_available_are_read() {
        for text in [
            "this scene requires 12 GiB of VRAM but only 8 GiB is available",
            "free VRAM: 8 GiB, needed: 12 GiB, abort",
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((facts.request, facts.free), (Some(Bytes::gib(12)), Some(Bytes::gib(8))), "{text}");
        }
        assert!(facts_in("model needs 8 GiB of VRAM, 12 GiB available").is_none());
    }

    #[test]
    fn limits_and_stopped_processes() {
        for text in [
            "Job exceeded a memory resource limit, job was aborted",
            "memory limit of 256 MiB exceeded with 270 MiB used",
            "App terminated due to memory issue",
            "error R99 (memory quota exceeded)",
        ] {
            let stated = &facts_in(text).unwrap_or_else(|| panic!("not read: {text}")).statements[0];
            assert!(stated.cause == Cause::HostMemory && stated.certainty >= Certainty::Likely, "{text}");
        }
        let facts = facts_in("error: GPU memory quota exceeded for tenant 7").unwrap();
        assert_eq!((facts.statements[0].cause, facts.statements[0].leads), (Cause::ArtificialLimit, true));
    }

    #[test]
    fn progress_and_properties_are_not_failures() {
        for text in [
            "INFO dataset does not fit in memory, streaming it\nepoch 1\nepoch 2\nepoch 3",
            "failed to get GPU memory info: driver not loaded",
            "could not get device memory clock",
            "rate limit exceeded",
            "connection pool exhausted",
            "estimated memory 3 GB is less than available 8 GB",
            "requires at least 16 GB of RAM (recommended 32 GB)",
            "error: context length exceeded",
            "If the mesh does not fit in GPU memory, split it.",
        ] {
            assert!(facts_in(text).is_none_or(|facts| !facts.is_failure()), "{text}");
        }
    }
}
