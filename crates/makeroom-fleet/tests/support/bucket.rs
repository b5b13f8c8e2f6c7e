//! A bucket: a small S3 server of the tests' own, which does what it is told.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) const SECRET: &str = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY";

/// What the server does for a request of an object, in this order; the last one is repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Whole,
    Throttle,
    Torn,
    Missing,
    Denied,
}

pub(crate) struct Bucket {
    pub(crate) objects: HashMap<String, (Vec<u8>, Vec<Act>)>,
    pub(crate) requests: HashMap<String, usize>,
}

/// Starts a server with these objects and returns its address.
pub(crate) fn serve(objects: &[(&str, &[u8], &[Act])]) -> (String, Arc<Mutex<Bucket>>) {
    let objects =
        objects.iter().map(|(name, content, acts)| ((*name).to_owned(), (content.to_vec(), acts.to_vec())));
    let bucket = Arc::new(Mutex::new(Bucket { objects: objects.collect(), requests: HashMap::new() }));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let shared = Arc::clone(&bucket);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || answer(stream, &shared));
        }
    });
    (address, bucket)
}

/// Answers one request, and closes the connection.
fn answer(mut stream: TcpStream, bucket: &Mutex<Bucket>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(!head.iter().any(|line| line.contains(SECRET)), "the secret is never sent");
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut bucket = bucket.lock().unwrap();
    if query.contains("list-type=2") {
        let mut names: Vec<(&String, usize)> =
            bucket.objects.iter().map(|(name, (content, _))| (name, content.len())).collect();
        names.sort();
        let contents: Vec<String> = names
            .iter()
            .map(|(name, size)| {
                format!(
                    "<Contents><Key>{name}</Key><LastModified>2026-11-01T00:00:00.000Z</LastModified>\
                     <ETag>&quot;{name}&quot;</ETag><Size>{size}</Size></Contents>"
                )
            })
            .collect();
        let body = format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>",
            contents.concat()
        );
        return reply(&mut stream, "200 OK", "", body.as_bytes(), body.len());
    }
    let name = path.trim_start_matches("/bucket/").to_owned();
    let number = bucket.requests.entry(name.clone()).or_default();
    let count = *number;
    if method == "GET" {
        *number += 1;
    }
    let Some((content, acts)) = bucket.objects.get(&name) else {
        return reply(&mut stream, "404 Not Found", "", b"", 0);
    };
    let act = acts.get(count).or(acts.last()).copied().unwrap_or(Act::Whole);
    let head = format!("ETag: \"{name}\"\r\nLast-Modified: Sun, 01 Nov 2026 00:00:00 GMT\r\n");
    match act {
        _ if method == "HEAD" => reply(&mut stream, "404 Not Found", "", b"", 0),
        Act::Whole => reply(&mut stream, "200 OK", &head, content, content.len()),
        Act::Torn => reply(&mut stream, "200 OK", &head, &content[..content.len() / 2], content.len()),
        Act::Throttle => {
            reply(
                &mut stream,
                "503 Slow Down",
                "Retry-After: 1\r\n",
                b"<Error><Code>SlowDown</Code></Error>",
                36,
            );
        }
        Act::Missing => reply(&mut stream, "404 Not Found", "", b"<Error><Code>NoSuchKey</Code></Error>", 37),
        Act::Denied => {
            reply(&mut stream, "403 Forbidden", "", b"<Error><Code>AccessDenied</Code></Error>", 40);
        }
    }
}

pub(crate) fn reply(stream: &mut TcpStream, status: &str, head: &str, body: &[u8], length: usize) {
    let head = format!("HTTP/1.1 {status}\r\n{head}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    // The client may have closed the connection.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// The variables with which the program uses the server.
pub(crate) fn variables(address: &str) -> [(&str, &str); 5] {
    [
        ("AWS_ENDPOINT", address),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "us-east-1"),
    ]
}
