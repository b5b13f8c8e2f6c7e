//! `makeroom index`, `makeroom fleet` and `makeroom job INDEX` on local folders.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use crate::support::{contents, folder, log, recordings, run, run_with, texts};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_index_is_the_same_whoever_writes_it() {
    let folder = folder();
    let source = recordings(folder.path());
    let [whole, sharded] = ["whole", "sharded"].map(|name| folder.path().join(name));
    let out = run(&["index", text(&source), "-o", text(&whole)]);
    assert!(out.contains("Indexed 5 objects"), "{out}");
    assert!(out.contains("foreign.pickle: "), "{out}");
    for shard in ["0/3", "1/3", "2/3", "0/3"] {
        run(&["index", text(&source), "-o", text(&sharded), "--shard", shard]);
    }
    assert_eq!(contents(&whole), contents(&sharded));
    // Nothing is written again.
    let before = fs::metadata(whole.join("objects")).unwrap().modified().unwrap();
    let again = run(&["index", text(&source), "-o", text(&whole)]);
    assert!(again.contains("5 objects already indexed"), "{again}");
    assert_eq!(fs::metadata(whole.join("objects")).unwrap().modified().unwrap(), before);
}

#[test]
fn answers_survive_compaction_and_deleted_recordings() {
    let folder = folder();
    let source = recordings(folder.path());
    let index = folder.path().join("index");
    run(&["index", text(&source), "-o", text(&index)]);
    let fleet = run(&["fleet", text(&index)]);
    assert!(fleet.starts_with("2 of 2 jobs ran out of memory."), "{fleet}");
    assert!(fleet.contains("1 object could not be read"), "{fleet}");
    let json = run(&["fleet", text(&index), "--json"]);
    fs::remove_dir_all(&source).unwrap();
    run(&["index", "--compact", "-o", text(&index)]);
    assert_eq!(run(&["fleet", text(&index), "--json"]), json);
    let names: Vec<String> = contents(&index).iter().map(|(name, _)| name.display().to_string()).collect();
    assert!(names.len() == 2 && names.iter().any(|name| name.ends_with("part-00000.parquet")), "{names:?}");
    assert_eq!(run(&["index", "--compact", "-o", text(&index)]), "");
    // A job that is recorded again replaces its rows; the others stay.
    fs::create_dir_all(source.join("job-7")).unwrap();
    fs::write(source.join("job-7/rank0.log"), log(999)).unwrap();
    let out = run(&["index", text(&source), "-o", text(&index), "--compact"]);
    assert!(out.contains("Indexed 1 object"), "{out}");
    let value: serde_json::Value = serde_json::from_str(&run(&["fleet", text(&index), "--json"])).unwrap();
    assert_eq!((value["recordings"].as_u64(), value["failed_jobs"].as_u64()), (Some(4), Some(2)), "{value}");
    assert_eq!(value["lines"][0]["largest_failed_bytes"].as_u64(), Some(999 << 20), "{value}");
}

#[test]
fn one_job_is_explained_as_by_makeroom_job() {
    let folder = folder();
    let source = recordings(folder.path());
    let index = folder.path().join("index");
    run(&["index", text(&source), "-o", text(&index), "--compact"]);
    let value: serde_json::Value = serde_json::from_str(&run(&["fleet", text(&index), "--json"])).unwrap();
    let job = value["by_job"][0]["job"].as_str().unwrap();
    let out = run(&["job", text(&index), "--job", job]);
    assert!(out.contains("rank 0") && out.contains("train.py"), "{out}");
    let one: serde_json::Value =
        serde_json::from_str(&run(&["fleet", text(&index), "--job", job, "--json"])).unwrap();
    assert_eq!((one["jobs"].as_u64(), one["recordings"].as_u64()), (Some(1), Some(2)));
    let output = run_with(&["job", text(&index), "--job", "nothing"], &[]);
    let (_, error) = texts(&output);
    assert!(!output.status.success() && error.contains("the index has no job nothing"), "{error}");
    assert!(error.contains(&format!("hint: the index has {job}")), "{error}");
}

#[test]
fn the_page_has_the_verdict() {
    let folder = folder();
    let source = recordings(folder.path());
    let (index, page) = (folder.path().join("index"), folder.path().join("fleet.html"));
    run(&["index", text(&source), "-o", text(&index)]);
    run(&["fleet", text(&index), "--html", text(&page), "--since", "2w"]);
    assert!(
        fs::read_to_string(page).unwrap().contains("<h1 class=\"failed\">2 of 2 jobs ran out of memory.")
    );
    let none = run(&["fleet", text(&index), "--since", "9999-01-01"]);
    assert!(none.starts_with("There are no recordings in this part of the index."), "{none}");
}

#[test]
fn mistakes_are_explained() {
    let folder = folder();
    let empty = text(folder.path()).to_owned();
    for (arguments, expected) in [
        (vec!["fleet", &empty], "is not an index"),
        (vec!["fleet", "ftp://host/index"], "is not a folder or a URL"),
        (vec!["fleet", &empty, "--since", "soon"], "is not a time"),
        (vec!["index", "/nonexistent/folder", "-o", &empty], "cannot open /nonexistent/folder"),
        (vec!["index", &empty, "-o", &empty, "--shard", "3/3"], "expected I/N"),
    ] {
        let output = run_with(&arguments, &[]);
        let (_, error) = texts(&output);
        assert!(!output.status.success() && error.contains(expected), "{arguments:?}: {error}");
    }
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_listed_does_not_stop_the_others() {
    let folder = folder();
    let source = recordings(folder.path());
    let index = folder.path().join("index");
    fs::create_dir(source.join("loop")).unwrap();
    std::os::unix::fs::symlink("../loop", source.join("loop/again")).unwrap();
    let output = run_with(&["index", text(&source), "-o", text(&index)], &[]);
    let (out, error) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(out.contains("Indexed 5 objects") && out.contains("The index is incomplete"), "{out}");
    assert!(error.contains("loop/again"), "{error}");
    assert!(run(&["fleet", text(&index)]).starts_with("2 of 2 jobs ran out of memory."));
}

#[test]
fn a_damaged_index_file_is_named() {
    let folder = folder();
    let source = recordings(folder.path());
    let index = folder.path().join("index");
    run(&["index", text(&source), "-o", text(&index)]);
    let (name, bytes) = contents(&index.join("objects")).remove(0);
    fs::write(index.join("objects").join(&name), &bytes[..bytes.len() / 2]).unwrap();
    let output = run_with(&["fleet", text(&index)], &[]);
    let (_, error) = texts(&output);
    assert!(!output.status.success() && error.contains(name.to_str().unwrap()), "{error}");
}

#[test]
fn a_compaction_that_was_interrupted_is_reported() {
    let folder = folder();
    let source = recordings(folder.path());
    let index = folder.path().join("index");
    run(&["index", text(&source), "-o", text(&index)]);
    fs::write(index.join("COMPACTING"), "").unwrap();
    let output = run_with(&["index", "--compact", "-o", text(&index)], &[]);
    let (_, error) = texts(&output);
    assert!(!output.status.success() && error.contains("delete"), "{error}");
    assert!(run(&["fleet", text(&index)]).starts_with("2 of 2 jobs"));
}
