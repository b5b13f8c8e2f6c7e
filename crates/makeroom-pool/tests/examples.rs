//! The Rust example, on the software GPU. Cargo builds examples with the tests of a whole package.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

#[test]
fn the_pool_example_runs() {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/pool");
    assert!(example.exists(), "hint: cargo build -p makeroom-pool --examples");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pool").join("example");
    makeroom_simcard::install::link_next_to(&test, &directory).unwrap();
    let mut command = Command::new(example);
    command.env("LD_LIBRARY_PATH", &directory).env("MAKEROOM_SIMGPU_DIR", &directory).current_dir(&directory);
    let output = command.env("MAKEROOM_SIMGPU", "memory=1GiB").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("600.00 MiB failed: the pool's limit was reached"), "{said}");
    assert!(said.contains("100 allocations"), "{said}");
    let snapshot = makeroom_trace::open(&directory.join("pool.pickle")).unwrap();
    let makeroom_trace::Input::Trace(trace) = snapshot else { panic!("no trace") };
    assert!(trace.event_count() > 300, "{}", trace.event_count());
}

#[test]
fn the_examples_of_layers_and_pieces_run() {
    let test = std::env::current_exe().unwrap();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pool").join("examples");
    makeroom_simcard::install::link_next_to(&test, &directory).unwrap();
    let runs = [
        (
            "layers",
            "",
            "never freed: 5.00 MiB (1 block), allocated at crates/makeroom-pool/examples/layers.rs",
        ),
        ("chunked", "24MiB", "ChunkedMap::map, there and back"),
    ];
    for (name, argument, expected) in runs {
        let mut command = Command::new(test.ancestors().nth(2).unwrap().join("examples").join(name));
        command.env("LD_LIBRARY_PATH", &directory).env("MAKEROOM_SIMGPU_DIR", &directory);
        let output = command.args((!argument.is_empty()).then_some(argument)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(expected), "{said}");
    }
}
