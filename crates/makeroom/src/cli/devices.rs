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
    /// Where processes are; a container may have the host's mounted elsewhere
    #[arg(long, value_name = "FOLDER", default_value = "/proc")]
    pub(crate) proc: PathBuf,

    /// How many seconds the driver may take to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub(crate) deadline: f64,
}

/// Say who holds the memory of each GPU, and why some is held by nobody
///
/// One table per device, the fullest first: every process the driver lists, with its user, container, pod or job, what
/// is odd about it, and what is used without a listed owner, with the most probable cause and the evidence. It ends
/// nothing: it prints the command that would, and what would be lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom ps                                  who holds what
  makeroom ps --require 20GiB && ./train       start only if 20 GiB can be had; else say who would have to go
  sudo makeroom ps                             see other users' processes too
  makeroom ps --proc /host/proc                from a container that has the host's processes there

Exit status: 0 told (with --require: and it can be had), 1 the driver could not be asked, or it cannot be had.")]
pub(crate) struct Ps {
    /// Fail unless this much is free on one device, and say who would have to go
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) require: Option<Bytes>,

    /// With --require: on this device only
    #[arg(long, value_name = "INDEX", requires = "require")]
    pub(crate) device: Option<u32>,

    /// List every process
    #[arg(long)]
    pub(crate) all: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) looking: Looking,
}

/// Watch who holds the memory of each GPU
///
/// Devices, processes with what they held at the last looks, and the lines of a program that runs under makeroom run.
/// Keys: q ends, s chooses the order and r reverses it, / filters, enter shows the sites of the selected program.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) interval: f64,

    #[command(flatten)]
    pub(crate) looking: Looking,
}

/// Say what can go wrong here before anything runs
///
/// Looks at the driver and what is built for it, the cards and their modes, MIG and MPS, limits of host and shared
/// memory, settings of allocators that contradict each other or are not read, and whether makeroom run can record
/// here. Each finding comes with what to do.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 nothing to mend, 1 something to mend.")]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) looking: Looking,
}

/// Serve who holds what as metrics, for Prometheus and OpenTelemetry
///
/// Answers /metrics and /healthz until it is ended. Metrics have the names and labels of DCGM's exporter and of
/// OpenTelemetry's conventions, with the GPU's UUID as the key.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom serve                                      http://127.0.0.1:9401/metrics
  makeroom serve --listen 0.0.0.0:9401                for everybody who reaches this machine
  makeroom serve --otlp http://127.0.0.1:4318         send to the collector on this machine too")]
pub(crate) struct Serve {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9401", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Send to this OpenTelemetry collector too
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<Collector>,

    /// Seconds between two sendings
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0, value_parser = seconds)]
    pub(crate) interval: f64,

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

    /// What goes into the request's `Host`.
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
                "it cannot send over TLS; send to the collector on this machine and let that one".to_owned()
            );
        }
        let wrong = || format!("`{text}` is not an address; it is written http://127.0.0.1:4318");
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

/// Reads an address to listen at. The one name that needs nobody to be asked is this machine's own.
fn address(text: &str) -> Result<SocketAddr, String> {
    let numbers = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numbers.as_deref().unwrap_or(text).parse().map_err(|_| {
        format!("`{text}` is no address with a port; it is written 127.0.0.1:9401, or 0.0.0.0:9401 for everybody who reaches this machine")
    })
}

/// Reads a positive number of seconds.
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
    }
}
