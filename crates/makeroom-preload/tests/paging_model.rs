//! Paging under the addresses of PyTorch's own allocator, as its exact model places them: recorded and random programs run on
//! a stand-in for `libc10_cuda`, on the software GPU. Contents are written and checked on different streams.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::support::{Program, compile, scratch, text};
use makeroom_core::{PoolId, Start};
use makeroom_sim::{Driver, Program as Requests, Pytorch, Refused, Request, Settings, Step};
use makeroom_trace::Input;

const MIB: u64 = 1 << 20;
/// The distance of two segments in the model's addresses.
const APART: u64 = 1 << 44;

/// The driver as the model sees it: every call becomes a line of the script.
#[derive(Default)]
struct Script {
    lines: String,
    /// The size of the slots and the end of each segment, as far as it was mapped.
    segments: Vec<(u64, u64)>,
    pending: Vec<u32>,
    live: HashSet<u32>,
    operations: u64,
}

impl Script {
    fn add(&mut self, line: std::fmt::Arguments<'_>) {
        self.operations += 1;
        writeln!(self.lines, "{line}").unwrap();
    }

    fn slots(&mut self, what: char, address: u64, size: u64, page: u64) {
        let (segment, offset) = (address / APART - 1, address % APART);
        let (slot, end) = &mut self.segments[segment as usize];
        (*slot, *end) = (page, (*end).max(offset + size));
        self.add(format_args!("{what} {segment} {} {}", offset / page, size / page));
    }

    fn allocate(&mut self, id: u32, address: u64, size: u64) {
        // Some blocks are still in use by the GPU when they are freed.
        let work = if id.is_multiple_of(3) { 20_000 } else { 0 };
        self.add(format_args!("a {id} {} {} {size} {work}", address / APART - 1, address % APART));
        self.live.insert(id);
    }

    fn free(&mut self, id: u32) {
        if self.live.remove(&id) {
            self.add(format_args!("f {id}"));
        }
    }

    /// The script with the segments first: their sizes are known only at the end.
    fn finish(mut self) -> (String, u64) {
        for id in std::mem::take(&mut self.live) {
            self.add(format_args!("f {id}"));
        }
        let segments = self.segments.iter().map(|&(slot, end)| format!("r {slot} {}\n", end / slot));
        (segments.collect::<String>() + &self.lines, self.operations + self.segments.len() as u64)
    }
}

impl Driver for Script {
    fn allocate_segment(&mut self, _size: u64, _stream: u64) -> Result<u64, Refused> {
        Err(Refused)
    }

    fn release(&mut self, _address: u64, _size: u64) {}

    fn reserve(&mut self, _stream: u64, _is_small: bool) -> u64 {
        self.segments.push((2 * MIB, 2 * MIB));
        APART * self.segments.len() as u64
    }

    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), Refused> {
        self.slots('m', address, size, page);
        Ok(())
    }

    fn unmap(&mut self, address: u64, size: u64, page: u64) {
        self.slots('u', address, size, page);
    }

    fn synchronize(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.pending)
    }
}

/// PyTorch's allocator with expandable segments.
fn pytorch() -> (Pytorch, Settings) {
    let settings = Settings::parse("expandable_segments:True").unwrap();
    (Pytorch::new(settings.clone(), None), settings)
}

/// The script of a recording.
fn recorded(name: &str) -> (String, u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../traces/{name}.pickle.gz"));
    let Input::Trace(trace) = makeroom_trace::open(&path).unwrap() else { panic!("{name} is a recording") };
    let device = &trace.devices[0];
    let requests = Requests::new(device, &trace.stacks, &Start::new(device));
    let ((mut allocator, settings), mut script) = (pytorch(), Script::default());
    let older = (0..requests.older).map(Step::Allocate);
    for step in older.chain(requests.steps.iter().copied()) {
        match step {
            Step::Allocate(number) => {
                let (slot, request) = (requests.slot(number), requests.request(number));
                let address = allocator.allocate_block(&mut script, slot, request).unwrap();
                script.allocate(slot, address, settings.round_size(request.size));
            }
            Step::FreeRequested(number) => {
                script.free(requests.slot(number));
                script.pending.push(requests.slot(number));
                allocator.free_later(requests.slot(number));
            }
            Step::Free(number) | Step::FreeCompleted(number) => {
                script.free(requests.slot(number));
                script.pending.retain(|&slot| slot != requests.slot(number));
                allocator.free(requests.slot(number));
            }
            Step::EmptyCache => allocator.empty_cache(&mut script),
            Step::AllocateRefused(_) => {}
        }
    }
    script.finish()
}

/// The script of a random program with this many blocks, of which up to `most` bytes are live at once.
fn random(seed: u64, blocks: u32, largest: u64, most: u64) -> (String, u64) {
    let ((mut allocator, settings), mut script) = (pytorch(), Script::default());
    let mut state = seed;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let (mut live, mut held) = (Vec::<(u32, u64)>::new(), 0);
    for id in 0..blocks {
        let size = if below(3) == 0 { 512 + below(MIB) } else { MIB + below(largest) };
        while !live.is_empty() && (held + size > most || below(100) < 45) {
            let (gone, bytes) = live.swap_remove(below(live.len() as u64) as usize);
            script.free(gone);
            allocator.free(gone);
            held -= bytes;
        }
        let request = Request { size, stream: below(2), pool: PoolId::DEFAULT };
        let address = allocator.allocate_block(&mut script, id, request).unwrap();
        script.allocate(id, address, settings.round_size(size));
        live.push((id, size));
        held += size;
        if below(2000) == 0 {
            allocator.empty_cache(&mut script);
        }
    }
    script.finish()
}

/// The stand-in, and the program on it.
fn built() -> (PathBuf, PathBuf) {
    let directory = scratch().join("scripted");
    std::fs::create_dir_all(&directory).unwrap();
    let search = format!("-L{}", directory.display());
    compile("c10_quiet.cpp", "scripted/libc10.so", &["-shared", "-fPIC", "-Wl,-soname,libc10.so"]);
    let shared = ["-shared", "-fPIC", "-O1", "-Wl,-soname,libc10_cuda.so", "-lcuda", &search, "-lc10"];
    let torch = compile("scripted.cpp", "scripted/libc10_cuda.so", &shared);
    let flags = ["-lcuda", "-Wl,--unresolved-symbols=ignore-all", torch.to_str().unwrap()];
    (compile("scripted.c", "scripted/scripted", &flags), directory)
}

/// Figures of a run on a machine: live, physical, moved, inside.
fn run(name: &str, (script, operations): &(String, u64), machine: &str) -> [u64; 4] {
    let (path, directory) = built();
    let file = directory.join(format!("{name}.script"));
    std::fs::write(&file, script).unwrap();
    let program = Program::other(&path, name)
        .on_software_gpu()
        .search(&directory)
        .argument(file.to_str().unwrap())
        .variable("MAKEROOM_SIMGPU", &format!("{machine},context=0,module=0"))
        .variable("MAKEROOM_POOL", "paging");
    let is_failing = machine.contains("fail");
    // A block whose memory the driver does not create is on the host, which would stop growth without a quota.
    let output =
        if is_failing { program.variable("MAKEROOM_SPILL", "1073741824") } else { program }.recorded();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{name} on {machine}: {stdout}{stderr}");
    assert!(stdout.ends_with(&format!("operations {operations}\nthe contents are right\n")), "{stdout}");
    assert!(stderr.is_empty() || is_failing, "{name}: {stderr}");
    let figure = |word: &str| -> u64 {
        stdout.split_whitespace().skip_while(|found| *found != word).nth(1).unwrap().parse().unwrap()
    };
    ["live", "physical", "moved", "inside"].map(figure)
}

#[test]
fn recorded_programs_keep_their_contents_at_pytorchs_addresses() {
    for (name, most, least_moved) in
        [("seed004", 1.1, 1), ("oom_fragmented-expandable", 1.05, 10), ("streams-expandable", 1.5, 0)]
    {
        let [live, physical, moved, _] = run(name, &recorded(name), "memory=64GiB");
        assert!(physical as f64 <= live as f64 * most, "{name}: {physical} for {live}");
        assert!(moved >= least_moved, "{name}: {moved} pages moved");
    }
}

#[test]
fn random_programs_keep_their_contents_at_pytorchs_addresses() {
    for seed in 1..=3 {
        let name = format!("random-{seed}");
        let script = random(seed, 4000, 48 * MIB, 900 * MIB);
        let [live, physical, moved, _] = run(&name, &script, "memory=4GiB");
        assert!(moved > 100, "only {moved} pages moved");
        // Pages of 2 MiB are large for a program of this size.
        assert!(physical <= live + live / 6, "{physical} for {live}");
    }
}

/// The first calls belong to PyTorch's own first request for memory, which gets the driver's error.
#[test]
fn every_driver_call_may_fail_once() {
    let script = random(4, 250, 48 * MIB, 600 * MIB);
    for function in [
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
        "cuCtxRecordEvent",
        "cuEventQuery",
        "cuEventCreate",
        "cuCtxPushCurrent_v2",
        "cuThreadExchangeStreamCaptureMode",
    ] {
        for number in if function.starts_with("cuMem") { [2, 3, 5, 30, 90] } else { [5, 6, 8, 30, 90] } {
            run("failing", &script, &format!("memory=4GiB,fail={function}:{number}"));
        }
    }
}

/// `cargo test -p makeroom-preload paging_model -- --ignored` runs for minutes.
#[test]
#[ignore = "10 million operations take minutes"]
fn ten_million_operations_keep_their_contents() {
    let script = random(42, 5_000_000, 8 * MIB, 700 * MIB);
    assert!(script.1 >= 10_000_000, "{}", script.1);
    let [live, physical, moved, inside] = run("soak", &script, "memory=2GiB");
    println!("live {live}, physical {physical}, moved {moved}, inside {inside} ns");
    assert!(moved > 100_000, "only {moved} pages moved");
    // Most blocks are about as large as a page of 2 MiB, so many pages are partly used.
    assert!(physical <= live + live / 3, "{physical} for {live}");
}
