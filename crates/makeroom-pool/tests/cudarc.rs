//! cudarc's streams and views on the pool, on the software GPU: runs the example in a process that finds that driver.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

#[test]
fn the_example_runs() {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/cudarc");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pool").join("cudarc");
    makeroom_simcard::install::link_next_to(&test, &directory).unwrap();
    let mut command = Command::new(example);
    command.env("LD_LIBRARY_PATH", &directory).env("MAKEROOM_SIMGPU_DIR", &directory);
    let output = command.env("MAKEROOM_SIMGPU", "memory=1GiB").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.starts_with("40 allocations"), "{said}");
}
