//! Real error texts and what must be said of them.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use std::env;
use std::fs;
use std::path::PathBuf;

use makeroom_core::Bytes;
use makeroom_explain::{Cause, Certainty};
use makeroom_text::explain_text;
use serde_json::Value;

fn lines(path: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Errors that were provoked on real hardware; `accept` lists the causes that the text allows.
#[test]
fn provoked_errors_get_a_cause_that_was_provoked() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/provoked.jsonl");
    let lines = lines(&path);
    assert!(lines.len() >= 16);
    for line in lines {
        let explanation = explain_text(line["text"].as_str().unwrap());
        let said = explanation.verdict.cause.name();
        let accepted: Vec<&str> =
            line["accept"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(accepted.contains(&said), "{}: {said}, accepted are {accepted:?}", line["id"]);
    }
}

/// A larger collection that is not part of the project, if `MAKEROOM_MESSAGES` names it: JSON lines with `text`,
/// `cause` and `basis`.
#[test]
fn a_collection_of_messages_is_named_and_not_overclaimed() {
    let Some(path) = env::var_os("MAKEROOM_MESSAGES") else { return };
    let (mut named, mut wrong, mut careful, mut careless) = (0, Vec::new(), 0, Vec::new());
    for line in lines(&PathBuf::from(path)) {
        let explanation = explain_text(line["text"].as_str().unwrap());
        let (cause, id) = (line["cause"].as_str().unwrap(), line["id"].to_string());
        if cause == "unknown" {
            let is_careful = explanation.verdict.certainty <= Certainty::Possible;
            if is_careful { careful += 1 } else { careless.push(id) }
        } else if line["basis"] == "text" {
            let is_right = explanation.verdict.cause.name() == cause;
            if is_right { named += 1 } else { wrong.push(id) }
        }
    }
    assert!(named * 5 >= wrong.len() * 95, "wrong: {wrong:?}");
    assert!(careful * 5 >= careless.len() * 95, "careless: {careless:?}");
}

#[test]
fn a_failure_is_found_in_megabytes_of_output() {
    let mut log = String::new();
    for step in 0..60_000 {
        log.push_str(&format!("\u{1b}[32mstep {step}\u{1b}[0m loss 0.{step} |███▌  | {step}/60000\r\n"));
    }
    log.push_str("[rank3]: Traceback (most recent call last):\n[rank1]: something else\n");
    log.push_str("[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.10 GiB \n");
    log.push_str("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 1 has a total capacity of 79.10 GiB of which 1.00 GiB is free.\n");
    log.push_str("[rank3]: of which 31.00 MiB is free. Including non-PyTorch memory, this process has 79.06 GiB memory in use. Of the allocated memory 77.10 GiB is allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated.\n");
    let explanation = explain_text(&log);
    assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice);
    let request = explanation.request.unwrap();
    assert_eq!(request.device.map(|device| device.0), Some(3));
    assert_eq!(request.bytes.map(Bytes::get), Some(2 << 30));
}

#[test]
fn the_ledger_adds_up_to_the_device() {
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 13.77 GiB is free. Process 485 has 125.51 GiB memory in use. Including non-PyTorch memory, this process has 518.00 MiB memory in use. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.";
    let ledger = explain_text(text).ledger.unwrap();
    let listed: i64 = ledger.lines().iter().map(|line| line.bytes().get().cast_signed()).sum();
    assert_eq!(listed + ledger.unaccounted(), ledger.total().unwrap().get().cast_signed());
    // The text rounds to hundredths of a GiB: what is left over is rounding.
    assert!(ledger.unaccounted().abs() < 64 << 20);
}

#[test]
fn advice_that_cannot_help_is_not_given() {
    let with_expandable = "$ PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 100.00 MiB is free. Including non-PyTorch memory, this process has 23.90 GiB memory in use. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 8.40 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
    let explanation = explain_text(with_expandable);
    assert_eq!(explanation.verdict.cause, Cause::Fragmentation);
    let commands: Vec<&str> =
        explanation.causes[0].fixes.iter().filter_map(|fix| fix.command.as_deref()).collect();
    assert!(!commands.iter().any(|command| command.contains("expandable_segments")), "{commands:?}");
    let without = explain_text(&with_expandable[with_expandable.find('\n').unwrap()..]);
    assert!(
        without.causes[0]
            .fixes
            .iter()
            .any(|fix| fix.command.as_deref().is_some_and(|command| command.contains("expandable_segments")))
    );
}

#[test]
fn in_a_container_the_process_that_is_oneself_is_not_to_be_killed() {
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free. Process 3201 has 77.90 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 3.00 GiB is reserved by PyTorch but unallocated.";
    let explanation = explain_text(text);
    assert_ne!(explanation.verdict.cause, Cause::OtherProcesses);
    let commands = explanation
        .causes
        .iter()
        .flat_map(|cause| cause.fixes.iter().filter_map(|fix| fix.command.as_deref()));
    assert!(!commands.into_iter().any(|command| command.contains("kill")));
    assert!(explanation.ledger.unwrap().unaccounted() >= 0);
}

#[test]
fn another_gpu_is_never_the_full_one() {
    let text = "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 1; 24.00 GiB total capacity; 1.00 GiB already allocated; 10.00 MiB free; 1.10 GiB reserved in total by PyTorch)";
    let explanation = explain_text(text);
    assert_eq!(explanation.verdict.cause, Cause::OtherProcesses);
    let fixes = &explanation.causes[0].fixes;
    assert!(
        fixes.iter().any(|fix| fix.command.as_deref() == Some("export CUDA_VISIBLE_DEVICES=0")),
        "{fixes:?}"
    );
}

#[test]
fn other_makers_get_their_own_commands() {
    let text = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.";
    let explanation = explain_text(text);
    let text = format!("{:?}{:?}", explanation.causes, explanation.next);
    assert!(!text.contains("nvidia-smi") && !text.contains("CUDA_VISIBLE"), "{text}");
}

#[test]
fn words_about_memory_that_report_no_failure_are_not_one() {
    for text in [
        "all steps done, no out of memory errors",
        "tests/test_gpu.py::test_raises_cuda_out_of_memory PASSED",
        "Number of Processes: 4\nSegmentation fault",
    ] {
        let explanation = explain_text(text);
        assert_eq!(explanation.verdict.cause, Cause::None, "{text}");
        assert!(!explanation.verdict.summary.contains("ran out"), "{text}: {}", explanation.verdict.summary);
    }
}

#[test]
fn advice_in_a_log_is_no_evidence_that_it_was_followed() {
    let error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 100.00 MiB is free. Including non-PyTorch memory, this process has 23.90 GiB memory in use. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 8.40 GiB is reserved by PyTorch but unallocated.";
    for before in [
        "hint: you can set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "If reserved memory is large try setting\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ] {
        let explanation = explain_text(&format!("{before}\n{error}"));
        assert!(!explanation.wont_help.iter().any(|line| line.contains("is on")), "{before}");
    }
}

#[test]
fn little_that_is_unused_can_be_enough() {
    let text = |request: &str| {
        explain_text(&format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {request}. GPU 0 has a total capacity of 8.00 GiB of which 34.00 MiB is free. Including non-PyTorch memory, this process has 7.96 GiB memory in use. Of the allocated memory 7.20 GiB is allocated by PyTorch, and 254.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
        ))
    };
    for (request, is_enough) in [("74.00 MiB", true), ("2.00 GiB", false)] {
        let explanation = text(request);
        assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice, "{request}");
        let cannot_help = explanation.wont_help.iter().any(|line| line.contains("expandable_segments"));
        let fixes = explanation.causes[0].fixes.iter().filter_map(|fix| fix.command.as_deref());
        let is_advised = fixes.into_iter().any(|command| command.contains("expandable_segments"));
        assert_eq!((cannot_help, is_advised), (!is_enough, is_enough), "{request}");
    }
}

/// Figures of Windows and WSL: no process may have the whole card, and what a process holds is not reported.
#[test]
fn figures_of_windows_are_not_other_processes() {
    for text in [
        "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 6.20 GiB already allocated; 0 bytes free; 6.30 GiB reserved in total by PyTorch)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is free. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. Of the allocated memory 7.20 GiB is allocated by PyTorch, and 150.00 MiB is reserved by PyTorch but unallocated.",
    ] {
        let verdict = explain_text(text).verdict;
        assert_eq!(
            (verdict.cause, verdict.certainty),
            (Cause::LiveDataFillsDevice, Certainty::Likely),
            "{text}"
        );
    }
}

#[test]
fn cut_off_and_rounded_figures_decide() {
    let text = "CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 22.00 GiB total capacity; 20.70 GiB already allocat";
    assert_eq!(explain_text(text).verdict.cause, Cause::LiveDataFillsDevice);
    let text = "CUDA out of memory. Tried to allocate 4.60 GiB. GPU 0 has a total capacity of 44.30 GiB of which 4.60 GiB is free. Including non-PyTorch memory, this process has 39.70 GiB memory in use. Of the allocated memory 35.80 GiB is allocated by PyTorch, and 3.30 GiB is reserved by PyTorch but unallocated.";
    assert_eq!(explain_text(text).verdict.cause, Cause::Fragmentation);
}

#[test]
fn a_crash_after_a_warning_counts() {
    let warning = "failed to allocate 9000.00 MiB of pinned memory: out of memory";
    assert_eq!(explain_text(&format!("ggml_cuda_host_malloc: {warning}")).verdict.cause, Cause::None);
    let crash = format!("# The program crashes when it loads the model\nggml_cuda_host_malloc: {warning}");
    assert_eq!(explain_text(&crash).verdict.cause, Cause::HostMemory);
    let fine = format!("# It loads without crashing\nggml_cuda_host_malloc: {warning}");
    assert_eq!(explain_text(&fine).verdict.cause, Cause::None);
}

#[test]
fn a_title_yields_to_the_failure_below_it() {
    let text = "# CUDA Memory allocation error\nA seg fault happens when the array is freed with the wrong function.";
    let explanation = explain_text(text);
    assert_eq!(explanation.verdict.cause, Cause::None);
    assert!(explanation.verdict.summary.contains("segmentation fault"), "{}", explanation.verdict.summary);
}

#[test]
fn a_full_card_in_a_table_leads_to_other_processes() {
    let text = "|   0  V100  On   | 00000000:00:08.0 Off |                    0 |\n| N/A   54C    P0   246W / 300W |  15600MiB / 16130MiB |    100%      Default |\nRuntimeError: CUDA error: out of memory";
    let verdict = explain_text(text).verdict;
    assert_eq!((verdict.cause, verdict.certainty), (Cause::OtherProcesses, Certainty::Possible));
}

#[test]
fn ranks_of_one_job_are_not_strangers() {
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 20.00 MiB is free. Process 4100 has 1.90 GiB memory in use. Process 4301 has 1.80 GiB memory in use. Process 4302 has 1.90 GiB memory in use. Process 4303 has 16.20 GiB memory in use. Process 4304 has 1.75 GiB memory in use. Of the allocated memory 1.20 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.";
    let explanation = explain_text(text);
    assert!(explanation.verdict.summary.contains("ranks of the same job"), "{}", explanation.verdict.summary);
    assert_eq!(explanation.verdict.certainty, Certainty::Likely);
}

/// A few mebibytes of cache beside a request that is three times as large are not why it failed.
#[test]
fn a_cache_far_below_the_request_is_not_fragmentation() {
    let text = "CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has a total capacity of 7.60 GiB of which 20.50 MiB is free. Including non-PyTorch memory, this process has 6.90 GiB memory in use. Of the allocated memory 90.00 MiB is allocated by PyTorch, and 8.10 MiB is reserved by PyTorch but unallocated.";
    let explanation = explain_text(text);
    assert!(
        explanation.causes.iter().all(|finding| finding.cause != Cause::Fragmentation),
        "{:?}",
        explanation.causes
    );
}
