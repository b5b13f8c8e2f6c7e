//! Dask's workers and their budget of host memory.
//!
//! | line | wording |
//! |---|---|
//! | nanny | `distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting`, newer `Worker tcp://… (pid=…) exceeded 95% memory budget` |
//! | worker | `Process memory: 6.15 GB -- Worker memory limit: 8.45 GB`, after `Memory use is high`, `Unmanaged memory use is high` or `Worker is at 81% memory usage. Pausing worker.` |
//!
//! All of it is host memory. The nanny ends the worker; the worker's own lines are warnings.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::facts::{Facts, Resource, Severity};
use crate::text::family::Family;
use crate::text::figures::{captured_size, pattern};
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family { anchors: &["memory budget", "Worker memory limit:"], read };

static KILLED: LazyLock<Regex> = LazyLock::new(|| pattern(r"Worker.*exceeded \d+% memory budget"));
static USAGE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"Process memory: ([\d.]+) ?([KMGT]?i?B).*?Worker memory limit: ([\d.]+) ?([KMGT]?i?B)")
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let mut facts = Facts::new("dask", Resource::Host, passage);
    let summary = if KILLED.is_match(passage.line()) {
        "A Dask worker used up its budget of host memory and was restarted; the GPU is not involved."
            .to_owned()
    } else {
        let found = USAGE.captures(&passage.flat)?;
        facts.severity = Severity::Warning;
        let (used, limit) = (captured_size(&found, 1)?, captured_size(&found, 3)?);
        format!("A Dask worker uses {used} of the {limit} of host memory that it may use.")
    };
    facts.state(Cause::HostMemory, Certainty::Certain, summary);
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn a_killed_worker_ran_out_of_host_memory() {
        let facts =
            facts_in("distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting").unwrap();
        assert_eq!((facts.severity, facts.statements[0].cause), (Severity::Failure, Cause::HostMemory));
    }

    #[test]
    fn a_high_use_is_a_warning() {
        let facts = facts_in("distributed.worker - WARNING - Memory use is high but worker has no data to store to disk. Perhaps some other process is leaking memory? Process memory: 6.00 GB -- Worker memory limit: 8.00 GB").unwrap();
        assert_eq!(facts.severity, Severity::Warning);
    }
}
