//! Import of `.room` recordings into the trace model.

mod failures;
mod files;
mod recording;
mod segments;
mod stream_order;
