//! The simulated driver behaves like a real one: `programs/conformance.c` gives the same results as on an H200 with
//! driver 580.

mod common;

use common::{command, compile, stage};

#[test]
fn answers_are_those_of_an_h200() {
    let recorded = include_str!("programs/conformance.h200.txt");
    let stage = stage("conformance");
    let program = compile(&stage, "conformance", &[]);
    for section in recorded.split("## ").filter(|section| !section.is_empty()) {
        let (name, expected) = section.split_once('\n').unwrap();
        let output = command(&stage, &program, "memory=8GiB").arg(name).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        for (line, (expected, said)) in expected.lines().zip(said.lines()).enumerate() {
            assert_eq!(said, expected, "section {name}, line {}", line + 1);
        }
        assert_eq!(said.lines().count(), expected.lines().count(), "section {name}");
        assert!(output.status.success(), "section {name}");
    }
}
