//! `makeroom run` with files, directories and descriptors that are unusable or belong to others.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod descriptors;
mod incomplete;
mod links;
mod outputs;
mod private;
mod stage;
mod temporary;
