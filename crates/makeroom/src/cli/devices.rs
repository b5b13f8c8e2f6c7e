//! The arguments of the commands that look at this machine's devices.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use makeroom_core::Bytes;

use super::sizes::card_size;

/// How to look at the machine.
#[derive(Debug, Args)]
pub(crate) struct Looking {
    /// Process file system to read
    ///
    /// In a container, pass the directory where the host's /proc is mounted.
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub(crate) proc: PathBuf,

    /// Timeout for the driver
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub(crate) deadline: f64,
}

/// Show the processes that hold GPU memory, and memory with no owner
///
/// Prints one table per GPU, the fullest first: every process that the driver lists, with its user, container, pod or job.
/// For memory without a listed owner, `ps` names the most likely cause and the evidence. It never stops a process; it
/// prints the command that would, and what would be lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom ps                               show all GPUs and processes
  makeroom ps --require 20GiB && ./train    start only if 20 GiB is free
  sudo makeroom ps                          show details of all users' processes
  makeroom ps --proc /host/proc             in a container

Exit status: 0 on success; 1 if the driver did not respond or --require fails.")]
pub(crate) struct Ps {
    /// Fail unless this much memory is free on one GPU
    ///
    /// Lists the processes that would have to exit.
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) require: Option<Bytes>,

    /// With --require: check only this GPU
    #[arg(long, value_name = "INDEX", requires = "require")]
    pub(crate) device: Option<u32>,

    /// List all processes, including small ones
    #[arg(long)]
    pub(crate) all: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) looking: Looking,
}

/// Watch GPU memory live, by process
///
/// Shows GPUs, processes with their memory history, and lines of code for programs that run under `makeroom run`.
///
/// Keys: q quits, s changes the sort order, r reverses it, / filters, Enter shows the lines of the selected program.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) interval: f64,

    #[command(flatten)]
    pub(crate) looking: Looking,
}

/// Check this machine for GPU memory problems
///
/// Checks the driver and the libraries built for it, GPU modes, MIG and MPS, limits on host and shared memory, allocator
/// settings that conflict or have no effect, and whether `makeroom run` can record here. Each problem comes with a fix.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 if no problem was found, 1 otherwise.")]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) looking: Looking,
}

/// Export GPU memory by process to Prometheus and OpenTelemetry
///
/// Serves /metrics and /healthz until it is stopped. Metrics use the names and labels of DCGM's exporter and of
/// OpenTelemetry's conventions, with the GPU's UUID as the key.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom serve                               serve 127.0.0.1:9401/metrics
  makeroom serve --listen 0.0.0.0:9401         reachable from other machines
  makeroom serve --otlp http://127.0.0.1:4318  also send to OpenTelemetry")]
pub(crate) struct Serve {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9401", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// TLS certificates and users, in the format of Prometheus exporters
    ///
    /// Needs a build with the `tls` feature.
    #[arg(long, alias = "web.config.file", value_name = "FILE")]
    pub(crate) web_config: Option<PathBuf>,

    /// OpenTelemetry collector to send metrics and verdicts to
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<Collector>,

    /// Seconds between exports to the collector
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0, value_parser = seconds)]
    pub(crate) interval: f64,

    /// Take a sample for every request, however soon it follows the last one: for `bench/soak`
    #[arg(long, hide = true)]
    pub(crate) always_sample: bool,

    #[command(flatten)]
    pub(crate) looking: Looking,
}

/// Where an OpenTelemetry collector listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collector {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

impl Collector {
    /// The port that collectors listen on.
    const PORT: u16 = 4318;

    /// Where it accepts logs; `None` if the path for metrics is not OTLP's own.
    pub(crate) fn for_logs(&self) -> Option<Self> {
        let base = self.path.strip_suffix("/v1/metrics")?;
        Some(Self { path: format!("{base}/v1/logs"), ..self.clone() })
    }

    /// The value of the request's `Host` header.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}{}", self.authority(), self.path)
    }
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("https://") {
            return Err(
                "TLS is not supported; send to a collector on this machine, which can forward over TLS"
                    .to_owned(),
            );
        }
        let wrong = || format!("`{text}` is not a URL; write http://127.0.0.1:4318");
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, path) =
            rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (authority, Self::PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong());
        }
        let path = if path.is_empty() { "/v1/metrics".to_owned() } else { format!("/{path}") };
        Ok(Self { host: host.to_owned(), port, path })
    }
}

/// Parses the address to listen on. `localhost` is the only name accepted, because it needs no resolver.
fn address(text: &str) -> Result<SocketAddr, String> {
    let numbers = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numbers.as_deref().unwrap_or(text).parse().map_err(|_| {
        format!("`{text}` is not an address with a port; write 127.0.0.1:9401, or 0.0.0.0:9401 to accept connections from other machines")
    })
}

/// Parses a number of seconds between 0.01 and one day.
fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if (0.01..=86_400.0).contains(&number) {
        Ok(number)
    } else {
        Err(format!("`{text}` is not between 0.01 and 86400 seconds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_shown_how_to_be_written() {
        for (text, shown) in
            [("localhost:9456", "127.0.0.1:9456"), ("0.0.0.0:80", "0.0.0.0:80"), ("[::1]:9401", "[::1]:9401")]
        {
            assert_eq!(address(text).unwrap().to_string(), shown);
        }
        for text in ["localhost", "9456", "localhost:many", "example.org:80"] {
            let error = address(text).unwrap_err();
            assert!(error.contains(text) && error.contains("127.0.0.1:9401"), "{error}");
        }
    }

    #[test]
    fn collectors_are_read_and_shown() {
        for (text, shown) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
            ("http://collector/", "http://collector:4318/v1/metrics"),
            ("http://[::1]:80/own/path", "http://[::1]:80/own/path"),
        ] {
            assert_eq!(text.parse::<Collector>().unwrap().to_string(), shown);
        }
        for text in ["https://x", "127.0.0.1:4318", "http://", "http://x:many"] {
            assert!(text.parse::<Collector>().is_err(), "{text}");
        }
        let logs = |text: &str| text.parse::<Collector>().unwrap().for_logs().map(|logs| logs.to_string());
        assert_eq!(logs("http://x"), Some("http://x:4318/v1/logs".to_owned()));
        assert_eq!(logs("http://x:1/otlp/v1/metrics"), Some("http://x:1/otlp/v1/logs".to_owned()));
        assert_eq!(logs("http://x/own"), None);
    }
}
