//! Sends the account to an OpenTelemetry collector at regular intervals. Prints a line when it starts to fail, when
//! the error changes, and when it is back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use makeroom_report::otlp_json;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::sampler::Sampler;
use crate::cli::Collector;
use crate::output;

/// Timeout for one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a collector's response to read.
const LONGEST_ANSWER: usize = 64 << 10;

/// Sends until the task is dropped.
pub(crate) async fn push(collector: Collector, every: Duration, sampler: Arc<Sampler>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failed: Option<String> = None;
    loop {
        ticks.tick().await;
        let Some(sample) = sampler.sample().await else { continue };
        let body = otlp_json(&sample.account).to_string();
        let sent = timeout(TIMEOUT, send(&collector, body)).await;
        let problem = match sent {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no response within {} s", TIMEOUT.as_secs())),
        };
        if problem != failed {
            let text = problem.as_ref().map_or("accepts metrics again".to_owned(), Clone::clone);
            output::remark(&format!("makeroom: {collector}: {text}\n"));
        }
        failed = problem;
    }
}

async fn send(collector: &Collector, body: String) -> io::Result<()> {
    let stream = TcpStream::connect((collector.host.as_str(), collector.port)).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = Request::post(&collector.path)
        .header(HOST, collector.authority())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    // Read the response so that the connection closes cleanly.
    let _ = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
    connection.abort();
    if status.is_success() { Ok(()) } else { Err(io::Error::other(format!("returned {status}"))) }
}
