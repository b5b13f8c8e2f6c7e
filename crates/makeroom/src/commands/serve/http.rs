//! Serves `/metrics` and `/healthz`, and nothing else.

use std::future::Future;
use std::io;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use makeroom_report::{TextFormat, prometheus_text};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::failures::Failures;
use super::recorded;
use super::sampler::Sampler;
use crate::commands::accept::{self, Limits};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Serves until it is stopped. `secure` does the handshake of a connection, and `admit` checks the credentials of a request.
pub(crate) async fn serve<Securing, Stream, Admitting>(
    listener: TcpListener,
    (sampler, failures): (Arc<Sampler>, Arc<Failures>),
    secure: impl Fn(TcpStream) -> Securing + Clone + Send + Sync + 'static,
    admit: impl Fn(HeaderMap) -> Admitting + Clone + Send + Sync + 'static,
) where
    Securing: Future<Output = io::Result<Stream>> + Send + 'static,
    Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Admitting: Future<Output = bool> + Send + 'static,
{
    accept::accept(listener, Limits::USUAL, secure, move |request, _| {
        let (sampler, failures, admit) = (Arc::clone(&sampler), Arc::clone(&failures), admit.clone());
        async move {
            // Probes have no credentials; the response is `ok`, or the reason why the driver does not respond.
            let is_open = request.uri().path() == "/healthz";
            if is_open || admit(request.headers().clone()).await {
                answer(&request, &sampler, &failures).await
            } else {
                let mut refused = response(
                    StatusCode::UNAUTHORIZED,
                    PLAIN,
                    "user or password missing or wrong\n".to_owned(),
                );
                refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic"));
                refused
            }
        }
    })
    .await;
}

async fn answer(
    request: &Request<Incoming>,
    sampler: &Arc<Sampler>,
    failures: &Failures,
) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused =
            response(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD are supported\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/metrics" => match sampler.sample().await {
            Some(sample) => {
                let tally = failures.tally();
                let (kind, format) = if wants_open_metrics(request) {
                    (OPEN_METRICS, TextFormat::OpenMetrics)
                } else {
                    (PLAIN_METRICS, TextFormat::Plain)
                };
                let recorded = recorded(&sample, &tally);
                let text = prometheus_text(&sample.account, sample.took, recorded, format);
                response(StatusCode::OK, kind, text)
            }
            None => {
                response(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "reading the GPUs failed\n".to_owned())
            }
        },
        "/healthz" => match sampler.sample().await.as_ref().map(|sample| &sample.account.driver) {
            Some(Ok(_)) => response(StatusCode::OK, PLAIN, "ok\n".to_owned()),
            Some(Err(error)) => response(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{error}\n")),
            None => {
                response(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "reading the GPUs failed\n".to_owned())
            }
        },
        "/" => {
            let text = "makeroom serve: /metrics for Prometheus, /healthz for probes\n".to_owned();
            response(StatusCode::OK, PLAIN, text)
        }
        _ => response(StatusCode::NOT_FOUND, PLAIN, "not found; use /metrics or /healthz\n".to_owned()),
    }
}

fn wants_open_metrics(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("application/openmetrics-text"))
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
