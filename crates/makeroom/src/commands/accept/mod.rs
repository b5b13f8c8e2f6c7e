//! An HTTP server for untrusted clients, shared by `view` and `serve`.
//!
//! ```text
//! mod       accepts connections, serves them, and ends those that miss a deadline
//! seats     limits connections, in total and per peer, and evicts one to admit another
//! stream    a connection that reports its progress
//! ```
//!
//! A connection is in one of three phases, and each has a deadline: receiving (the TLS handshake, the whole head of a
//! request, or idle between two), responding (the response is computed), and sending (the response leaves, without
//! stalling and within a total). No client can keep a seat longer than these, however it divides its bytes, and under
//! pressure slow clients leave earlier.

mod seats;
mod stream;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use seats::{Phase, Seat, Seats};
use stream::Watched;

/// Limits on what clients can use of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Concurrent connections.
    connections: usize,
    /// Concurrent connections of one peer.
    per_peer: usize,
    /// Accepted connections that wait for a seat. More stay in the kernel's queue.
    waiting: usize,
    /// How long a connection waits for a seat.
    wait: Duration,
    /// For the head of a request, from its first to its last byte; also for being idle.
    receive: Duration,
    /// For computing a response.
    respond: Duration,
    /// For the client to accept another byte of a response.
    stall: Duration,
    /// For the client to accept all of a response.
    send: Duration,
    /// How long a connection that waits for its client is safe from others that want its seat.
    grace: Duration,
    /// The same for one that sends.
    send_grace: Duration,
}

impl Limits {
    /// For browsers and scrapers.
    pub(crate) const USUAL: Self = Self {
        connections: 64,
        per_peer: 32,
        waiting: 256,
        wait: Duration::from_millis(500),
        receive: Duration::from_secs(10),
        respond: Duration::from_secs(300),
        stall: Duration::from_secs(10),
        send: Duration::from_secs(60),
        grace: Duration::from_millis(100),
        send_grace: Duration::from_secs(1),
    };
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
}

/// A connection without encryption.
pub(crate) async fn plain(stream: TcpStream) -> io::Result<TcpStream> {
    Ok(stream)
}

/// Serves requests until the task is dropped. `secure` does the handshake of a new connection.
pub(crate) async fn accept<Secure, Securing, Stream, Answer, Waiting>(
    listener: TcpListener,
    limits: Limits,
    secure: Secure,
    answer: Answer,
) where
    Secure: Fn(TcpStream) -> Securing + Clone + Send + Sync + 'static,
    Securing: Future<Output = io::Result<Stream>> + Send + 'static,
    Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Answer: Fn(Request<Incoming>, Ends) -> Waiting + Clone + Send + Sync + 'static,
    Waiting: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let seats = Arc::new(Seats::new(limits));
    let queue = Arc::new(Semaphore::new(limits.waiting));
    loop {
        let Ok(waiting) = Arc::clone(&queue).acquire_owned().await else { return };
        let Ok((stream, client)) = listener.accept().await else {
            // Most likely out of file descriptors: retry once other connections have closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(server) = stream.local_addr() else { continue };
        let ends = Ends { client, server };
        let (seats, secure, answer) = (Arc::clone(&seats), secure.clone(), answer.clone());
        // Wait in a separate task: the next connection in the queue may be from another peer.
        tokio::spawn(async move {
            let Some(taken) = seats.take(client.ip()).await else { return };
            drop(waiting);
            let seat = taken.seat();
            first(seat.over(), serve(secure(stream), seat, |request| answer(request, ends))).await;
        });
    }
}

/// Runs two futures until one of them completes, then drops both.
async fn first(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        let is_over = one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Serves one connection until its client disconnects.
async fn serve<Stream, Answer, Waiting>(
    securing: impl Future<Output = io::Result<Stream>>,
    seat: &Arc<Seat>,
    answer: Answer,
) where
    Stream: AsyncRead + AsyncWrite + Unpin,
    Answer: Fn(Request<Incoming>) -> Waiting,
    Waiting: Future<Output = Response<Full<Bytes>>>,
{
    let Ok(stream) = securing.await else { return };
    let service = service_fn(|request| {
        seat.enter(Phase::Responding);
        let answered = answer(request);
        async move {
            let response = answered.await;
            seat.enter(Phase::Sending);
            Ok::<_, Infallible>(response)
        }
    });
    // The seat's deadlines replace hyper's, which do not cover the response.
    let io = TokioIo::new(Watched::new(stream, Arc::clone(seat)));
    // A client that disconnects early is not a server error.
    let _ = http1::Builder::new().serve_connection(io, service).await;
}

/// Waits for SIGTERM or SIGINT. The first process of a container receives only the signals that it handles.
pub(crate) fn told_to_end() -> io::Result<impl Future<Output = ()>> {
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(poll_fn(move |context| {
        let is_over = terminated.poll_recv(context).is_ready() || interrupted.poll_recv(context).is_ready();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }))
}

#[cfg(test)]
mod tests;
