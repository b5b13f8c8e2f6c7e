//! Error texts: find the failure in a log, read what it says, and judge it.
//!
//! ```text
//! log.rs       clean lines, told apart by writer
//! family.rs    the list of formats; families/ has one file each
//! find.rs      the first failure, the rest counted
//! call.rs      a program's own check of a CUDA call; site.rs has the line it names
//! context.rs   what else the log says: tables, device sizes, memory that grows
//! judge/       arithmetic: facts in, findings out
//! ```

mod answer;
mod call;
mod context;
mod environment;
mod facts;
mod families;
mod family;
mod figures;
mod find;
mod fixes;
mod host_fixes;
mod hypotheses;
mod job;
mod judge;
mod lines;
mod log;
mod other_failure;
mod programs;
mod searched;
mod settings;
mod site;
mod situation;
mod smi_table;
mod undetermined;

pub use answer::explain_text;
pub(crate) use figures::pattern;
