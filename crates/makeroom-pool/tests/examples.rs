//! The Rust example, on the software GPU. Cargo builds examples with the tests of a whole package.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use makeroom_simcard::testing::{Stage, succeeded};

#[test]
fn the_pool_example_runs() {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/pool");
    assert!(example.exists(), "hint: cargo build -p makeroom-pool --examples");
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), "pool/example").with_machine("memory=1GiB");
    let said = succeeded(&stage.command(example).output().unwrap());
    assert!(said.contains("600.00 MiB failed: the pool's limit was reached"), "{said}");
    assert!(said.contains("100 allocations"), "{said}");
    let snapshot = makeroom_trace::open(&stage.path("pool.pickle")).unwrap();
    let makeroom_trace::Input::Trace(trace) = snapshot else { panic!("no trace") };
    assert!(trace.event_count() > 300, "{}", trace.event_count());
}

#[test]
fn the_examples_of_layers_and_pieces_run() {
    let test = std::env::current_exe().unwrap();
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), "pool/examples");
    let runs = [
        (
            "layers",
            "",
            "never freed: 5.00 MiB (1 block), allocated at crates/makeroom-pool/examples/layers.rs",
        ),
        ("chunked", "24MiB", "ChunkedMap::map, there and back"),
    ];
    for (name, argument, expected) in runs {
        let mut command = stage.command(test.ancestors().nth(2).unwrap().join("examples").join(name));
        let said = succeeded(&command.args((!argument.is_empty()).then_some(argument)).output().unwrap());
        assert!(said.contains(expected), "{said}");
    }
}
