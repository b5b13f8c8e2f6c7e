//! The data of the `makeroom view` page, as resources.
//!
//! The page gets its data by path, as JSON (`viewer/PROTOCOL.md` lists the paths). The server of `makeroom view` and
//! the self-contained report both use [`Viewer::answer`], so that nothing is computed differently. This crate reads
//! no files and opens no sockets; the command does.
//!
//! ```text
//! input.rs         one input: its verdict, its devices          timeline/   the history of a device
//! resources.rs     routes paths to responses                    series.rs, moment.rs, live.rs, rows.rs, sites.rs, groups.rs
//! stacks.rs        all stacks as a trie                         whatif.rs   other allocators, in the background
//! page.rs          the page itself                              report.rs   the page with embedded responses
//! capacity.rs      what a device can hold, and what others hold   alternative.rs  the recommended setting over time
//! job/             the page of `makeroom job`
//! http.rs          requests and responses: the token, other access checks, and the browser's restrictions
//! ```
#![forbid(unsafe_code)]

mod alternative;
mod capacity;
mod groups;
mod http;
mod input;
mod job;
mod live;
mod moment;
mod overview;
mod page;
mod report;
mod resources;
mod rows;
mod series;
mod sites;
mod stacks;
mod timeline;
mod viewer;
mod whatif;

pub use crate::http::{Access, respond};
pub use input::{Opened, OpenedInput};
pub use job::job_page;
pub use report::{Report, report};
pub use resources::Refusal;
pub use timeline::By as Layers;
pub use viewer::{Change, Host, Viewer};
