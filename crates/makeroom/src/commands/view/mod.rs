//! `makeroom view`: shows recordings in the browser, or writes them as one HTML file.
//!
//! ```text
//! files     reads the inputs, watches their files, and reads them again
//! browser   opens the page in a browser
//! launch    the address that the browser is started with: it does not contain the token
//! ```
//!
//! Responses are computed on blocking threads, so that a slow one does not delay other clients.

mod browser;
mod files;
mod launch;

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use hyper::{Request, Response, StatusCode};
use makeroom_view::{Access, Host, Viewer, report, respond};
use tokio::net::TcpListener;

use crate::cli::View;
use crate::commands::accept::{self, Ends, Limits};
use crate::commands::{Kind, place};
use crate::failure::Failure;
use crate::output;
use crate::signals;
use files::Files;
use launch::Launch;

/// Runs `makeroom view`: writes the file, or serves until SIGTERM or SIGINT.
pub(crate) fn run(arguments: &View) -> Result<(), Failure> {
    if let Some(path) = &arguments.output {
        signals::outlive_file_limit();
        place::check(path, Kind::Page, &arguments.inputs)?;
    }
    let files = Files::open(arguments)?;
    say_verdicts(&files.viewer())?;
    match &arguments.output {
        Some(path) => write_report(&files.viewer(), path, arguments.what_if),
        None => serve(arguments, files),
    }
}

fn say_verdicts(viewer: &Viewer) -> Result<(), Failure> {
    for (name, verdict) in viewer.verdicts() {
        output::result(&format!("{name}: {verdict}\n"))?;
    }
    Ok(())
}

fn write_report(viewer: &Viewer, path: &Path, with_what_if: bool) -> Result<(), Failure> {
    let report = report(viewer, with_what_if).map_err(Failure::View)?;
    let failed = |error| Failure::Write { name: path.display().to_string(), error };
    place::write(path, Kind::Page, |file| file.write_all(report.html.as_bytes()).map_err(failed))?;
    let size = makeroom_core::Bytes::new(report.html.len() as u64);
    output::remark(&format!("makeroom: wrote {} ({size})\n", path.display()));
    if let Some(reduced) = report.reduced {
        output::remark(&format!("makeroom: {reduced}\n"));
    }
    Ok(())
}

/// The state that requests need.
struct Server {
    files: Files,
    access: Access,
    launch: Launch,
}

fn serve(arguments: &View, files: Files) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
        let listener =
            TcpListener::bind(address).await.map_err(|error| Failure::ListenToView { address, error })?;
        let port = listener.local_addr()?.port();
        let server =
            Arc::new(Server { files, access: Access::new(port, secret()?), launch: Launch::new(&secret()?) });
        let url = server.access.url();
        let launch_url = format!("http://127.0.0.1:{port}{}", server.launch.path());
        let ended = accept::told_to_end()?;
        let serving =
            tokio::spawn(accept::accept(listener, Limits::USUAL, accept::plain, move |request, ends| {
                answer(Arc::clone(&server), request, ends)
            }));
        output::result(&format!("{url}\n"))?;
        if !arguments.no_browser && !browser::open(&launch_url) {
            output::remark("makeroom: no browser found; open this address in one\n");
        }
        output::remark("makeroom: press Ctrl-C to stop\n");
        ended.await;
        serving.abort();
        Ok::<_, Failure>(())
    })?;
    // Do not wait for responses that are still being computed.
    runtime.shutdown_background();
    Ok(())
}

/// 128 random bits in hexadecimal digits.
fn secret() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    // The kernel fills up to 256 bytes at once.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

async fn answer(server: Arc<Server>, request: Request<Incoming>, ends: Ends) -> Response<Full<Bytes>> {
    let request = request.map(drop);
    let answered = tokio::task::spawn_blocking(move || {
        if server.launch.admits(request.uri().path(), ends.client, ends.server) {
            return to_page(&server.access);
        }
        respond(&server.files, &request, &server.access)
    })
    .await;
    let Ok(response) = answered else {
        let mut failed = Response::new(Full::new(Bytes::from_static(
            b"{\"error\":\"the server failed to compute this response\",\"hint\":\"please report this, with the input if possible\"}",
        )));
        *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return failed;
    };
    response.map(|body| Full::new(Bytes::from(body)))
}

/// Redirects a browser to the page.
fn to_page(access: &Access) -> Response<Vec<u8>> {
    let mut response = Response::new(Vec::new());
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(root) = HeaderValue::from_str(&access.root()) {
        response.headers_mut().insert(LOCATION, root);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
