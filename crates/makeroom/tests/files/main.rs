//! What `makeroom run` does when files, folders and descriptors are in trouble, or somebody else's.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../support/surroundings.rs"]
mod surroundings;

mod descriptors;
mod incomplete;
mod links;
mod outputs;
mod private;
mod stage;
mod temporary;
