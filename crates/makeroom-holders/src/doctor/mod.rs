//! Checks this machine for GPU memory problems, and suggests a fix for each.
//!
//! ```text
//! driver.rs       versions, incompatible combinations, GPUs and their modes, MPS
//! host.rs         limits on host memory, shared memory, the driver's device files
//! libraries.rs    libraries that would be loaded instead of the driver's
//! allocators.rs   allocator settings that conflict or have no effect
//! packages.rs     installed frameworks, found by directory name: nothing is executed
//! ```
//!
//! All input comes from [`Surroundings`], so that tests can simulate a machine.

mod allocators;
mod driver;
mod host;
mod libraries;
mod packages;

use std::path::PathBuf;

use crate::survey::{Survey, SurveyError};
use makeroom_core::SortCompact as _;
use makeroom_ordered::OrderedMap;

pub use packages::Packages;

/// The inputs of the checks, except for the driver.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The environment that programs would get.
    pub environment: OrderedMap<String, String>,
    /// The directory that stands for `/`.
    pub root: PathBuf,
    /// The process file system: `/proc`, or the mount of the host's `/proc` in a container.
    pub proc: PathBuf,
}

impl Surroundings {
    /// Those of this process, with `/proc` at `proc`. Variables that are not UTF-8 are skipped.
    pub fn own(proc: PathBuf) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { environment, root: PathBuf::from("/"), proc }
    }

    /// A variable, unless it is unset or blank.
    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    fn read(&self, below: &str) -> Option<String> {
        std::fs::read_to_string(self.path(below)).ok()
    }

    /// Reads a file below `/proc`.
    fn read_proc(&self, below: &str) -> Option<String> {
        std::fs::read_to_string(self.proc.join(below)).ok()
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The subject: one of a fixed set of words, part of the JSON contract.
    pub subject: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// The finding.
    pub found: String,
    /// The fix.
    pub fix: Option<String>,
}

/// The severity of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Programs will fail.
    Problem,
    /// Programs may fail, or a setting may not work as intended.
    Warning,
    /// Useful to know.
    Note,
    /// No problem.
    Good,
}

impl Verdict {
    /// The word in texts and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Warning => "warning",
            Self::Note => "note",
            Self::Good => "good",
        }
    }
}

impl Check {
    /// A result without a fix.
    pub fn new(subject: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { subject, verdict, found: found.into(), fix: None }
    }

    /// Adds a fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// Runs all checks. The worst results come first.
pub fn examine(survey: &Result<Survey, SurveyError>, surroundings: &Surroundings) -> Vec<Check> {
    let packages = Packages::find(surroundings);
    let mut checks = driver::check(survey, surroundings, &packages);
    checks.extend(libraries::check(surroundings));
    checks.extend(host::check(surroundings, survey.is_ok()));
    checks.extend(allocators::check(surroundings, &packages));
    checks.sort_compact_by_key(|check| check.verdict);
    checks
}
