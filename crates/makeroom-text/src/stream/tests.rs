use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::answer::explain_condensed;
use crate::log::Log;

/// Limits that condense any log.
const SMALL: Limits =
    Limits { whole: 0, head: 8 << 10, tail: 8 << 10, before: 8 << 10, behind: 8 << 10, windows: 8 << 20 };

fn error(request: u64, device: u32) -> String {
    format!(
        "[rank{device}]: RuntimeError: CUDA out of memory. Tried to allocate {request}.00 MiB (GPU {device}; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.50 GiB reserved in total by PyTorch)\n"
    )
}

/// Explains a text in pieces of this length.
fn condensed(text: &[u8], limits: Limits, piece: usize) -> Explanation {
    let mut reader = TextReader::with_limits(limits);
    for bytes in text.chunks(piece) {
        reader.push(bytes);
    }
    reader.finish()
}

fn whole(text: &[u8]) -> Explanation {
    let log = Log::new(&String::from_utf8_lossy(text));
    explain_condensed(&log, log.len(), 0)
}

/// Lines of a log: what kind, how many of it.
fn log_text(parts: &[(u8, u16)]) -> String {
    let mut text = String::new();
    for (index, &(kind, count)) in parts.iter().enumerate() {
        for number in 0..u64::from(count) {
            match kind {
                0..=3 => text.push_str(&format!("step {number} loss 0.25\n")),
                4 => text.push_str(&format!("\r{number}%|██▎ | it/s\u{1b}[A")),
                5 => text.push_str(&format!(
                    "[rank{}]: memory allocated: {} MiB batch_size=16\n",
                    number % 2,
                    1000 + number
                )),
                _ => text.push_str("\r\n\tat räkning\n"),
            }
        }
        match kind {
            0 => text.push_str(&error(index as u64 + 1, 0)),
            1 => text.push_str("\u{1b}[31mKilled\u{1b}[0m\n"),
            2 => text.push_str(
                "| N/A   34C    P0    70W / 400W |   1200MiB / 24000MiB |      0%      Default |\n",
            ),
            3 => text.push_str("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"),
            4 => text.push_str(&error(7, 1)),
            5 => text.push_str("  File \"train.py\", line 12, in step\nmax seq len is 4096\n"),
            _ => text.push_str("Shared memory and memlock are set, out of memory is not\n"),
        }
    }
    text
}

/// Few cases, because some are logs of a megabyte; `PROPTEST_CASES` sets another number.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_condensed_log_has_the_answer_of_the_whole(
        parts in prop::collection::vec((0_u8..7, 0_u16..500), 1..6),
        // Most logs are only longer than the windows; some also have more lines than are searched before a failure.
        calm in prop_oneof![15 => 0_usize..3000, 1 => 20_000_usize..30_000],
        piece in 1_usize..100_000,
    ) {
        let text = log_text(&parts) + &"epoch 3 loss 0.25\n".repeat(calm) + &log_text(&parts);
        let answers = (condensed(text.as_bytes(), SMALL, piece), whole(text.as_bytes()));
        // A failure that the program survived makes a later one decide, whose 20,000 lines before are not kept.
        let is_survived = answers.1.notes.iter().any(|note| note.contains("was caught"));
        prop_assume!(!is_survived);
        prop_assert_eq!(format!("{:#?}", answers.0), format!("{:#?}", answers.1));
    }

    #[test]
    fn pieces_can_be_cut_anywhere(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\r'), Just(0xe2), Just(0x1b)], 0..600),
        piece in 1_usize..40,
        is_short in any::<bool>(),
    ) {
        let text = [&bytes[..], "größer\n".as_bytes(), error(3, 0).as_bytes(), &bytes[..]].concat();
        let limits = if is_short { LIMITS } else { SMALL };
        let answers = (condensed(&text, limits, piece), condensed(&text, limits, text.len()));
        prop_assert_eq!(format!("{:?}", answers.0), format!("{:?}", answers.1));
    }
}

#[test]
fn a_short_text_is_explained_as_it_is() {
    let text = "RuntimeError: CUDA out of mem\nory. Tried to allocate 2.00 G\niB (GPU 0)";
    let answers = (condensed(text.as_bytes(), LIMITS, 7), explain_text(text));
    assert_eq!(format!("{:?}", answers.0), format!("{:?}", answers.1));
}

/// A log whose first failure is its first line, with a setting 2,000 lines below.
#[test]
fn a_setting_far_behind_the_failure_counts() {
    let parts = log_text(&[(0, 0), (5, 523), (5, 1413), (5, 56), (3, 0), (2, 612)]);
    let text = parts.clone() + &"epoch 3 loss 0.25\n".repeat(153) + &parts;
    let answers = (condensed(text.as_bytes(), SMALL, 4096), whole(text.as_bytes()));
    assert_eq!(format!("{:#?}", answers.0), format!("{:#?}", answers.1));
}

/// PyTorch prints the advice with every failure; the setting must be found behind any number of them.
#[test]
fn a_setting_is_found_behind_the_advice_to_use_it() {
    let advice = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free. Of the allocated memory 2.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n";
    let calm = "training\n".repeat(3000);
    let setting = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n";
    for count in [1, 200] {
        let advised = (calm.clone() + advice).repeat(count);
        let answer = |text: String| format!("{:?}", condensed(text.as_bytes(), SMALL, 1 << 16).wont_help);
        let (without, with) = (answer(advised.clone() + &calm), answer(advised + &calm + setting + &calm));
        assert!(!without.contains("already on"), "{without}");
        assert!(with.contains("already on"), "{with}");
    }
}

#[test]
fn memory_that_grows_before_the_failure_is_seen() {
    let mut text = "calm\n".repeat(50_000);
    for step in 0..15_000 {
        text.push_str(&format!("step {step} memory allocated: {} MiB\n", 1000 + step / 10));
    }
    text.push_str(&error(300, 0));
    let answers = (condensed(text.as_bytes(), SMALL, 4096), whole(text.as_bytes()));
    assert_eq!(answers.0.verdict.cause, makeroom_explain::Cause::Leak);
    assert_eq!(format!("{:?}", answers.0), format!("{:?}", answers.1));
}

#[test]
fn a_list_of_memory_blocks_is_read_to_its_end() {
    let mut text = "calm\n".repeat(40_000);
    text.push_str("2021-08-31 08:43:31: W tensorflow/core/common_runtime/bfc_allocator.cc:456] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB (rounded to 2147483648)requested by op Conv2D\n");
    for block in 0..15_000 {
        text.push_str(&format!("2021-08-31 08:43:31: I tensorflow/core/common_runtime/bfc_allocator.cc:1040] InUse at 7f{block:08x} of size 1280 next {block}\n"));
    }
    text.push_str("2021-08-31 08:43:31: I tensorflow/core/common_runtime/bfc_allocator.cc:1074] Sum Total of in-use chunks: 6.90GiB\n");
    text.push_str("2021-08-31 08:43:31: I tensorflow/core/common_runtime/bfc_allocator.cc:1076] total_region_allocated_bytes_: 8000000000 memory_limit_: 8000000000 available bytes: 0 curr_region_allocation_bytes_: 16000000000\n");
    text.push_str(&"calm\n".repeat(40_000));
    let answers = (condensed(text.as_bytes(), SMALL, 4096), whole(text.as_bytes()));
    assert!(answers.0.request.is_some());
    assert_eq!(format!("{:?}", answers.0), format!("{:?}", answers.1));
}

#[test]
fn failures_beyond_those_kept_are_counted() {
    let mut text = String::new();
    for failure in 0..3000 {
        text.push_str(&"training\n".repeat(60));
        text.push_str(&error(failure % 7 + 1, 0));
    }
    let answer = condensed(text.as_bytes(), SMALL, 1 << 20);
    let note = answer.notes.join("\n");
    let count: usize = answer.notes[1].split(' ').next().unwrap().parse().unwrap();
    assert!((2980..3020).contains(&count), "{note}");
}

#[test]
fn hostile_texts_are_explained_fast() {
    let long = [vec![b'x'; 16 << 20], error(3, 0).into_bytes()].concat();
    let noise: Vec<u8> =
        (0_u64..8 << 20).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let crowded = error(3, 0).repeat(30_000);
    let tables = "memory budget | 1200MiB / 24000MiB | Killed out of memory\n".repeat(100_000);
    let carriage = "\r".repeat(8 << 20);
    let escaped = "\\n".repeat(4 << 20);
    for (name, text) in [
        ("one long line", &long[..]),
        ("noise", &noise),
        ("zeros", &vec![0; 8 << 20]),
        ("30,000 failures", crowded.as_bytes()),
        ("an anchor in every line", tables.as_bytes()),
        ("carriage returns", carriage.as_bytes()),
        ("escaped line ends", escaped.as_bytes()),
    ] {
        let start = cpu_time();
        let _ = condensed(text, LIMITS, 256 << 10);
        // Under a second where it is optimized; anything quadratic takes minutes.
        assert!(
            cpu_time().saturating_sub(start) < Duration::from_secs(30),
            "{name}: {:?}",
            cpu_time().saturating_sub(start)
        );
    }
}

/// CPU time of this thread, which other work on the machine does not change.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
