//! `makeroom diff`: compare two runs at their peaks, or where they failed.
//!
//! ```text
//! diff/source.rs   the run that a path stands for; also for `gate`
//! ```

pub(super) mod source;

use makeroom_diff::{Moment, compare};
use makeroom_report::{diff_json, diff_text};
use serde_json::json;

use crate::cli::Diff;
use crate::failure::Failure;
use crate::output;

/// Runs `makeroom diff`.
pub(crate) fn run(arguments: &Diff) -> Result<(), Failure> {
    let mut before = source::read(&arguments.before, arguments.device, Moment::Need)?;
    let mut after = source::read(&arguments.after, arguments.device, Moment::Need)?;
    source::narrow([&mut before, &mut after], arguments.device, Moment::Need);
    let difference = compare(&before.profile, &after.profile);
    if arguments.json {
        let mut value = diff_json(&difference);
        value["before"] = json!(before.name);
        value["after"] = json!(after.name);
        return output::json(&value);
    }
    let mut text = diff_text(&difference, output::columns(), arguments.verbose);
    for (side, source) in [("before", &before), ("after", &after)] {
        if source.is_chosen {
            text.push_str(&format!("  note: {side} is {}, which has the highest peak there\n", source.name));
        }
    }
    output::result(&text)
}
