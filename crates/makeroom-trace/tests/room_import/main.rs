//! Import of `.room` recordings into the trace model.

mod failures;
mod files;
mod recording;
#[path = "../support/rooms.rs"]
mod rooms;
mod segments;
mod stream_order;
