//! Whether the GPU or the machine ran out of memory, where the error itself does not say.
//!
//! The one place that decides it from the text around an error: formats set [`Resource`] from their own line, and
//! [`settle`] resolves what they leave open before the failure is judged.

use std::sync::LazyLock;

use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::identifiers::without_names;
use crate::language::Language;
use crate::searched::Searched;

/// Names of device memory in a line.
static DEVICE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bcuda\b|\bxpu\b|\bnpu\b|cuda[._]|\bgpu|gpu memory|OutOfDeviceMemory|OUT_OF_DEVICE_MEMORY|vram|video ?memory|device memory|\bon (?:the )?device\b|\bdevice (?:pool|arena|buffer|capacity|allocation)|\bon device \d|graphics (?:card|memory)|video (?:card|ram)|cuda[A-Z]|显存|\bvulkan|\bopencl|\bhip\b",
    )
});
/// Names of host memory in a line.
static HOST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\bhost\b|pinned|\bRAM\b|\bcpu\b|system memory"));
/// Errors of GPUs elsewhere in the text: they decide against every mention of host memory.
static DEVICE_ERROR: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)device:GPU:\d|OutOfDeviceMemory|OUT_OF_DEVICE_MEMORY|OUTOFVIDEOMEMORY|\b(?:CUDA|XPU|HIP) out of memory|CUDA_ERROR_OUT|显存",
    )
});
/// Mentions of GPU memory, or of the GPU that the program runs on.
static ON_GPU: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bvram\b|\bvideo memory\b|\bgpu (?:memory|ram|mem)\b|\b(?:on|with|of|using|have|has) (?:(?:an?|my|our|the|one|single|two|four|eight|\d+ ?x?) ?)?(?:nvidia |tesla |geforce |amd |intel )?(?:A10G?|A100|A6000|A5000|A4000|H100|H200|B200|V100|P100|P40|T4|L4|L40S?|K80|RTX|GTX|MI\d{2,3}|gpus?)\b|\bcuda:\d\b|torch\.cuda|\bprofile_run\b|\bcuda (?:error|failure)",
    )
});
/// Mentions of host memory, or of a process that the system ended.
static ON_HOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:system|host|cpu|main|physical) (?:memory|ram)\b|\d ?GB (?:of )?RAM\b|\bRAM (?:usage|is|runs)\b|\bswap\b|\bkilled\b|oom[- ]?kill|\bnot? (?:a )?gpu\b|\bcpu[- ]only\b",
    )
});

/// Whose memory a line is about.
pub(crate) fn of_line(line: &str) -> Resource {
    if DEVICE.is_match(line) && !HOST.is_match(line) { Resource::Device } else { Resource::Unknown }
}

/// Resolves an open resource by the error's line, else by the text around it.
pub(crate) fn settle(facts: &mut Facts, text: Searched<'_>) {
    if facts.resource != Resource::Unknown {
        return;
    }
    let any = |words: &Regex| text.any(|part| words.is_match(part));
    let line = without_names(&facts.quote);
    // Python's own exception is MemoryError; this one is PyTorch's or CuPy's.
    let is_gpu_exception = || line.contains("OutOfMemoryError") && Language::from_text(text).is_python();
    let is_device = of_line(&line) == Resource::Device
        || is_gpu_exception()
        || any(&DEVICE_ERROR)
        || !HOST.is_match(&line) && any(&ON_GPU) && !any(&ON_HOST);
    if is_device {
        facts.resource = Resource::Device;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(quote: &str, text: &str) -> Resource {
        let mut facts = Facts { quote: quote.to_owned(), ..Facts::default() };
        settle(&mut facts, format!("{text}\n{quote}").as_str().into());
        facts.resource
    }

    #[test]
    fn the_line_decides_before_the_text() {
        assert_eq!(settled("not enough GPU memory", "32 GB RAM, no swap"), Resource::Device);
        assert_eq!(settled("no RAM left", "VRAM is 8 GB"), Resource::Unknown);
    }

    #[test]
    fn the_text_decides_where_it_names_one_kind_of_memory() {
        assert_eq!(settled("out of memory", "on my RTX 3060"), Resource::Device);
        assert_eq!(settled("out of memory", "on my RTX 3060 with 16 GB RAM"), Resource::Unknown);
        assert_eq!(settled("out of memory", "node on /device:GPU:0, 16 GB RAM"), Resource::Device);
        assert_eq!(settled("out of memory", ""), Resource::Unknown);
        let frame = "  File \"/app/run.py\", line 3, in main";
        assert_eq!(settled("OutOfMemoryError", frame), Resource::Device);
        assert_eq!(settled("MemoryError", frame), Resource::Unknown);
    }

    #[test]
    fn a_known_resource_stays() {
        let mut facts = Facts { resource: Resource::Host, ..Facts::default() };
        settle(&mut facts, "CUDA out of memory".into());
        assert_eq!(facts.resource, Resource::Host);
    }
}
