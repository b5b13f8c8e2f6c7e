//! Clients over real sockets that are slow, silent, numerous, or never read. With short deadlines: each of these
//! clients would otherwise keep its seat.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
use std::thread;

use super::*;

/// Without eviction: only deadlines close connections.
const DEADLINES: Limits = Limits {
    connections: 4,
    per_peer: 4,
    waiting: 256,
    wait: Duration::from_secs(30),
    receive: Duration::from_millis(200),
    respond: Duration::from_millis(200),
    stall: Duration::from_millis(200),
    send: Duration::from_millis(400),
    grace: Duration::from_secs(3600),
    send_grace: Duration::from_secs(3600),
};

/// Without deadlines: only eviction frees a seat.
const EVICTION: Limits = Limits {
    receive: Duration::from_secs(3600),
    respond: Duration::from_secs(3600),
    stall: Duration::from_secs(3600),
    send: Duration::from_secs(3600),
    grace: Duration::from_millis(50),
    send_grace: Duration::from_millis(100),
    ..DEADLINES
};

/// More than two socket buffers hold.
const LARGE: usize = 32 << 20;

/// Starts a server that sends [`LARGE`] bytes for `/large` and never responds to `/never`. It ends with the process.
fn start(limits: Limits) -> SocketAddr {
    let listener = StdListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            accept(listener, limits, plain, |request, _| async move {
                let size = match request.uri().path() {
                    "/large" => LARGE,
                    "/never" => std::future::pending().await,
                    _ => 2,
                };
                Response::new(Full::new(Bytes::from(vec![b'x'; size])))
            })
            .await;
        });
    });
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A client with its own address: all of 127.0.0.0/8 is local.
fn connect(server: SocketAddr, last: u8) -> StdStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(server).await.unwrap()
    });
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn send(stream: &mut StdStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
}

/// Whether a client gets a response.
fn is_served(mut stream: StdStream) -> bool {
    send(&mut stream, "/");
    let mut head = [0; 15];
    stream.read_exact(&mut head).is_ok() && head == *b"HTTP/1.1 200 OK"
}

/// Waits until the server has closed a connection.
fn wait_for_end(mut stream: StdStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the server did not end it"),
    }
}

#[test]
fn a_head_has_a_deadline_however_its_bytes_come() {
    let server = start(DEADLINES);
    let silent = connect(server, 1);
    let mut half = connect(server, 1);
    half.write_all(b"GET / HTTP/1.1\r\nX").unwrap();
    let mut slow = connect(server, 1);
    slow.write_all(b"GET / HTTP/1.1\r\nX").unwrap();
    let mut trickle = slow.try_clone().unwrap();
    // Ends when the server stops reading.
    let trickling = thread::spawn(move || {
        while trickle.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    let mut idle = connect(server, 1);
    send(&mut idle, "/");
    assert!(is_served(connect(server, 2)), "after a seat became free");
    for stream in [silent, half, slow, idle] {
        wait_for_end(stream);
    }
    trickling.join().unwrap();
}

#[test]
fn a_response_has_a_deadline_whether_it_stalls_or_trickles() {
    let server = start(DEADLINES);
    let mut stalled = connect(server, 1);
    send(&mut stalled, "/large");
    let mut slow = connect(server, 1);
    send(&mut slow, "/large");
    let mut read = 0;
    let mut some = vec![0; 1 << 16];
    // Never stalls for long, but would exceed the total time.
    while let Ok(count @ 1..) = slow.read(&mut some) {
        read += count;
        thread::sleep(Duration::from_millis(20));
    }
    assert!(read < LARGE, "{read}");
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest);
    assert!(rest.len() < LARGE, "{}", rest.len());
    let mut never = connect(server, 1);
    send(&mut never, "/never");
    wait_for_end(never);
}

/// Regression: 64 of them blocked both servers forever.
#[test]
fn clients_that_never_read_leave_for_others() {
    let server = start(EVICTION);
    let never_read: Vec<StdStream> = (0..4)
        .map(|_| {
            let mut stream = connect(server, 1);
            send(&mut stream, "/large");
            stream
        })
        .collect();
    for last in [1, 2] {
        assert!(is_served(connect(server, last)), "127.0.0.{last}");
    }
    drop(never_read);
}

#[test]
fn connections_without_a_request_leave_first() {
    let server = start(EVICTION);
    let mut reading = connect(server, 1);
    send(&mut reading, "/large");
    let half_open: Vec<StdStream> = (0..50).map(|_| connect(server, 1)).collect();
    assert!(is_served(connect(server, 1)));
    let is_open = |stream: &&StdStream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while half_open.iter().filter(is_open).count() > 4 {
        assert!(std::time::Instant::now() < end, "they keep more than their seats");
        thread::sleep(Duration::from_millis(10));
    }
    let mut response = vec![0; LARGE];
    reading.read_exact(&mut response).unwrap();
}

#[test]
fn one_peer_cannot_take_all_seats() {
    let server =
        start(Limits { per_peer: 2, wait: Duration::from_millis(100), grace: DEADLINES.grace, ..EVICTION });
    let mut never: Vec<StdStream> = (0..8)
        .map(|_| {
            let mut stream = connect(server, 1);
            send(&mut stream, "/never");
            stream
        })
        .collect();
    for stream in never.split_off(2) {
        wait_for_end(stream);
    }
    assert!(is_served(connect(server, 2)));
}

#[test]
fn many_clients_at_once_are_all_served() {
    let server = start(Limits::USUAL);
    let streams: Vec<StdStream> = (0..300)
        .map(|_| {
            let mut stream = connect(server, 1);
            write!(stream, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            stream
        })
        .collect();
    let responses = streams.into_iter().filter_map(|mut stream| {
        let mut response = String::new();
        stream.read_to_string(&mut response).ok().filter(|_| response.starts_with("HTTP/1.1 200 OK"))
    });
    assert_eq!(responses.count(), 300);
}
