//! Explains error texts: finds the failure in a log, reads what it says, and judges it.
//!
//! ```
//! use makeroom_explain::Cause;
//! use makeroom_text::explain_text;
//!
//! let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
//!     23.69 GiB of which 1.06 GiB is free. Including non-PyTorch memory, this process has 22.62 GiB memory in use. Of the \
//!     allocated memory 21.90 GiB is allocated by PyTorch, and 312.00 MiB is reserved by PyTorch but unallocated.";
//! let explanation = explain_text(text);
//! assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice);
//! assert!(!explanation.causes[0].fixes.is_empty());
//! ```
//!
//! ```text
//! log.rs            clean lines, grouped by writer; stream/ condenses logs that are larger than memory
//! boundaries.rs     offsets that do not split a character; searched.rs has the parts of a long text that are searched
//! facts.rs          what a text says, before anything is concluded from it; figures.rs reads sizes
//! lines.rs          what kind of line: a program's error or a person's sentence, handled or not
//! document.rs       whether an error is quoted in a guide, a changelog or a message with placeholders
//! discussion.rs     whether a text discusses memory: a request, a question, a change, release notes
//! family.rs         the list of formats; families/ has one file each
//! find.rs           the failure that decides, the rest counted; job.rs names the ranks
//! other_failure.rs  definite failures that are not about memory
//! call.rs           a program's own check of a CUDA call; site.rs has the line it names
//! context.rs        what else the log says: memory that grows, the program's line; batch.rs reads batch sizes in sentences
//! growth.rs         memory growth that a person reports without an error line
//! told.rs           a job that failed for lack of memory, told without an error line
//! told_sizes.rs     sizes that a person tells, set against the card; requests printed in bytes
//! identifiers.rs    names of branches, files and options that contain an error's words
//! placement.rs      whether the GPU or the machine ran out, where the error does not say
//! host_told.rs      host memory that the text names although the error reads like the GPU's
//! gpu_names.rs      the size of a GPU that a text only names; smi_table.rs reads tables of nvidia-smi
//! judge/            facts in, findings out, by the definitions of makeroom_explain::thresholds; undetermined.rs if they do
//!                   not decide
//! situation.rs      what advice depends on: settings.rs, environment.rs, language.rs, programs/
//! fixes.rs          steps for a cause: programs/ in a program's own options, else general_fixes.rs, torch_fixes.rs,
//!                   leak_fixes.rs, holders.rs (other processes), host_fixes.rs (host memory), smaller.rs (less data at
//!                   once), knobs.rs (the text's own settings), own_code.rs (programs that call the driver)
//! fitting.rs        drops steps that the version or operating system does not support; phases.rs adds those for loading and saving
//! cured.rs          what the text itself says that helped, given as its own first step
//! hypotheses.rs     possible causes of an open case, each with a check
//! answer.rs         combines all of it; recorded.rs adds a recording of the live memory
//! ```
#![forbid(unsafe_code)]

mod answer;
mod batch;
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
mod phases;
mod placement;
mod programs;
mod recorded;
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

pub use answer::explain_text;
pub use recorded::explain_text_with;
pub use stream::TextReader;
