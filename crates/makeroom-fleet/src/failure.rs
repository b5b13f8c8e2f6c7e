//! Errors that end a command: what failed, and a hint.

use std::io;

use makeroom_index::IndexError;

use crate::store::without_secrets;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{name} is not a folder or a URL that makeroom can read")]
    Location { name: String },
    #[error("cannot open {name}: {error}")]
    Folder { name: String, error: io::Error },
    #[error("{name}: {reason}")]
    Store { name: String, reason: String, is_access: bool },
    #[error("{name}: {error}")]
    Index { name: String, error: IndexError },
    #[error("{name} is not an index: it has no objects and no CURRENT")]
    NotAnIndex { name: String },
    #[error("the index has no job {job}")]
    NoJob { job: String, near: Vec<String> },
    #[error("another process is compacting {name}")]
    Compacting { name: String, lock: String },
    #[error("{text} is not a time: {reason}")]
    Time { text: String, reason: &'static str },
    #[error("cannot write {name}: {error}")]
    Write { name: String, error: io::Error },
    #[error("cannot write to stdout: {0}")]
    Output(#[from] io::Error),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("the result could not be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Failure {
    /// An error of a store, without secrets.
    pub(crate) fn store(name: &str, error: &object_store::Error) -> Self {
        use object_store::Error;
        let reason = reason(error);
        // Listings report a status only in their text, and a lack of credentials as a request to a metadata service.
        let signs = ["401 Unauthorized", "403 Forbidden", "169.254.169.254", "metadata.google", "credential"];
        let is_access = matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. })
            || signs.iter().any(|sign| reason.contains(sign));
        Self::Store { name: name.to_owned(), reason, is_access }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Location { .. } => {
                "pass a folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or an http(s) URL"
                    .to_owned()
            }
            Self::Store { is_access: true, name, .. } => {
                let variable = match name.split("://").next().unwrap_or_default() {
                    "gs" => "GOOGLE_SERVICE_ACCOUNT",
                    "az" | "azure" | "abfs" | "abfss" => "AZURE_STORAGE_ACCOUNT_KEY",
                    "http" | "https" => return Some("check that the server allows this request".to_owned()),
                    _ => "AWS_ACCESS_KEY_ID",
                };
                format!(
                    "check the credentials in the environment, for example {variable}; docs/fleet.md lists the variables"
                )
            }
            Self::NotAnIndex { name } => format!("create one: makeroom index SOURCE -o {name}"),
            Self::NoJob { near, .. } if !near.is_empty() => format!("the index has {}", near.join(", ")),
            Self::Compacting { lock, .. } => {
                format!("if no other makeroom index --compact is running, delete {lock}")
            }
            _ => return None,
        })
    }
}

/// An error of a store in one line, without secrets.
pub(crate) fn reason(error: &object_store::Error) -> String {
    let text = match error {
        // Its own text adds only the name of the store.
        object_store::Error::Generic { source, .. } => source.to_string(),
        error => error.to_string(),
    };
    let text = without_secrets(&text);
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > 300 {
        line = line.chars().take(300).chain(['…']).collect();
    }
    line
}
