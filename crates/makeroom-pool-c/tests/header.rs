//! The header against the library: the same functions, and structures with the same layout.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "only the layouts are compared")]
#[path = "../src/abi.rs"]
mod abi;

use std::collections::BTreeSet;
use std::mem::{align_of, offset_of, size_of};
use std::process::Command;

use crate::common::{compile, here, stage};
use makeroom_simcard::testing::{built, succeeded};

/// The functions that the header declares: names followed by a parenthesis, outside comments.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(here().join("include/makeroom.h")).unwrap();
    let mut code = String::new();
    for (number, part) in header.split("/*").enumerate() {
        code.push_str(if number == 0 { part } else { part.split_once("*/").unwrap().1 });
    }
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let before = code.split('(').map(|part| part.rsplit(|letter| !is_name(letter)).next().unwrap());
    before.filter(|name| name.starts_with("makeroom_")).map(str::to_owned).collect()
}

fn exported() -> BTreeSet<String> {
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(built("libmakeroom_pool.so")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn header_and_library_have_the_same_functions() {
    let declared = declared();
    assert!(declared.len() > 20, "{declared:?}");
    assert_eq!(declared, exported());
}

/// Compares lines of `name size alignment offset…` for the structures of the header, as C sees them.
#[test]
fn structures_have_the_same_shape() {
    let mut expected = String::new();
    let mut questions = String::new();
    macro_rules! shape {
        ($rust:ty, $c:literal, $($field:ident)*) => {
            expected.push_str(&format!("{} {} {}", $c, size_of::<$rust>(), align_of::<$rust>()));
            $(expected.push_str(&format!(" {}", offset_of!($rust, $field)));)*
            expected.push('\n');
            questions.push_str(&format!("printf(\"%s %zu %zu\", \"{0}\", sizeof({0}), _Alignof({0}));", $c));
            $(questions.push_str(&format!("printf(\" %zu\", offsetof({}, {}));", $c, stringify!($field)));)*
            questions.push_str("puts(\"\");\n");
        };
    }
    shape!(abi::RawOptions, "makeroom_options", size limit spill history);
    shape!(abi::RawStats, "makeroom_stats", size live pending rounding reserved cached peak_live peak_reserved blocks
        allocations refusals spilled peak_spilled driver_nanoseconds);
    shape!(abi::RawShortage, "makeroom_shortage", size requested device_free device_total largest live reserved limit
        spilled spill_quota);
    shape!(abi::MempoolId, "makeroom_mempool_id", first second);
    for (name, value) in [
        ("MAKEROOM_OK", abi::OK),
        ("MAKEROOM_OUT_OF_MEMORY", abi::OUT_OF_MEMORY),
        ("MAKEROOM_INVALID_ARGUMENT", abi::INVALID_ARGUMENT),
        ("MAKEROOM_NO_SUCH_POOL", abi::NO_SUCH_POOL),
        ("MAKEROOM_WRONG_ADDRESS", abi::WRONG_ADDRESS),
        ("MAKEROOM_DRIVER", abi::DRIVER),
        ("MAKEROOM_FORKED", abi::FORKED),
        ("MAKEROOM_FILE", abi::FILE),
        ("MAKEROOM_INTERNAL", abi::INTERNAL),
    ] {
        expected.push_str(&format!("{name} {value}\n"));
        questions.push_str(&format!("printf(\"%s %d\\n\", \"{name}\", {name});\n"));
    }
    let stage = stage("shapes");
    let source = stage.path("shapes.c");
    let code =
        format!("#include <makeroom.h>\n#include <stdio.h>\nint main(void) {{\n{questions}return 0;\n}}\n");
    std::fs::write(&source, code).unwrap();
    let program = stage.path("shapes");
    compile(&[&source], &program, &["-std=c11", "-Wpedantic"]);
    assert_eq!(succeeded(&Command::new(&program).output().unwrap()), expected);
}

#[test]
fn the_header_is_also_c_plus_plus_and_old_c() {
    let stage = stage("languages");
    for (name, options) in [("old.c", ["-std=c99", "-Wpedantic"]), ("new.cpp", ["-std=c++11", "-Wpedantic"])]
    {
        let source = stage.path(name);
        std::fs::write(&source, "#include <makeroom.h>\nint main(void) { return MAKEROOM_OK; }\n").unwrap();
        compile(&[&source], &stage.path("program"), &options);
    }
}
