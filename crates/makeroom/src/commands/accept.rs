//! Waiting for connections and signals: what every command that answers HTTP shares.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

/// Connections at a time; more wait.
const MOST_CONNECTIONS: usize = 64;
/// How long a client may take to ask.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers every request until it is stopped.
pub(crate) async fn accept<Answer, Waiting>(listener: TcpListener, answer: Answer)
where
    Answer: Fn(Request<Incoming>) -> Waiting + Clone + Send + Sync + 'static,
    Waiting: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: others must end first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answered = answer(request);
                async move { Ok::<_, Infallible>(answered.await) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            // A client that went away is its own business.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
            drop(permit);
        });
    }
}

/// Waits until the program is told to end. The first process of a container hears only the signals that it asks for.
pub(crate) fn told_to_end() -> io::Result<impl Future<Output = ()>> {
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(std::future::poll_fn(move |context| {
        let is_over = terminated.poll_recv(context).is_ready() || interrupted.poll_recv(context).is_ready();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }))
}
