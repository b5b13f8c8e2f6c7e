//! Host memory that the text names although the error reads like the GPU's: calls that pin host memory, `pin_memory`
//! that was the cure, WSL's memory limit, a title about the machine's memory.
//!
//! CUDA and HIP return the same status for memory of the GPU and for host memory that they could not pin, so only the
//! text around the error tells them apart. Figures of a GPU decide against it.

use std::sync::LazyLock;

use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::searched::Searched;

/// A call that registers host memory, and its failure.
static REGISTER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:hip|cuda|cuMem)Host(?:Register|GetDevicePointer)\w*\b.{0,120}(?:OutOfMemory|out of memory|MemoryAllocation|\bfail\w*|error\W{0,3}2\b|\breturned 2\b)|(?:\bfail\w* (?:to|in|at)|\berror\b.{0,24}).{0,40}\b(?:hip|cuda|cuMem)HostRegister\b",
    )
});
/// The run works without pinned memory.
static UNPINNED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)pin_memory\W{0,3}(?:=|:|to|is)?\W{0,2}False\b|\b(?:without|disabl\w+|turn\w* off|no|removing|removed) pin(?:ned)?[_ -]memory\b",
    )
});
static CURED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:works?|worked|solve[sd]?|fixe[sd]|resolve[sd]?|helps?|helped|gone|disappear\w*|can (?:now )?use|could (?:then )?use|no (?:more|longer)|trains? (?:fine|again)|runs? (?:fine|again)|turned out|confirmed|(?:the |my )?(?:problem|issue|cause|reason) (?:is|was))\b|确认|解决|好了",
    )
});
static NOT_CURED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:not|n['’]t|never|neither|nothing|still|nor|without success)\b(?: \w+){0,2}? (?:work|help|solve|fix|resolve|change|crash|fail|get|happen)\w*|没有解决|没解决|无效",
    )
});
/// The configuration of WSL's virtual machine.
static WSL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\.wslconfig|^\s*\[wsl2\]|\bWSL2?\b.{0,24}(?:memory (?:limit|setting|cap)|内存)")
});
/// The title says whose memory it is.
static TITLE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:cpu|system|host|main|physical) (?:memory|ram)\b|(?-i:\bRAM\b)"));
static OUT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)out[ -]of[ -](?:\w+ )?(?:memory|ram)|\booms?\b|\b(?:not enough|insufficient|exhaust\w*|runs? out|full|killed)\b",
    )
});
static DEVICE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\bgpu|\bvram\b|\bcuda\b|\bvideo|\bdevice\b|显存"));
/// The machine ran out, and ended the process.
static KILLS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:system|machine|computer|server|host)\b.{0,24}\b(?:out of memory|runs? out of (?:memory|ram)|ran out of (?:memory|ram))\b.{0,40}\bkill(?:s|ed)\b",
    )
});
/// Memory that grows with every step.
static GROWS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:each|every)\b.{1,60}\b(?:memory|ram|usage)\b.{0,40}\b(?:increas\w+|grow\w*|rises?|goes up)\b|\b(?:memory|ram|usage)\b.{0,40}\b(?:increas\w+|grow\w*|rises?|goes up)\b.{0,40}\b(?:each|every|per)\b",
    )
});
/// Half of the GPU was free.
static HALF: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:about |only |roughly |less than |nearly )?half (?:of )?(?:(?:the|my|its|available) ){0,2}(?:gpu|vram|video)\b|\bhalf (?:of )?(?:the |my )?(?:gpu|vram)(?: memory| ram)? (?:is |was )?(?:still )?free\b",
    )
});
/// Pinned memory comes out of half of the machine's RAM there.
static WINDOWS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bwsl|\bwindows\b"));

/// Adds what the text says about host memory, where the error itself leaves it open.
pub(crate) fn add(facts: &mut Facts, text: Searched<'_>) {
    let is_known = facts.resource == Resource::Host
        || facts.live.is_some()
        || facts.free.is_some()
        || facts.statements.iter().any(|stated| stated.certainty >= Certainty::Likely);
    if is_known {
        return;
    }
    let any = |is_wanted: &dyn Fn(&str) -> bool| text.any(|part| part.lines().any(is_wanted));
    let is_cured = |line: &str| CURED.is_match(line) && !NOT_CURED.is_match(line);
    if any(&|line| REGISTER.is_match(line)) {
        host(
            facts,
            "The call that failed pins host memory, and the driver returns the same status for it as for GPU memory: the system's limit on locked memory was reached, or an address cannot be pinned.",
        );
    } else if any(&|line| UNPINNED.is_match(line) && is_cured(line)) {
        host(
            facts,
            "The log says that the error is gone without pin_memory: the system had no more memory that it could pin. Under WSL and Windows, pinned host memory is limited to half of the RAM.",
        );
    } else if any(&|line| WSL.is_match(line)) {
        let summary = "The log names WSL's memory limit (.wslconfig): the virtual machine gets half of the RAM by default, and CUDA's host memory comes out of it.";
        if any(&is_cured) {
            host(facts, summary);
        } else {
            facts.state(Cause::HostMemory, Certainty::Possible, summary);
        }
    } else if any(&|line| KILLS.is_match(line)) {
        host(facts, "The log says that the machine ran out of memory and the process was killed.");
        if any(&|line| GROWS.is_match(line)) {
            facts.state(
                Cause::Leak,
                Certainty::Possible,
                "The log says that memory grows with every step: something from every step may stay alive.",
            );
        }
    } else if facts.resource == Resource::Unknown
        && text.parts().first().and_then(|part| part.lines().next()).is_some_and(is_title_about_host)
    {
        host(facts, "The title says that the machine's memory ran out, not the GPU's.");
    } else if any(&|line| HALF.is_match(line)) && any(&|line| WINDOWS.is_match(line)) {
        facts.state(
            Cause::HostMemory,
            Certainty::Possible,
            "The log says that half of the GPU was free: the system may have had no memory left to pin or commit.",
        );
    }
}

/// Whether a first line is a person's sentence about the machine's memory, and not a program's error.
fn is_title_about_host(title: &str) -> bool {
    static EXCEPTION: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b[\w.]*(?:Error|Exception)\b"));
    TITLE.is_match(title) && OUT.is_match(title) && !DEVICE.is_match(title) && !EXCEPTION.is_match(title)
}

/// The machine's memory ran out.
fn host(facts: &mut Facts, summary: &str) {
    facts.resource = Resource::Host;
    facts.statements.retain(|stated| stated.cause != Cause::HostMemory);
    facts.state(Cause::HostMemory, Certainty::Likely, summary);
}
