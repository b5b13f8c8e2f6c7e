//! `makeroom diff`: compare the peaks of two runs.

use makeroom_diff::compare;
use makeroom_report::{diff_json, diff_text};

use crate::cli::Diff;
use crate::commands::profile;
use crate::failure::Failure;
use crate::output;

/// Runs `makeroom diff`.
pub(crate) fn run(arguments: &Diff) -> Result<(), Failure> {
    let before = profile::read(&arguments.before, arguments.device)?;
    let after = profile::read(&arguments.after, arguments.device)?;
    let difference = compare(&before, &after);
    if arguments.json {
        output::json(&diff_json(&difference))
    } else {
        output::result(&diff_text(&difference, output::columns(), arguments.verbose))
    }
}
