//! A request to its response: who may ask, what is answered, and what a browser may do with it.
//!
//! The server is on loopback, where every page in every browser tab can reach it. So a request must name this very server as
//! its host, which keeps other names that resolve to this machine out, and must not come from another site.

use std::sync::Arc;

use ::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use ::http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::page;
use crate::resources::{Form, Refusal, Setting};
use crate::viewer::{Host, Viewer};

/// Names the reading of the inputs that an answer is of: a page must not show answers of two of them together.
const READING: &str = "makeroom-reading";

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers a request to a server that listens on this port of the loopback interface.
pub fn respond(host: &dyn Host, request: &Request<()>, port: u16) -> Response<Vec<u8>> {
    let viewer = host.viewer();
    let answered = permitted(request.headers(), port).and_then(|()| answer(host, &viewer, request));
    let (status, kind, body) = match answered {
        Ok((kind, body)) => (StatusCode::OK, kind, body),
        Err(refusal) => {
            let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, JSON, refusal.json())
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    let policy = if kind == HTML { page::policy() } else { "default-src 'none'; frame-ancestors 'none'" };
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    if status == StatusCode::OK
        && let Ok(reading) = HeaderValue::from_str(&viewer.reading)
    {
        headers.insert(READING, reading);
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
    }
    response
}

fn answer(
    host: &dyn Host,
    viewer: &Arc<Viewer>,
    request: &Request<()>,
) -> Result<(&'static str, Vec<u8>), Refusal> {
    let path = request.uri().path();
    match *request.method() {
        Method::GET | Method::HEAD => match path {
            "/" => Ok((HTML, page::page().as_bytes().to_vec())),
            "/healthz" => Ok((PLAIN, b"ok\n".to_vec())),
            "/api/inputs" => {
                let setting =
                    Setting { changes: host.changes(), can_reload: host.can_reload(), form: Form::Served };
                Ok((JSON, viewer.inputs(&setting)?))
            }
            path => Ok((JSON, viewer.answer(path, request.uri().query().unwrap_or(""))?)),
        },
        Method::POST if path == "/api/reload" => host.reload().map(|()| (JSON, b"{}".to_vec())),
        Method::POST => {
            let (input, device) = viewer.what_if_of(path).ok_or_else(|| {
                Refusal::new(404, format!("cannot POST to {path}"), "use /api/reload or …/whatif")
            })?;
            begin_what_if(viewer, input, device)?;
            Ok((JSON, viewer.answer(path, "")?))
        }
        _ => {
            Err(Refusal::new(405, format!("method {} is not supported", request.method()), "use GET or POST"))
        }
    }
}

fn begin_what_if(viewer: &Arc<Viewer>, input: usize, device: usize) -> Result<(), Refusal> {
    let Some(what_if) = viewer.what_if(input, device) else { return Ok(()) };
    if !what_if.begin() {
        return Ok(());
    }
    let running = Arc::clone(viewer);
    let started = std::thread::Builder::new()
        .name("what-if".to_owned())
        .spawn(move || running.run_what_if(input, device));
    match started {
        Ok(_) => Ok(()),
        Err(error) => {
            what_if.give_up();
            Err(Refusal::new(500, format!("could not start a thread: {error}"), "try again"))
        }
    }
}

/// Whether a request names this server and comes from its own page, or from no page at all.
fn permitted(headers: &HeaderMap, port: u16) -> Result<(), Refusal> {
    let own = [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")];
    let is_ours = |value: &str| own.iter().any(|name| name.eq_ignore_ascii_case(value));
    let text = |value: Option<&HeaderValue>| value.map(|value| value.to_str().unwrap_or("?").to_owned());
    let mut hosts = headers.get_all(HOST).iter();
    let named = text(hosts.next());
    if !named.as_deref().is_some_and(is_ours) || hosts.next().is_some() {
        let named = named.unwrap_or_default();
        let hint = format!("open http://127.0.0.1:{port}/");
        return Err(Refusal::new(403, format!("unexpected host `{named}`"), hint));
    }
    let foreign = |what: &str, value: &str| {
        let hint = format!("open http://127.0.0.1:{port}/ directly");
        Err(Refusal::new(403, format!("request from another site rejected ({what}: {value})"), hint))
    };
    if let Some(origin) = text(headers.get(ORIGIN))
        && !origin.strip_prefix("http://").is_some_and(is_ours)
    {
        return foreign("Origin", &origin);
    }
    match text(headers.get("sec-fetch-site")).as_deref() {
        None | Some("same-origin" | "none") => Ok(()),
        Some(site) => foreign("Sec-Fetch-Site", site),
    }
}
