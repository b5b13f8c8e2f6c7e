//! cudarc's streams and views on the pool, on the software GPU: runs the example in a process that finds that driver.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use makeroom_simcard::testing::{Stage, succeeded};

#[test]
fn the_example_runs() {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/cudarc");
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), "pool/cudarc").with_machine("memory=1GiB");
    let said = succeeded(&stage.command(example).output().unwrap());
    assert!(said.starts_with("40 allocations"), "{said}");
}
