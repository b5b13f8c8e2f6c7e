//! Options after an allocator's name: `bfc:preallocate=false,fraction=0.5`.
//!
//! PyTorch's settings are not parsed here: they have the format of PyTorch's environment variable, with all its quirks.

use std::str::FromStr;

use makeroom_core::Bytes;

/// An invalid option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allocator option `{option}`: {reason}")]
pub struct OptionError {
    /// The option.
    pub option: String,
    /// Why it is invalid.
    pub reason: String,
}

impl OptionError {
    pub(crate) fn new(option: &str, reason: impl Into<String>) -> Self {
        Self { option: option.to_owned(), reason: reason.into() }
    }

    /// An option that the allocator does not have.
    pub(crate) fn unknown(option: &str, known: &str) -> Self {
        Self::new(option, format!("unknown option; {known}"))
    }
}

/// Splits a list of options into names and values.
pub(crate) fn entries(text: &str) -> impl Iterator<Item = Result<(&str, &str), OptionError>> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(|entry| {
        let (name, value) = entry
            .split_once('=')
            .ok_or_else(|| OptionError::new(entry, "missing value; write options as `name=value`"))?;
        Ok((name.trim(), value.trim()))
    })
}

pub(crate) fn boolean(name: &str, value: &str) -> Result<bool, OptionError> {
    value.parse().map_err(|_| OptionError::new(name, format!("`{value}` is neither `true` nor `false`")))
}

/// A share above 0 and at most 1.
pub(crate) fn share(name: &str, value: &str) -> Result<f64, OptionError> {
    let share = value.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| OptionError::new(name, format!("`{value}` is not a number above 0 and at most 1")))
}

pub(crate) fn size(name: &str, value: &str) -> Result<u64, OptionError> {
    let size = Bytes::from_str(value).map_err(|error| OptionError::new(name, error.to_string()))?;
    Ok(size.get())
}
