//! Error texts: find the failure in a log, read what it says, and judge it.
//!
//! ```text
//! boundaries.rs     offsets that do not split a character
//! pattern/          regular expressions, compiled when a text may match
//! log.rs            clean lines, grouped by writer; stream/ condenses logs that are larger than memory
//! lines.rs          what kind of line: a program's error or a person's sentence, handled or not
//! document.rs       whether an error is quoted in a guide, a changelog or a message with placeholders
//! discussion.rs     whether a text discusses memory: a request, a question, a change, release notes
//! family.rs         the list of formats; families/ has one file each
//! find.rs           the failure that decides, the rest counted; job.rs names the ranks
//! other_failure.rs  definite failures that are not about memory
//! call.rs           a program's own check of a CUDA call; site.rs has the line it names
//! context.rs        what else the log says: memory that grows, the program's line
//! growth.rs         memory growth that a person reports without an error line
//! told.rs           a job that failed for lack of memory, told without an error line
//! told_sizes.rs     sizes that a person tells, set against the card; requests printed in bytes
//! identifiers.rs    names of branches, files and options that contain an error's words
//! placement.rs      whether the GPU or the machine ran out, where the error does not say
//! host_told.rs      host memory that the text names although the error reads like the GPU's
//! gpu_names.rs      the size of a GPU that a text only names
//! judge/            facts in, findings out, by the definitions of crate::thresholds
//! situation.rs      what advice depends on: settings.rs, environment.rs, language.rs, programs/
//! fixes.rs          steps for a cause: programs/ in a program's own options, else general_fixes.rs, torch_fixes.rs,
//!                   leak_fixes.rs, holders.rs (other processes), host_fixes.rs (host memory), smaller.rs (less data at
//!                   once), knobs.rs (the text's own settings), own_code.rs (programs that call the driver)
//! cured.rs          what the text itself says that helped, given as its own first step
//! hypotheses.rs     possible causes of an open case, each with a check
//! answer.rs         all of it put together
//! ```

mod answer;
mod boundaries;
mod call;
mod context;
mod cured;
mod discussion;
mod document;
mod environment;
mod facts;
mod families;
mod family;
mod figures;
mod find;
mod fitting;
mod fixes;
mod general_fixes;
mod gpu_names;
mod growth;
mod holders;
mod host_fixes;
mod host_told;
mod hypotheses;
mod identifiers;
mod job;
mod judge;
mod knobs;
mod language;
mod leak_fixes;
mod lines;
mod log;
mod other_failure;
mod own_code;
mod pattern;
mod phases;
mod placement;
mod programs;
mod searched;
mod settings;
mod site;
mod situation;
mod smaller;
mod smi_table;
mod stream;
mod told;
mod told_sizes;
mod torch_fixes;
mod undetermined;
mod word_set;

pub use answer::explain_text;
pub(crate) use figures::{mixed_pattern, pattern};
pub(crate) use pattern::Regex;
pub use stream::TextReader;
