//! Frames, which follow the first twelve bytes of a file.
//!
//! ```text
//!  0        4          8      9
//! ┌────────┬──────────┬──────┬─────────────────────────┐
//! │ length │ checksum │ kind │ payload: length bytes   │
//! └────────┴──────────┴──────┴─────────────────────────┘
//! ```
//!
//! The checksum covers kind and payload. A frame is either complete or ignored.

use super::checksum::checksum;
use super::header::Header;
use super::layout::{FRAME_HEAD, HEADER_FRAME, LONGEST_PAYLOAD, MAGIC, RECORDS_FRAME, VERSION};

/// Appends a batch of records as a frame. Returns false if the batch is too long for a frame, which no recorder
/// produces.
pub fn seal(batch: &[u8], output: &mut Vec<u8>) -> bool {
    seal_as(RECORDS_FRAME, batch, output)
}

/// The bytes before the payload, for writers that do not copy: they write this, then the batch.
pub fn frame_head(batch: &[u8]) -> Option<[u8; FRAME_HEAD]> {
    head(RECORDS_FRAME, batch)
}

/// The beginning of a file: everything before the first frame of records.
pub fn beginning(header: &Header) -> Vec<u8> {
    let mut output = Vec::from(MAGIC);
    output.extend_from_slice(&VERSION.to_le_bytes());
    seal_as(HEADER_FRAME, &header.encode(), &mut output);
    output
}

/// Appends a payload as a frame of any kind, such as an unknown one from a later version.
pub fn seal_as(kind: u8, payload: &[u8], output: &mut Vec<u8>) -> bool {
    let Some(head) = head(kind, payload) else { return false };
    output.extend_from_slice(&head);
    output.extend_from_slice(payload);
    true
}

fn head(kind: u8, payload: &[u8]) -> Option<[u8; FRAME_HEAD]> {
    let length = u32::try_from(payload.len()).ok().filter(|&length| length as usize <= LONGEST_PAYLOAD)?;
    let mut head = [0; FRAME_HEAD];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..8].copy_from_slice(&checksum(kind, payload).to_le_bytes());
    head[8] = kind;
    Some(head)
}
