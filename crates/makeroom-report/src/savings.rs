//! What expandable segments and makeroom's pool saved in a run, in one line each, or what they would have saved.

use std::fmt::Write as _;

use makeroom_core::{Bytes, DeviceIndex, PagesUse};
use makeroom_explain::{ExpandableSummary, PoolSummary, RunSummary};

use crate::run::count;
use crate::wrap::clip;

/// Differences of at most 1/100 are not reported.
const LEAST_GAIN: u64 = 100;
/// A smaller cost of a setting is the rounding of a few segments, not worth changing the setting.
const LEAST_COST: Bytes = Bytes::mib(64);
/// Savings that expandable segments would have made are reported from this size on, and from 1/10 of reserved memory.
const LEAST_MISSED: Bytes = Bytes::mib(256);
const LEAST_MISSED_PART: u64 = 10;
/// A pool next to PyTorch is reported if it holds at least 1/100 of PyTorch's memory.
const LEAST_SHARE: u64 = 100;
/// If reserved memory exceeds live memory by at most 1/20 with and without expandable segments, the program does not
/// fragment.
const LEAST_WASTE: u64 = 20;
/// Columns for the user's settings in a line.
const LONGEST_SETTINGS: usize = 60;

/// A line for each finding about PyTorch's allocator and makeroom's pool.
pub(crate) fn lines(run: &RunSummary) -> Vec<String> {
    let has_several = run.peaks.len() > 1;
    let torch = run.expandable.iter().flat_map(|torch| {
        if torch.is_on {
            [Some(with_expandable_segments(torch, has_several)), other_settings(torch)]
        } else {
            [without_expandable_segments(torch, has_several), None]
        }
    });
    let pools = run.pools.iter().filter(|pool| is_worth_a_line(pool, run));
    let pages = run.pages.iter().map(|pages| {
        let pool = run.pools.iter().find(|pool| pool.device == pages.device);
        paged(pages, pool.and_then(|pool| pool.native_tensors), run.recorded_us, has_several)
    });
    let pools = pools.map(|pool| match pages_of(pool, run) {
        Some(pages) => beside_pages(pool, pages, has_several),
        None => pooled(pool, has_several),
    });
    torch.flatten().chain(pages).chain(pools).collect()
}

/// The device in a sentence, if there are several.
fn on_device(device: DeviceIndex, has_several: bool) -> String {
    if has_several { format!(" on GPU {device}") } else { String::new() }
}

/// Memory that PyTorch reserved, and how much of it was live.
fn reserved(torch: &ExpandableSummary, has_several: bool) -> String {
    // A recording may be incomplete, so that figures do not match.
    let live = if is_plausible(torch) { format!(" ({} live)", torch.peak_live) } else { String::new() };
    let device = on_device(torch.device, has_several);
    format!("PyTorch reserved {} at its peak{device}{live}", torch.peak_reserved)
}

fn is_plausible(torch: &ExpandableSummary) -> bool {
    !torch.peak_live.is_zero() && torch.peak_live <= torch.peak_reserved
}

/// Memory saved by expandable segments.
fn with_expandable_segments(torch: &ExpandableSummary, has_several: bool) -> String {
    let ExpandableSummary { peak_live, peak_reserved, native_reserved, .. } = *torch;
    let reserved = reserved(torch, has_several);
    let Some(native) = native_reserved else {
        return format!(
            "{reserved}; the savings from expandable segments are unknown: replaying does not reproduce this run"
        );
    };
    let most = peak_live.get().saturating_add(peak_live.get() / LEAST_WASTE);
    let cost = peak_reserved - native;
    let (finding, them) = if is_gain(native, peak_reserved) {
        (format!("expandable segments saved {}", native - peak_reserved), "them")
    } else if is_gain(peak_reserved, native) && cost >= LEAST_COST {
        (format!("expandable segments cost {cost} here"), "them")
    } else if is_plausible(torch) && native.max(peak_reserved).get() <= most {
        ("this program does not fragment".to_owned(), "expandable segments")
    } else if is_gain(peak_reserved, native) {
        (format!("expandable segments took {cost} more here, too little to matter"), "them")
    } else {
        ("expandable segments made no difference".to_owned(), "them")
    };
    format!("{finding}: {reserved}, and would have reserved {native} without {them} (simulated)")
}

/// What the user's other settings cost.
fn other_settings(torch: &ExpandableSummary) -> Option<String> {
    let plain = torch.plain_reserved?;
    let cost = torch.peak_reserved - plain;
    (is_gain(torch.peak_reserved, plain) && cost >= LEAST_COST).then(|| {
        let settings = match torch.other_settings.as_str() {
            "" => "your other allocator settings".to_owned(),
            settings => format!("your allocator setting {}", clip(settings, LONGEST_SETTINGS)),
        };
        format!(
            "{settings} cost {cost} here: with expandable_segments:True alone, PyTorch would have reserved {plain} (simulated)"
        )
    })
}

/// What expandable segments would have saved, if it is much.
fn without_expandable_segments(torch: &ExpandableSummary, has_several: bool) -> Option<String> {
    let expandable = torch.expandable_reserved?;
    let missed = torch.peak_reserved - expandable;
    let is_much = missed >= LEAST_MISSED && missed.get() >= torch.peak_reserved.get() / LEAST_MISSED_PART;
    is_much.then(|| {
        // The replay kept the user's other settings.
        let others = match torch.other_settings.as_str() {
            "" => String::new(),
            settings => format!("{settings},"),
        };
        format!(
            "{}; with PYTORCH_CUDA_ALLOC_CONF={others}expandable_segments:True it would have reserved {expandable} (simulated)",
            reserved(torch, has_several)
        )
    })
}

/// Whether the first figure is larger by more than 1 %.
fn is_gain(before: Bytes, after: Bytes) -> bool {
    before > after && (before - after).get() > before.get() / LEAST_GAIN
}

/// With PyTorch's own allocator in use, the pool serves only a few libraries: reported if they use much.
fn is_worth_a_line(pool: &PoolSummary, run: &RunSummary) -> bool {
    if let Some(pages) = pages_of(pool, run) {
        let least = pool.peak_reserved.get() / LEAST_SHARE;
        return !others_on_host(pool, pages).is_zero() || pool.peak_other.get() >= least.max(1);
    }
    let torch = run.expandable.iter().find(|torch| torch.device == pool.device);
    !pool.is_shared_with_torch
        || torch.is_none_or(|torch| pool.peak_reserved.get() >= torch.peak_reserved.get() / LEAST_SHARE)
}

/// PyTorch's pages on the pool's device. They count as the pool's, and have a line of their own.
fn pages_of<'run>(pool: &PoolSummary, run: &'run RunSummary) -> Option<&'run PagesUse> {
    run.pages.iter().find(|pages| pages.device == pool.device)
}

/// Host memory that the pool used in addition to PyTorch's pages: at least this much.
fn others_on_host(pool: &PoolSummary, pages: &PagesUse) -> Bytes {
    pool.spilled_peak - Bytes::new(pages.peak_on_host)
}

/// What the pool served in addition to PyTorch's pages.
fn beside_pages(pool: &PoolSummary, pages: &PagesUse, has_several: bool) -> String {
    let device = on_device(pool.device, has_several);
    let host = match others_on_host(pool, pages) {
        Bytes::ZERO => String::new(),
        host => format!(", and at least {host} of host memory"),
    };
    format!(
        "other libraries (cuBLAS, CuPy, …) used up to {} from makeroom's pool{device}{host}",
        pool.peak_other
    )
}

/// PyTorch's memory under paging, what it saved compared with the default allocator (`native`), and what it cost.
fn paged(pages: &PagesUse, native: Option<Bytes>, recorded_us: u64, has_several: bool) -> String {
    let device = on_device(pages.device, has_several);
    let [live, physical, mapped, host] =
        [pages.peak_live, pages.peak_physical, pages.peak_mapped, pages.peak_on_host].map(Bytes::new);
    let held = format!("held {physical} at its peak{device} for {live} of live tensors");
    // A recording does not have the tensors in host memory, so the replay lacks them.
    let native = native.filter(|&native| host.is_zero() && is_gain(native, physical));
    let mut text = match native {
        Some(native) => format!(
            "expandable segments and paging saved {}: PyTorch {held}, and would have reserved {native} with its default allocator (simulated)",
            native - physical
        ),
        None => format!("paging {held}"),
    };
    if is_gain(mapped, physical + host) {
        let _ = write!(
            text,
            "; PyTorch counts {mapped} as reserved, but most of the difference is address space without physical memory"
        );
    }
    if !host.is_zero() {
        let _ = write!(text, "; up to {host} was in host memory");
    }
    let seconds = pages.inside_ns as f64 / 1e9;
    let share = pages.inside_ns as f64 / 10.0 / recorded_us.max(1) as f64;
    let _ = write!(
        text,
        "; {} moved, {}, {seconds:.2} s spent on paging ({share:.1} % of the run)",
        count(pages.moved, "page"),
        count(pages.waits, "wait"),
    );
    text
}

fn pooled(pool: &PoolSummary, has_several: bool) -> String {
    let PoolSummary { device, peak_live, peak_reserved, native_reserved, spilled_peak, .. } = *pool;
    let device = on_device(device, has_several);
    let mut text = if pool.is_shared_with_torch {
        format!(
            "everything other than PyTorch's own memory (cuBLAS, CuPy, …) took up to {peak_reserved} from makeroom's pool{device}"
        )
    } else {
        format!("makeroom's pool reserved {peak_reserved} at its peak{device}")
    };
    if peak_live <= peak_reserved {
        let used = if is_gain(peak_reserved, peak_live) { peak_live.to_string() } else { "all".to_owned() };
        let _ = write!(text, ", {used} of it in use");
    }
    if let Some(native) = native_reserved {
        let _ = write!(text, "; PyTorch's default allocator would have reserved {native} (simulated)");
        if is_gain(native, peak_reserved) {
            let _ = write!(text, ": the pool saved {}", native - peak_reserved);
        }
    }
    if !spilled_peak.is_zero() {
        let milliseconds = |microseconds: u64| microseconds as f64 / 1000.0;
        let _ = write!(
            text,
            "; {spilled_peak} more was in host memory at its peak, in {}: reading all of it once takes the GPU about {:.1} ms over the bus instead of {:.1} ms (measured on an H200)",
            count(pool.spilled_blocks, "block"),
            milliseconds(pool.spilled_read_us),
            milliseconds(pool.device_read_us),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torch(reserved: u64, native: Option<u64>) -> ExpandableSummary {
        ExpandableSummary {
            device: DeviceIndex(0),
            is_on: true,
            peak_live: Bytes::mib(reserved - 100),
            peak_reserved: Bytes::mib(reserved),
            native_reserved: native.map(Bytes::mib),
            expandable_reserved: Some(Bytes::mib(reserved)),
            plain_reserved: None,
            other_settings: "max_split_size_mb:128".to_owned(),
        }
    }

    fn pool(reserved: u64, native: Option<u64>, is_shared_with_torch: bool) -> PoolSummary {
        PoolSummary {
            device: DeviceIndex(0),
            peak_live: Bytes::mib(reserved - 1),
            peak_reserved: Bytes::mib(reserved),
            native_reserved: native.map(Bytes::mib),
            native_tensors: native.map(Bytes::mib),
            peak_other: Bytes::ZERO,
            is_shared_with_torch,
            spilled_peak: Bytes::ZERO,
            spilled_blocks: 0,
            spilled_read_us: 0,
            device_read_us: 0,
        }
    }

    #[test]
    fn expandable_segments_are_reported_with_what_they_saved() {
        let text = with_expandable_segments(&torch(18_022, Some(27_136)), false);
        assert_eq!(
            text,
            "expandable segments saved 8.90 GiB: PyTorch reserved 17.60 GiB at its peak (17.50 GiB live), and would have reserved 26.50 GiB without them (simulated)"
        );
        for native in [5100, 5120, 5150] {
            let text = with_expandable_segments(&torch(5120, Some(native)), true);
            let start = "this program does not fragment: PyTorch reserved 5.00 GiB at its peak on GPU 0";
            assert!(text.starts_with(start), "{text}");
            assert!(!text.contains("saved"), "{text}");
        }
        let text = with_expandable_segments(&torch(5120, Some(4096)), false);
        let start = "expandable segments cost 1.00 GiB here: PyTorch reserved 5.00 GiB";
        assert!(text.starts_with(start), "{text}");
        // Both allocators waste the same amount, or a little is wasted by expandable segments alone.
        let wasteful = ExpandableSummary { peak_live: Bytes::gib(3), ..torch(5120, Some(5120)) };
        let small = ExpandableSummary { peak_live: Bytes::mib(64), ..torch(182, Some(166)) };
        let text = with_expandable_segments(&wasteful, false);
        assert!(text.starts_with("expandable segments made no difference: PyTorch reserved "), "{text}");
        let text = with_expandable_segments(&small, false);
        let start = "expandable segments took 16.00 MiB more here, too little to matter: PyTorch reserved ";
        assert!(text.starts_with(start), "{text}");
        let text = with_expandable_segments(&torch(5120, None), false);
        assert_eq!(
            text,
            "PyTorch reserved 5.00 GiB at its peak (4.90 GiB live); the savings from expandable segments are unknown: replaying does not reproduce this run"
        );
        for peak_live in [Bytes::ZERO, Bytes::gib(300)] {
            let torn = ExpandableSummary { peak_live, ..torch(5120, None) };
            let text = with_expandable_segments(&torn, false);
            assert!(!text.contains("live") && text.contains("5.00 GiB"), "{text}");
        }
    }

    #[test]
    fn settings_that_cost_memory_are_named() {
        let run = |torch| RunSummary { expandable: vec![torch], ..RunSummary::default() };
        let costly = ExpandableSummary { plain_reserved: Some(Bytes::gib(4)), ..torch(6144, Some(8192)) };
        let lines = lines(&run(costly.clone()));
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[1],
            "your allocator setting max_split_size_mb:128 cost 2.00 GiB here: with expandable_segments:True alone, PyTorch would have reserved 4.00 GiB (simulated)"
        );
        let harmless = ExpandableSummary { plain_reserved: Some(Bytes::mib(6140)), ..costly };
        assert_eq!(super::lines(&run(harmless)).len(), 1);
        // Without expandable segments, large savings are worth a line.
        let off = |expandable| ExpandableSummary {
            is_on: false,
            expandable_reserved: Some(Bytes::mib(expandable)),
            ..torch(8192, Some(8192))
        };
        assert_eq!(
            super::lines(&run(off(4096))),
            [
                "PyTorch reserved 8.00 GiB at its peak (7.90 GiB live); with PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True it would have reserved 4.00 GiB (simulated)"
            ]
        );
        assert!(super::lines(&run(off(7900))).is_empty());
    }

    /// Virtual memory that PyTorch counts as reserved is neither reserved nor fragmented.
    #[test]
    fn paging_has_physical_and_live_peaks_moves_waits_and_its_time() {
        let pages = PagesUse {
            peak_live: Bytes::mib(15_000).get(),
            peak_physical: Bytes::mib(15_100).get(),
            peak_mapped: Bytes::mib(17_000).get(),
            moved: 700,
            waits: 1,
            inside_ns: 158_000_000,
            ..PagesUse::default()
        };
        let run = RunSummary {
            pages: vec![pages],
            pools: vec![pool(15_100, None, false)],
            recorded_us: 17_000_000,
            ..RunSummary::default()
        };
        let held = "paging held 14.75 GiB at its peak for 14.65 GiB of live tensors";
        let cost = "700 pages moved, 1 wait, 0.16 s spent on paging (0.9 % of the run)";
        assert_eq!(
            lines(&run),
            [format!(
                "{held}; PyTorch counts 16.60 GiB as reserved, but most of the difference is address space without physical memory; {cost}"
            )]
        );
        let busy = PoolSummary { peak_other: Bytes::mib(300), ..pool(15_400, Some(24_100), true) };
        let saved = RunSummary { pools: vec![busy], ..run.clone() };
        let native = "and would have reserved 23.54 GiB with its default allocator (simulated)";
        let [line, other] = &*lines(&saved) else { panic!("two lines") };
        assert_eq!(other, "other libraries (cuBLAS, CuPy, …) used up to 300.00 MiB from makeroom's pool");
        assert!(
            line.starts_with(&format!(
                "expandable segments and paging saved 8.79 GiB: PyTorch {}, {native}; ",
                &held[7..]
            )),
            "{line}"
        );
        let elsewhere = PoolSummary { spilled_peak: Bytes::mib(2), ..pool(15_100, None, false) };
        assert_eq!(
            lines(&RunSummary { pools: vec![elsewhere], ..run.clone() })[1],
            "other libraries (cuBLAS, CuPy, …) used up to 0 B from makeroom's pool, and at least 2.00 MiB of host memory"
        );
        let spilled =
            PagesUse { peak_mapped: Bytes::mib(17_000).get(), peak_on_host: Bytes::mib(1900).get(), ..pages };
        assert_eq!(
            lines(&RunSummary { pages: vec![spilled], ..run }),
            [format!("{held}; up to 1.86 GiB was in host memory; {cost}")]
        );
    }

    #[test]
    fn the_pool_saves_nothing_of_what_it_did_not_serve() {
        let text = pooled(&pool(34, None, true), false);
        assert_eq!(
            text,
            "everything other than PyTorch's own memory (cuBLAS, CuPy, …) took up to 34.00 MiB from makeroom's pool, 33.00 MiB of it in use"
        );
        let full = PoolSummary { peak_live: Bytes::mib(34), ..pool(34, None, false) };
        assert_eq!(
            pooled(&full, true),
            "makeroom's pool reserved 34.00 MiB at its peak on GPU 0, all of it in use"
        );
        let torn = PoolSummary { peak_live: Bytes::mib(500), ..pool(34, None, true) };
        assert!(pooled(&torn, false).ends_with("took up to 34.00 MiB from makeroom's pool"));
        let text = pooled(&pool(1000, Some(2000), false), false);
        assert!(
            text.ends_with("would have reserved 1.95 GiB (simulated): the pool saved 1000.00 MiB"),
            "{text}"
        );
        let text = pooled(&pool(1000, Some(1005), false), false);
        assert!(!text.contains("saved"), "{text}");
        let run = |reserved| RunSummary { expandable: vec![torch(reserved, None)], ..RunSummary::default() };
        assert!(!is_worth_a_line(&pool(34, None, true), &run(14_000)));
        assert!(is_worth_a_line(&pool(1000, None, true), &run(14_000)));
        assert!(is_worth_a_line(&pool(34, None, false), &RunSummary::default()));
    }
}
