//! Folders and buckets, as one kind of thing: `object_store` for `s3://`, `gs://`, `az://` and `http(s)://`, and for local
//! folders.
//!
//! Credentials come from the environment that the programs of each cloud use, and stay in `object_store`. Error texts pass
//! through [`without_secrets`], because a signed URL is a credential too.

use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use makeroom_index::{Object, etag};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _, RetryConfig};
use url::Url;

use crate::failure::Failure;

/// Requests that fail are repeated this often, with growing pauses.
const RETRIES: usize = 6;
/// And no longer than this: credentials of a request expire.
const RETRY_SECONDS: u64 = 120;

/// A folder or a bucket, or a part of one.
#[derive(Clone)]
pub(crate) struct Location {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The part of the store.
    pub(crate) prefix: Path,
    /// What precedes the path of an object in its address: `s3://bucket`, or nothing for local files.
    base: String,
    /// Whether it is a local folder or file.
    is_local: bool,
    /// As the user wrote it, without secrets.
    pub(crate) name: String,
}

impl Location {
    /// Opens a folder or a URL. A folder that is written to is created.
    pub(crate) fn open(text: &str, is_created: bool) -> Result<Self, Failure> {
        let name = without_secrets(text);
        let Some((scheme, _)) = text.split_once("://").filter(|(scheme, _)| *scheme != "file") else {
            return Self::local(
                FilePath::new(text.strip_prefix("file://").unwrap_or(text)),
                name,
                is_created,
            );
        };
        let failed = |error: object_store::Error| Failure::store(&name, &error);
        let url = Url::parse(text).map_err(|_| Failure::Location { name: name.clone() })?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        let base = format!("{scheme}://{host}{port}");
        let path = Path::from_url_path(url.path()).map_err(|_| Failure::Location { name: name.clone() })?;
        let client = ClientOptions::new().with_allow_http(true).with_connect_timeout(Duration::from_secs(10));
        let (store, prefix): (Arc<dyn ObjectStore>, Path) = match scheme {
            "s3" | "s3a" => {
                let builder = AmazonS3Builder::from_env().with_url(text).with_retry(retry());
                (Arc::new(builder.build().map_err(failed)?), path)
            }
            "gs" => {
                let builder = GoogleCloudStorageBuilder::from_env().with_url(text).with_retry(retry());
                (Arc::new(builder.build().map_err(failed)?), path)
            }
            "az" | "azure" | "abfs" | "abfss" => {
                let builder = MicrosoftAzureBuilder::from_env().with_url(text).with_retry(retry());
                (Arc::new(builder.build().map_err(failed)?), path)
            }
            "http" | "https" => {
                let builder =
                    HttpBuilder::new().with_url(&base).with_client_options(client).with_retry(retry());
                (Arc::new(builder.build().map_err(failed)?), path)
            }
            _ => return Err(Failure::Location { name }),
        };
        Ok(Self { store, prefix, base, is_local: false, name })
    }

    fn local(folder: &FilePath, name: String, is_created: bool) -> Result<Self, Failure> {
        let failed = |error| Failure::Folder { name: name.clone(), error };
        if is_created {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let path = fs::canonicalize(folder).map_err(failed)?;
        // The store is the whole file system, so that a file can be named too.
        let store = LocalFileSystem::new();
        let prefix = Path::from_absolute_path(&path).map_err(|_| Failure::Location { name: name.clone() })?;
        Ok(Self { store: Arc::new(store), prefix, base: String::new(), is_local: true, name })
    }

    /// The path of an object below the location.
    pub(crate) fn child(&self, path: &str) -> Path {
        path.split('/').fold(self.prefix.clone(), Path::join)
    }

    /// The file of an object, if it is a local one.
    pub(crate) fn file(&self, path: &Path) -> Option<PathBuf> {
        self.is_local.then(|| LocalFileSystem::new().path_to_filesystem(path).ok()).flatten()
    }

    /// What the index says about an object.
    pub(crate) fn object(&self, meta: &ObjectMeta) -> Object {
        let modified_us = u64::try_from(meta.last_modified.timestamp_micros()).unwrap_or(0);
        let stored = meta.e_tag.as_deref().filter(|_| !self.is_local).map(quoted);
        let path = self
            .file(&meta.location)
            .map_or_else(|| format!("/{}", meta.location), |file| file.to_string_lossy().into_owned());
        Object {
            source: format!("{}{path}", self.base),
            size: meta.size,
            etag: stored.unwrap_or_else(|| etag(modified_us)),
            modified_us: Some(modified_us),
        }
    }

    /// An object as bytes; `None` if there is none.
    pub(crate) async fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Failure> {
        let failed = |error| Failure::store(&self.name, &error);
        match self.store.get(path).await {
            Ok(found) => Ok(Some(found.bytes().await.map_err(failed)?.to_vec())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes an object whole.
    pub(crate) async fn write(&self, path: &Path, bytes: Vec<u8>) -> Result<(), Failure> {
        let failed = |error| Failure::store(&self.name, &error);
        self.store.put(path, bytes.into()).await.map_err(failed)?;
        Ok(())
    }
}

/// An etag as responses have it. Listings of Azure have it without the quotes; with two forms, every object would be new.
fn quoted(etag: &str) -> String {
    if etag.ends_with('"') { etag.to_owned() } else { format!("\"{etag}\"") }
}

/// Whether an object is as it was listed. Some listings have no etags, and times of responses have whole seconds.
pub(crate) fn is_same(listed: &ObjectMeta, fetched: &ObjectMeta) -> bool {
    let is_same_version = match (&listed.e_tag, &fetched.e_tag) {
        (Some(listed), Some(fetched)) => quoted(listed) == quoted(fetched),
        _ => listed.last_modified.timestamp() == fetched.last_modified.timestamp(),
    };
    is_same_version && listed.size == fetched.size
}

fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: RETRIES,
        retry_timeout: Duration::from_secs(RETRY_SECONDS),
    }
}

/// A text without the parts of URLs that can be credentials (the user, the password and the query) and without the values of
/// variables that are credentials.
pub(crate) fn without_secrets(text: &str) -> String {
    const VARIABLES: [&str; 8] = [
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_CLIENT_SECRET",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
    ];
    let mut text = text.to_owned();
    for value in VARIABLES.iter().filter_map(|name| std::env::var(name).ok()) {
        if value.len() >= 8 {
            text = text.replace(&value, "…");
        }
    }
    let mut parts = text.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([' ', '"', '\'', '>', ')', '\n']).unwrap_or(part.len());
        let (url, rest) = part.split_at(end);
        let path = url.find(['/', '?']).unwrap_or(url.len());
        let host = url[..path].rfind('@').map_or(0, |at| at + 1);
        let query = url.find('?').unwrap_or(url.len());
        clean.push_str("://");
        clean.push_str(&url[host..query]);
        clean.push_str(if query < url.len() { "?…" } else { "" });
        clean.push_str(rest);
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_has_quotes() {
        let forms = ["0x8D1", "\"0x8D1\"", "W/\"0x8D1\""].map(quoted);
        assert_eq!(forms, ["\"0x8D1\"", "\"0x8D1\"", "W/\"0x8D1\""]);
    }

    #[test]
    fn a_listing_without_etags_is_compared_by_time() {
        let meta = |e_tag: Option<&str>, milliseconds: i64, size| ObjectMeta {
            location: Path::from("a.room"),
            last_modified: chrono::DateTime::from_timestamp_millis(milliseconds).unwrap_or_default(),
            size,
            e_tag: e_tag.map(str::to_owned),
            version: None,
        };
        let fetched = meta(Some("\"a\""), 7_000, 3);
        assert!(is_same(&meta(Some("a"), 9_999, 3), &fetched));
        assert!(is_same(&meta(None, 7_286, 3), &fetched));
        assert!(!is_same(&meta(Some("b"), 7_000, 3), &fetched));
        assert!(!is_same(&meta(None, 8_286, 3), &fetched));
        assert!(!is_same(&meta(None, 7_286, 4), &fetched));
    }

    #[test]
    fn secrets_of_urls_are_removed() {
        assert_eq!(
            without_secrets("GET https://me:pass@host/a?sig=secret failed; see az://box/key"),
            "GET https://host/a?… failed; see az://box/key"
        );
        assert_eq!(without_secrets("/local/folder"), "/local/folder");
        assert_eq!(without_secrets("http://host?token=1"), "http://host?…");
    }
}
