//! Error texts: find the failure in a log, read what it says, and judge it.
//!
//! ```text
//! log.rs       clean lines, told apart by writer
//! family.rs    the list of formats; families/ has one file each
//! find.rs      the first failure, the rest counted
//! call.rs      a program's own check of a CUDA call; site.rs has the line it names
//! context.rs   what else the log says: tables, device sizes, memory that grows
//! stream/      logs larger than memory: condensed to the lines that matter
//! judge/       arithmetic: facts in, findings out
//! ```

mod answer;
mod call;
mod context;
mod facts;
mod families;
mod family;
mod figures;
mod find;
mod fixes;
mod judge;
mod log;
mod site;
mod smi_table;
mod stream;

pub use answer::explain_text;
pub(crate) use figures::pattern;
pub(crate) use judge::{CONTEXT_CEILING, CONTEXT_TYPICAL};
pub use stream::TextReader;
