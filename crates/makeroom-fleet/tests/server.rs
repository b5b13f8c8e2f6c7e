//! A bucket that throttles, breaks off, changes and denies access.
//!
//! Signatures are checked elsewhere, against servers that implement them; here the answers are what is tested.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::thread;

use crate::support::bucket::{Act, SECRET, reply, serve, variables};
use crate::support::{folder, log, run, run_with, texts};

fn index(address: &str, output: &str) -> std::process::Output {
    run_with(&["index", "s3://bucket", "-o", output], &variables(address))
}

#[test]
fn throttled_and_torn_answers_are_retried() {
    let log = log(144);
    let (address, bucket) = serve(&[
        ("job-1/rank0.log", log.as_bytes(), &[Act::Throttle, Act::Throttle, Act::Whole]),
        ("job-1/rank1.log", log.as_bytes(), &[Act::Torn, Act::Torn, Act::Whole]),
        ("job-1/code.py", log.as_bytes(), &[Act::Denied]),
    ]);
    let folder = folder();
    let output = folder.path().join("index").display().to_string();
    let result = index(&address, &output);
    let (out, error) = texts(&result);
    assert!(result.status.success(), "{out}\n{error}");
    assert!(out.contains("Indexed 2 objects"), "{out}\n{error}");
    let fleet = run(&["fleet", &output, "--json"]);
    assert!(fleet.contains("\"recordings\": 2"), "{fleet}");
    let requests = &bucket.lock().unwrap().requests;
    assert!(!requests.contains_key("job-1/code.py"), "source code is not fetched");
}

#[test]
fn an_index_that_is_not_whole_does_not_look_whole() {
    let log = log(144);
    let (address, bucket) = serve(&[
        ("job-1/rank0.log", log.as_bytes(), &[Act::Whole]),
        ("job-1/rank1.log", log.as_bytes(), &[Act::Denied]),
        ("job-1/rank2.log", log.as_bytes(), &[Act::Missing]),
        ("job-1/rank3.log", log.as_bytes(), &[Act::Torn]),
    ]);
    let folder = folder();
    let output = folder.path().join("index").display().to_string();
    let result = index(&address, &output);
    let (out, error) = texts(&result);
    assert_eq!(result.status.code(), Some(1), "{out}\n{error}");
    assert!(
        out.ends_with("The index is incomplete: 2 objects failed. Run the command again to retry.\n"),
        "{out}"
    );
    assert!(out.contains("Deleted while indexing\n  s3://bucket/job-1/rank2.log\n"), "{out}");
    assert!(error.contains("s3://bucket/job-1/rank1.log: "), "{error}");
    assert!(!out.contains(SECRET) && !error.contains(SECRET), "{out}\n{error}");
    // The next run fetches only what is missing.
    bucket.lock().unwrap().objects.iter_mut().for_each(|(_, (_, acts))| *acts = vec![Act::Whole]);
    let result = index(&address, &output);
    let (out, error) = texts(&result);
    assert!(result.status.success() && out.contains("Indexed 3 objects"), "{out}\n{error}");
    assert!(out.contains("1 object already indexed"), "{out}");
}

#[test]
fn a_listing_that_is_denied_is_an_error() {
    let folder = folder();
    let output = folder.path().join("index").display().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let body = b"<Error><Code>ExpiredToken</Code></Error>";
            reply(&mut stream, "403 Forbidden", "", body, body.len());
        }
    });
    let result = index(&address, &output);
    let (out, error) = texts(&result);
    assert_eq!(result.status.code(), Some(1), "{out}\n{error}");
    assert!(error.contains("hint: check the credentials") && !error.contains(SECRET), "{error}");
}
