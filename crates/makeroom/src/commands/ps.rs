//! `makeroom ps`: shows which processes hold the memory of each GPU.

use std::process::ExitCode;

use makeroom_holders::require;
use makeroom_report::{ps_json, ps_text, users_text};

use crate::cli::Ps;
use crate::commands::looking;
use crate::failure::Failure;
use crate::output;

/// Runs `makeroom ps`.
pub(crate) fn run(arguments: &Ps) -> Result<ExitCode, Failure> {
    let account = looking::once(&arguments.looking)?.look();
    let requirement = arguments.require.map(|size| require(&account, size, arguments.device));
    let columns = output::columns();
    if arguments.json {
        output::json(&ps_json(&account, requirement.as_ref()))?;
    } else if account.driver.is_err() {
        output::result(&users_text(&account, columns))?;
    } else {
        output::result(&ps_text(&account, requirement.as_ref(), arguments.all, columns))?;
    }
    let is_met = requirement.is_none_or(|requirement| requirement.is_met());
    match account.driver {
        Err(error) => Err(Failure::Driver(error)),
        Ok(_) if is_met => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::FAILURE),
    }
}
