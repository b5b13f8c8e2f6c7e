//! What the page of `makeroom view` shows, as answers to paths.
//!
//! Every picture of the page is made of resources: a path in, JSON out (`viewer/PROTOCOL.md` lists them). The server of a
//! running `makeroom view` and the self-contained report call the same function, [`Viewer::answer`]; nothing is
//! computed twice or differently. No file is read here and no socket is opened: the command does both.
//!
//! ```text
//! input.rs         one input: its verdict, its devices          timeline/   a device's history, ready to be asked
//! resources.rs     a path to its answer                         series.rs, moment.rs, live.rs, rows.rs, sites.rs
//! stacks.rs        all stacks as one trie                       whatif.rs   other allocators, in the background
//! page.rs          the page itself                              report.rs   the page with answers in it
//! http.rs          a request to its response: the token, other access checks, and what the browser may do with the page
//! ```
#![forbid(unsafe_code)]

mod http;
mod input;
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
pub use report::{Report, report};
pub use resources::Refusal;
pub use viewer::{Change, Host, Viewer};
