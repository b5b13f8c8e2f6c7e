//! Sends the account and verdicts to an OpenTelemetry collector at regular intervals. Prints a line when it starts to
//! fail, when the error changes, and when it is back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use makeroom_report::{otlp_json, otlp_logs_json};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::failures::Failures;
use super::recorded;
use super::sampler::Sampler;
use crate::cli::Collector;
use crate::output;

/// Timeout for one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a collector's response to read.
const LONGEST_ANSWER: usize = 64 << 10;

/// Sends until the task is dropped.
pub(crate) async fn push(
    collector: Collector,
    every: Duration,
    sampler: Arc<Sampler>,
    failures: Arc<Failures>,
) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut metrics = Endpoint { name: "metrics", collector: collector.clone(), failed: None };
    let mut logs = collector.for_logs().map(|collector| Endpoint { name: "logs", collector, failed: None });
    loop {
        ticks.tick().await;
        let Some(sample) = sampler.sample().await else { continue };
        let body = otlp_json(&sample.account, recorded(&sample, &failures.tally())).to_string();
        metrics.send(body).await;
        let verdicts = failures.verdicts();
        if let Some(logs) = logs.as_mut().filter(|_| !verdicts.is_empty()) {
            let body = otlp_logs_json(&sample.account.host, &verdicts).to_string();
            if logs.send(body).await {
                failures.forget(verdicts.len());
            }
        }
    }
}

/// One path of the collector, and its last error.
struct Endpoint {
    name: &'static str,
    collector: Collector,
    failed: Option<String>,
}

impl Endpoint {
    /// Sends a request. Returns whether it is settled: accepted, or rejected so that sending it again would not help.
    async fn send(&mut self, body: String) -> bool {
        let (problem, is_settled) = match timeout(TIMEOUT, send(&self.collector, body)).await {
            Ok(Ok(status)) if status.is_success() => (None, true),
            Ok(Ok(status)) => (Some(format!("returned {status}")), !is_passing(status)),
            Ok(Err(error)) => (Some(error.to_string()), false),
            Err(_) => (Some(format!("no response within {} s", TIMEOUT.as_secs())), false),
        };
        if problem != self.failed {
            let accepts = format!("accepts {} again", self.name);
            let text = problem.as_ref().unwrap_or(&accepts);
            output::remark(&format!("makeroom: {}: {text}\n", self.collector));
        }
        self.failed = problem;
        is_settled
    }
}

/// Whether OTLP tells the sender to try again after this status.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

async fn send(collector: &Collector, body: String) -> io::Result<StatusCode> {
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
    Ok(status)
}
