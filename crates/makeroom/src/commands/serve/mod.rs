//! `makeroom serve`: exports the account as metrics, for scrapers and for an OpenTelemetry collector.
//!
//! ```text
//! sampler   takes samples on demand: at most one per second, one at a time
//! http      serves /metrics and /healthz
//! web       TLS and users, with the feature `tls`
//! users     checks passwords
//! push      sends to an OpenTelemetry collector
//! ```
//!
//! One thread handles all connections. Samples are taken on another thread because they block, so connections are
//! still served while the driver hangs.

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
use sampler::Sampler;
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

    fn serve(self, listener: TcpListener, sampler: Arc<Sampler>) -> JoinHandle<()> {
        tokio::spawn(http::serve(listener, sampler, accept::plain, |_| std::future::ready(true)))
    }
}

/// Runs `makeroom serve` until SIGTERM or SIGINT.
pub(crate) fn run(arguments: &Serve) -> Result<ExitCode, Failure> {
    let web = Web::read(arguments.web_config.as_deref())?;
    let good_for = if arguments.always_sample { Duration::ZERO } else { sampler::GOOD_FOR };
    let sampler = Arc::new(Sampler::new(looking::often(&arguments.looking)?, good_for));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen)
            .await
            .map_err(|error| Failure::Listen { address: arguments.listen, error })?;
        let address = listener.local_addr()?;
        output::remark(&format!("makeroom: metrics at {}://{address}/metrics\n", web.scheme()));
        if let Some(endpoint) = &arguments.otlp {
            let interval = Duration::from_secs_f64(arguments.interval);
            tokio::spawn(push::push(endpoint.clone(), interval, Arc::clone(&sampler)));
        }
        let ended = accept::told_to_end()?;
        let serving = web.serve(listener, sampler);
        ended.await;
        serving.abort();
        Ok::<_, Failure>(())
    })?;
    // Do not wait for a sample that may be stuck in a driver that hangs.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
