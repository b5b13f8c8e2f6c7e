//! docs/fleet.md shows actual output. To accept a change: `TRYCMD=overwrite cargo test -p makeroom-fleet document`.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use crate::support::bucket::{serve, variables};
use crate::support::{command, folder};

/// The objects of the bucket: recordings in the repository, as two jobs that were recorded and one that only left logs.
const RECORDINGS: [(&str, &str); 8] = [
    ("fit/gpt_54.room.gz", "job-4711/rank0.room.gz"),
    ("fit/gpt_61.room.gz", "job-4711/rank1.room.gz"),
    ("fit/conv_2600.room.gz", "job-4712/rank0.room.gz"),
    ("fit/conv_2900.room.gz", "job-4712/rank1.room.gz"),
    ("job/rank0.log", "job-4713/rank0.log"),
    ("job/rank1.log", "job-4713/rank1.log"),
    ("job/rank2.log", "job-4713/rank2.log"),
    ("job/rank3.log", "job-4713/rank3.log"),
];

/// The seconds that a command took, as the page shows them.
fn without_time(text: &str) -> String {
    let is_time =
        |words: &[&str]| words[0] == "in" && words[2].starts_with('s') && words[1].parse::<f64>().is_ok();
    let mut words: Vec<&str> = text.split(' ').collect();
    for at in 2..words.len() {
        if is_time(&words[at - 2..=at]) {
            words[at - 1] = "0.1";
        }
    }
    words.join(" ")
}

#[test]
fn the_page_shows_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = folder();
    let objects = RECORDINGS
        .map(|(from, to)| (format!("recordings/{to}"), fs::read(root.join("traces").join(from)).unwrap()));
    let objects: Vec<_> =
        objects.iter().map(|(name, content)| (name.as_str(), content.as_slice(), &[][..])).collect();
    let (address, _bucket) = serve(&objects);
    let page = fs::read_to_string(root.join("docs/fleet.md")).unwrap();
    let mut shown = page.clone();
    let mut commands = 0;
    for block in page.split("```text\n$ makeroom ").skip(1) {
        let block = block.split_once("\n```").unwrap().0;
        let (command_line, expected) = block.split_once('\n').unwrap();
        let arguments: Vec<&str> = command_line.split(' ').collect();
        let output = command(&arguments, &variables(&address)).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{command_line}: {}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = printed.trim_end().lines().map(str::trim_end).collect();
        let printed = without_time(&lines.join("\n"));
        if printed != expected && std::env::var("TRYCMD").is_ok_and(|value| value == "overwrite") {
            shown = shown.replacen(expected, &printed, 1);
        } else {
            assert_eq!(printed, expected, "{command_line}");
        }
        commands += 1;
    }
    assert_eq!(commands, 3);
    if shown != page {
        fs::write(root.join("docs/fleet.md"), shown).unwrap();
    }
}
