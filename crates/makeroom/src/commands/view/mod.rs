//! `makeroom view`: recordings in the browser, or as one file.
//!
//! ```text
//! files     reads the inputs, sees what becomes of their files, reads them again
//! browser   finds a browser and opens the page in it
//! ```
//!
//! Answers are computed beside the thread that waits for connections, so that a long one holds up nobody else.

mod browser;
mod files;

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use makeroom_view::{Host, Viewer, report, respond};
use tokio::net::TcpListener;

use crate::cli::View;
use crate::commands::{accept, place};
use crate::failure::Failure;
use crate::output;
use files::Files;

/// Runs `makeroom view`: writes the file, or serves until it is told to end.
pub(crate) fn run(arguments: &View) -> Result<(), Failure> {
    if let Some(path) = &arguments.output {
        place::beside(path, &arguments.inputs)?;
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
    place::write(path, |file| file.write_all(report.html.as_bytes())).map_err(failed)?;
    let size = makeroom_core::Bytes::new(report.html.len() as u64);
    output::remark(&format!("makeroom: wrote {} ({size})\n", path.display()));
    if let Some(reduced) = report.reduced {
        output::remark(&format!("makeroom: {reduced}\n"));
    }
    Ok(())
}

fn serve(arguments: &View, files: Files) -> Result<(), Failure> {
    let files = Arc::new(files);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
        let listener =
            TcpListener::bind(address).await.map_err(|error| Failure::ListenToView { address, error })?;
        let port = listener.local_addr()?.port();
        let url = format!("http://127.0.0.1:{port}/");
        let ended = accept::told_to_end()?;
        let serving =
            tokio::spawn(accept::accept(listener, move |request| answer(Arc::clone(&files), request, port)));
        output::result(&format!("{url}\n"))?;
        if !arguments.no_browser && !browser::open(&url) {
            output::remark("makeroom: no browser found; open this address in one\n");
        }
        output::remark("makeroom: press Ctrl-C to stop\n");
        ended.await;
        serving.abort();
        Ok::<_, Failure>(())
    })?;
    // A long answer is not waited for.
    runtime.shutdown_background();
    Ok(())
}

async fn answer(files: Arc<Files>, request: Request<Incoming>, port: u16) -> Response<Full<Bytes>> {
    let request = request.map(drop);
    let answered = tokio::task::spawn_blocking(move || respond(&*files, &request, port)).await;
    let Ok(response) = answered else {
        let mut failed = Response::new(Full::new(Bytes::from_static(
            b"{\"error\":\"the server failed to compute this response\",\"hint\":\"please report this, with the input if possible\"}",
        )));
        *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return failed;
    };
    response.map(|body| Full::new(Bytes::from(body)))
}
