//! Error texts and traces in; ledger, causes and fixes out, as data.
#![forbid(unsafe_code)]

mod cause;
mod explanation;
mod ledger;
mod text;

pub use cause::{Cause, Certainty};
pub use explanation::{Explanation, Finding, Fix, Growth, InputKind, InputSummary, Request, Site, Verdict};
pub use ledger::{Ledger, LedgerLine};
