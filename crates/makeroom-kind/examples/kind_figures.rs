//! The figures of `bench/kinds`, one per row, separated by tabs. Inputs are recordings:
//!
//! ```text
//! truth    NAME  KIND  ERROR  BYTES    of traces/kinds: the largest error of a kind, and what the program had then
//! unknown  FILE  GPU   BYTES  LIVE     of the recordings given: memory without a kind at the peak
//! cost     FILE  SECONDS  BYTES        of the first recording: time of the kinds, and resident memory beyond reading
//! ```
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement may panic")]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::time::Instant;

use makeroom_core::Trace;
use makeroom_kind::{Kind, Kinds};
use makeroom_trace::Input;
use support::{block_sizes, bytes_of, moments, open, traces};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for (index, file) in arguments.iter().enumerate() {
        let Ok(Input::Trace(trace)) = makeroom_trace::open(Path::new(file)) else { panic!("{file}") };
        recording(file, &trace, index == 0);
    }
    truth();
}

fn recording(file: &str, trace: &Trace, is_first: bool) {
    for device in &trace.devices {
        let before = resident();
        let start = Instant::now();
        let kinds = Kinds::new(trace, device);
        let (peak, live) = kinds.peak();
        let totals = kinds.at(peak);
        let time = start.elapsed().as_secs_f64();
        if is_first {
            println!("cost\t{file}\t{time}\t{}", resident().saturating_sub(before));
        }
        println!("unknown\t{file}\t{}\t{}\t{}", device.device, totals.bytes(Kind::Unknown).get(), live.get());
    }
}

/// The largest error of each kind over all moments of each recording whose memory is known.
fn truth() {
    let mut names: Vec<String> = std::fs::read_dir(traces().join("kinds"))
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().into_string().unwrap().strip_suffix(".json").map(str::to_owned)
        })
        .collect();
    names.sort();
    // Recordings of `run` have truths of their own, which tests/truth.rs reads.
    names.retain(|name| !name.contains(".room"));
    for name in names {
        let trace = open(&format!("kinds/{name}.pickle.gz"));
        let device = &trace.devices[0];
        let kinds = Kinds::new(&trace, device);
        let sizes = block_sizes(device, &kinds);
        for kind in [Kind::Parameters, Kind::Gradients, Kind::OptimizerState, Kind::Activations] {
            let worst = moments(&name)
                .iter()
                // A program without gradients does not list its activations.
                .filter(|moment| kind != Kind::Activations || moment.bytes[kind.id()] > 0)
                .map(|moment| {
                    let expected = moment.bytes[kind.id()];
                    (bytes_of(&kinds, &sizes, kind, moment.events).abs_diff(expected), expected)
                })
                .max();
            if let Some((error, expected)) = worst {
                println!("truth\t{name}\t{}\t{error}\t{expected}", kind.id());
            }
        }
    }
}

/// Peak resident memory in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
