//! `makeroom serve`: exports the account as metrics, for scrapers and for an OpenTelemetry collector.
//!
//! ```text
//! sampler   takes samples on demand: at most one per second, one at a time
//! failures  explains and counts recorded programs that run out of memory
//! http      serves /metrics and /healthz
//! web       TLS and users, with the feature `tls`
//! users     checks passwords
//! push      sends metrics and verdicts to an OpenTelemetry collector
//! ```
//!
//! One thread handles all connections. Samples are taken on another thread because they block, so connections are
//! still served while the driver hangs.

mod failures;
mod http;
mod push;
mod sampler;
#[cfg(feature = "tls")]
mod users;
#[cfg(feature = "tls")]
mod web;

#[cfg(not(feature = "tls"))]
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
#[cfg(not(feature = "tls"))]
use tokio::task::JoinHandle;

use crate::cli::Serve;
use crate::commands::{accept, looking};
use crate::failure::Failure;
use crate::output;
use failures::Failures;
use makeroom_holders::Tally;
use makeroom_report::RecordedPrograms;
use sampler::{Sample, Sampler};
#[cfg(feature = "tls")]
use web::Web;

/// Without the feature: neither encryption nor authentication.
#[cfg(not(feature = "tls"))]
struct Web;

#[cfg(not(feature = "tls"))]
#[allow(clippy::unused_self, reason = "with the feature, it contains the configuration")]
impl Web {
    fn read(configuration: Option<&Path>) -> Result<Self, Failure> {
        if configuration.is_some() { Err(Failure::NoTls) } else { Ok(Self) }
    }

    fn scheme(&self) -> &'static str {
        "http"
    }

    fn serve(self, listener: TcpListener, served: (Arc<Sampler>, Arc<Failures>)) -> JoinHandle<()> {
        tokio::spawn(http::serve(listener, served, accept::plain, |_| std::future::ready(true)))
    }
}

/// The recorded programs of a sample.
fn recorded<'read>(sample: &'read Sample, tally: &'read Tally) -> RecordedPrograms<'read> {
    RecordedPrograms { recorders: &sample.recorders, tally }
}

/// Runs `makeroom serve` until SIGTERM or SIGINT.
pub(crate) fn run(arguments: &Serve) -> Result<ExitCode, Failure> {
    let web = Web::read(arguments.web_config.as_deref())?;
    let good_for = if arguments.always_sample { Duration::ZERO } else { sampler::GOOD_FOR };
    let (failures, queue) =
        Failures::new(arguments.otlp.as_ref().is_some_and(|otlp| otlp.for_logs().is_some()));
    let (watcher, processes) = (looking::often(&arguments.looking)?, arguments.looking.proc.clone());
    let sampler = Arc::new(Sampler::new(watcher, processes, Arc::clone(&failures), good_for));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen)
            .await
            .map_err(|error| Failure::Listen { address: arguments.listen, error })?;
        let address = listener.local_addr()?;
        output::remark(&format!("makeroom: metrics at {}://{address}/metrics\n", web.scheme()));
        if let Some(endpoint) = &arguments.otlp {
            let interval = Duration::from_secs_f64(arguments.interval);
            tokio::spawn(push::push(endpoint.clone(), interval, Arc::clone(&sampler), Arc::clone(&failures)));
        }
        tokio::spawn(Arc::clone(&sampler).run());
        tokio::spawn(failures::explain_all(Arc::clone(&failures), queue));
        let ended = accept::told_to_end()?;
        let serving = web.serve(listener, (sampler, failures));
        ended.await;
        serving.abort();
        Ok::<_, Failure>(())
    })?;
    // Do not wait for a sample that may be stuck in a driver that hangs.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
