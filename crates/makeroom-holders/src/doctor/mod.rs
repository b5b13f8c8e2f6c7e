//! What can go wrong on this machine before anything runs, each with what to do about it.
//!
//! ```text
//! driver.rs       versions, pairs that do not work together, cards and their modes, MPS
//! host.rs         limits of host memory, shared memory between processes, the driver's files
//! libraries.rs    libraries that would be loaded in place of the driver's
//! allocators.rs   settings of allocators that contradict each other or are not read
//! packages.rs     which frameworks are installed, found by their folders: nothing is executed
//! ```
//!
//! Everything is read from [`Surroundings`], so that a test can be a machine.

mod allocators;
mod driver;
mod host;
mod libraries;
mod packages;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::survey::{Survey, SurveyError};

pub use packages::Packages;

/// What is examined besides the driver.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The environment that programs would get.
    pub environment: BTreeMap<String, String>,
    /// The directory that stands for `/`.
    pub root: PathBuf,
    /// The process file system: `/proc`, or where a container has the host's.
    pub proc: PathBuf,
}

impl Surroundings {
    /// This process's own, with `/proc` read from `proc`. Variables that are not text are left out.
    pub fn own(proc: PathBuf) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { environment, root: PathBuf::from("/"), proc }
    }

    /// A variable, if it is set to something.
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

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What: one of a few words that programs can rely on.
    pub subject: &'static str,
    /// How it stands.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do.
    pub fix: Option<String>,
}

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Programs will fail.
    Problem,
    /// Programs may fail, or not do what was asked of them.
    Warning,
    /// Good to know.
    Note,
    /// As it should be.
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
    /// Something that is as it should be, or good to know.
    pub fn new(subject: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { subject, verdict, found: found.into(), fix: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// Looks at everything; the worst first.
pub fn examine(survey: &Result<Survey, SurveyError>, surroundings: &Surroundings) -> Vec<Check> {
    let packages = Packages::find(surroundings);
    let mut checks = driver::check(survey, surroundings, &packages);
    checks.extend(libraries::check(surroundings));
    checks.extend(host::check(surroundings, survey.is_ok()));
    checks.extend(allocators::check(surroundings, &packages));
    checks.sort_by_key(|check| check.verdict);
    checks
}
