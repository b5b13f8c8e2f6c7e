//! The web configuration of `serve`: TLS and users, in the file format of Prometheus exporters (`--web.config.file`).
//!
//! ```yaml
//! tls_server_config:
//!   cert_file: server.crt
//!   key_file: server.key
//! basic_auth_users:
//!   prometheus: $2y$10$…
//! ```
//!
//! Relative paths are relative to the file. A setting that makeroom does not know is an error, never ignored: most of them make
//! the server stricter.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use yaml_rust2::{Yaml, YamlLoader};

use super::failures::Failures;
use super::http;
use super::sampler::Sampler;
use super::users::Users;
use crate::commands::accept;
use crate::failure::Failure;

/// Maximum size of a configuration file.
const LONGEST_FILE: u64 = 1 << 20;

/// TLS and users.
pub(super) struct Web {
    tls: Option<TlsAcceptor>,
    users: Option<Arc<Users>>,
}

impl Web {
    /// Reads the configuration, if there is one.
    pub(super) fn read(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self { tls: None, users: None }) };
        read(path).map_err(|problem| Failure::WebConfig { name: path.display().to_string(), problem })
    }

    /// The scheme of the server's addresses.
    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves until the task is dropped.
    pub(super) fn serve(
        self,
        listener: TcpListener,
        served: (Arc<Sampler>, Arc<Failures>),
    ) -> JoinHandle<()> {
        let users = self.users;
        let admit = move |headers: HeaderMap| {
            let users = users.clone();
            async move {
                let Some(users) = users else { return true };
                let Some(credentials) = headers.get(AUTHORIZATION).cloned() else { return false };
                // bcrypt takes about 0.1 s of CPU time.
                let checked = tokio::task::spawn_blocking(move || users.admit(credentials.as_bytes()));
                checked.await.unwrap_or(false)
            }
        };
        match self.tls {
            None => tokio::spawn(http::serve(listener, served, accept::plain, admit)),
            Some(tls) => {
                let secure = move |stream| tls.accept(stream);
                tokio::spawn(http::serve(listener, served, secure, admit))
            }
        }
    }
}

fn read(path: &Path) -> Result<Web, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(LONGEST_FILE).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let documents = YamlLoader::load_from_str(&text).map_err(|error| error.to_string())?;
    let mut web = Web { tls: None, users: None };
    let beside = path.parent().unwrap_or(Path::new("."));
    for (name, value) in settings(documents.first(), "the file")? {
        match name {
            "tls_server_config" => web.tls = Some(tls(value, beside)?),
            "basic_auth_users" => web.users = Some(Arc::new(users(value)?)),
            _ => return Err(format!("`{name}` is not supported")),
        }
    }
    Ok(web)
}

/// The settings of a mapping, by name.
fn settings<'yaml>(value: Option<&'yaml Yaml>, what: &str) -> Result<Vec<(&'yaml str, &'yaml Yaml)>, String> {
    let mapping = match value {
        None | Some(Yaml::Null) => return Ok(Vec::new()),
        Some(value) => value.as_hash().ok_or_else(|| format!("{what} is not a mapping"))?,
    };
    let name =
        |name: &'yaml Yaml| name.as_str().ok_or_else(|| format!("{what} has a name that is not a string"));
    mapping.iter().map(|(key, value)| Ok((name(key)?, value))).collect()
}

fn text<'yaml>(name: &str, value: &'yaml Yaml) -> Result<&'yaml str, String> {
    value.as_str().ok_or_else(|| format!("`{name}` is not a string"))
}

fn tls(value: &Yaml, beside: &Path) -> Result<TlsAcceptor, String> {
    let (mut certificates, mut key): (Option<PathBuf>, Option<PathBuf>) = (None, None);
    for (name, value) in settings(Some(value), "tls_server_config")? {
        match name {
            "cert_file" => certificates = Some(beside.join(text(name, value)?)),
            "key_file" => key = Some(beside.join(text(name, value)?)),
            _ => return Err(format!("`tls_server_config.{name}` is not supported")),
        }
    }
    let certificates = certificates.ok_or("`tls_server_config` has no cert_file")?;
    let key = key.ok_or("`tls_server_config` has no key_file")?;
    let contents = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let chain = CertificateDer::pem_slice_iter(&contents(&certificates)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("{}: {error}", certificates.display()))?;
    let secret = PrivateKeyDer::from_pem_slice(&contents(&key)?)
        .map_err(|error| format!("{}: {error}", key.display()))?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| format!("{}: {error}", certificates.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn users(value: &Yaml) -> Result<Users, String> {
    let listed = settings(Some(value), "basic_auth_users")?;
    let user = |(name, value): (&str, &Yaml)| Ok((name.to_owned(), text(name, value)?.to_owned()));
    Users::new(listed.into_iter().map(user).collect::<Result<_, String>>()?)
}
