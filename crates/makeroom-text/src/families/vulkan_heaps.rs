//! Vulkan allocators that print the request's memory flags and the heaps: DXVK, vkd3d, gfx-hal's and wgpu's.
//!
//! | program | wording |
//! |---|---|
//! | DXVK | `DxvkMemoryAllocator: Memory allocation failed`, below it `Size:`, `Mem flags: 0x1`, `Mem types: 0x681`, `Heap 0: 441 MB allocated, 290 MB used, 455 MB allocated (driver), 3790 MB budget (driver), 4096 MB total` |
//! | vkd3d, vkd3d-proton | `vkd3d_allocate_device_memory: Failed to allocate device memory, vr -2.`, `hresult_from_vk_result: Out of device memory.` |
//! | rendy (gfx-hal) | `rendy_memory::heaps: All suitable heaps are exhausted.` |
//! | programs of their own | `failed to find suitable memory type` |
//!
//! The flags decide which memory it is about: without bit 0 (device local) the request is for system RAM that the GPU
//! reads, and the size of the GPU does not matter. No type at all is a feature that the driver does not have.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty, Fix};
use makeroom_search::{Regex, contains_folded, pattern};

use crate::facts::{Facts, Resource, Statement};
use crate::family::Family;
use crate::figures::{binary_size, captured_number};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "DxvkMemoryAllocator",
        "vkd3d_allocate",
        "hresult_from_vk_result",
        "suitable heaps are exhausted",
        "heaps exhausted",
        "suitable memory type",
        "suitable memory heap",
    ],
    read,
};

static DXVK: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)DxvkMemoryAllocator: (?:Memory allocation failed|Failed to allocate)"));
static SIZE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bSize:\s*(\d+)"));
static FLAGS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bMem flags:\s*0x([0-9a-f]{1,8})\b"));
static TYPES: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bMem types:\s*0x([0-9a-f]{1,8})\b"));
static HEAP: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bHeap (\d):\s*(\d+) (MB) allocated, (\d+) MB used(?:, (\d+) MB allocated \(driver\), (\d+) MB budget \(driver\), (\d+) MB total)?",
    )
});
static RESULT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)Failed to \w+ .{0,60}\bvr (-\d+)\b|\bOut of (device|host) memory\b"));
static EXHAUSTED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bheaps (?:are |were )?exhausted\b"));
static NO_TYPE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:failed to|could not|couldn['’]t|cannot|unable to|no)\b (?:find )?(?:a |any )?suitable memory (?:type|heap)",
    )
});

/// `VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT`.
const DEVICE_LOCAL: u32 = 1;
/// `VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT`.
const HOST_VISIBLE: u32 = 2;
/// The window through which the CPU sees the GPU's memory, without Resizable BAR.
const SMALL_WINDOW: Bytes = Bytes::mib(256);
/// A heap with this share in use is full: the rest is in pieces or reserved.
const FULL: f64 = 0.9;
/// Lines of a dump below its first one.
const LINES_OF_DUMP: usize = 12;

/// One heap, as DXVK prints it.
struct Heap {
    allocated: Bytes,
    used: Bytes,
    total: Option<Bytes>,
}

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let mut facts = Facts::new(Framework::Vulkan, Resource::Device, passage);
    if DXVK.is_match(line) {
        return Some(read_dxvk(facts, passage));
    }
    if NO_TYPE.is_match(line) {
        state_no_type(&mut facts);
        return Some(facts);
    }
    if EXHAUSTED.is_match(line) {
        facts.evidence.push(
            "The allocator found no room in any heap that the request may use; small heaps that are visible to the CPU run out first"
                .to_owned(),
        );
        return Some(facts);
    }
    let found = RESULT.captures(line)?;
    let is_host = found.get(1).is_some_and(|status| status.as_str() == "-1")
        || found.get(2).is_some_and(|kind| kind.as_str().eq_ignore_ascii_case("host"));
    let is_device = found.get(1).is_some_and(|status| status.as_str() == "-2") || found.get(2).is_some();
    if is_host {
        facts.resource = Resource::Host;
        facts.lead(
            Cause::HostMemory,
            "The Vulkan driver returned its out-of-host-memory status (VK_ERROR_OUT_OF_HOST_MEMORY): RAM, or the address space of a 32-bit program, ran out.",
        );
        return Some(facts);
    }
    (is_device && contains_folded(line, "vk")).then_some(facts)
}

/// DXVK's dump: the request, its flags, and the heaps as far as the paste has them.
fn read_dxvk(mut facts: Facts, passage: &Passage<'_>) -> Facts {
    let dump = || passage.onward().take(LINES_OF_DUMP);
    let hexadecimal = |words: &Regex| {
        dump().find_map(|line| words.captures(line)).and_then(|found| u32::from_str_radix(&found[1], 16).ok())
    };
    facts.request = dump()
        .take_while(|line| !HEAP.is_match(line))
        .find_map(|line| SIZE.captures(line))
        .and_then(|found| captured_number(&found, 1))
        .map(Bytes::new);
    if hexadecimal(&TYPES) == Some(0) {
        state_no_type(&mut facts);
        return facts;
    }
    let heaps: Vec<Heap> = dump().filter_map(heap).collect();
    let flags = hexadecimal(&FLAGS).unwrap_or(DEVICE_LOCAL);
    let request = facts.request.unwrap_or(Bytes::ZERO);
    let is_full = |heap: &Heap| heap.total.is_some_and(|total| heap.allocated + request > total.scaled(FULL));
    if flags & DEVICE_LOCAL == 0 {
        state_host_visible(&mut facts, flags, heaps.first().filter(|heap| !is_full(heap)));
        return facts;
    }
    let window =
        heaps.iter().find(|heap| heap.total.is_some_and(|total| total <= SMALL_WINDOW) && is_full(heap));
    if let Some(window) = window.filter(|_| flags & HOST_VISIBLE != 0) {
        let total = window.total.unwrap_or(SMALL_WINDOW);
        facts.statements.push(
            Statement::leading(
                Cause::ArtificialLimit,
                format!("The {total} window through which the CPU accesses the GPU's memory is full; free GPU memory outside the window does not help."),
            )
            .mended_by(vec![
                Fix::new("let the CPU access all of the GPU's memory").command("BIOS: Resizable BAR = Enabled, Above 4G Decoding = Enabled"),
                Fix::new("update DXVK: newer versions use system RAM when the window is full")
                    .command("Steam: Properties > Compatibility > Proton Experimental"),
            ]),
        );
        return facts;
    }
    if let Some(heap) = heaps.first() {
        (facts.live, facts.total) = (Some(heap.used), heap.total);
    }
    facts
}

fn heap(line: &str) -> Option<Heap> {
    let found = HEAP.captures(line)?;
    let size = |group: usize| found.get(group).and_then(|number| binary_size(number.as_str(), "MB"));
    // The driver counts what other interfaces of the process took too.
    Some(Heap { allocated: size(5).or(size(2))?, used: size(4)?, total: size(7) })
}

/// No memory type fits: nothing is full.
fn state_no_type(facts: &mut Facts) {
    let what = facts.request.map_or("The request".to_owned(), |request| format!("The request of {request}"));
    let summary = format!(
        "{what} failed because no memory type of this driver has the properties that the program requires (an empty set of memory types): the driver or the GPU lacks a feature, and the memory need not be full."
    );
    facts.statements.push(Statement::new(Cause::Undetermined, Certainty::Undetermined, summary).mended_by(
        vec![
            Fix::new("update the graphics driver, and make sure that the program runs on the intended GPU")
                .command("vulkaninfo --summary"),
            Fix::new("choose the driver explicitly, if several are installed (on AMD: RADV)").command(
                "AMD_VULKAN_ICD=RADV   (any maker: VK_DRIVER_FILES=/usr/share/vulkan/icd.d/FILE.json)",
            ),
            Fix::new(
                "for an old GPU: use a version of the layer that supports the GPU, or run without the layer",
            )
            .command("PROTON_USE_WINED3D=1 %command%   (DXVK 1.x for GPUs without Vulkan 1.3)"),
        ],
    ));
    facts.ruled_out = vec![Cause::LiveDataFillsDevice, Cause::OtherProcesses, Cause::HostMemory];
}

/// The request is for system RAM that the GPU can read.
fn state_host_visible(facts: &mut Facts, flags: u32, heap: Option<&Heap>) {
    facts.resource = Resource::Host;
    let rest = match heap {
        Some(Heap { used, total: Some(total), .. }) => {
            format!(" The GPU's own heap has {used} of {total} in use, so it is not full.")
        }
        _ => String::new(),
    };
    facts.lead(
        Cause::HostMemory,
        format!("The request is for system RAM that the GPU can read (memory flags 0x{flags:x}, without the bit for the GPU's own memory): RAM, or the address space of a 32-bit program, ran out.{rest}"),
    );
    facts.ruled_out = vec![Cause::LiveDataFillsDevice, Cause::OtherProcesses];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    fn dump(size: u64, flags: &str, types: &str, heaps: &str) -> String {
        format!(
            "err:   DxvkMemoryAllocator: Memory allocation failed\nerr:     Size:      {size}\nerr:     Alignment: 256\nerr:     Mem flags: {flags}\nerr:     Mem types: {types}\n{heaps}"
        )
    }

    #[test]
    fn the_heap_is_the_account() {
        let heap = "err:   Heap 0: 5800 MB allocated, 5700 MB used, 5900 MB allocated (driver), 5950 MB budget (driver), 6144 MB total";
        let facts = facts_in(&dump(64 << 20, "0x1", "0x681", heap)).unwrap();
        assert_eq!((facts.request, facts.live), (Some(Bytes::mib(64)), Some(Bytes::mib(5700))));
        assert_eq!((facts.total, facts.resource), (Some(Bytes::mib(6144)), Resource::Device));
    }

    #[test]
    fn memory_that_only_the_cpu_has_is_host_memory() {
        let heap = "err:   Heap 0: 900 MB allocated, 700 MB used, 950 MB allocated (driver), 7800 MB budget (driver), 8192 MB total";
        for flags in ["0xe", "0x6"] {
            let facts = facts_in(&dump(4 << 20, flags, "0x681", heap)).unwrap();
            assert_eq!((facts.resource, facts.statements[0].cause), (Resource::Host, Cause::HostMemory));
            assert!(facts.statements[0].summary.contains("700.00 MiB of 8.00 GiB"), "{facts:?}");
        }
    }

    #[test]
    fn no_memory_type_is_not_a_full_device() {
        for text in [
            dump(32768, "0x1", "0x0", ""),
            "std::runtime_error: failed to find suitable memory type!".to_owned(),
        ] {
            let facts = facts_in(&text).unwrap();
            assert_eq!(facts.statements[0].cause, Cause::Undetermined, "{text}");
            assert!(facts.ruled_out.contains(&Cause::LiveDataFillsDevice));
        }
    }

    #[test]
    fn a_full_window_needs_resizable_bar() {
        let heaps = "err:   Heap 0: 2100 MB allocated, 1900 MB used, 2200 MB allocated (driver), 7700 MB budget (driver), 8192 MB total\nerr:   Heap 2: 214 MB allocated, 208 MB used, 230 MB allocated (driver), 240 MB budget (driver), 246 MB total";
        let facts = facts_in(&dump(16 << 20, "0x7", "0x400", heaps)).unwrap();
        assert_eq!((facts.statements[0].cause, facts.statements[0].leads), (Cause::ArtificialLimit, true));
    }

    #[test]
    fn other_allocators() {
        for text in [
            "warn:vkd3d_allocate_device_memory: Failed to allocate device memory, vr -2.",
            "err:hresult_from_vk_result: Out of device memory.",
            "ERROR rendy_memory::heaps: All suitable heaps are exhausted. Heaps {",
            "gfx_memory: heaps exhausted for block of 8388608",
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((facts.framework_id(), facts.resource), ("vulkan", Resource::Device), "{text}");
            assert!(facts.is_failure(), "{text}");
        }
        let facts = facts_in("err:vkd3d_allocate_memory: Failed to allocate memory, vr -1.").unwrap();
        assert_eq!(facts.statements[0].cause, Cause::HostMemory);
        assert!(facts_in("warn:hresult_from_vk_result: Device lost.").is_none());
    }
}
