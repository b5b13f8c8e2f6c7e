//! Handles HTTP requests: access checks, routing, and the headers that restrict what a browser may do with a
//! response.
//!
//! The server listens on loopback, where every page in every browser tab and every user of the machine can reach it.
//! So a request must name this server as its host, which defeats DNS rebinding; it must not come from another site;
//! and its path must start with the server's token, which only the user who started `view` knows.
//!
//! The token is part of the path, not a cookie: browsers send cookies of 127.0.0.1 to every port, and so to servers
//! of other users. The page's own requests are relative to its address and contain the token automatically.

use std::sync::Arc;

use ::http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, LOCATION, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use ::http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::page;
use crate::report::report_with_layers;
use crate::resources::{Form, Refusal, Setting};
use crate::timeline::By;
use crate::viewer::{Computation, Host, Viewer};

/// Header that identifies the version of the inputs, so that a page does not mix responses from two versions.
const READING: &str = "makeroom-reading";

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The page for a browser without the token.
const NO_TOKEN_PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>makeroom view</title>\
    <h1>403: access token missing or wrong</h1>\
    <p>This page shows a recording only to the user who opened it. Open the full address that \
    <code>makeroom view</code> printed, including the part after the port.</p></html>\n";

/// The server's port and the secret token.
#[derive(Clone)]
pub struct Access {
    port: u16,
    token: String,
}

impl Access {
    /// Access to a server on this port of the loopback interface. The token consists of letters and digits.
    pub fn new(port: u16, token: String) -> Self {
        Self { port, token }
    }

    /// The address of the page.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.root())
    }

    /// The path of the page, to which its own requests are relative.
    pub fn root(&self) -> String {
        format!("/{}/", self.token)
    }

    /// The rest of a path after the token; `None` if the token is missing or wrong.
    fn admit<'path>(&self, path: &'path str) -> Option<&'path str> {
        let (given, rest) = path.strip_prefix('/')?.split_at_checked(self.token.len())?;
        // Constant-time comparison.
        let difference =
            given.bytes().zip(self.token.bytes()).fold(0, |sum, (one, other)| sum | (one ^ other));
        (difference == 0 && (rest.is_empty() || rest.starts_with('/'))).then_some(rest)
    }
}

/// Responds to a request.
pub fn respond(host: &dyn Host, request: &Request<()>, access: &Access) -> Response<Vec<u8>> {
    let viewer = host.viewer();
    let (status, kind, body) = match outcome(host, &viewer, request, access) {
        Ok(response) => response,
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
    if status == StatusCode::PERMANENT_REDIRECT
        && let Ok(root) = HeaderValue::from_str(&access.root())
    {
        headers.insert(LOCATION, root);
    }
    response
}

/// The status, the content type and the body of a response.
fn outcome(
    host: &dyn Host,
    viewer: &Arc<Viewer>,
    request: &Request<()>,
    access: &Access,
) -> Result<(StatusCode, &'static str, Vec<u8>), Refusal> {
    permitted(request.headers(), access.port)?;
    let path = match request.uri().path() {
        "/healthz" => "/healthz",
        path => match access.admit(path) {
            // Without the trailing slash, the page's relative requests would lose the token.
            Some("") => return Ok((StatusCode::PERMANENT_REDIRECT, PLAIN, Vec::new())),
            Some(path) => path,
            None if wants_page(request.headers()) => {
                return Ok((StatusCode::FORBIDDEN, HTML, NO_TOKEN_PAGE.as_bytes().to_vec()));
            }
            None => {
                let hint = "use the full address that makeroom view printed";
                return Err(Refusal::new(403, "access token missing or wrong", hint));
            }
        },
    };
    answer(host, viewer, request, path).map(|(kind, body)| (StatusCode::OK, kind, body))
}

/// Whether the client accepts HTML, as browsers do and API clients do not.
fn wants_page(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|kinds| kinds.to_str().ok()).is_some_and(|kinds| kinds.contains("text/html"))
}

fn answer(
    host: &dyn Host,
    viewer: &Arc<Viewer>,
    request: &Request<()>,
    path: &str,
) -> Result<(&'static str, Vec<u8>), Refusal> {
    match *request.method() {
        Method::GET | Method::HEAD => match path {
            "/" => Ok((HTML, page::page().as_bytes().to_vec())),
            "/healthz" => Ok((PLAIN, b"ok\n".to_vec())),
            "/report.html" => {
                let layers = layers(viewer, request.uri().query().unwrap_or(""))?;
                Ok((HTML, report_with_layers(viewer, false, layers)?.html.into_bytes()))
            }
            "/api/inputs" => {
                let setting = Setting {
                    changes: host.changes(),
                    can_reload: host.can_reload(),
                    form: Form::Served,
                    layers: viewer.layers,
                };
                Ok((JSON, viewer.inputs(&setting)?))
            }
            path => Ok((JSON, viewer.answer(path, request.uri().query().unwrap_or(""))?)),
        },
        Method::POST if path == "/api/reload" => host.reload().map(|()| (JSON, b"{}".to_vec())),
        Method::POST => {
            let (computation, input, device) = viewer.computation_of(path).ok_or_else(|| {
                let hint = "use /api/reload, …/whatif or …/alternative";
                Refusal::new(404, format!("cannot POST to {path}"), hint)
            })?;
            start(viewer, computation, input, device)?;
            Ok((JSON, viewer.answer(path, "")?))
        }
        _ => {
            Err(Refusal::new(405, format!("method {} is not supported", request.method()), "use GET or POST"))
        }
    }
}

/// What the layers of a saved report stand for: `by` in its query, or the first choice.
fn layers(viewer: &Viewer, query: &str) -> Result<By, Refusal> {
    let given = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "by");
    given.map_or(Ok(viewer.layers), |(_, name)| {
        By::named(&name).ok_or_else(|| {
            let names: Vec<&str> = By::all().map(By::id).collect();
            Refusal::new(400, format!("invalid parameter by={name}"), format!("use {}", names.join(", ")))
        })
    })
}

/// Starts a computation in the background, unless it is running or done.
fn start(viewer: &Arc<Viewer>, computation: Computation, input: usize, device: usize) -> Result<(), Refusal> {
    if !viewer.begin(computation, input, device) {
        return Ok(());
    }
    let running = Arc::clone(viewer);
    let started = std::thread::Builder::new()
        .name("replay".to_owned())
        .spawn(move || running.compute(computation, input, device));
    match started {
        Ok(_) => Ok(()),
        Err(error) => {
            viewer.give_up(computation, input, device);
            Err(Refusal::new(500, format!("could not start a thread: {error}"), "try again"))
        }
    }
}

/// Whether a request names this server, and comes from its own page or from no page at all.
fn permitted(headers: &HeaderMap, port: u16) -> Result<(), Refusal> {
    let own = [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")];
    let is_ours = |value: &str| own.iter().any(|name| name.eq_ignore_ascii_case(value));
    let text = |value: Option<&HeaderValue>| value.map(|value| value.to_str().unwrap_or("?").to_owned());
    let mut hosts = headers.get_all(HOST).iter();
    let named = text(hosts.next());
    if !named.as_deref().is_some_and(is_ours) || hosts.next().is_some() {
        let named = named.unwrap_or_default();
        let hint = format!("open the address that makeroom view printed, http://127.0.0.1:{port}/…");
        return Err(Refusal::new(403, format!("unexpected host `{named}`"), hint));
    }
    let foreign = |what: &str, value: &str| {
        let hint =
            format!("open the address that makeroom view printed, http://127.0.0.1:{port}/…, directly");
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
